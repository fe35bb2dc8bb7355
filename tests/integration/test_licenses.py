"""Notices are complete: what is linked or compiled into the programs is what `--licenses` names, with its full text."""

import pathlib
import re
import subprocess

import harness

TREE = harness.BIN.parent / "release" if harness.BIN.parent.name == "build" else harness.BIN.parent
PRINTS = {"lockstep": ("version", "--licenses"), "lockstep-train": ("train", "--licenses")}


def packages_of(paths):
    """{path: the Debian package it belongs to, empty for none}"""
    real = {path: str(pathlib.Path(path).parent.resolve() / pathlib.Path(path).name) for path in paths}
    done = subprocess.run(["dpkg-query", "-S", *real.values()], capture_output=True, text=True)
    owner = {path: names.split(":")[0].split(",")[0] for names, _, path in (line.rpartition(": ") for line in done.stdout.splitlines())}
    return {path: owner.get(real[path], "") for path in paths}


def link_line(program):
    """(flags, libraries) of the program's link, as the build has them."""
    text = (TREE / "build.ninja").read_text()
    rule = re.search(rf"^build \S*/{re.escape(program)}: CXX_EXECUTABLE_LINKER.*\n((?:  .*\n)+)", text, re.M).group(1)
    value = dict(re.findall(r"  (\w+) = (.*)\n", rule))
    return value["LINK_FLAGS"].split(), [word for word in value["LINK_LIBRARIES"].split() if not word.startswith("-")]


def notices(program):
    done = harness.lockstep(*PRINTS[program])
    assert done.returncode == 0, done.stderr
    return done.stdout


def components(text):
    """{name: (version, license, Debian package or empty)}, from the list at the top."""
    listed = text[text.index("Inside "): text.index("\n---")]
    rows = re.findall(r"^  (\S+) (.+?), (.+?)(?: \(Debian package (\S+)\))?$", listed, re.M)
    return {name: rest for name, *rest in rows}


def foreign_headers():
    """Headers in angle brackets that our sources include, as paths below /usr/include where they are there."""
    names = set()
    for file in [*harness.ROOT.glob("src/**/*.cc"), *harness.ROOT.glob("src/**/*.h"), harness.ROOT / "cmake/pch.h", harness.ROOT / "cmake/torch_pch.h"]:
        names |= set(re.findall(r"^\s*#\s*include\s*<([^>]+\.(?:h|hpp|hh))>", file.read_text(), re.M))
    folders = [pathlib.Path("/usr/include"), *pathlib.Path("/usr/include").glob("*-linux-gnu")]
    return {str(path) for name in names for path in [next((f / name for f in folders if (f / name).exists()), None)] if path}


class Licenses(harness.Case):
    TIMEOUT = 60

    def test_every_static_library_of_the_link_line_has_its_notice(self):
        for program in PRINTS:
            flags, libraries = link_line(program)
            inside = components(notices(program))
            packages = {package for _, _, package in inside.values()}
            archives = [name for name in libraries if name.endswith(".a") and not name.startswith("liblockstep_")]
            self.assertTrue(any("yaml-cpp" in name for name in archives), archives)
            control = "/usr/include/benchmark/benchmark.h"  # of a package that is not in the programs
            owner = packages_of([*archives, control])
            self.assertNotIn(owner.pop(control), packages | {""})
            for name, package in owner.items():
                self.assertIn(package, packages, f"{program} links {name}: name it in cmake/notices.cmake")
            if "-static-libstdc++" in flags:
                self.assertIn("libstdc++", inside)
            if any(name.endswith("libtorch.so") for name in libraries):
                self.assertIn("PyTorch", inside)  # its headers are compiled in

    def test_every_header_of_others_has_its_notice_or_its_library_stays_outside(self):
        # The C library and the kernel's headers stay outside, too; so does Cairo, which is loaded at run time.
        known = {"libc6-dev", "linux-libc-dev", "libcairo2-dev"}
        for program in PRINTS:
            known |= {package for _, _, package in components(notices(program)).values()}
            known |= set(packages_of([name for name in link_line(program)[1] if name.endswith(".so")]).values())
        known.discard("")
        headers = foreign_headers()
        self.assertIn("/usr/include/fmt/format.h", headers)
        for path, package in packages_of(headers).items():
            self.assertIn(package, known, f"{path}: name its package in cmake/notices.cmake")

    def test_texts_are_complete_and_common_ones_are_printed_once(self):
        for program in PRINTS:
            text = notices(program)
            self.assertIn("Copyright 2026 The Lockstep Authors", text)
            self.assertNotIn("was not found on the machine", text)
            self.assertNotIn("version unknown", text)
            self.assertEqual(text.count("TERMS AND CONDITIONS FOR USE, REPRODUCTION, AND DISTRIBUTION"), 1)
            for name, (version, license_name, _) in components(text).items():
                section = text[text.index(f"\n{name} {version}, {license_name}"):].split("-" * 80)[1]
                self.assertRegex(section, "(?i)copyright", name)
                self.assertGreater(len(section), 800, name)
        launcher = notices("lockstep")
        self.assertEqual(launcher.count("GNU GENERAL PUBLIC LICENSE\n"), 1)
        self.assertIn("GCC Runtime Library Exception", launcher)
        self.assertLess(len(launcher), 256 << 10)

    def test_install_puts_license_and_notices_beside_the_programs(self):
        # -o build: what is built already is installed.
        done = harness.run(["make", "-C", harness.ROOT, "-o", "build", "install", f"DESTDIR={self.tmp}", "PREFIX=/usr"])
        self.assertEqual(done.returncode, 0, done.stderr)
        folder = self.tmp / "usr" / "share" / "doc" / "lockstep"
        self.assertEqual((folder / "LICENSE").read_text(), (harness.ROOT / "LICENSE").read_text())
        self.assertTrue((folder / "NOTICE").exists())
        for program in PRINTS:
            self.assertTrue((self.tmp / "usr" / "bin" / program).exists())
            self.assertEqual((folder / f"licenses-of-{program}.txt").read_text(errors="replace"), notices(program))
