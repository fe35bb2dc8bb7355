"""A cluster as a job file sees it: takes the file of a platform apart, injects what the platform would, and starts what
it starts, on this machine. What is started is a probe in the place of lockstep: it asks `lockstep explain` what the
launcher would find, and writes that down with its words and variables."""

import json
import os
import pathlib
import re
import subprocess
import sys

import harness
import yaml

PROBE = """#!{python}
import json, os, subprocess, sys
host = os.environ.get("PROBE_HOST", "")
done = subprocess.run([{lockstep!r}, "explain", "--json", "--assume-gpus=8", *(["--assume-host=" + host] if host else []),
                       *sys.argv[2:]], capture_output=True, text=True)
found = json.loads(done.stdout) if done.stdout else {{"error": done.stderr}}
name = f"{{found.get('node_rank')}}-{{os.getpid()}}.json"
with open(os.path.join({folder!r}, name), "w") as out:
    json.dump({{"explain": found, "argv": sys.argv[1:], "env": dict(os.environ), "cwd": os.getcwd()}}, out)
"""

# Programs that start something on another node, reduced to "here": they set what the real one sets there.
SRUN = """#!{python}
import os, subprocess, sys
flags = [a for a in sys.argv[1:] if a.startswith("--")]
first = next(i for i, a in enumerate(sys.argv[1:], 1) if not a.startswith("--"))
nodes = int(next(f for f in flags if f.startswith("--nodes=")).split("=")[1])
names = f"gpu[0-{{nodes - 1}}]" if nodes > 1 else "gpu0"
running = [subprocess.Popen(sys.argv[first:], env=dict(os.environ, SLURM_STEP_ID="0", SLURM_STEP_NUM_NODES=str(nodes),
    SLURM_STEP_NUM_TASKS=str(nodes), SLURM_STEP_TASKS_PER_NODE=f"1(x{{nodes}})" if nodes > 1 else "1", SLURM_NODEID=str(i),
    SLURM_PROCID=str(i), SLURM_LOCALID="0", SLURM_STEP_NODELIST=names, SLURMD_NODENAME=f"gpu{{i}}", PROBE_HOST=f"gpu{{i}}"))
    for i in range(nodes)]
sys.exit(max(one.wait() for one in running))
"""
BLAUNCH = '#!/bin/bash\n[ "$1" = -z ] || exit 9\nexport PROBE_HOST=$2\nshift 2\nexec "$@"\n'
TMRSH = '#!/bin/bash\nexport PROBE_HOST=$1\nshift\nexec env -i PATH="$PATH" PROBE_HOST="$PROBE_HOST" HOME="$HOME" PBS_JOBID="$PBS_JOBID" "$@"\n'
SSH = ('#!/bin/bash\nwhile [ "$1" = -o ]; do shift 2; done\nexport PROBE_HOST=$1\n[ $# -eq 2 ] || exit 9\n'
       'exec env -i PATH="$PATH" PROBE_HOST="$PROBE_HOST" HOME="$HOME" sh -c "$2"\n')


def program(path, text):
    path.write_text(text)
    path.chmod(0o755)
    return path


class Cluster:
    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.found = self.folder / "found"
        self.bin = self.folder / "bin"
        for path in (self.found, self.bin):
            path.mkdir(parents=True)
        self.probe = program(self.folder / "probe", PROBE.format(python=sys.executable, lockstep=harness.PROGRAM, folder=str(self.found)))
        for name, text in (("srun", SRUN), ("blaunch", BLAUNCH), ("pbs_tmrsh", TMRSH), ("ssh", SSH)):
            program(self.bin / name, text.format(python=sys.executable) if name == "srun" else text)

    def env(self, **more):
        return harness.clean_env({"PATH": f"{self.bin}:{os.environ['PATH']}", "HOME": str(self.folder), **more})

    def start(self, argv, env, cwd=None):
        return subprocess.Popen(argv, env=env, cwd=cwd or self.folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True)

    def finish(self, running):
        """What the probes found, by node rank."""
        for one in running:
            output = one.communicate()[0]
            if one.returncode != 0:
                raise AssertionError(f"exit code {one.returncode}\n{output}")
        seen = {}
        for path in self.found.iterdir():
            one = json.loads(path.read_text())
            rank = one["explain"].get("node_rank")
            if rank in seen:
                raise AssertionError(f"two launchers are node {rank}")
            seen[rank] = one
            path.unlink()
        return seen

    def script(self, text, **env):
        path = self.folder / "job.sh"
        path.write_text(text)
        return self.finish([self.start(["bash", str(path)], self.env(**env))])

    # --- the platforms ---
    def slurm(self, text, nodes):
        asked = dict(re.findall(r"^#SBATCH --([\w-]+)=(.*)$", text, re.M))
        nodelist = f"gpu[0-{nodes - 1}]" if nodes > 1 else "gpu0"
        return self.script(text, SLURM_JOB_ID="4711", SLURM_NNODES=asked["nodes"], SLURM_JOB_NUM_NODES=asked["nodes"],
                           SLURM_JOB_NODELIST=nodelist, SLURM_NODELIST=nodelist, SLURM_NODEID="0", SLURM_PROCID="0",
                           SLURM_LOCALID="0", SLURM_NTASKS=asked["nodes"], SLURM_NTASKS_PER_NODE=asked["ntasks-per-node"],
                           SLURM_TASKS_PER_NODE=f"1(x{asked['nodes']})", SLURMD_NODENAME="gpu0")

    def lsf(self, text, nodes):
        slots = int(re.search(r"^#BSUB -n (\d+)", text, re.M)[1])
        tile = int(re.search(r"ptile=(\d+)", text)[1])
        hosts = [f"h{i // tile}" for i in range(slots)]
        file = self.folder / "hostfile"
        file.write_text("".join(f"{host}\n" for host in hosts))
        more = {"LSB_DJOB_HOSTFILE": str(file)} if slots > 1 else {}
        return self.script(text, LSB_JOBID="4711", LSB_JOBINDEX="0", LSB_HOSTS=" ".join(hosts), LSB_DJOB_NUMPROC=str(slots), PROBE_HOST="h0",
                           **more)

    def pbs(self, text, nodes):
        chunks = int(re.search(r"select=(\d+):", text)[1])
        each = int(re.search(r"mpiprocs=(\d+)", text)[1])
        file = self.folder / "nodefile"
        file.write_text("".join(f"p{i}\n" * each for i in range(chunks)))
        return self.script(text, PBS_JOBID="4711.server", PBS_NODEFILE=str(file), PBS_O_WORKDIR=str(self.folder),
                           PBS_NODENUM="0", PBS_ENVIRONMENT="PBS_BATCH", PROBE_HOST="p0")

    def ssh(self, text, nodes):
        return self.script(text)

    def kubebrain(self, text, nodes):
        path = self.folder / "job.sh"
        path.write_text(text)
        seen = {}
        for old in (False, True):
            running = []
            for i in range(nodes):
                named = ({"WORLD_SIZE": str(nodes), "RANK": str(i), "MASTER_ADDR": "jo-abc-worker-0", "MASTER_PORT": "29500"} if old else
                         {"NODE_RANK": str(i), "NODE_COUNT": str(nodes), "PROC_PER_NODE": "8", "MASTER_ADDR": "rjob-abc-0.rjob-abc",
                          "KUBEBRAIN_REPLICA": str(i), "KUBEBRAIN_REPLICA_TOTAL": str(nodes), "KUBEBRAIN_RJOB_NAME": "rjob-abc"})
                running.append(self.start(["bash", str(path)], self.env(**named)))
            seen = self.finish(running)
            if len(seen) != nodes:
                break
        return seen

    def pods(self, container, each):
        """Starts a container's command once per pod; each: its variables."""
        running = []
        for more in each:
            env = {}
            for one in [*container["env"], *({"name": k, "value": v} for k, v in more.items())]:
                value = one.get("value")
                if value is None:  # from a Secret
                    value = f"secret {one['valueFrom']['secretKeyRef']['name']}/{one['valueFrom']['secretKeyRef']['key']}"
                env[one["name"]] = expand(value, env)
            words = [expand(word, env) for word in [*container["command"], *container["args"]]]
            running.append(self.start(words, self.env(KUBERNETES_SERVICE_HOST="10.0.0.1", **env)))
        return self.finish(running)

    def kubernetes(self, text, nodes):
        secret, service, job = yaml.safe_load_all(text)
        spec = job["spec"]["template"]["spec"]
        name = job["metadata"]["name"]
        if spec["subdomain"] != service["metadata"]["name"]:
            raise AssertionError("the pods' names do not resolve")
        if not service["spec"]["selector"].items() <= job["spec"]["template"]["metadata"]["labels"].items():
            raise AssertionError("the Service selects other pods")
        return self.pods(spec["containers"][0], [{"JOB_COMPLETION_INDEX": str(i), "PROBE_HOST": f"{name}-{i}"}
                                                 for i in range(job["spec"]["completions"])])

    def pytorchjob(self, text, nodes):
        job = list(yaml.safe_load_all(text))[-1]
        name, specs, each = job["metadata"]["name"], job["spec"]["pytorchReplicaSpecs"], job["spec"]["nprocPerNode"]
        total = sum(one["replicas"] for one in specs.values())
        env = [{"MASTER_ADDR": f"{name}-master-0", "MASTER_PORT": "23456", "WORLD_SIZE": str(total * int(each)), "RANK": str(i),
                "PET_NNODES": str(total), "PET_NPROC_PER_NODE": each, "PET_NODE_RANK": str(i), "PET_MASTER_ADDR": f"{name}-master-0",
                "PET_MASTER_PORT": "23456", "PROBE_HOST": f"{name}-master-0" if i == 0 else f"{name}-worker-{i - 1}"} for i in range(total)]
        templates = [specs["Master"]["template"]] + [specs["Worker"]["template"]] * (total - 1) if total > 1 else [specs["Master"]["template"]]
        seen = {}
        for template, one in zip(templates, env):
            seen.update(self.pods(template["spec"]["containers"][0], [one]))
        return seen

    def trainjob(self, text, nodes):
        job = list(yaml.safe_load_all(text))[-1]
        name, trainer = job["metadata"]["name"], job["spec"]["trainer"]
        return self.pods(trainer, [{"PET_NNODES": str(trainer["numNodes"]), "PET_NPROC_PER_NODE": str(trainer["numProcPerNode"]),
                                    "PET_NODE_RANK": str(i), "PET_MASTER_ADDR": f"{name}-node-0-0.{name}", "PET_MASTER_PORT": "29500",
                                    "JOB_COMPLETION_INDEX": str(i), "PROBE_HOST": f"{name}-node-0-{i}"} for i in range(trainer["numNodes"])])

    def volcano(self, text, nodes):
        job = list(yaml.safe_load_all(text))[-1]
        name, task = job["metadata"]["name"], job["spec"]["tasks"][0]
        count = task["replicas"]
        hosts = ",".join(f"{name}-{task['name']}-{i}.{name}" for i in range(count))
        # the plugins put their variables before those of the container
        return self.pods({**task["template"]["spec"]["containers"][0]},
                         [{"VC_TASK_INDEX": str(i), "VK_TASK_INDEX": str(i), "VC_WORKER_HOSTS": hosts, "VC_WORKER_NUM": str(count),
                           "PROBE_HOST": f"{name}-{task['name']}-{i}"} for i in range(count)])


def expand(text, env):
    """$(NAME) as Kubernetes expands it: $$ is one $, an unknown name stays."""
    return re.sub(r"\$(\$|\(([\w.-]+)\))", lambda m: "$" if m[1] == "$" else env.get(m[2], m[0]), text)
