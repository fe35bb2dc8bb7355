"""What an ELF program asks of the machine it runs on, read from its dynamic section: libraries and symbol versions.

elf_needs.py FILE prints them. Reads the file itself, so it needs no binutils and no matching architecture (64-bit,
little-endian only).
"""

import struct
import sys

DT_NEEDED, DT_STRTAB, DT_VERNEED, DT_VERNEEDNUM, DT_RPATH, DT_RUNPATH = 1, 5, 0x6FFFFFFE, 0x6FFFFFFF, 15, 29
PT_LOAD, PT_DYNAMIC, PT_INTERP = 1, 2, 3


class Needs:
    """libraries: set of names; versions: {library: set of version names}; interpreter; run_paths."""

    def __init__(self, path):
        with open(path, "rb") as file:
            self._data = file.read()
        data = self._data
        if data[:6] != b"\x7fELF\x02\x01":
            raise ValueError(f"{path}: not a 64-bit little-endian ELF file")
        offset, = struct.unpack_from("<Q", data, 32)
        size, count = struct.unpack_from("<HH", data, 54)
        self._loads, dynamic, self.interpreter = [], None, None
        for i in range(count):
            kind, _, at, address, _, length = struct.unpack_from("<IIQQQQ", data, offset + i * size)
            if kind == PT_LOAD:
                self._loads.append((address, at, length))
            elif kind == PT_DYNAMIC:
                dynamic = (at, length)
            elif kind == PT_INTERP:
                self.interpreter = data[at: at + length].rstrip(b"\0").decode()
        self.libraries, self.versions, self.run_paths = set(), {}, set()
        if dynamic is None:
            return  # a static program needs nothing
        entries = [struct.unpack_from("<qQ", data, dynamic[0] + i) for i in range(0, dynamic[1], 16)]
        value = dict(reversed(entries))
        self._strings = self._at(value[DT_STRTAB])
        self.libraries = {self._text(v) for tag, v in entries if tag == DT_NEEDED}
        self.run_paths = {self._text(v) for tag, v in entries if tag in (DT_RPATH, DT_RUNPATH)}
        if DT_VERNEED in value:
            self._read_versions(self._at(value[DT_VERNEED]), value[DT_VERNEEDNUM])

    def _at(self, address):
        for start, offset, length in self._loads:
            if start <= address < start + length:
                return offset + address - start
        raise ValueError(f"address {address:#x} is in no loaded segment")

    def _text(self, index):
        start = self._strings + index
        return self._data[start: self._data.index(b"\0", start)].decode()

    def _read_versions(self, at, count):
        for _ in range(count):
            _, names, library, first, following = struct.unpack_from("<HHIII", self._data, at)
            wanted = self.versions.setdefault(self._text(library), set())
            name_at = at + first
            for _ in range(names):
                _, _, _, name, step = struct.unpack_from("<IHHII", self._data, name_at)
                wanted.add(self._text(name))
                name_at += step
            at += following


ALLOWED_LIBRARIES = {"libc.so.6", "libm.so.6", "libgcc_s.so.1", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}
NEWEST_GLIBC = (2, 34)


def objections(needs):
    """Why this program would not run on a node with glibc 2.34 and nothing else; empty when it would."""
    found = [f"needs {name}" for name in sorted(needs.libraries - ALLOWED_LIBRARIES)]
    found += [f"has run path {path}" for path in sorted(needs.run_paths)]
    for library, names in sorted(needs.versions.items()):
        for name in sorted(names):
            if name.startswith("GLIBC_"):
                version = tuple(int(part) for part in name[6:].split(".") if part.isdigit())
                if version > NEWEST_GLIBC or name == "GLIBC_ABI_DT_RELR":
                    found.append(f"needs {name} of {library}")
    return found


if __name__ == "__main__":
    info = Needs(sys.argv[1])
    print("interpreter", info.interpreter)
    for one in sorted(info.libraries):
        print("library", one, *sorted(info.versions.get(one, ())))
    for line in objections(info):
        print("objection:", line)
