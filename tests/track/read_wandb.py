"""The records of a .wandb file through wandb's own message classes, as JSON lines on stdout. The framing is read here: since
0.31 wandb has a reader in its Go program alone, which test_trackers.py runs.

    python read_wandb.py FILE
"""

import importlib
import importlib.util
import json
import pathlib
import sys
import types
import zlib

import google.protobuf
from google.protobuf import json_format

# wandb's own __init__ takes seconds and is not needed for its messages.
package = pathlib.Path(importlib.util.find_spec("wandb").origin).parent
for name, folder in (("wandb", package), ("wandb.proto", package / "proto")):
    module = types.ModuleType(name)
    module.__path__ = [str(folder)]
    sys.modules[name] = module
messages = importlib.import_module(f"wandb.proto.v{google.protobuf.__version__.split('.')[0]}.wandb_internal_pb2")

data = pathlib.Path(sys.argv[1]).read_bytes()
assert data[:7] == b":W&B\xe1\xbe\x00", data[:7]
at, record = 7, b""
while at < len(data):
    if 32768 - at % 32768 < 7:
        at += 32768 - at % 32768
        continue
    crc, size, kind = int.from_bytes(data[at:at + 4], "little"), int.from_bytes(data[at + 4:at + 6], "little"), data[at + 6]
    chunk = data[at + 7:at + 7 + size]
    if len(chunk) < size:
        break  # the torn tail of a killed writer
    assert zlib.crc32(bytes([kind]) + chunk) == crc, at
    record += chunk
    at += 7 + size
    if kind in (1, 4):
        message = messages.Record()
        message.ParseFromString(record)
        assert message.WhichOneof("record_type"), record
        print(json.dumps(json_format.MessageToDict(message, preserving_proto_field_name=True)))
        record = b""
