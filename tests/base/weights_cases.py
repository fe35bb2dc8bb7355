"""Weights files for the tests of base/safetensors, base/torch_file and base/weights, made by the real writers.

    weights_cases.py torch FOLDER       torch.save files of many kinds; beside each X.pt the same tensors, flat and dense, in X.safetensors
    weights_cases.py hostile FOLDER     files that try something; no torch needed
    weights_cases.py safetensors FOLDER one file by Python's safetensors
    weights_cases.py check FILE ...     reads files with Python's safetensors; prints name, dtype, shape, sum of bytes
"""

import collections
import os
import pathlib
import pickle
import struct
import sys
import zipfile


def torch_files(folder):
    import torch
    from safetensors.torch import save_file

    torch.manual_seed(1)

    def flat(value, name=""):
        if isinstance(value, torch.Tensor):
            return {name or "tensor": value.detach().contiguous().clone()}
        out = {}
        if isinstance(value, dict):
            for key, item in value.items():
                out.update(flat(item, f"{name}.{key}" if name else str(key)))
        elif isinstance(value, (list, tuple)):
            for at, item in enumerate(value):
                out.update(flat(item, f"{name}.{at}" if name else str(at)))
        return out

    def write(stem, value, **options):
        torch.save(value, folder / f"{stem}.pt", **options)
        save_file(flat(value), folder / f"{stem}.safetensors")

    types = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8,
             torch.uint8, torch.bool]
    rare = [torch.complex64, torch.uint16, torch.uint32, torch.uint64, torch.float8_e4m3fn, torch.float8_e5m2]
    every = {str(t): (torch.rand(5, 3) * 100).to(t) for t in types}
    for protocol in (2, 3, 4, 5):
        write(f"protocol{protocol}", {"state_dict": every, "epoch": 7, "lr": 1e-4, "name": "taehv", "done": False,
                                      "none": None, "long": 2**40, "negative": -5, "betas": (0.9, 0.999)}, pickle_protocol=protocol)
    torch.save({str(t): (torch.rand(4) * 10).to(t) for t in rare}, folder / "rare.pt")
    save_file({str(t): v for t, v in torch.load(folder / "rare.pt").items()}, folder / "rare.safetensors")

    model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.Linear(8, 2))
    write("module", model.state_dict())  # an OrderedDict with attributes
    optimizer = torch.optim.AdamW(model.parameters())
    model[0](torch.rand(1, 3, 8, 8)).sum().backward()
    optimizer.step()
    write("training", {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": 1})
    write("parameters", {"weight": torch.nn.Parameter(torch.rand(3, 4)), "frozen": torch.nn.Parameter(torch.rand(2), requires_grad=False)})

    base = torch.arange(120, dtype=torch.float32).reshape(4, 5, 6)
    shared = torch.rand(7, 3)
    write("views", {"base": base, "transposed": base.transpose(0, 2), "row": base[2], "column": base[:, 1, 3], "every_other": base[::2, ::3],
                    "expanded": base[0, 0].expand(3, 6), "scalar": base[3, 4, 5], "empty": base[:0], "tail": base[1:],
                    "tied": {"a": shared, "b": shared, "c": shared.t()}})
    write("bare", torch.arange(6, dtype=torch.int16).reshape(2, 3))
    write("list", [torch.ones(2), {"x": torch.zeros(3)}, (torch.full((1,), 5.0),)])
    write("empty", {})
    torch.serialization.set_crc32_options(False)
    write("nocrc", {"w": torch.rand(1000)})
    torch.serialization.set_crc32_options(True)
    torch.save({"w": torch.ones(3)}, folder / "legacy.refused", _use_new_zipfile_serialization=False)
    torch.save(model, folder / "whole_model.refused")
    torch.jit.save(torch.jit.script(torch.nn.Linear(2, 2)), folder / "script.refused")
    torch.save({"w": torch.rand(4, 4).to_sparse()}, folder / "sparse.refused")
    with zipfile.ZipFile(folder / "views.pt") as old, zipfile.ZipFile(folder / "big_endian.refused", "w") as new:
        for info in old.infolist():
            new.writestr(info.filename, b"big" if info.filename.endswith("byteorder") else old.read(info))
    with zipfile.ZipFile(folder / "views.pt") as old, zipfile.ZipFile(folder / "deflated.refused", "w", zipfile.ZIP_DEFLATED) as new:
        for info in old.infolist():
            new.writestr(info.filename, old.read(info))


class Call:
    def __init__(self, function, *arguments):
        self.what = (function, arguments)

    def __reduce__(self):
        return self.what


class Plain:
    def __init__(self):
        self.x = 1


def archive(path, data, storages=(), compression=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path, "w", compression) as out:
        out.writestr("archive/data.pkl", data)
        out.writestr("archive/byteorder", "little")
        for key, value in storages:
            out.writestr(f"archive/data/{key}", value)


def tensor_pickle(shape, strides, offset=0, count=4, storage=b"ctorch\nFloatStorage\n", key="0"):
    """What torch.save writes for {"w": tensor}, by hand."""
    def number(value):
        return b"\x8a\x08" + struct.pack("<q", value)

    def text(value):
        return b"X" + struct.pack("<I", len(value)) + value.encode()
    numbers = lambda values: b"(" + b"".join(number(v) for v in values) + b"t"
    identity = b"(" + text("storage") + storage + text(key) + text("cpu") + number(count) + b"tQ"
    return (b"\x80\x02}" + text("w") + b"ctorch._utils\n_rebuild_tensor_v2\n(" + identity + number(offset) + numbers(shape) +
            numbers(strides) + b"\x89ccollections\nOrderedDict\n)RtRs.")


def hostile_files(folder):
    mark = folder / "executed"
    command = f"touch {mark}"
    archive(folder / "os.system", pickle.dumps({"w": Call(os.system, command)}))
    archive(folder / "builtins.eval", pickle.dumps({"w": Call(eval, f"open({str(mark)!r}, 'w')")}, protocol=4))
    archive(folder / "builtins.exec", pickle.dumps(Call(exec, f"open({str(mark)!r}, 'w')"), protocol=5))
    archive(folder / "builtins.getattr", pickle.dumps({"w": Call(getattr, "x", "upper")}))
    archive(folder / "__main__.Plain", pickle.dumps({"w": Plain()}))
    archive(folder / "datetime.date", pickle.dumps({"w": __import__("datetime").date(2020, 1, 1)}, protocol=4))
    archive(folder / "numpy.scalar", b"\x80\x02cnumpy.core.multiarray\nscalar\n.")
    archive(folder / "inst", b"(iposix\nsystem\n.")
    archive(folder / "obj", b"\x80\x02(cposix\nsystem\no.")
    archive(folder / "ext", b"\x80\x02\x82\x01.")
    archive(folder / "set", pickle.dumps({"w": {1, 2}}, protocol=4))
    archive(folder / "build_on_dict", b"\x80\x02}}b.")
    archive(folder / "call_of_text", b"\x80\x02U\x01x)R.")

    archive(folder / "good", tensor_pickle([2, 2], [2, 1]), [("0", struct.pack("<4f", 1, 2, 3, 4))])
    data = [("0", bytes(16))]
    for name, arguments in {
            "past_the_storage": ([3, 2], [2, 1]), "huge_shape": ([2**62, 2], [2, 1]), "overflowing_shape": ([2**33, 2**33], [0, 0]),
            "huge_stride": ([2, 2], [2**62, 2**62]), "negative_shape": ([-2, 2], [2, 1]), "negative_stride": ([2, 2], [-2, 1]),
            "expanded_to_a_terabyte": ([2**38], [0]), "rank_differs": ([2, 2], [2])}.items():
        archive(folder / name, tensor_pickle(*arguments), data)
    archive(folder / "negative_offset", tensor_pickle([1], [1], offset=-1), data)
    archive(folder / "offset_behind", tensor_pickle([1], [1], offset=4), data)
    archive(folder / "storage_too_short", tensor_pickle([2, 2], [2, 1], count=2**60), data)
    archive(folder / "storage_missing", tensor_pickle([2, 2], [2, 1], key="7"), data)
    archive(folder / "storage_path", tensor_pickle([2, 2], [2, 1], key="../data.pkl"), data)
    archive(folder / "storage_unknown", tensor_pickle([2, 2], [2, 1], storage=b"ctorch\nQInt8Storage\n"), data)

    archive(folder / "deep", b"\x80\x02" + b"]" * 500000 + b"a" * 499999 + b".")
    archive(folder / "cycle", b"\x80\x02]q\x00h\x00a.")
    laughs = b"\x80\x02]q\x00"
    for level in range(40):
        laughs += b"](" + b"h" + bytes([level]) + b"h" + bytes([level]) + b"eq" + bytes([level + 1])
    archive(folder / "billion_laughs", laughs + b".")
    archive(folder / "long_text", b"\x80\x02X\xff\xff\xff\xff.")
    archive(folder / "long_text8", b"\x80\x04\x8d" + b"\xff" * 8 + b".")
    archive(folder / "long_number", b"\x80\x02\x8b\xff\xff\xff\xff.")
    archive(folder / "wide_number", b"\x80\x02\x8a\x10" + b"\x11" * 16 + b".")
    archive(folder / "no_stop", b"\x80\x02}")
    archive(folder / "empty_stack", b"\x80\x02.")
    archive(folder / "no_mark", b"\x80\x02e.")
    archive(folder / "no_memo", b"\x80\x02h\x09.")
    archive(folder / "key_is_list", b"\x80\x02}]Ns.")
    archive(folder / "same_name_twice", b"\x80\x02}(U\x01a" + tensor_pickle([1], [1])[2:-1] + b"U\x03a.w" + tensor_pickle([1], [1])[8:-2] + b"u.", data)

    good = (folder / "good").read_bytes()

    def patched(name, edit):
        changed = bytearray(good)
        edit(changed)
        (folder / name).write_bytes(changed)

    central = good.index(b"PK\x01\x02")
    end = good.rindex(b"PK\x05\x06")
    last = good.rindex(b"PK\x01\x02")

    def put(at, fmt, value):
        return lambda b: struct.pack_into(fmt, b, at, value)
    patched("zip_local_offset", put(central + 42, "<I", 7))
    patched("zip_local_far", put(central + 42, "<I", 0x7fffffff))
    patched("zip_overlap", put(last + 42, "<I", 0))
    patched("zip_size", put(central + 24, "<I", 0x7ffffff0))
    patched("zip_encrypted", put(central + 8, "<H", 1))
    patched("zip_directory_offset", put(end + 16, "<I", 0x7fffffff))
    patched("zip_directory_size", put(end + 12, "<I", 0x7fffffff))
    patched("zip_count", put(end + 10, "<H", 60000))
    patched("zip_needs_zip64", put(end + 16, "<I", 0xffffffff))
    patched("zip_crc", lambda b: b.__setitem__(good.index(struct.pack("<4f", 1, 2, 3, 4)), 0x55))
    # The same archive as zip64: the last entry's sizes and offset and the directory's place are in 64-bit fields only.
    size, offset = struct.unpack_from("<I", good, last + 24)[0], struct.unpack_from("<I", good, last + 42)[0]
    entry = bytearray(good[last:end])
    struct.pack_into("<II", entry, 20, 0xffffffff, 0xffffffff)
    struct.pack_into("<I", entry, 42, 0xffffffff)
    struct.pack_into("<H", entry, 30, 28)
    directory = good[central:last] + bytes(entry) + struct.pack("<HHQQQ", 1, 24, size, size, offset)
    count = struct.unpack_from("<H", good, end + 10)[0]
    record = struct.pack("<4sQHHIIQQQQ", b"PK\x06\x06", 44, 45, 45, 0, 0, count, count, len(directory), central)
    locator = struct.pack("<4sIQI", b"PK\x06\x07", 0, central + len(directory), 1)
    tail = struct.pack("<4sHHHHIIH", b"PK\x05\x06", 0, 0, 0xffff, 0xffff, 0xffffffff, 0xffffffff, 0)
    (folder / "good64").write_bytes(good[:central] + directory + record + locator + tail)
    (folder / "zip_far_record").write_bytes(good[:central] + directory + record + struct.pack("<4sIQI", b"PK\x06\x07", 0, 2**63, 1) + tail)
    (folder / "zip_truncated").write_bytes(good[:len(good) // 2])
    (folder / "zip_no_tail").write_bytes(good[:-30])
    with zipfile.ZipFile(folder / "zip_other", "w") as out:
        out.writestr("a.txt", "not torch")
    with zipfile.ZipFile(folder / "zip_two_pickles", "w") as out:
        out.writestr("a/data.pkl", b"\x80\x02}.")
        out.writestr("b/data.pkl", b"\x80\x02}.")
    (folder / "lfs").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n")
    (folder / "page").write_text("<!DOCTYPE html><title>404</title>")
    (folder / "bare_pickle").write_bytes(pickle.dumps({"w": Call(os.system, command)}))
    (folder / "noise").write_bytes(bytes(range(256)) * 4)
    (folder / "nothing").write_bytes(b"")


def safetensors_file(folder):
    import numpy
    from safetensors.numpy import save_file
    save_file({"matrix": numpy.arange(12, dtype=numpy.float32).reshape(3, 4), "scalar": numpy.array(2.5, dtype=numpy.float64),
               "empty": numpy.zeros((0, 3), dtype=numpy.int16), "flags": numpy.array([True, False, True]),
               "näme \"quoted\"": numpy.arange(3, dtype=numpy.uint8)}, folder / "python.safetensors", metadata={"format": "np", "by": "python"})


def check(paths):
    from safetensors import safe_open
    for path in paths:
        with safe_open(path, framework="pt") as file:
            for name in sorted(file.keys()):
                tensor = file.get_tensor(name).contiguous()
                import torch
                total = int(tensor.flatten().view(torch.uint8).to(torch.int64).sum()) if tensor.numel() else 0
                print(name, str(tensor.dtype), list(tensor.shape), total)
            print("metadata", sorted((file.metadata() or {}).items()))


if __name__ == "__main__":
    what, *rest = sys.argv[1:]
    if what == "check":
        check(rest)
    else:
        {"torch": torch_files, "hostile": hostile_files, "safetensors": safetensors_file}[what](pathlib.Path(rest[0]))
