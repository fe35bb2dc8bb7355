"""`lockstep doctor hardware` as a person or a script calls it, on this machine and on copied trees."""

import json
import os
import socket
import subprocess

import harness

TREES = harness.ROOT / "tests" / "hardware" / "trees"


def unpack(name, root):
    """The machines of tests/hardware/trees, as tests/hardware/tree.h reads them."""
    for line in (TREES / f"{name}.tree").read_text().splitlines():
        if not line or line.startswith("#"):
            continue
        path, tab, content = line.partition("\t")
        path, arrow, target = path.partition(" -> ")
        at = root / path.strip("/")
        at.parent.mkdir(parents=True, exist_ok=True)
        if tab:
            at.write_text(content.replace("\\\\", "\0").replace("\\n", "\n").replace("\\t", "\t").replace("\0", "\\"))
        elif arrow:
            at.symlink_to(target)
        else:
            at.mkdir(parents=True, exist_ok=True)
    return root


class DoctorHardware(harness.Case):
    def doctor(self, *flags, env=None):
        return harness.lockstep("doctor", "hardware", *flags, env=env)

    def test_json_of_this_machine_agrees_with_python(self):
        done = self.doctor("--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        here = json.loads(done.stdout)
        self.assertEqual(here["host"], socket.gethostname())
        self.assertEqual(here["kernel"], os.uname().release)
        self.assertEqual({i["name"] for i in here["interfaces"]}, {name for _, name in socket.if_nameindex()})
        room = os.statvfs("/dev/shm")
        shm = next(f for f in here["filesystems"] if f["path"] == "/dev/shm")
        self.assertEqual(shm["total"], room.f_blocks * room.f_frsize)
        self.assertLessEqual(here["cpus"], len(os.sched_getaffinity(0)))

    def test_the_torch_it_names_is_the_torch_python_imports(self):
        harness.require("torch")
        done = self.doctor("--json", "--python", harness.PYTHON)
        torch = json.loads(done.stdout)["torch"]
        asked = subprocess.run([harness.PYTHON, "-c", "import torch; print(torch.__version__); print(torch.__file__)"],
                               capture_output=True, text=True, check=True).stdout.split()
        self.assertEqual(torch["version"], asked[0])
        self.assertEqual(os.path.realpath(torch["path"]).split("/lib/libtorch")[0], os.path.dirname(os.path.realpath(asked[1])))

    def test_a_table_shows_what_is_down(self):
        root = unpack("h800-down-ports", self.tmp / "tree")
        done = self.doctor("--root", str(root))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("gpu-a18", done.stdout)
        self.assertRegex(done.stdout, r"mlx5_2:1 +DOWN, Polling")
        self.assertRegex(done.stdout, r"mlx5_0:1 +ACTIVE +InfiniBand +400")
        self.assertRegex(done.stdout, r"\n2 +NVIDIA H800 .*Xid 79,154")
        self.assertNotIn("\x1b", done.stdout)

    def test_a_root_that_is_not_there_is_said(self):
        done = self.doctor("--root", "/no/such/folder")
        self.assertEqual(done.returncode, 3)
        self.assertIn("/no/such/folder", done.stderr)

    def test_help_has_examples(self):
        done = self.doctor("--help")
        self.assertEqual(done.returncode, 0)
        self.assertIn("lockstep doctor hardware --json", done.stdout)
