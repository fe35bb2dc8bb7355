"""The two-node SLURM of tests/beds with the neutral folders on every host, for all cases that need it."""

import pathlib
import shutil
import subprocess
import sys
import tempfile

from stage import ROOT, TRAIN, environment, mounts

sys.path.append(str(ROOT / "tests"))


class Bed:
    def __enter__(self):
        from beds import slurm

        self.top = pathlib.Path(tempfile.mkdtemp(prefix="stage-"))
        self.top.chmod(0o755)
        self.work = self.top / "train"
        self.work.mkdir()
        self.slurm = slurm.Slurm()
        for name in ("login", "n0", "n1"):
            script = self.top / f"mounts-{name}.sh"
            script.write_text("set -e\n" + mounts(self.work, host=None))
            done = self.slurm.net[name].run(["bash", str(script)])
            if done.returncode:
                raise RuntimeError(done.stderr)
        return self

    def __exit__(self, *_):
        self.slurm.close()
        shutil.rmtree(self.top, ignore_errors=True)

    def enter(self, stage):
        """The case's files become the folder of the program on all hosts."""
        for path in self.work.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        for path in stage.work.iterdir():
            shutil.copytree(path, self.work / path.name) if path.is_dir() else shutil.copy2(path, self.work / path.name)
        (self.work / "log").mkdir(exist_ok=True)

    def leave(self, stage):
        shutil.rmtree(stage.work / "log", ignore_errors=True)
        shutil.copytree(self.work / "log", stage.work / "log")

    def env(self, extra=None):
        return {**environment(), "SLURM_CONF": self.slurm.conf, "MASTER_ADDR": "n0", "MASTER_PORT": "29500", "GLOO_SOCKET_IFNAME": "eth0", **(extra or {})}

    def popen(self, shell, env=None):
        return self.slurm.login.popen(["bash", "-c", f"cd {TRAIN}; {shell}"], env=self.env(env), stdin=subprocess.DEVNULL,
                                      stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/")

    def run(self, stage, shell, env=None, timeout=120):
        self.enter(stage)
        self.popen(shell, env).wait(timeout)
        self.leave(stage)

    def sbatch(self, stage, script, *flags, during=None, timeout=200):
        """A batch job whose output is log/slurm-<id>.out; during(job id) is called once it runs."""
        stage.write("job.sh", script)
        self.enter(stage)
        done = self.slurm.login.run(["bash", "-c", f"cd {TRAIN}; sbatch --parsable --output=log/slurm-%j.out " + " ".join(flags) + " job.sh"],
                                    env=self.env(), cwd="/")
        job = done.stdout.strip()
        if done.returncode:
            raise RuntimeError(done.stderr)
        if during:
            during(job)
        fields = self.slurm.wait(job, timeout)
        subprocess.run(["sleep", "1"])
        self.leave(stage)
        return fields
