"""What `make build` builds: GPUs found without a driver's tools, CUDA found beside a torch package, progress in logs."""

import itertools
import subprocess

import harness

DEPS = harness.ROOT / "deps"


def make_tree(root, paths):
    for path in paths:
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("")
    return root


def program(folder, name, text):
    """A program of that name, to be found before the real one."""
    folder.mkdir(exist_ok=True)
    (folder / name).write_text("#!/bin/bash\n" + text)
    (folder / name).chmod(0o755)
    return folder


class Gpus(harness.Case):
    TIMEOUT = 30

    def test_where_there_is_a_gpu(self):
        information = "proc/driver/nvidia/gpus/0000:3b:00.0/information"
        table = [
            ("nothing", [], "0"),
            ("a device node", ["dev/nvidia0"], "1"),
            ("of a second GPU alone, as containers are given them", ["dev/nvidia5", "dev/nvidiactl"], "1"),
            ("the driver's other nodes", ["dev/nvidiactl", "dev/nvidia-uvm", "dev/nvidia-caps/nvidia-cap1"], "0"),
            ("no device node yet, nobody used the GPU", [information], "1"),
            ("a container without GPUs on a machine with some", [information, ".dockerenv"], "0"),
            ("the same, podman", [information, "run/.containerenv"], "0"),
            ("a container that was given one", [information, ".dockerenv", "dev/nvidia0"], "1"),
            ("WSL2 with NVIDIA's driver", ["dev/dxg", "usr/lib/wsl/lib/libcuda.so.1"], "1"),
            ("WSL2 with another GPU", ["dev/dxg"], "0"),
            ("the driver without a GPU", ["proc/driver/nvidia/version"], "0"),
        ]
        for number, (name, paths, expected) in enumerate(table):
            with self.subTest(name):
                root = make_tree(self.tmp / str(number), paths)
                root.mkdir(exist_ok=True)
                self.assertEqual(harness.run([DEPS / "gpus", root]).stdout.strip(), expected)

    def test_a_driver_that_is_too_old_is_said(self):
        lines = {"closed": "NVRM version: NVIDIA UNIX x86_64 Kernel Module  {}  Fri Aug  8 2025\n",
                 "open": "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {}  Release Build  (dvs-builder)\n"}
        for (kind, line), (version, old) in itertools.product(lines.items(), [("535.161.08", True), ("580.65.06", False)]):
            with self.subTest(f"{kind} {version}"):
                root = self.tmp / f"{kind}-{version}"
                make_tree(root, ["proc/driver/nvidia/version"])
                (root / "proc/driver/nvidia/version").write_text(line.format(version) + "GCC version:  gcc 12.2.0 \n")
                done = harness.run([DEPS / "gpus", "driver", "580", root])
                self.assertEqual((done.returncode, f"driver is {version}" in done.stderr), (0, old), done.stderr)
        self.assertEqual(harness.run([DEPS / "gpus", "driver", "580", self.tmp / "none"]).stderr, "")

    def test_make_builds_what_it_is_told(self):
        table = [
            (["GPU=0"], ["--preset release", "case release in release) deps/venv ;; cuda) deps/venv cuda;", "ln -sfn release/bin build/bin"]),
            (["GPU=1"], ["--preset cuda", "case cuda in", "ln -sfn cuda/bin build/bin"]),
            (["GPU=1", "CXX=g++-12"], ["--preset cuda -B build/cuda-g++-12 -DCMAKE_CXX_COMPILER=g++-12"]),
            (["GPU=0", "CXX=g++-12"], ["--preset release -B build/g++-12 -DCMAKE_CXX_COMPILER=g++-12"]),
            (["TORCH=/a/torch"], ["--preset torch -DLOCKSTEP_TORCH=/a/torch -DLOCKSTEP_GPU=auto"]),
            (["TORCH=/a/torch", "GPU=0"], ["--preset torch -DLOCKSTEP_TORCH=/a/torch -DLOCKSTEP_GPU=0"]),
        ]
        for words, expected in table:
            said = harness.run(["make", "-n", "-C", harness.ROOT, "build", *words])
            self.assertEqual(said.returncode, 0, said.stderr)
            for text in expected:
                self.assertIn(text, said.stdout, words)

    def test_both_lists_name_the_same_torch(self):
        """python-cuda.txt takes its versions from python.txt; only the CPU package it refuses is named once more."""
        versions = [line for line in (DEPS / "python.txt").read_text().splitlines() if line.startswith("torch==")]
        refused = [line for line in (DEPS / "python-cuda.txt").read_text().splitlines() if line.startswith("torch")]
        self.assertEqual(refused, [versions[0].replace("==", "!=") + "+cpu"])


class Cuda(harness.Case):
    """cmake/cuda.cmake on torch packages of all kinds."""

    TIMEOUT = 60
    HEADERS = ["cuda.h", "cuda_runtime_api.h", "crt/host_defines.h", "nv/target", "cublas_v2.h", "cusparse.h", "cusolverDn.h"]

    def package(self, name, files, cuda="13.0"):
        site = self.tmp / name / "lib/python3.11/site-packages"
        make_tree(site, ["torch/lib/libtorch_cuda.so", "torch-2.11.0.dist-info/METADATA", *files])
        (site / "torch/version.py").write_text(f"__version__ = '2.11.0'\ncuda: Optional[str] = '{cuda}'\n")
        (site / "torch-2.11.0.dist-info/METADATA").write_text(
            'Requires-Dist: nvidia-nccl-cu13==2.28.9; platform_system == "Linux"\n')
        return site

    def configure(self, site, toolkit="/nonexistent"):
        source = self.tmp / "project"
        source.mkdir(exist_ok=True)
        (source / "CMakeLists.txt").write_text(f"""cmake_minimum_required(VERSION 3.25)
project(found LANGUAGES NONE)
add_library(lockstep_torch INTERFACE)
set(lockstep_torch_dir {site}/torch)
set(lockstep_toolkits {toolkit})
include({harness.ROOT}/cmake/cuda.cmake)
""")
        subprocess.run(["rm", "-rf", source / "out"], check=True)
        return harness.run(["cmake", "-S", source, "-B", source / "out"])

    def test_packages_beside_torch_are_enough(self):
        site = self.package("whole", [f"nvidia/cu13/include/{name}" for name in self.HEADERS]
                            + ["nvidia/nccl/include/nccl.h", "nvidia/cu13/lib/libcudart.so.13"])
        done = self.configure(site)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(f"CUDA 13.0: {site}/nvidia/cu13/include;{site}/nvidia/nccl/include; {site}/nvidia/cu13/lib/libcudart.so.13",
                      done.stdout)

    def test_cuda_12_lies_elsewhere(self):
        site = self.package("twelve", [f"nvidia/cuda_runtime/include/{name}" for name in self.HEADERS[:4]] + [
            "nvidia/cublas/include/cublas_v2.h", "nvidia/cusparse/include/cusparse.h", "nvidia/cusolver/include/cusolverDn.h",
            "nvidia/nccl/include/nccl.h", "nvidia/cuda_runtime/lib/libcudart.so.12"], cuda="12.8")
        done = self.configure(site)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(f"{site}/nvidia/cuda_runtime/lib/libcudart.so.12", done.stdout)

    def test_a_toolkit_of_the_same_cuda_gives_what_is_missing(self):
        site = self.package("half", ["nvidia/cu13/include/cuda_runtime_api.h", "nvidia/nccl/include/nccl.h",
                                     "nvidia/cu13/lib/libcudart.so.13"])
        toolkit = make_tree(self.tmp / "toolkit", [f"include/{name}" for name in self.HEADERS if name != "nv/target"]
                            + ["include/cccl/nv/target"])
        for version, found in ((13020, True), (12080, False)):
            (toolkit / "include/cuda.h").write_text(f"#define CUDA_VERSION {version}\n")
            done = self.configure(site, toolkit)
            self.assertEqual(done.returncode == 0, found, done.stderr)
        self.assertIn(f"not used, because torch is for CUDA 13.0: {toolkit} (CUDA 12)", done.stderr)

    def test_what_is_missing_is_named_with_the_command_that_installs_it(self):
        site = self.package("plain", [f"nvidia/cu13/include/{name}" for name in self.HEADERS if name[:3] not in ("crt", "nv/")]
                            + ["nvidia/cu13/lib/libcudart.so.13"])
        make_tree(self.tmp / "plain", ["bin/python"])
        done = self.configure(site)
        self.assertNotEqual(done.returncode, 0)
        said = " ".join(done.stderr.split())
        self.assertIn("missing: crt/host_defines.h, nv/target, nccl.h", said)
        self.assertIn(f"do: {self.tmp}/plain/bin/python -m pip install --no-deps 'nvidia-cuda-crt==13.0.*' "
                      "'nvidia-cuda-cccl==13.0.*' nvidia-nccl-cu13==2.28.9", said)


class Progress(harness.Case):
    TIMEOUT = 30

    def progress(self, *words, **more):
        return harness.run([DEPS / "progress", *words], env={"PATH": f"{self.tmp / 'bin'}:/usr/bin:/bin", **more})

    def test_a_build_in_a_log_is_a_line_every_ten_percent(self):
        program(self.tmp / "bin", "ninja", """echo "ninja: Entering directory 'build/release'"
for i in $(seq 380); do echo "[$i/380] Building CXX $i"; done
""")
        done = self.progress("ninja", "-C", "build/release", "programs")
        lines = done.stdout.splitlines()
        self.assertEqual(len(lines), 10, lines)
        self.assertEqual(lines[0], "build/release: 38 of 380 done, 10 %, 342 left")

    def test_what_compilers_say_and_the_exit_code_are_passed_on(self):
        program(self.tmp / "bin", "ninja", 'echo "[1/3] Building a"; echo "a.cc:1: warning: b"; echo "FAILED: c.o"; exit 7')
        done = self.progress("ninja", "-C", "build/release")
        self.assertEqual((done.returncode, done.stdout), (7, "a.cc:1: warning: b\nFAILED: c.o\n"))

    def test_nothing_to_do_is_nothing_to_say(self):
        program(self.tmp / "bin", "ninja", 'echo "ninja: no work to do."')
        self.assertEqual(self.progress("ninja").stdout, "")

    def test_debian_packages(self):
        program(self.tmp / "bin", "apt-get", """[[ "$*" == *APT::Status-Fd=1* ]] || exit 9
echo 'Reading package lists...'
echo '0 upgraded, 4 newly installed, 0 to remove and 0 not upgraded.'
echo 'Need to get 45.2 MB of archives.'
for i in 10 55 57 100; do echo "dlstatus:1:$i.33:Retrieving file $i of 100 (3s remaining)"; echo "Get:1 file [3 kB]"; done
echo 'pmstatus:cmake:50.0:Unpacking cmake (amd64)'
echo 'E: dpkg was interrupted'
echo 'more about it'
exit 100
""")
        done = self.progress("apt", "apt-get", "install", "cmake")
        self.assertEqual(done.returncode, 100)
        self.assertEqual(done.stdout.splitlines(), [
            "  0 upgraded, 4 newly installed, 0 to remove and 0 not upgraded.", "  Need to get 45.2 MB of archives.",
            "Debian packages: download 10 %, Retrieving file 10 of 100 (3s remaining)",
            "Debian packages: download 55 %, Retrieving file 55 of 100 (3s remaining)",
            "Debian packages: download 100 %, Retrieving file 100 of 100 (3s remaining)",
            "Debian packages: install 50 %, Unpacking cmake (amd64)", "E: dpkg was interrupted", "more about it"])

    def test_python_packages(self):
        pip = program(self.tmp / "bin", "pip", """echo 'Collecting torch'
echo '  Downloading torch-2.13.0-cp311-cp311-manylinux_2_28_x86_64.whl (526.6 MB)'
echo 'WARNING: Location is ignored' >&2
echo 'Processing /wheels/numpy-2.4.6-cp311-cp311-manylinux_2_27_x86_64.manylinux_2_28_x86_64.whl (from -r list)'
echo 'Installing collected packages: torch, numpy'
echo 'ERROR: Could not install packages due to an OSError' >&2
echo 'No space left on device' >&2
exit 1
""")
        done = self.progress("pip", "2", pip / "pip", "install", TMPDIR=self.tmp)
        self.assertEqual(done.returncode, 1)
        self.assertEqual(done.stdout.splitlines(), [
            "Python packages: 1 of 2, torch 2.13.0 (526.6 MB)", "Python packages: 2 of 2, numpy 2.4.6",
            "Python packages: all 2 fetched, installing", "ERROR: Could not install packages due to an OSError",
            "No space left on device"])


class Programs(harness.Case):
    TIMEOUT = 60

    def test_the_version_of_the_engine_tells_torch_and_cuda(self):
        harness.require("torch")
        done = harness.lockstep("train", "--version")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"^lockstep-train \d+\.\d+\.\d+ \(commit .*\)\ntorch +\d+\.\d+\.\d+\nCUDA +none: built for CPUs.*\nGPUs +0\n$")

    def test_a_program_without_cuda_says_so_where_there_are_gpus(self):
        harness.require("torch")
        for visible, found in ((None, True), ("", False)):
            done = harness.run([harness.BIN / "lockstep-train", "train", "denoise", "--resume", "nowhere"], env={
                "LOCKSTEP_NVML": harness.ROOT / "build/release/tests/libfake_nvml.so", "LOCKSTEP_FAKE_NVML": "GPU-aaa,GPU-bbb",
                "CUDA_VISIBLE_DEVICES": visible})
            self.assertIn("'nowhere' is neither a file nor a run", done.stderr)
            first = done.stdout.splitlines()[:1]
            self.assertEqual(first == ["GPUs        2 on this machine, not used: this lockstep-train was built without CUDA"], found, done.stdout)
