#!/usr/bin/env python3
"""How each source file is compiled, one entry for each: in build/<tree>/compile_commands.json the files of a batch
(LOCKSTEP_UNITY) are one entry. clang-tidy and editors want to see a file alone.

    python3 cmake/compile_commands.py [build/release]       writes build/compile_commands.json, where clangd looks
"""

import json
import pathlib
import re
import sys

BATCH = re.compile(r"/Unity/unity_\d+_cxx\.cxx$")
INCLUDE = re.compile(r'^#include "(.+)"$', re.M)


def alone(database):
    """The entries of a compile_commands.json, batches taken apart."""
    for entry in json.loads(pathlib.Path(database).read_text()):
        batch = entry["file"]
        if not BATCH.search(batch):
            yield entry
            continue
        for file in INCLUDE.findall(pathlib.Path(batch).read_text()):
            yield {"directory": entry["directory"], "file": file,
                   "command": entry["command"].removesuffix(f"-c {batch}") + f"-c {file}"}


def main():
    root = pathlib.Path(__file__).resolve().parents[1]
    tree = pathlib.Path(sys.argv[1]) if sys.argv[1:] else root / "build" / "release"
    entries = list(alone(tree / "compile_commands.json"))
    (root / "build" / "compile_commands.json").write_text(json.dumps(entries, indent=1))
    print(f"build/compile_commands.json: {len(entries)} files")


if __name__ == "__main__":
    main()
