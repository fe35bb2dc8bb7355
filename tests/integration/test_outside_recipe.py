"""examples/outside-recipe, built against an installation (tests/outside_recipe.cmake): trains, resumes, and mistakes are named."""

import json
import re

import harness

PLACE = harness.BIN.parent / "outside-recipe"
PROGRAM = PLACE / "build" / "my-train"
PACKAGE = PLACE / "opt" / "lockstep" / "lib" / "cmake" / "lockstep"
EXAMPLE = harness.ROOT / "examples" / "outside-recipe"


def train(*words, name="s", program=PROGRAM):
    return harness.lockstep("train", "--program", program, "spirals", "--nproc-per-node", "2", "--name", name, *words)


class OutsideRecipe(harness.Case):
    TIMEOUT = 60

    def test_it_trains_on_two_ranks_and_resumes(self):
        done = train("--set", "train.steps=300")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertGreater(float(re.search(r"validation at step 300: .* accuracy ([\d.]+)", done.stdout)[1]), 0.8, done.stdout)
        done = train("--set", "train.steps=310")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("from 300", done.stdout)
        run = json.loads((self.tmp / "runs/s/run.json").read_text())
        self.assertEqual(run["program"][:3], [str(PROGRAM), "train", "spirals"])

    def test_its_commands_answer_through_lockstep(self):
        done = harness.lockstep("config", "spirals", f"--program={PROGRAM}", "--plain")
        self.assertRegex(done.stdout, r"(?s)data:.*  points: 4000\n")
        self.assertNotIn("frames", done.stdout)
        done = harness.lockstep("train", "--program", PROGRAM, "--version")
        self.assertEqual(done.stdout.split("(")[1].splitlines()[0], harness.lockstep("version").stdout.split("(")[1].strip(),
                         "the commit of the engine it was linked with")
        self.assertTrue(done.stdout.startswith("my-train "), done.stdout)
        self.assertRegex(harness.run([PROGRAM, "--help"]).stdout, r"(?s)^usage: my-train .*\n  spirals +which of two.*\n  taehv ")

    def test_mistakes(self):
        """A refused configuration is final: its exit code and no restart, as from lockstep-train."""
        script = '#!/bin/sh\necho \'{"lockstep_train_program": {"version": "9.8.7"}}\'\n'
        harness.write("newer", script, 0o755)
        harness.write("not-executable", script)
        harness.write("foreign", "#!/bin/sh\necho hello\n", 0o755)
        table = [
            ("./no-such-file", r"--program \./no-such-file: .*No such file.*\n  do: build it first"),
            ("newer", r"--program newer: no folder of PATH has it\n  do: write --program \./newer"),
            ("./not-executable", r"--program \./not-executable: is not executable"),
            ("/tmp", r"--program /tmp: expected a program, found a folder"),
            ("./foreign", r"--program \./foreign: not a train program of Lockstep: asked --identify, it answered 'hello'\n  do: .*TrainProgram"),
            ("./newer", r"--program \./newer: built with Lockstep 9\.8\.7, and this is \d+\.\d+\.\d+\n  do: build it against"),
            ("", r"--program: expected a value"),
        ]
        for program, expected in table:
            with self.subTest(program):
                for words in (("train", "--program", program, "spirals"), ("config", "spirals", "--program", program)):
                    done = harness.lockstep(*words)
                    self.assertRegex(done.stderr, expected)
                    self.assertEqual(done.returncode, 2)
        done = train("--set", "data.pointz=3", "--max-restarts", "2", name="wrong")
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertRegex(done.stderr, r"not started .*data\.pointz: unknown key \(did you mean 'points'\?\)")
        self.assertRegex(done.stderr, r"`lockstep config --program \S*/my-train spirals` lists every key")
        self.assertNotIn("restart", done.stderr)
        done = train("--points", "3")
        self.assertRegex(done.stderr, r"unknown flag --points\n  do: write --set data\.points=3")

    def test_the_page_and_the_readme_show_what_is_built(self):
        main = (EXAMPLE / "main.cc").read_text()
        self.assertIn(f"```cpp\n{main}```", (harness.ROOT / "docs" / "write-a-recipe.md").read_text())
        self.assertLessEqual(len(main.splitlines()), 5)


class Package(harness.Case):
    """find_package(lockstep): what it refuses, before it makes a target."""

    TIMEOUT = 30

    def find(self, *settings, config=None):
        folder = PACKAGE
        if config:
            folder = self.tmp / "package"
            folder.mkdir(exist_ok=True)
            (folder / "lockstepConfig.cmake").write_text(config)
        harness.write("find.cmake", f"cmake_minimum_required(VERSION 3.25)\nfind_package(lockstep REQUIRED PATHS {folder} NO_DEFAULT_PATH)\n")
        done = harness.run(["cmake", *settings, "-P", self.tmp / "find.cmake"])
        self.assertNotEqual(done.returncode, 0)
        return " ".join(done.stderr.split())

    def torch(self, version):
        harness.write("torch/lib/libtorch_cpu.so", "")
        harness.write("torch/version.py", f"__version__ = '{version}'\ncuda: Optional[str] = None\n")
        return f"-DLOCKSTEP_TORCH={self.tmp}/torch"

    def test_it_names_what_does_not_fit(self):
        config = (PACKAGE / "lockstepConfig.cmake").read_text()
        built = re.search(r"built_with ([\d.]+)\)", config)[1]
        self.assertRegex(self.find(self.torch("1.2.3+cpu")), rf"built with torch {built}, and {self.tmp}/torch \(from LOCKSTEP_TORCH\) is "
                         r"torch 1\.2\.3; .* do: cmake -DLOCKSTEP_TORCH=DIR.*import torch; print.* or: .*make install TORCH=")
        self.assertIn(f"no torch package in {self.tmp}/nowhere (from LOCKSTEP_TORCH)", self.find(f"-DLOCKSTEP_TORCH={self.tmp}/nowhere"))
        self.assertIn("not found, by their Debian packages: libfmt-dev nlohmann-json3-dev libyaml-cpp-dev libssl-dev libpng-dev libjpeg-dev",
                      self.find(self.torch(built + "+other"), "-DCMAKE_FIND_USE_CMAKE_SYSTEM_PATH=OFF",
                                "-DCMAKE_FIND_USE_SYSTEM_ENVIRONMENT_PATH=OFF"))
        for_gpus = config.replace('set(built_for_cuda "")', 'set(built_for_cuda "13.0")')
        self.assertNotEqual(for_gpus, config)
        self.assertIn("built for CUDA 13.0, and the torch in", self.find(self.torch(built), config=for_gpus))

    def test_only_the_place_of_torch_is_recorded(self):
        for file in PACKAGE.iterdir():
            lines = [line for line in file.read_text().splitlines() if str(harness.ROOT) in line or "/opt/lockstep" in line]
            self.assertEqual(len(lines), 1 if file.name == "lockstepConfig.cmake" else 0, lines)
            self.assertTrue(all("set(lockstep_torch_dir" in line for line in lines), lines)
