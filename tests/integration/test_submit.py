"""`lockstep submit`: job files of every platform, what a launcher finds under them, and what is refused."""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys

import harness

sys.path.append(str(harness.ROOT / "tests"))
import yaml  # noqa: E402
from beds import jobs, submitted  # noqa: E402

SCRIPTS = ("slurm", "kubebrain", "lsf", "pbs", "ssh")
PODS = ("kubernetes", "pytorchjob", "trainjob", "volcano")
# Words that a shell, YAML, Kubernetes or a template could take for something else.
ODD = ["", " ", "it's", 'say "hi"', "$HOME", "$(VC_TASK_INDEX) $$ $(", "`id`", "a\nb", "tab\there", "{{name}}", "null", "yes", "1e5",
       "0x1f", "- x", "#no comment", "grün 训练 🚀", "back\\slash", "a: b", "*", "!x", "%j", "\u2028", "\x7f\x1b[0m", "-", "~", "&", "'\"'\"'"]


def job(on, nodes=2, **more):
    """A description that uses what the platform has."""
    text = {"name": "taehv-night", "program": ["--no-python", "/bin/true"], "nodes": nodes, "gpus": 8, "cpus": 4, "memory": "64GiB",
            "time": "24h", "restart": {"failures": 2}, "env": {"NCCL_DEBUG": "WARN"}}
    if on in PODS:
        text.update(image="registry/train:1", rdma={"rdma/hca": 8}, shm="32GiB", queue="gold", namespace="team", service_account="runner",
                    secrets={"HF_TOKEN": "huggingface/token"}, native=["nodeSelector: {gpu: h100}"],
                    mounts=[{"from": "pvc/project", "to": "/tmp"}, {"from": "/data", "to": "/data", "read_only": True}], workdir="/tmp")
    elif on == "ssh":
        text["hosts"] = [f"s{i}" for i in range(nodes)]
    elif on != "kubebrain":
        text.update(queue="gold", account="vision", native=["--constraint=h100" if on == "slurm" else "-m h100"])
    text.update(more)
    return {key: value for key, value in text.items() if value is not None}


def write(description, name="job.yaml"):
    dump = json.dumps if name.endswith(".json") else yaml.safe_dump
    return harness.write(name, dump(description))


def submit(*args, **kwargs):
    env = {"XDG_STATE_HOME": harness.tmp_dir() / "state", **kwargs.pop("env", {})}
    return harness.lockstep("submit", *args, env=env, **kwargs)


def render(platform, description, *args, name="job.yaml"):
    done = submit("--render", "--platform", platform, write(description, name), *args)
    if done.returncode != 0:
        raise AssertionError(f"{platform}: {done.stderr}")
    return done.stdout


class Files(harness.Case):
    TIMEOUT = 60
    TOGETHER = True

    def test_lint_finds_nothing_in_any_file(self):
        paths = []
        for platform in (*SCRIPTS, *PODS):
            for nodes in (1, 3):
                more = [{}]
                if platform in ("slurm", "lsf", "pbs", "ssh"):
                    more.append({"image": "/images/train.sif", "container": "apptainer", "mounts": [{"from": "/data", "to": "/data"}]})
                if platform == "slurm":
                    more.append({"image": "registry/train:1", "array": "0-3%2", "secrets": {"HF_TOKEN": "/home/me/token"}})
                for i, one in enumerate(more):
                    end = "yaml" if platform in PODS else "sbatch" if platform == "slurm" else "sh"
                    paths.append(harness.write(f"{platform}-{nodes}-{i}.{end}", render(platform, job(platform, nodes, **one))))
        done = harness.lockstep("lint", "--hardware", "none", "--severity", "warning", *paths)
        self.assertEqual((done.returncode, re.findall(r"^\S+: \w+\[", done.stdout, re.M)), (0, []), done.stdout + done.stderr)
        for path in paths:
            if path.suffix != ".yaml":
                self.assertEqual(subprocess.run(["bash", "-n", path], capture_output=True, text=True).stderr, "", path)

    def test_kubernetes_objects_keep_to_the_official_schemas(self):
        import jsonschema
        import kubernetes_validate
        from referencing import Registry, Resource

        versions = [v for v in kubernetes_validate.utils.all_versions() if kubernetes_validate.utils.major_minor(v) >= "1.26"]
        newest = versions[-1]
        definitions = Resource.from_contents(kubernetes_validate.utils.schema_contents(
            f"kubernetes-json-schema/v{newest}-local-strict/_definitions.json", newest))
        registry = definitions @ Registry()
        own = {("kubeflow.org/v1", "PyTorchJob"): "pytorchjob", ("trainer.kubeflow.org/v1alpha1", "TrainJob"): "trainjob",
               ("batch.volcano.sh/v1alpha1", "Job"): "volcano"}
        seen = set()
        for platform in PODS:
            for nodes, less in ((1, dict(time=None, gpus=None, cpus=None, memory=None, rdma=None, mounts=None, restart={"resumes": 0})), (3, {})):
                for one in yaml.safe_load_all(render(platform, job(platform, nodes, **less))):
                    kind = (one["apiVersion"], one["kind"])
                    seen.add(kind)
                    if kind in own:
                        schema = json.loads((harness.ROOT / f"tests/submit/schemas/{own[kind]}.json").read_text())
                        jsonschema.Draft202012Validator(schema, registry=registry).validate(one)
                        damaged = json.loads(json.dumps(one))
                        damaged["spec"]["nodes"] = 2
                        self.assertFalse(jsonschema.Draft202012Validator(schema, registry=registry).is_valid(damaged))
                        continue
                    for version in (versions[0], newest):
                        kubernetes_validate.validate(one, version, strict=True)
        self.assertEqual(len(seen), 6, seen)

    def test_the_exit_codes_of_the_contract_decide_what_a_pod_failure_means(self):
        found = list(yaml.safe_load_all(render("kubernetes", job("kubernetes"))))[-1]["spec"]
        codes = {code: rule["action"] for rule in found["podFailurePolicy"]["rules"] if "onExitCodes" in rule
                 for code in rule["onExitCodes"]["values"]}
        self.assertEqual(codes, {75: "Ignore", 2: "FailJob", 5: "FailJob", 7: "FailJob"})
        self.assertEqual((found["backoffLimit"], found["template"]["spec"]["terminationGracePeriodSeconds"]), (4, 135))
        self.assertIn({"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "32768Mi"}}, found["template"]["spec"]["volumes"])


    def test_what_real_job_files_say_can_be_said(self):
        """Platform, keys over a good job, lines that must stand in the file."""
        for platform, given, lines in (
                ("slurm", {"setup": ["module load cuda", "source venv/bin/activate"]}, ["module load cuda", "source venv/bin/activate"]),
                ("pbs", {"setup": ["module load cuda"]}, ["module load cuda"]), ("ssh", {"setup": ["ulimit -n 4096"]}, ["ulimit -n 4096"]),
                ("lsf", {"array": "1-9%2"}, ['#BSUB -J "taehv-night[1-9]%2"']), ("pbs", {"array": "0-9%2"}, ["#PBS -J 0-9%2"]),
                *(("slurm", {"image": image, "container": "apptainer"}, [f"  apptainer exec --nv {started} \\"]) for image, started in (
                    ("nvcr.io/team/train:1", "docker://nvcr.io/team/train:1"), ("train@sha256:01", "docker://train@sha256:01"), ("nvcr.io/team/train", "docker://nvcr.io/team/train"),
                    ("docker://a/b:1", "docker://a/b:1"), ("oci:a/b:1", "oci:a/b:1"), ("/images/a:1.sif", "/images/a:1.sif"), ("images/a.b", "images/a.b"), ("v1.2/a.sif", "v1.2/a.sif"))),
                ("kubernetes", {"secrets": {"HF_TOKEN": "my.secret/token"}}, ["secretKeyRef: {name: my.secret, key: token}"])):
            with self.subTest(platform=platform, given=given):
                text = render(platform, job(platform, **given))
                for line in lines:
                    self.assertIn(f"{line}\n", text)
        for platform in PODS:  # where the pods go is the job's own word
            text = render(platform, job(platform, native=["affinity: {nodeAffinity: {}}", "tolerations:", "- operator: Exists"]))
            self.assertNotIn("podAntiAffinity", text)
            self.assertEqual(text.count("affinity:"), 2 if platform == "pytorchjob" else 1)
        text = render("slurm", {"program": "lockstep run --stall-timeout 5m -m pkg.fit --steps 3"})  # no value of a flag names the job
        self.assertIn("#SBATCH --job-name=pkg\n", text)
        for given, ranks in ((["--cpus", "6"], 6), (["--cpus", "6", "--gpus", "2"], 2), ([], 1)):  # as docs/platforms.md says
            done = submit("--render", "--platform", "slurm", "--nproc-per-node", "auto", *given, "train.py")
            self.assertIn(f" --nproc-per-node={ranks} ", done.stdout)
        for rdma, locked in ((None, 0), ({"rdma/hca": 8}, 1)):  # which a namespace of level baseline refuses
            for platform in PODS:
                text = render(platform, job(platform, 1, rdma=rdma))
                self.assertEqual(text.count("add: [IPC_LOCK]"), locked, platform)
        for output, said in (("none/%j.out", rf"there is no folder '{self.tmp}/none' here, and SLURM.* makes none"), ("/none/%x/%j.out", "there is no folder '/none'"),
                             ("%j.out", ""), ("./%j.out", ""), (f"{self.tmp}/%x/y.out", ""), ("../%j.out", "")):
            done = submit("--render", "--platform", "slurm", "--output", output, "--no-python", "true")
            self.assertRegex(done.stderr, said or "^$")
        done = submit("--render", "--platform", "slurm", "--gpus", "8", "--cpus", "8", "torchrun", "train.py")
        self.assertRegex(done.stderr, "each of the 8 ranks of a node starts torchrun")

    def test_a_script_that_bash_cannot_read_is_found_by_a_check(self):
        for platform in ("lsf", "ssh"):
            done = submit("--check", "--platform", platform, write(job(platform, setup=["if true; then", "echo x"])))
            self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
            self.assertRegex(done.stdout, "bash cannot read it: .*syntax error")
            self.assertEqual(submit("--check", "--platform", platform, write(job(platform))).returncode, 0)


class Seen(harness.Case):
    """What the launchers find under the file is what the file promised."""

    TIMEOUT = 60

    def promised(self, platforms):
        for platform in platforms:
            for nodes in (1, 2, 4):
                with self.subTest(platform=platform, nodes=nodes):
                    cluster = submitted.Cluster(self.tmp / f"{platform}-{nodes}")
                    env = {**{f"ODD_{i}": value for i, value in enumerate(ODD)}, **{name: "of the user" for name in ("code", "job", "hosts", "rank")}}
                    description = job(platform, nodes, env=env, lockstep=str(cluster.probe), program=["--no-python", "/bin/true", *ODD])
                    seen = getattr(cluster, platform)(render(platform, description, name="job.json"), nodes)
                    self.assertEqual(sorted(seen), list(range(nodes)))
                    masters = {(one["explain"]["master_addr"], one["explain"]["master_port"]) for one in seen.values()}
                    self.assertEqual(len(masters), 1, masters)
                    self.assertIsNotNone(masters.pop()[0] if nodes > 1 else "")
                    for rank, one in seen.items():
                        found = one["explain"]
                        self.assertIsNone(found["error"], found)
                        self.assertEqual((found["nnodes"], found["node_rank"], found["nproc_per_node"], found["world_size"], found["level"]),
                                         (nodes, rank, 8, 8 * nodes, "node"), found)
                        self.assertEqual(one["argv"][-len(ODD):], ODD)
                        self.assertEqual({name: one["env"].get(name) for name in env}, env)
                        if platform in PODS:
                            self.assertEqual(one["env"]["LOCKSTEP_TOKEN"], "secret taehv-night-token/token")
                            self.assertEqual(one["env"]["HF_TOKEN"], "secret huggingface/token")
                        elif platform in ("slurm", "ssh"):
                            self.assertRegex(one["env"]["LOCKSTEP_TOKEN"], r"^[0-9a-f]{32}$")

    def test_under_slurm_and_ssh(self):
        self.promised(("slurm", "ssh"))

    def test_under_lsf_pbs_and_kubebrain(self):
        self.promised(("lsf", "pbs", "kubebrain"))

    def test_in_pods(self):
        self.promised(PODS)

    def test_lsf_job_of_one_slot(self):
        cluster = submitted.Cluster(self.tmp / "slot")
        seen = cluster.lsf(render("lsf", job("lsf", 1, cpus=None, lockstep=str(cluster.probe))), 1)
        self.assertEqual([(one["explain"]["nnodes"], one["explain"]["node_rank"]) for one in seen.values()], [(1, 0)])

    def test_env_wins_over_the_variables_of_an_image(self):
        """pyxis keeps the image's value; apptainer too, unless the name has its prefix, and it evaluates values unless told."""
        env = {f"ODD_{i}": value for i, value in enumerate(ODD)}
        for platform, container in (("slurm", "pyxis"), ("slurm", "apptainer"), ("lsf", "apptainer"), ("pbs", "apptainer"), ("ssh", "apptainer")):
            with self.subTest(platform=platform, container=container):
                cluster = submitted.Cluster(self.tmp / f"image-{platform}-{container}")
                submitted.program(cluster.bin / "apptainer", '#!/bin/bash\nuntil [ "$1" = /image.sif ]; do shift; done\nshift\nexec "$@"\n')
                text = render(platform, job(platform, 2, env=env, lockstep=str(cluster.probe), image="/image.sif", container=container), name="job.json")
                one = getattr(cluster, platform)(text, 2)[1]
                if container == "pyxis":
                    self.assertEqual([word for word in one["argv"] if word.startswith("--env=ODD_")], [f"--env={name}={env[name]}" for name in sorted(env)])
                else:
                    self.assertEqual({name: one["env"].get("APPTAINERENV_" + name) for name in env}, env)
                    self.assertEqual(one["env"]["APPTAINER_NO_EVAL"], "1")

    def test_setup_may_hold_a_here_document(self):
        for platform in SCRIPTS:
            with self.subTest(platform=platform):
                cluster = submitted.Cluster(self.tmp / f"here-{platform}")
                file = cluster.folder / "config"
                description = job(platform, 1, lockstep=str(cluster.probe), setup=[f"cat > {file} <<'END'", "a: 1", "  b: $HOME", "END"])
                getattr(cluster, platform)(render(platform, description), 1)
                self.assertEqual(file.read_text(), "a: 1\n  b: $HOME\n")


class Stopped(harness.Case):
    """Scripts that start a real launcher: a stop, and their own timer before the limit, end in 75 and what follows from it."""

    TIMEOUT = 60

    def start(self, platform, by_timer, **more):
        """(script, cluster, marks of its ranks, path of the script)"""
        cluster = submitted.Cluster(self.tmp / f"{platform}-{by_timer}")
        marks = cluster.folder / "marks"
        submitted.program(cluster.bin / "qsub", f"#!/bin/sh\npwd > {cluster.folder}/qsub.folder\necho \"$@\" > {cluster.folder}/qsub\n[ $# -gt 2 ] || cat >> {cluster.folder}/qsub\necho 7.server\n")
        (cluster.folder / "hosts").write_text("localhost\n" * 4)
        description = job(platform, 1, gpus=None, ranks=2, grace="5s", lockstep=harness.PROGRAM, workdir=str(cluster.folder),
                          program=jobs.program("signals.py", marks, "75"), env={"LOCKSTEP_TEST_ID": harness.TEST_ID}, **more)
        if platform == "ssh":
            description["hosts"] = ["localhost"]
        text = render(platform, description)
        ready = f"bash -c 'until [ -e {marks}/ready.0 ] && [ -e {marks}/ready.1 ]; do sleep 0.05; done'"
        text, timers = re.subn(r"read -r -t \d+", f"{ready}; read -r -t 0.01" if by_timer else "read -r -t 600", text)
        self.assertEqual(timers, 1)
        path = cluster.folder / "job.sh"
        path.write_text(text)
        env = {"PATH": f"{cluster.bin}:{os.environ['PATH']}", "HOME": cluster.folder, "PBS_JOBID": f"{os.getpid()}[2].server", "LSB_JOBID": os.getpid(),
               "PBS_O_WORKDIR": cluster.bin, **({"PBS_ARRAY_INDEX": "4"} if "array" in more else {}),
               "PBS_NODEFILE": cluster.folder / "hosts", "LSB_DJOB_HOSTFILE": cluster.folder / "hosts", "LOCKSTEP_JOB_FILE": path}
        return harness.spawn("bash", path, env=env, cwd=cluster.folder), cluster, marks, path

    def stopped(self, platform, by_timer):
        running, cluster, marks, path = self.start(platform, by_timer)
        if not by_timer:
            jobs.wait_marks(marks, 2, launcher=running)
            running.send_signal(signal.SIGTERM)
        self.assertEqual(running.wait(30), 75, running.output)
        if platform == "pbs" and by_timer:
            self.assertEqual((cluster.folder / "qsub").read_text(), f"-v LOCKSTEP_JOB_FILE={path},LOCKSTEP_RESUMED=1 {path}\n")
            self.assertEqual((cluster.folder / "job.sh.id").read_text(), "7.server\n")
            self.assertEqual((cluster.folder / "qsub.folder").read_text(), f"{cluster.bin}\n", "where it was submitted first")
        else:  # qdel: the job must not come back
            self.assertFalse((cluster.folder / "qsub").exists())
        self.assertEqual(list(cluster.folder.glob(".lockstep-job-*")), [], "the token is gone")

    def test_by_a_signal(self):
        for platform in ("pbs", "lsf", "ssh"):
            with self.subTest(platform=platform):
                self.stopped(platform, by_timer=False)

    def test_by_a_signal_to_all_its_processes(self):
        """As PBS sends it: the launcher has ended when the script comes to its own signal. The script still knows how."""
        for platform in ("pbs", "ssh"):
            with self.subTest(platform=platform):
                running, _, marks, _ = self.start(platform, by_timer=False)
                above = [int(jobs.wait_marks(marks, 2, launcher=running)[0])]
                while above[-1] != running.pid:
                    above.append(int(pathlib.Path(f"/proc/{above[-1]}/stat").read_text().rsplit(")", 1)[1].split()[1]))
                launcher = [pid for pid in above if pathlib.Path(f"/proc/{pid}/comm").read_text() == "lockstep\n"][-1]
                running.send_signal(signal.SIGSTOP)
                running.send_signal(signal.SIGTERM)
                os.kill(launcher, signal.SIGTERM)
                jobs.wait_gone(above[:-1])
                running.send_signal(signal.SIGCONT)
                self.assertEqual(running.wait(30), 75, running.output)

    def test_one_job_of_an_array_is_submitted_again_alone(self):
        running, cluster, _, path = self.start("pbs", by_timer=True, array="3-5")
        self.assertEqual(running.wait(30), 75, running.output)
        call, text = (cluster.folder / "qsub").read_text().split("\n", 1)
        self.assertEqual(call, f"-v LOCKSTEP_JOB_FILE={path},LOCKSTEP_RESUMED=1,LOCKSTEP_ARRAY_INDEX=4")
        self.assertEqual(text, path.read_text().replace("#PBS -J 3-5\n", ""))
        self.assertEqual((cluster.folder / "qsub.folder").read_text(), f"{cluster.bin}\n", "where it was submitted first")

    def test_of_slurm_is_queued_again_also_with_strict_setup(self):
        cluster = submitted.Cluster(self.tmp / "strict")
        submitted.program(cluster.bin / "srun", f"#!/bin/sh\necho \"$@\" > {cluster.folder}/srun\nexit 75\n")
        submitted.program(cluster.bin / "scontrol", f"#!/bin/sh\necho \"$*\" >> {cluster.folder}/scontrol\necho JobState=RUNNING\n")
        path = cluster.folder / "job.sh"
        path.write_text(render("slurm", job("slurm", workdir=str(cluster.folder), setup=["set -euo pipefail"])))
        done = subprocess.run(["bash", path], env=cluster.env(SLURM_JOB_ID="4711"), capture_output=True, text=True)
        self.assertEqual(done.returncode, 75, done.stderr)
        self.assertEqual((cluster.folder / "scontrol").read_text(), "--oneliner show job 4711\nrequeue 4711\n")
        self.assertIn("--export=ALL", (cluster.folder / "srun").read_text().split(), "a job with --export=NONE passes nothing on")

    def test_killed_by_bkill_is_not_75_which_lsf_queues_again(self):
        running, _, marks, _ = self.start("lsf", by_timer=False)
        jobs.wait_marks(marks, 2, launcher=running)
        running.send_signal(signal.SIGINT)
        self.assertEqual(running.wait(30), 130, running.output)

    def test_a_stop_before_there_is_a_launcher_is_not_lost(self):
        """The script stops itself while it starts the launcher of node 0; the launcher lives long enough to be told."""
        for platform in ("pbs", "ssh"):
            with self.subTest(platform=platform):
                cluster = submitted.Cluster(self.tmp / f"early-{platform}")
                launcher = submitted.program(cluster.folder / "launcher", "#!/bin/bash\ntrap 'exit 75' TERM\ntouch up\n"
                                             "[ -z \"$LOCKSTEP_CONTROL\" ] || { read -r -N 1 byte; [ \"$byte\" = $'\\017' ] && exit 75; }\n"
                                             "for ((i = 0; i < 1500; ++i)); do sleep 0.02; done\n")
                more = {"hosts": ["localhost"]} if platform == "ssh" else {}
                text = render(platform, job(platform, 1, lockstep=str(launcher), workdir=str(cluster.folder), **more))
                # A child that is started and not known yet; it has set its trap.
                first, count = re.subn(r"(start 0|bash \"\$work/node.sh\" 0)(.*) &\n", r"\1\2 &\nuntil [ -e up ]; do sleep 0.02; done; kill -TERM $$\n", text)
                self.assertEqual(count, 1)
                path = cluster.folder / "job.sh"
                path.write_text(first)
                (cluster.folder / "hosts").write_text("localhost\n")
                env = cluster.env(PBS_JOBID="1.server", PBS_NODEFILE=str(cluster.folder / "hosts"))
                self.assertEqual(subprocess.run(["bash", path], env=env, cwd=cluster.folder, timeout=60).returncode, 75)

    def test_a_stop_after_node_0_has_gone_leaves_the_exit_code(self):
        """ssh: nobody reads the pipe of node 0 any more. Its own exit code counts, not that of a broken pipe."""
        cluster = submitted.Cluster(self.tmp / "late")
        done = cluster.folder / "done"
        launcher = submitted.program(cluster.folder / "launcher", f"#!/bin/bash\ncase \" $* \" in *--node-rank=0*) exit 5 ;; esac\n"
                                     f"until [ -e {done} ]; do sleep 0.05; done\n")
        text = render("ssh", job("ssh", 2, lockstep=str(launcher), workdir=str(cluster.folder)))
        self.assertEqual(text.count("code=0\n"), 1)
        path = cluster.folder / "job.sh"
        path.write_text(text.replace("code=0\n", f"code=0\nwhile kill -0 ${{pids[0]}} 2>/dev/null; do sleep 0.05; done\nkill -TERM $$\ntouch {done}\n"))
        self.assertEqual(subprocess.run(["bash", path], env=cluster.env(), cwd=cluster.folder, timeout=60).returncode, 5)

    def test_a_killed_script_leaves_no_timer(self):
        running, _, marks, _ = self.start("pbs", by_timer=False)
        jobs.wait_marks(marks, 2, launcher=running)
        children = {int(pid): pathlib.Path(f"/proc/{pid}/comm").read_text().strip()
                    for pid in pathlib.Path(f"/proc/{running.pid}/task/{running.pid}/children").read_text().split()}
        self.assertEqual(sorted(children.values()), ["bash", "lockstep"], "the timer and the launcher")
        running.send_signal(signal.SIGKILL)
        jobs.wait_gone(pid for pid, name in children.items() if name == "bash")
        for pid in children:  # PBS would do it
            if jobs.alive(pid):
                os.kill(pid, signal.SIGTERM)
        jobs.wait_gone(children)

    def test_by_the_timer(self):
        for platform in ("pbs", "ssh"):
            with self.subTest(platform=platform):
                self.stopped(platform, by_timer=True)


# what is given over a good job, platform, what the message says
REFUSED = [
    ({"nodes": -1}, "slurm", r"job.yaml:\d+:\d+: nodes: .*at least 1.*-1"),
    ({"nodes": 0}, "slurm", r"nodes: .*at least 1"),
    ({"nodes": "two"}, "slurm", r"nodes: expected"),
    ({"gpus": 0}, "slurm", r"gpus: .*at least 1"),
    ({"time": "24:00:00"}, "slurm", r"time: .*24:00:00"),
    ({"time": 24}, "slurm", r"time: expected a duration"),
    ({"time": "99999999999d"}, "slurm", r"time: expected at most"),
    ({"array": "9-0"}, "slurm", r"array: expected indices such as 0-9.*'9-0'"),
    ({"array": "0-9%0"}, "pbs", r"array: expected indices"),
    ({"time": "2m"}, "slurm", r"time: 2m00s leaves nothing to train"),
    ({"image": None}, "kubernetes", r"image: Kubernetes .* starts containers"),
    ({"name": "My_Job"}, "kubernetes", r"RFC 1123.*write name: my-job"),
    ({"name": "1st"}, "kubernetes", r"begins with a letter"),
    ({"name": "a" * 60}, "pytorchjob", r"name: at most 54 characters"),
    ({"name": "a b"}, "slurm", r"name: expected at most 63 letters"),
    ({"name": "../x"}, "slurm", r"name: expected"),
    ({"mounts": [{"from": "data", "to": "/data"}]}, "kubernetes", r"mounts\[0\].from: expected an absolute path"),
    ({"mounts": [{"from": "/data", "to": "data"}]}, "kubernetes", r"mounts\[0\].to: expected an absolute path"),
    ({"mounts": [{"from": "/data", "to": "/a"}, {"from": "/b", "to": "/a"}]}, "kubernetes", r"'/a' is mounted twice"),
    ({"mounts": [{"from": "/data"}]}, "kubernetes", r"mounts\[0\].to"),
    ({"mounts": [{"from": "/data", "to": "/data"}]}, "slurm", r"mounts: without an image"),
    ({"env": {"WANDB_API_KEY": "x"}}, "slurm", r"env.WANDB_API_KEY: its name says that it is a secret.*secrets"),
    ({"env": {"X": "hf_abcdefghijklmnopqrstuvwxyz"}}, "slurm", r"env.X: its value begins like a token"),
    ({"program": "lockstep train taehv --env HF_TOKEN=hf_abc"}, "slurm", r"program: HF_TOKEN: its name says that it is a secret.*write secrets"),
    ({"program": "train.py --token abc"}, "kubernetes", r"program: --token: its name says"),
    ({"flags": ["--env=WANDB_API_KEY=abc"]}, "pbs", r"flags: WANDB_API_KEY: its name says"),
    ({"setup": ["export HF_TOKEN=abc"]}, "ssh", r"setup\[0\]: HF_TOKEN: its name says"),
    ({"native": ["--export=HF_TOKEN=abc"]}, "slurm", r"native\[0\]: HF_TOKEN: its name says"),
    ({"env": {"A B": "x"}}, "slurm", r"'A B' is no name of a variable"),
    ({"secrets": {"HF_TOKEN": "token"}}, "kubernetes", r"secrets.HF_TOKEN: expected SECRET/KEY"),
    ({"secrets": {"HF_TOKEN": "hf/token"}}, "slurm", r"secrets.HF_TOKEN: .*absolute path"),
    ({"partition": "gpu"}, "kubernetes", r"partition: .*has no use for it"),
    ({"rdma": {"rdma/hca": 1}}, "slurm", r"rdma: .*has no use for it"),
    ({"rdma": {"hca": 1}}, "kubernetes", r"rdma: .*domain/name"),
    ({"hosts": ["a"]}, "ssh", r"hosts: ssh needs one host per node: expected 2, found 1"),
    ({"queue": "a b"}, "slurm", r"queue: expected letters"),
    ({"queue": "a\nb"}, "slurm", r"queue: expected letters"),
    ({"workdir": "here"}, "slurm", r"workdir: expected an absolute path"),
    ({"nmae": "x"}, "slurm", r"job.yaml:\d+:\d+: .*nmae.*did you mean 'name'"),
    ({"program": None}, "slurm", r"program: nothing to start"),
    ({"program": "pip install -e .\npython train.py\n"}, "slurm", r"program: a second line that begins with 'python', and the program is one command: .*setup"),
    ({"program": "train.py | tee log"}, "slurm", r"program: '\|' needs a shell"),
    ({"program": "train.py 'x"}, "slurm", r"program: a quote"),
    ({"program": "lockstep run --nnodes 2 train.py"}, "slurm", r"says where its nodes are"),
    ({"flags": ["--stall-timeot=3m"]}, "slurm", r"--stall-timeot.*did you mean"),
    ({"container": "docker", "image": "x"}, "slurm", r"container: expected apptainer or pyxis"),
    ({"native": ["a\nb"]}, "slurm", r"native: one line each"),
    ({"native": ["#SBATCH --qos=high"]}, "slurm", r"native: expected flags.*'#SBATCH --qos=high'"),
    ({"native": ["hetjob"]}, "slurm", r"native: expected flags.*'hetjob'"),
    ({"native": ["tolerations: [x"]}, "kubernetes", r"native:\d+:\d+: .*expected lines of the pod's spec"),
    ({"native": ["nodeSelector: {a: b}", "nodeSelector: {c: d}"]}, "volcano", r"nodeSelector: given twice"),
    ({"native": ["volumes: []"]}, "pytorchjob", r"native: the job file has a volumes of its own; write mounts"),
    ({"memory": 64}, "slurm", r"memory: expected at least 1MiB, found 64 bytes; write a unit"),
    ({"memory": 0}, "pbs", r"memory: expected at least 1MiB"),
    ({"runtime": "x"}, "slurm", r"runtime: .*has no use for it"),
    ({"setup": ["module load cuda"]}, "kubernetes", r"setup: .*has no use for it"),
    ({"grace": "20h", "time": "3d"}, "slurm", r"grace: SLURM sends its signal at most 18h12m"),
    ({"time": "3m"}, "lsf", r"time: LSF counts whole minutes: of 3m00s the last 3 are for saving.*write at least 4m"),
    ({"env": {"UID": "5"}}, "slurm", r"job.yaml:\d+:\d+: env.UID: bash has a variable of its own"),
    ({"array": "0-9"}, "lsf", r"array: indices of LSF begin at 1"),
    ({"array": "1,3"}, "pbs", r"array: PBS takes one range"),
    ({"array": "3-3"}, "pbs", r"array: PBS takes one range"),
    ({"mounts": [{"from": "pvc/a", "to": "/dev/shm"}]}, "kubernetes", r"mounts\[0\].to: /dev/shm is memory"),
    ({"mounts": [{"from": "pvc/My_Claim", "to": "/a"}]}, "kubernetes", r"'My_Claim' is no name of a claim"),
    ({"secrets": {"A": "s/k/l"}}, "kubernetes", r"secrets.A: expected SECRET/KEY"),
    ({"service_account": "Me"}, "kubernetes", r"service_account: Kubernetes allows"),
    ({"program": "LR=1 train.py"}, "slurm", r"program: 'LR=...' sets a variable.*env: \{LR: ...\}"),
    ({"program": ["cd", "/x"]}, "slurm", r"program: 'cd' is a command of the shell.*write workdir"),
    ({"program": "train.py \"$HOME/x\""}, "slurm", r"program: '\$' needs a shell"),
    ({"name": "a" * 50}, "trainjob", r"name: at most 48 characters"),
    ({"native": ["priorityClassName: high"]}, "trainjob", r"native: .* takes no priorityClassName for its pods; it takes affinity, .*tolerations"),
    ({"native": ["--nodes=4"]}, "slurm", r"native: --nodes is what nodes says; write nodes"),
    ({"native": ["  tolerations:", "    - operator: Exists"]}, "kubernetes", r"native: tolerations begins in column 3.*whose keys begin in column 1"),
    ({"native": ["{hostNetwork: true}"]}, "volcano", r"native: hostNetwork begins in column 2"),
    ({"mounts": [{"from": "/data", "to": "/a"}, {"from": "/b", "to": "/a/"}]}, "kubernetes", r"'/a/' is mounted twice"),
    ({"native": ["-v A=1"]}, "pbs", r"native: -v is what env says; write env"),
    ({"program": "lockstep train taehv --nnodes 4 --master-addr x"}, "slurm", r"lockstep train says where its nodes are"),
    ({"program": "lockstep train taehv --master_port=1"}, "slurm", r"lockstep train says where its nodes are"),
    ({"program": "lockstep train taehv --config x.yaml --name first", "array": "0-3"}, "slurm", r"program: --name is what the key name says.*--name before"),
    ({"program": "lockstep run --grace 10m train.py"}, "ssh", r"program: --grace is what the key grace says"),
    ({"flags": ["epochs=3"]}, "slurm", r"flags: 'epochs=3' is no flag, and the launcher would take it for the program"),
    ({"flags": ["--log-dir"]}, "slurm", r"flags: .*--log-dir"),
    ({"flags": ["--max-restarts=9"]}, "slurm", r"flags: --max-restarts is what the key restart.failures says"),
    ({"program": "lockstep run --max-restarts 9 train.py"}, "pytorchjob", r"program: --max-restarts is what the key restart.failures says"),
    ({"flags": ["--grace=10m"]}, "kubernetes", r"flags: --grace is what the key grace says"),
    ({"program": "lockstep"}, "slurm", r"program: a job is lockstep run or lockstep train, found 'lockstep'"),
    ({"program": "/opt/lockstep watch x"}, "slurm", r"program: a job is lockstep run or lockstep train, found '/opt/lockstep watch'"),
    ({"hosts": ["a:2222", "b"]}, "ssh", r"hosts: 'a:2222' names a port.*write a"),
    ({"hosts": ["me@a", "a"]}, "ssh", r"hosts: 'a' is named twice"),
    ({"nodes": 1, "hosts": ["a", "b"]}, "ssh", r"hosts: ssh needs one host per node: expected 1, found 2"),
    ({"platform": "slrm"}, "", r"platform 'slrm' is unknown.*did you mean 'slurm'"),
]


class Refused(harness.Case):
    TIMEOUT = 60
    TOGETHER = True

    def test_every_mistake_is_named_and_nothing_is_printed(self):
        for given, platform, message in REFUSED:
            with self.subTest(given=given, platform=platform):
                done = submit("--render", *(["--platform", platform] if platform else []), write(job(platform, **given)))
                self.assertEqual((done.returncode, done.stdout), (2, ""), done.stderr)
                self.assertRegex(done.stderr.replace("\n", " "), message)

    def test_all_mistakes_come_in_one_message(self):
        done = submit("--render", "--platform", "kubernetes",
                      write(job("kubernetes", image=None, name="My_Job", env={"WANDB_API_KEY": "x"}, partition="gpu")))
        for key in ("image", "name", "env.WANDB_API_KEY", "partition"):
            # What stands in the file has its line.
            line = rf"\S+job.yaml:\d+:\d+: " if key != "image" else ""
            self.assertRegex(done.stderr, rf"\n  {line}{re.escape(key)}: ")
        self.assertIn("4 mistakes", done.stderr)
        text = "program: a.py\ntime: 2m\nenv:\n  A: b\n  HF_TOKEN: c\nmounts:\n- {from: /a, to: /a}\n- {from: b, to: /b}\nworkdir: x\n"
        done = submit("--render", "--platform", "kubernetes", harness.write("job.yaml", text), "--workdir", "y", "--set", "name=A b")
        self.assertEqual(done.stderr.count(" name: "), 2, "one message, and its remedy")
        for place in ("job.yaml:2:7: time: ", "job.yaml:5:13: env.HF_TOKEN: ", r"job.yaml:8:10: mounts\[1\].from: ", r"\n  workdir: .*'y'",
                      r"command line \(--set name=A b\): name: .*'A b'"):
            self.assertRegex(done.stderr, place)

    def test_no_message_repeats_a_secret(self):
        value = "hf_abcdefghijklmnopqrstuvwxyz"
        for args in (["--set", f"env.HF_TOKEN={value}"], ["--set", f"setup=[export HF_TOKEN={value}]"], ["--env", f"HF_TOKEN={value}"],
                     ["--secret", f"HF_TOKEN={value}"], ["--platform", "kubernetes", "--image", "x", "--secret", f"HF_TOKEN={value}/x"],
                     [f"HF_TOKEN={value}"]):
            with self.subTest(args=args):
                done = submit("--render", "--platform", "slurm", *args, "train.py")
                self.assertEqual((done.returncode, done.stdout), (2, ""))
                self.assertIn("HF_TOKEN", done.stderr)
                self.assertNotIn(value, done.stderr)

    def test_ranks_that_share_one_cpu_are_no_silent_loss(self):
        for platform, given, message in (("slurm", {"gpus": 8}, "SLURM gives one CPU a node"), ("lsf", {"gpus": 8}, "asks IBM Spectrum LSF .* for one CPU"),
                                         ("pbs", {"gpus": None, "ranks": 4}, "asks PBS .* for one CPU"), ("pbs", {"cpus": 4}, ""), ("lsf", {"gpus": None}, "")):
            done = submit("--render", "--platform", platform, write(job(platform, **{"cpus": None, **given})))
            self.assertRegex(done.stderr, f"cpus: not given.* {message}" if message else "^$")

    def test_a_limit_that_a_platform_has_not_is_no_silent_loss(self):
        for platform, message in (("volcano", "warning: time: no limit of Volcano Job ends this job"), ("kubebrain", "warning: time: "), ("slurm", "")):
            self.assertIn(message, submit("--render", "--platform", platform, write(job(platform, time="2h"))).stderr)
            self.assertNotIn("time: ", submit("--render", "--platform", platform, write(job(platform, time=None))).stderr)

    def test_flags_of_the_command_line(self):
        for args, message in (
                (["--platform", "slurm", "--nnodes", "2:4", "a.py"], r"--nnodes"),
                (["--platform", "slurm", "--gpus", "0", "a.py"], r"--gpus: expected a number of at least 1"),
                (["--platform", "slurm", "--time", "soon", "a.py"], r"--time"),
                (["--platform", "slurm", "--time", "30s", "--grace", "5s", "a.py"], r"time: expected at least 1m"),
                (["--platform", "slurm", "--grace", "0s", "a.py"], r"grace: expected at least 1.0s, found 0ms"),
                (["--platform", "slurm", "--gpus", "99999", "a.py"], r"gpus: expected 1 to 1024, found 99999"),
                (["--platform", "slurm", "--nnodes", "9999999", "a.py"], r"nodes: expected 1 to 65536, found 9999999"),
                (["--nnodes", "1", "--hosts", "a,b", "a.py"], r"hosts: ssh needs one host per node: expected 1, found 2"),
                (["--platform", "slurm", "--master-addr", "x", "a.py"], r"--master-addr: the job file says it"),
                (["--platform", "slurm", "--mount", "x", "a.py"], r"--mount: expected FROM:TO"),
                (["--platform", "slurm", "--plattform", "x", "a.py"], r"--plattform"),
                (["--platform", "slurm", "--render", "--check", "a.py"], r"each does another thing"),
                (["--platform", "slurm", "--set", "nodse=2", "a.py"], r"nodse.*did you mean 'nodes'"),
                (["--platform", "slurm", "--render"], r"program: nothing to start"),
                (["--platform", "slurm", "gone.yaml"], r"gone.yaml"),
                (["--platform", "slurm", write(job("slurm")), "b.py"], r"stands after the description")):
            with self.subTest(args=args):
                done = submit(*args)
                self.assertIn(done.returncode, (2, 3), done.stderr)
                self.assertEqual(done.stdout, "")
                self.assertRegex(done.stderr.replace("\n", " "), message)

    def test_platform_is_detected_or_asked_for(self):
        one, two = self.tmp / "one", self.tmp / "two"
        for folder, names in ((one, ("bsub",)), (two, ("bsub", "qsub"))):
            folder.mkdir()
            for name in names:
                submitted.program(folder / name, "#!/bin/sh\n")
        path = write(job("lsf"))
        found = json.loads(submit("--dry-run", "--json", path, env={"PATH": one}).stdout)
        self.assertEqual((found["platform"], found["evidence"]), ("lsf", [f"bsub is {one}/bsub: lsf"]))
        done = submit("--dry-run", path, env={"PATH": two})
        self.assertEqual(done.returncode, 2)
        self.assertRegex(done.stderr, r"bsub is .*: lsf; qsub is .*: pbs")
        done = submit("--dry-run", path, env={"PATH": self.tmp})
        self.assertRegex(done.stderr, r"none of sbatch, bsub, qsub and kubectl")

    def test_missing_client(self):
        for platform, client in (("slurm", "sbatch"), ("kubernetes", "kubectl"), ("lsf", "bsub"), ("pbs", "qsub"), ("ssh", "ssh")):
            done = submit("--platform", platform, write(job(platform)), env={"PATH": self.tmp})
            self.assertEqual(done.returncode, 3, done.stderr)
            self.assertRegex(done.stderr, rf"needs the program '{client}'.*not in PATH\n  do: .*--render")
        self.assertEqual(submit("--platform", "kubebrain", write(job("kubebrain"))).returncode, 2)
        self.assertNotIn("writes ", submit("--dry-run", "--platform", "kubebrain", write(job("kubebrain"))).stdout)
        self.assertFalse((self.tmp / "state" / "lockstep").exists(), "something was left behind")


class Templates(harness.Case):
    TIMEOUT = 30
    TOGETHER = True

    def test_template_of_the_user(self):
        path = harness.write("ours.sh", "#OURS {{nodes}} {{name:plain}}\n{{#env}}\nexport {{variable:plain}}={{value}}\n{{/env}}\n"
                                        "{{^image}}\nno image\n{{/image}}\nrun{{#program}} {{.}}{{/program}}\n")
        text = render("slurm", job("slurm", env={"A": "it's"}, program=["a.py", "b c"]), "--template", path)
        self.assertEqual(text, "#OURS 2 taehv-night\nexport A='it'\\''s'\nno image\nrun a.py 'b c'\n")

    def test_template_from_windows_has_no_byte_order_mark_and_no_carriage_returns(self):
        path = harness.write("ours.sh", "\ufeff#!/bin/bash\r\n#OURS {{nodes}}\r\n{{#setup}}\r\n{{.:raw}}\r\n{{/setup}}\r\nrun\r\n")
        self.assertEqual(render("slurm", job("slurm", setup=["printf 'a\\r\\n'"]), "--template", path), "#!/bin/bash\n#OURS 2\nprintf 'a\\r\\n'\nrun\n")

    def test_mistakes_in_templates(self):
        for text, message in (("{{nods}}", r"ours.sh:1: there is no value 'nods'.*did you mean 'nodes'"),
                              ("\n{{#image}}{{imge}}{{/image}}", r"ours.sh:2: there is no value 'imge'"),
                              ("{{#env}}\n", r"\{\{#env\}\} is not ended"), ("{{/env}}", r"ends nothing"), ("{{env}}", r"'env' is a list"),
                              ("#!/bin/sh\necho\n", r"ours.sh: no \{\{name\}\} in it: the same text for every job"),
                              ("{{name:bash}}", r"no filter 'bash'"), ("{{name", r"without '\}\}'"), ("{{}}", r"names nothing"),
                              ("{{>nothing}}", r"no part 'nothing'"), ("{{#program}}{{.:plain}}{{/program}}", r"cannot stand here")):
            with self.subTest(text=text):
                done = submit("--render", "--platform", "slurm", "--template", harness.write("ours.sh", text),
                              write(job("slurm", program=["a b"])))
                self.assertEqual((done.returncode, done.stdout), (2, ""))
                self.assertRegex(done.stderr.replace("\n", " "), message)

    def test_documented_values_are_those_there_are(self):
        page = (harness.ROOT / "docs" / "submit.md").read_text()
        documented = set(re.findall(r"`([a-z_]+)`", page[page.index("| values | |"):page.index("## What is refused")]))
        for name in documented - {"run", "train", "from", "to", "ro"}:
            text = f"{{{{#{name}}}}}{{{{/{name}}}}}"
            inside = next((lists for lists, names in (("env", ("variable", "value")), ("secrets", ("file", "secret", "key")),
                           ("mounts", ("volume", "read_only", "path", "claim", "bind")), ("rdma", ("resource", "count")))
                           if name in names), None)
            text = f"{{{{#{inside}}}}}{text}{{{{/{inside}}}}}" if inside else text
            render("slurm", job("slurm"), "--template", harness.write("one.sh", text))
        for part in re.findall(r"`\{\{>(\w+)\}\}`", page):
            render("slurm", job("slurm"), "--template", harness.write("one.sh", f"{{{{>{part}}}}}\n"))
        source = (harness.ROOT / "src" / "submit" / "render.cc").read_text()
        names = set(re.findall(r'"([a-z_]+)"', source[source.index("for (const char* name :"):source.index("out.names[name]")]))
        self.assertEqual(names - documented, set())
