"""`lockstep submit` over real ssh to three hosts: words and variables arrive, a stop saves, and nothing is left."""

import json
import os
import pathlib
import signal
import subprocess
import sys

import harness

sys.path.append(str(harness.ROOT / "tests"))
from beds import jobs, netns, sshd  # noqa: E402

HOSTS = ("a", "b", "c")
ODD = "it's\n$HOME \"x\" `id`"


class Ssh(harness.Case):
    TIMEOUT = 60

    def setUp(self):
        harness.require("netns", "sshd")
        self.net = netns.Net(HOSTS)
        self.addCleanup(self.net.close)
        self.ssh = sshd.Sshd(self.net)
        self.addCleanup(self.ssh.close)
        self.marks = self.tmp / "marks"
        self.env = self.ssh.env(harness.clean_env({"XDG_STATE_HOME": self.tmp / "state"}))

    def lockstep(self, *args, code=0):
        done = self.net["a"].run([harness.PROGRAM, *map(str, args)], env=self.env, cwd=self.tmp)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def submit(self, name, program, **more):
        mark = {key: value for key, value in self.env.items() if key.startswith("LOCKSTEP_TEST")}
        (self.tmp / "job.yaml").write_text(json.dumps({"name": name, "program": program, "hosts": HOSTS, "ranks": 2, "grace": "5s",
                                                       "env": {"ODD": ODD, **mark}, **more}))
        return self.lockstep("submit", "job.yaml")

    def state(self, name):
        return next(one for one in json.loads(self.lockstep("jobs", "--json").stdout)["jobs"] if one["name"] == name)

    def nothing_left(self):
        daemons = {one.pid for one in self.ssh._daemons}
        harness.wait_until(lambda: not [pid for host in HOSTS for pid in self.net[host].processes() if pid not in daemons], 20,
                           "no process of a job on the hosts")

    def test_job_runs_on_all_hosts_and_is_seen_to_its_end(self):
        self.submit("seen", jobs.program("show_env.py", self.marks))
        done = self.lockstep("logs", "-f", "seen")
        self.assertIn("all 6 ranks succeeded", done.stdout)
        self.assertIn("has ended: succeeded", done.stderr)
        found = [json.loads(jobs.marked(self.marks, "env", rank))["env"] for rank in range(6)]
        self.assertEqual([(e["RANK"], e["WORLD_SIZE"], e["GROUP_RANK"], e["ODD"]) for e in found], [(str(i), "6", str(i // 2), ODD) for i in range(6)])
        self.assertNotIn("LOCKSTEP_TOKEN", found[0], "ranks have no use for the token")
        self.assertEqual(self.state("seen")["state"], "succeeded")
        self.nothing_left()

    def test_cancelled_job_saves_and_leaves_nothing(self):
        self.submit("stopped", jobs.program("signals.py", self.marks, "75"))
        jobs.wait_marks(self.marks, 6)
        self.assertEqual(self.state("stopped")["state"], "running")
        self.lockstep("cancel", "stopped")
        harness.wait_until(lambda: self.state("stopped")["exit_code"] is not None, 30, "the end of the job")
        found = self.state("stopped")
        self.assertEqual((found["exit_code"], found["detail"]), (75, "stopped, state saved"), (self.tmp / "stopped.out").read_text())
        for rank in range(6):
            self.assertEqual(jobs.marked(self.marks, "signals", rank), "SIGTERM\n")
        self.nothing_left()
        self.assertEqual(self.lockstep("cancel", "stopped", code=2).stdout, "")

    def test_killed_script_takes_the_job_with_it(self):
        self.submit("killed", jobs.program("signals.py", self.marks), time="1h")
        jobs.wait_marks(self.marks, 6)
        waiting = int(self.state("killed")["id"])
        script = int(pathlib.Path(f"/proc/{waiting}/task/{waiting}/children").read_text())
        for pid in (waiting, script):  # nothing else: its ssh's and its timer must see it themselves
            os.kill(pid, signal.SIGKILL)
        self.nothing_left()
        self.assertIn(self.state("killed")["state"], ("ended", "failed"))

    def test_host_that_takes_the_connection_and_says_nothing_holds_up_no_end(self):
        silent = self.net["c"].popen([sys.executable, "-c", "import socket, sys\ns = socket.create_server(('', 2222))\nprint(flush=True)\n"
                                      "kept = []\nwhile True: kept.append(s.accept())"], stdout=subprocess.PIPE)
        self.addCleanup(silent.communicate)
        self.addCleanup(silent.kill)
        silent.stdout.readline()
        bed = pathlib.Path(self.ssh.bin, "ssh")
        harness.write("ssh", f'#!/bin/bash\nwords=("${{@/ConnectTimeout=60/ConnectTimeout=2}}")\nexec {bed} -o Port=2222 "${{words[@]}}"\n').chmod(0o755)
        self.env["PATH"] = f"{self.tmp}:{self.env['PATH']}"
        self.submit("silent", jobs.program("show_env.py", self.marks), hosts=["c"])
        harness.wait_until(lambda: self.state("silent")["exit_code"] is not None, 30, "the end of the job")
        self.assertEqual(self.state("silent")["exit_code"], 255)
        self.assertRegex((self.tmp / "silent.out").read_text(), "[Tt]imed out")

    def test_host_that_does_not_exist_fails_the_job_and_is_named(self):
        self.submit("lost", jobs.program("show_env.py", self.marks), hosts=["a", "nowhere"], flags=["--join-timeout=3s"])
        harness.wait_until(lambda: self.state("lost")["exit_code"] is not None, 30, "the end of the job")
        text = (self.tmp / "lost.out").read_text()
        self.assertEqual(self.state("lost")["exit_code"], 4, text)
        self.assertRegex(text, "resolve hostname nowhere")
        self.assertRegex(text, "missing: node 1")
        self.nothing_left()
