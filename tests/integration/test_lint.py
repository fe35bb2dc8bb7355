"""`lockstep lint` as a program: what it prints, how it ends, and what it says about files that are none."""

import json
import os
import pathlib
import subprocess
import unittest

import harness

SCRIPT = "#!/bin/bash\nexport NCCL_NTHREADS=640\nexport NCCL_TIMEOUT=7200\ntorchrun --nproc_per_node=8 train.py\n"


def lint(*args, **kwargs):
    return harness.lockstep("lint", "--hardware", "none", *args, **kwargs)


class Lint(harness.Case):
    def write(self, name, text):
        path = pathlib.Path(self.tmp) / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return str(path)

    def test_findings_have_places_reasons_and_an_exit_code(self):
        path = self.write("run.sh", SCRIPT)
        done = lint(path)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn(f"{path}:2:8: warning[nthreads-clamped]: NCCL_NTHREADS=640 is clamped to 512", done.stdout)
        self.assertIn("    fix: ", done.stdout)
        self.assertIn("1 source: 0 errors, 2 warnings, 0 notes", done.stdout)

    def test_a_clean_file_ends_with_0_and_notes_are_allowed(self):
        clean = self.write("clean.sh", "#!/bin/bash\nexport NCCL_DEBUG=WARN\ntorchrun --nproc_per_node=8 train.py\n")
        self.assertEqual(lint(clean).returncode, 0)
        notes = self.write("notes.sh", "#!/bin/bash\nexport NCCL_IB_RETRY_CNT=7\n")
        done = lint(notes)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertIn("note[ib-retry-default]", done.stdout)
        self.assertEqual(lint("--fail-on", "note", notes).returncode, 1)
        self.assertNotIn("note[", lint("--severity", "warning", notes).stdout)

    def test_json_is_one_document(self):
        done = lint("--json", self.write("run.sh", SCRIPT))
        document = json.loads(done.stdout)
        self.assertEqual([f["rule"] for f in document["findings"]], ["nthreads-clamped", "variable-never-existed"])
        self.assertEqual(document["findings"][1]["line"], 3)
        self.assertEqual(document["counts"], {"error": 0, "warning": 2, "note": 0})
        for key in ("file", "line", "column", "variable", "rule", "severity", "what", "why", "fix", "source"):
            self.assertIn(key, document["findings"][0])

    def test_standard_input_and_as(self):
        done = subprocess.run([harness.PROGRAM, "lint", "--hardware", "none", "-"], input=SCRIPT, capture_output=True,
                              text=True)
        self.assertIn("<stdin>:2:8", done.stdout)
        odd = self.write("letter", "NCCL_TIMEOUT = 5\n")
        self.assertEqual(lint(odd).returncode, 2)
        self.assertIn("conf-line", lint("--as", "nccl.conf", odd).stdout)
        self.assertEqual(lint("--as", "poem", odd).returncode, 2)

    def test_the_environment_of_another_process(self):
        path = self.write("environ", b"PATH=/bin\0NCCL_IB_DISABLE=true\0MASTER_PORT=29500\0")
        done = lint(path)
        self.assertEqual(done.returncode, 1)
        self.assertIn("error[value-bool-word]", done.stdout)

    def test_the_environment_here_and_its_conf_file(self):
        conf = self.write("my.conf", "NCCL_DEBUG=WARN\n")
        env = {**os.environ, "NCCL_DEBUG": "INFO", "NCCL_CONF_FILE": conf, "NCCL_SOKET_IFNAME": "eth0"}
        done = subprocess.run([harness.PROGRAM, "lint", "--hardware", "none", "--env"], env=env, capture_output=True, text=True)
        self.assertIn("environment: error[variable-misspelt]: NCCL_SOKET_IFNAME", done.stdout)
        self.assertIn(f"{conf}:1:1: note[conf-shadowed]", done.stdout)

    def test_a_library_decides_which_names_are_known(self):
        # A stand-in with the names as a compiler would place them: an object file of three strings.
        source = self.write("names.c", 'const char* names[] = {"NCCL_DEBUG", "NCCL_FROM_THE_FUTURE", "NCCL_IB_TIMEOUT"};\n')
        library = str(pathlib.Path(self.tmp) / "libnccl.so.2")
        compiler = "cc" if subprocess.run(["which", "cc"], capture_output=True).returncode == 0 else "clang-19"
        subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source], check=True)
        env = self.write("job.env", "NCCL_FROM_THE_FUTURE=1\nNCCL_BUFFSIZE=4194304\n")
        self.assertIn("variable-unknown", lint(env).stdout)
        done = lint("--libnccl", library, env)
        self.assertNotIn("variable-unknown", done.stdout)
        self.assertIn("warning[variable-not-in-library]", done.stdout)
        self.assertEqual(lint("--libnccl", env, env).returncode, 3)

    def test_a_machine_described_in_a_file(self):
        machine = self.write("node.json", json.dumps({"host": "node7", "ib": [
            {"device": "mlx5_0", "port": 1, "state": "ACTIVE", "link_layer": "InfiniBand", "gbit": 400}]}))
        env = self.write("job.env", "NCCL_IB_DISABLE=1\nNCCL_IB_HCA==mlx5_9\n")
        done = harness.lockstep("lint", "--hardware", machine, env)
        self.assertIn("error[ib-disabled-here]", done.stdout)
        self.assertIn("error[ib-hca-missing]", done.stdout)

    def test_what_cannot_be_linted_says_why(self):
        garbage = self.write("a.out", bytes(range(256)) * 64)
        done = lint(garbage)
        self.assertEqual(done.returncode, 2)
        self.assertIn("none of the kinds of files lint reads", done.stderr)
        done = lint(self.tmp)
        self.assertEqual(done.returncode, 2)
        self.assertIn("is a folder", done.stderr)
        done = lint(str(pathlib.Path(self.tmp) / "nowhere.sh"))
        self.assertEqual(done.returncode, 3)
        self.assertIn("nowhere.sh", done.stderr)
        self.assertEqual(lint().returncode, 2)
        self.assertEqual(lint(self.write("empty", "")).returncode, 2)

    def test_a_file_of_100_megabytes_is_refused_and_the_others_are_still_read(self):
        big = str(pathlib.Path(self.tmp) / "big.sh")
        with open(big, "wb") as out:
            out.truncate(100 << 20)
        done = lint(big, self.write("run.sh", SCRIPT))
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("big.sh", done.stderr)
        self.assertIn("nthreads-clamped", done.stdout)


if __name__ == "__main__":
    unittest.main()
