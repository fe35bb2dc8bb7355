"""The table "The house" of docs/architecture.md, as the compiler sees it: a folder sees the headers of its row and no
others, and its row names only what its code includes."""

import pathlib
import re
import shlex
import subprocess
import sys

import harness

sys.path.insert(0, str(harness.ROOT / "cmake"))
import compile_commands  # noqa: E402

SRC = harness.ROOT / "src"
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.M)


def rows():
    """folder -> folders it may use, from the page."""
    page = (SRC.parent / "docs" / "architecture.md").read_text()
    table = page[page.index("| folder |"):]
    found = {}
    for line in table.splitlines()[2:]:
        cells = re.match(r"\| `([a-z]+)/` \|.*\| ([a-z -]+) \|$", line)
        if not cells:
            break
        found[cells[1]] = set() if cells[2] == "-" else set(cells[2].split())
    return found


def folder_of(path):
    return path.split("/")[0]


def reached(files):
    """The project headers these files include, directly or not."""
    seen, ahead = set(), list(files)
    while ahead:
        for name in INCLUDE.findall((SRC / ahead.pop()).read_text()):
            if name not in seen and (SRC / name).is_file():
                seen.add(name)
                ahead.append(name)
    return seen


def entries():
    return compile_commands.alone(harness.BIN.parent / "compile_commands.json")


def commands():
    """folder -> the include flags and the compiler of one of its files, from the build."""
    found = {}
    for entry in entries():
        file = pathlib.Path(entry["file"])
        if SRC in file.parents and file.parent.parent == SRC:
            words = shlex.split(entry["command"])
            roots = [w for w in words if w.startswith("-I") and "/roots/" in w]
            compiler = next(w for w in words if re.search(r"(clang\+\+|g\+\+|c\+\+)[-\d.]*$", w))
            found.setdefault(file.parent.name, (compiler, roots))
    return found


class House(harness.Case):
    TOGETHER = True

    def test_a_folder_sees_its_row_and_itself(self):
        table, built = rows(), commands()
        self.assertEqual(set(table), {p.name for p in SRC.iterdir() if p.is_dir()})
        headers = {f: sorted((SRC / f).glob("*.h"))[0] for f in table}
        source = "\n".join(f'#if __has_include("{f}/{h.name}")\nSEES {f}\n#endif' for f, h in headers.items())
        for folder, allowed in table.items():
            if folder == "cli":
                continue
            compiler, roots = built[folder]
            done = subprocess.run([compiler, "-E", "-P", "-x", "c++", "-", *roots], input=source, capture_output=True,
                                  text=True, check=True)
            self.assertEqual(set(re.findall(r"SEES (\w+)", done.stdout)), allowed | {folder}, folder)

    def test_every_file_has_a_command_of_its_own(self):
        seen = {entry["file"] for entry in entries() if entry["command"].endswith(f"-c {entry['file']}")}
        missing = [str(p) for p in SRC.rglob("*.cc") if str(p) not in seen]
        self.assertEqual(missing, [])

    def test_a_forbidden_include_does_not_compile(self):
        compiler, roots = commands()["record"]
        for header, compiles in ("base/status.h", True), ("launch/plan.h", False):
            done = subprocess.run([compiler, "-std=c++20", "-fsyntax-only", "-x", "c++", "-", *roots],
                                  input=f'#include "{header}"\n', capture_output=True, text=True)
            self.assertEqual(done.returncode == 0, compiles, done.stderr)
            self.assertEqual("file not found" in done.stderr or "No such file" in done.stderr, not compiles)

    def test_a_row_names_only_what_is_included(self):
        for folder, allowed in rows().items():
            if folder == "cli":
                continue
            files = [str(p.relative_to(SRC)) for p in (SRC / folder).rglob("*") if p.suffix in (".cc", ".h")]
            self.assertEqual({folder_of(name) for name in reached(files)} - {folder}, allowed, folder)

    def test_tensors_give_untyped_pointers_to_constants(self):
        """Packages of torch 2.11 have the typed ones under a name that clang does not write: it compiles and does not link."""
        typed = [str(p.relative_to(SRC)) for p in SRC.rglob("*.cc") if "const_data_ptr<" in p.read_text()]
        self.assertEqual(typed, [])
