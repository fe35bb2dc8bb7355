"""`lockstep` is one file for any node of the last four years: its dynamic section says so."""

import pathlib
import subprocess

import elf_needs
import harness

CONTROLS = harness.ROOT / "build" / "release" / "tests"


def objections(path):
    return elf_needs.objections(elf_needs.Needs(path))


class DynamicSection(harness.Case):
    def test_lockstep_needs_only_libc_libm_libgcc_and_glibc_2_34(self):
        self.assertEqual(objections(harness.PROGRAM), [])

    def test_lockstep_does_use_the_c_library(self):
        # A reader that finds nothing would pass the test above.
        needs = elf_needs.Needs(harness.PROGRAM)
        self.assertIn("libc.so.6", needs.libraries)
        self.assertIn("GLIBC_2.34", needs.versions["libc.so.6"])

    def test_the_loader_reports_no_other_library(self):
        listed = subprocess.run(["ldd", harness.PROGRAM], capture_output=True, text=True, check=True).stdout
        names = {pathlib.Path(line.split()[0]).name for line in listed.splitlines()} - {"linux-vdso.so.1"}
        self.assertLessEqual(names, elf_needs.ALLOWED_LIBRARIES)

    def test_lockstep_train_needs_no_library_that_only_pictures_use(self):
        libraries = elf_needs.Needs(harness.BIN / "lockstep-train").libraries
        self.assertIn("libtorch.so", libraries)
        self.assertEqual([name for name in libraries if name.startswith(("libcairo", "libfreetype", "libfontconfig"))], [])

    def test_symbols_of_glibc_2_36_are_refused(self):
        control = CONTROLS / "needs_new_glibc"
        if not control.exists():
            self.assertLess(harness.glibc_version(), (2, 36), "the control was not built")
            return
        self.assertIn("needs GLIBC_2.36 of libc.so.6", objections(control))

    def test_a_dynamic_libstdcxx_is_refused(self):
        self.assertIn("needs libstdc++.so.6", objections(CONTROLS / "needs_libstdcxx"))
