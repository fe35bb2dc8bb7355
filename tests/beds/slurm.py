"""A real SLURM of two nodes: munged, slurmctld on a login host, slurmd on n0 and n1, each host a namespace of netns.py.

    with Slurm() as slurm:
        slurm.run(["srun", "-N2", "hostname"])          # typed on the login host
        job = slurm.sbatch("#!/bin/sh\\nsrun hostname\\n", "-N2")
        slurm.wait(job)

Everything (keys, state, logs, sockets) is in the bed's folder; closing it ends every daemon and job. Needs root, because
munged and slurmd do.
"""

import os
import pwd
import re
import shutil
import subprocess
import time

from . import netns

NODES = ("n0", "n1")
ENDED = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED")


def missing():
    """Why no SLURM can be started here; empty when it can."""
    reason = netns.missing()
    if reason:
        return reason
    for tool in ("munged", "slurmctld", "slurmd", "srun", "sbatch", "salloc", "scancel", "scontrol"):
        if shutil.which(tool, path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin") is None:
            return f"SLURM needs the program '{tool}' (Debian: slurmctld slurmd slurm-client munge)"
    try:
        pwd.getpwnam("munge")
    except KeyError:
        return "SLURM needs the user 'munge' (Debian: munge)"
    return ""


class Slurm:
    """cpus: per node, however many the machine has (tasks share them). credentials: seconds that those of a job hold, which
    is also how long a job that was queued again must wait."""

    def __init__(self, cpus=4, credentials=120):
        self.credentials = credentials
        self.net = netns.Net(["login", *NODES])
        self.folder = os.path.join(self.net.folder, "slurm")
        self.conf = os.path.join(self.folder, "slurm.conf")
        self.login = self.net["login"]
        self._logs = {}
        os.chmod(self.net.folder, 0o755)  # munged, another user, has a folder inside
        os.makedirs(self.folder)
        try:
            self._write_conf(cpus)
            self._start_munge()
            self._daemon("login", ["slurmctld", "-D", "-f", self.conf])
            for node in NODES:
                self._daemon(node, ["slurmd", "-D", "-f", self.conf])
            self._until(self._nodes_idle, "both nodes idle")
        except BaseException:
            self.close()
            raise

    def _write_conf(self, cpus):
        for name in ("state", "spool"):
            os.makedirs(os.path.join(self.folder, name))
        with open(self.conf, "w") as out:
            out.write(f"""ClusterName=bed
SlurmctldHost=login({self.login.address})
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={self.folder}/munge/socket,cred_expire={self.credentials}
CredType=cred/munge
StateSaveLocation={self.folder}/state
SlurmdSpoolDir={self.folder}/spool/%n
SlurmctldPidFile={self.folder}/slurmctld.pid
SlurmdPidFile={self.folder}/slurmd.%n.pid
SlurmctldPort=16817
SlurmdPort=16818
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=sched_interval=1,batch_sched_delay=0
MpiDefault=none
ReturnToService=2
SwitchType=switch/none
SlurmdParameters=config_overrides
KillWait=5
MinJobAge=300
NodeName=n0 NodeHostname=n0 NodeAddr={self.net["n0"].address} CPUs={cpus} State=UNKNOWN
NodeName=n1 NodeHostname=n1 NodeAddr={self.net["n1"].address} CPUs={cpus} State=UNKNOWN
PartitionName=p Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:4
""")

    def _start_munge(self):
        folder = os.path.join(self.folder, "munge")
        key = os.path.join(folder, "key")
        os.makedirs(folder, mode=0o755)
        with open(key, "wb") as out:
            out.write(os.urandom(1024))
        os.chmod(key, 0o400)
        user = pwd.getpwnam("munge")
        for path in (folder, key):
            os.chown(path, user.pw_uid, user.pw_gid)
        # In the foreground and as that user: no set-uid helper, nothing outside the folder.
        self._daemon("login", ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups", "munged",
                               "--foreground", f"--key-file={key}", f"--socket={folder}/socket",
                               f"--pid-file={folder}/pid", f"--log-file={folder}/log", f"--seed-file={folder}/seed"])
        self._until(lambda: os.path.exists(f"{folder}/socket"), "munged's socket")

    def _daemon(self, host, argv):
        name = next(a for a in argv if a in ("munged", "slurmctld", "slurmd"))
        log = os.path.join(self.folder, f"{name}.{host}.log")
        self._logs[log] = None
        env = dict(os.environ, PATH=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin")
        with open(log, "wb") as out:
            self._logs[log] = self.net[host].popen(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=env)

    def _nodes_idle(self):
        done = self.run(["sinfo", "-h", "-N", "-o", "%N %t"])
        return sorted(done.stdout.split("\n")[:-1]) == [f"{n} idle" for n in NODES]

    def _until(self, condition, what, seconds=30):
        deadline = time.monotonic() + seconds
        while not condition():
            dead = [log for log, process in self._logs.items() if process is not None and process.poll() is not None]
            if dead or time.monotonic() > deadline:
                tails = "\n".join(f"--- {log}\n{_tail(log)}" for log in self._logs)
                raise RuntimeError(f"SLURM: waited for {what}; ended daemons: {dead or 'none'}\n{tails}")
            time.sleep(0.02)

    # --- what tests use ---
    def env(self, extra=None):
        """The environment of a user on the login host."""
        env = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM", "SRUN", "SBATCH"))}
        env.update(SLURM_CONF=self.conf, **(extra or {}))
        return env

    def run(self, argv, env=None, **kwargs):
        return self.login.run(argv, env=self.env(env), **kwargs)

    def popen(self, argv, env=None, **kwargs):
        return self.login.popen(argv, env=self.env(env), **kwargs)

    def sbatch(self, script, *flags, env=None):
        """Submits the text of a script; returns the job id. Its output is in output(job)."""
        done = self.login.run(["sbatch", "--parsable", f"--output={self.login.folder}/%j.out", *flags], input=script,
                              env=self.env(env))
        if done.returncode != 0:
            raise RuntimeError(f"sbatch: {done.stderr}")
        return done.stdout.strip().split(";")[0]

    def output(self, job):
        try:
            with open(os.path.join(self.login.folder, f"{job}.out"), errors="replace") as text:
                return text.read()
        except FileNotFoundError:
            return ""

    def job(self, job):
        """scontrol's fields of a job: JobState, ExitCode ("5:0"), Reason, ..."""
        done = self.run(["scontrol", "-o", "show", "job", str(job)])
        return dict(re.findall(r"(\w+)=(\S+)", done.stdout))

    def wait(self, job, seconds=60):
        """The job's fields once it has ended."""
        deadline = time.monotonic() + seconds
        while True:
            fields = self.job(job)
            if fields.get("JobState") in ENDED:
                return fields
            if time.monotonic() > deadline:
                raise TimeoutError(f"job {job} still {fields.get('JobState')}\n{self.output(job)}")
            time.sleep(0.05)

    def job_processes(self):
        """Processes of jobs: everything on the two nodes but the daemons themselves."""
        daemons = {process.pid for process in self._logs.values()}
        return [pid for node in NODES for pid in self.net[node].processes() if pid not in daemons]

    def close(self):
        for process in self._logs.values():
            if process is not None and process.poll() is None:
                process.kill()
        for process in self._logs.values():
            if process is not None:
                process.wait()
        self.net.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def _tail(path, lines=15):
    try:
        with open(path, errors="replace") as text:
            return "".join(text.readlines()[-lines:])
    except OSError as error:
        return str(error)
