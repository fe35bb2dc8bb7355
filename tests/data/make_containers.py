#!/usr/bin/env python3
"""Writes containers/: tar files by Python's tarfile in its three formats, an LMDB by Python's lmdb in KAIR's layout, an
HDF5 file by h5py, and expected.json with the names, sizes and FNV-1a sums of what is in them. Needs: lmdb h5py pillow
numpy. The files are committed, since the project itself needs none of these packages."""
import io
import json
import pathlib
import shutil
import tarfile

import h5py
import lmdb
import numpy as np
from PIL import Image

here = pathlib.Path(__file__).parent / "containers"
shutil.rmtree(here, ignore_errors=True)
here.mkdir()


def fnv(data):
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return f"{value:016x}"


def png(level, size=8, noise=False):
    rgb = np.full((size, size, 3), level, np.uint8)
    if noise:
        rgb = np.random.default_rng(level).integers(0, 256, (size, size, 3), np.uint8)
        rgb[0, 0] = level
    out = io.BytesIO()
    Image.fromarray(rgb).save(out, "PNG", compress_level=1)
    return out.getvalue()


expected = {}
members = [("000000.png", png(10)), ("000000.json", b'{"a": 1}'), ("000001.png", png(11)), ("000001.cls", b"7"),
           ("deep/" + "long-" * 30 + "/000002.png", png(12)), ("000003.f10.png", png(23)), ("000003.f2.png", png(22)),
           ("notes.txt", b"no picture"), ("empty.png", b"")]
for name, form in {"ustar": tarfile.USTAR_FORMAT, "gnu": tarfile.GNU_FORMAT, "pax": tarfile.PAX_FORMAT}.items():
    with tarfile.open(here / f"{name}.tar", "w", format=form) as tar:
        folder = tarfile.TarInfo("deep")
        folder.type = tarfile.DIRTYPE
        tar.addfile(folder)
        for member, data in members:
            info = tarfile.TarInfo(member)
            info.size = len(data)
            if name == "pax":
                info.pax_headers = {"comment": "ä ö", "mtime": "1.5"}
            tar.addfile(info, io.BytesIO(data))
    expected[name] = [[member, len(data), fnv(data)] for member, data in members]

values = {f"{clip:03d}/{frame:08d}": png(clip * 20 + frame, 40 if frame == 7 else 8, frame == 7)
          for clip in range(12) for frame in range(20)}
env = lmdb.open(str(here / "kair.lmdb"), map_size=1 << 24)
with env.begin(write=True) as txn:  # a first state that the second transaction changes: pages are freed and reused
    for key in values:
        txn.put(key.encode(), b"old")
with env.begin(write=True) as txn:
    for key, value in values.items():
        txn.put(key.encode(), value)
    txn.put(b"gone", b"x")
    txn.delete(b"gone")
env.close()
(here / "kair.lmdb" / "lock.mdb").unlink()
env = lmdb.open(str(here / "kair.lmdb"), readonly=True, lock=False)
with env.begin() as txn:
    expected["lmdb"] = [[key.decode(), len(value), fnv(value)] for key, value in txn.cursor()]
env.close()
env = lmdb.open(str(here / "empty.lmdb"), map_size=1 << 20)
env.close()
(here / "empty.lmdb" / "lock.mdb").unlink()

with h5py.File(here / "rows.h5", "w") as file:
    clips = np.arange(5 * 4 * 6 * 8 * 3, dtype=np.int64).reshape(5, 4, 6, 8, 3) % 251
    file.create_dataset("frames", data=clips.astype(np.uint8), chunks=(1, 2, 6, 8, 3), compression="gzip", shuffle=True)
    file.create_dataset("inside/planes", data=clips.astype(np.uint8).transpose(0, 1, 4, 2, 3).copy())
    file.create_dataset("action", data=np.array([3, -1, 2, 0, 7], np.int16))
    file.create_dataset("pose", data=np.linspace(0, 1, 15, dtype=">f4").reshape(5, 3))
    file.create_dataset("wide", data=np.zeros((5, 2), np.float64))
    file.create_dataset("names", data=["a", "b", "c", "d", "e"])
    file.create_dataset("scalar", data=1)
(here / "expected.json").write_text(json.dumps(expected, indent=0) + "\n")
