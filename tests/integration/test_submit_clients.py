"""Clients that cannot be had here, recorded: what they were called with, and what they answer is read."""

import json
import os
import pathlib
import sys

import harness
from test_submit import job, submit, write

sys.path.append(str(harness.ROOT / "tests"))
from beds import submitted  # noqa: E402


class _Clients(harness.Case):
    TIMEOUT = 30

    def setUp(self):
        self.bin = self.tmp / "bin"
        self.bin.mkdir(exist_ok=True)
        self.env = {"PATH": f"{self.bin}:{os.environ['PATH']}", "USER": "me"}

    def client(self, name, answer, code=0):
        submitted.program(self.bin / name, "#!/bin/sh\n{ echo \"$0 $*\"; [ -t 0 ] || cat; echo; } >> " + str(self.tmp / f"{name}.called")
                          + f"\ncat <<'END'\n{answer}\nEND\nexit {code}\n")

    def called(self, name):
        path = self.tmp / f"{name}.called"
        text = path.read_text() if path.exists() else ""
        path.unlink(missing_ok=True)
        return text

    def jobs(self, *args):
        done = harness.lockstep("jobs", "--json", *args, env={**self.env, "XDG_STATE_HOME": self.tmp / "state"})
        self.assertEqual(done.returncode, 0, done.stderr)
        return {one["name"]: one for one in json.loads(done.stdout)["jobs"]}

    def cancel(self, *args):
        return harness.lockstep("cancel", *args, env={**self.env, "XDG_STATE_HOME": self.tmp / "state"})


class Records(_Clients):
    TOGETHER = True

    def test_a_client_that_does_not_answer_is_named_and_Ctrl_C_would_leave_nothing_behind(self):
        self.client("bsub", "")
        submitted.program(self.bin / "bjobs", f"#!/bin/sh\nuntil [ -e {self.tmp}/answer ]; do sleep 0.05; done\n")
        temporary = self.tmp / "temporary"
        temporary.mkdir()
        jobs = harness.spawn_lockstep("jobs", "--platform", "lsf", env={**self.env, "XDG_STATE_HOME": self.tmp / "state", "TMPDIR": temporary})
        jobs.wait_for("waiting for bjobs")
        self.assertEqual(list(temporary.iterdir()), [])
        (self.tmp / "answer").touch()
        self.assertEqual(jobs.wait(), 0, jobs.output)

    def test_lsf(self):
        self.client("bsub", "Job <4711> is submitted to queue <gold>.")
        done = submit("--platform", "lsf", write(job("lsf", name="l")), env=self.env)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(": 4711\n", done.stdout)
        self.assertIn('#BSUB -J "l"', self.called("bsub"))
        self.client("bjobs", "4711|l|RUN|120 second(s)|2|h0:h1")
        self.assertEqual((self.jobs("--platform", "lsf")["l"]["state"], self.jobs("--platform", "lsf")["l"]["nodes"]), ("running", 2))
        self.assertIn("-u me", self.called("bjobs"))
        (self.tmp / "l-4711.out").write_text("step 1\nstep 2\n")
        done = harness.lockstep("logs", "l", "-n", "1", env={**self.env, "XDG_STATE_HOME": self.tmp / "state"})
        self.assertEqual((done.returncode, done.stdout), (0, "step 2\n"), done.stderr)
        self.client("bkill", "Job <4711> is being terminated")
        self.assertEqual(self.cancel("l").returncode, 0)
        self.assertIn("bkill 4711", self.called("bkill"))

    def test_pbs(self):
        self.client("qsub", "4712.server")
        done = submit("--platform", "pbs", write(job("pbs", name="p")), env=self.env)
        self.assertEqual(done.returncode, 0, done.stderr)
        file = self.called("qsub").split()[1]
        self.assertIn("#PBS -N p", pathlib.Path(file).read_text())
        self.client("qstat", "Job Id: 4712.server\n    Job_Name = p\n    job_state = F\n    Resource_List.nodect = 2\n    Exit_status = 75\n")
        found = self.jobs("--platform", "pbs")["p"]
        self.assertEqual((found["state"], found["exit_code"], found["nodes"]), ("failed", 75, 2))
        self.client("qdel", "qdel: Unknown Job Id 4712", code=153)
        done = self.cancel("p")
        self.assertEqual(done.returncode, 3)
        self.assertIn("Unknown Job Id", done.stderr)

    def test_slurm_remembers_ended_jobs_in_its_accounting(self):
        """Lines as `sacct --parsable2` writes them; scontrol has forgotten all of these jobs."""
        self.client("squeue", "")
        submitted.program(self.bin / "scontrol", "#!/bin/sh\necho 'slurm_load_jobs error: Invalid job id specified' >&2\nexit 1\n")
        accounts = {
            "done": ("21|done|COMPLETED|1-02:03:04|2|gpu[1-2]|0:0", "succeeded", 0, "COMPLETED"),
            "broken": ("22|broken|FAILED|00:01:02|1|gpu1|5:0", "failed", 5, "FAILED"),
            "late": ("23|late|TIMEOUT|00:10:00|1|gpu1|0:15", "failed", None, "TIMEOUT"),
            "gone": ("24|gone|CANCELLED by 1000|00:00:07|2|gpu[1-2]|0:0", "cancelled", None, "CANCELLED by 1000"),
            "early": ("25|early|CANCELLED by 1000|00:00:00|2|None assigned|0:0", "cancelled", None, "CANCELLED by 1000"),
            "sweep": ("26_0|sweep|COMPLETED|00:00:07|1|gpu1|0:0\n26_1|sweep|OUT_OF_MEMORY|00:00:09|1|gpu2|0:125\n"
                      "26_2|sweep|COMPLETED|00:00:07|1|gpu1|0:0", "failed", None, "OUT_OF_MEMORY (1 of 3 tasks)"),
            "deleted": ("", "ended", None, "the platform no longer knows it"),
        }
        for number, name in enumerate(accounts, 21):
            self.client("sbatch", number)
            done = submit("--platform", "slurm", write(job("slurm", name=name)), env=self.env)
            self.assertEqual(done.returncode, 0, done.stderr)
        rows = "".join(f"{number}) cat <<'END'\n{row}\nEND\n;;\n" if row else "" for number, (row, *_) in enumerate(accounts.values(), 21))
        submitted.program(self.bin / "sacct", f"""#!/bin/sh
[ "$2 $3 $4" = "--allocations --noheader --parsable2" ] || exit 9
[ "$5" = "--format=JobID,JobName,State,Elapsed,NNodes,NodeList,ExitCode" ] || exit 9
case "${{1#--jobs=}}" in
{rows}esac
""")
        found = self.jobs("--platform", "slurm")
        for name, (_, state, code, detail) in accounts.items():
            self.assertEqual((found[name]["state"], found[name]["exit_code"], found[name]["detail"]), (state, code, detail), name)
        self.assertEqual((found["done"]["time"], found["done"]["nodes"], found["done"]["where"]), ("1-02:03:04", 2, "gpu[1-2]"))
        for answer in ("echo 'Slurm accounting storage is disabled' >&2; exit 1", "exit 0"):
            submitted.program(self.bin / "sacct", f"#!/bin/sh\n{answer}\n")
            self.assertEqual({one["state"] for one in self.jobs("--platform", "slurm").values()}, {"ended"})
        submitted.program(self.bin / "scontrol", "#!/bin/sh\necho 'Unable to contact slurm controller (connect failure)' >&2\nexit 1\n")
        self.assertEqual({(one["state"], one["detail"]) for one in self.jobs("--platform", "slurm").values()},
                         {("unknown", "Unable to contact slurm controller (connect failure)")}, "nobody knows that it ended")

    def test_two_jobs_of_a_name_have_two_files(self):
        files = []
        for number in range(2):
            self.client("qsub", f"{number}.server")
            files.append(json.loads(submit("--platform", "pbs", "--json", write(job("pbs", name="twin")), env=self.env).stdout)["file"])
        self.assertEqual(len({path for path in files if pathlib.Path(path).exists()}), 2, files)

    def test_cancel_names_the_other_jobs_of_that_name_that_go_on(self):
        for number in (61, 62, 63):
            self.client("sbatch", number)
            self.assertEqual(submit("--platform", "slurm", write(job("slurm", name="many")), env=self.env).returncode, 0)
        submitted.program(self.bin / "scontrol", "#!/bin/sh\ncase \"$*\" in *61*) state=RUNNING ;; *) state=COMPLETED ;; esac\n"
                                                 "echo \"JobId=1 JobState=$state RunTime=00:01:00 ExitCode=0:0\"\n")
        self.client("scancel", "")
        done = self.cancel("many")
        self.assertEqual((done.returncode, self.called("scancel")), (2, ""))
        self.assertRegex(done.stderr, r"'many' \(63\) does not wait")
        self.assertRegex(done.stderr, "another job 'many' is running, and is not cancelled: lockstep cancel --platform slurm 61\n$")
        self.assertNotIn("62", done.stderr)
        self.assertEqual(self.cancel("--platform", "slurm", "61").stderr, "")

    def test_lsf_without_jobs_is_no_error(self):
        self.client("bsub", "Job <4714> is submitted to queue <gold>.")
        self.assertEqual(submit("--platform", "lsf", write(job("lsf", name="over")), env=self.env).returncode, 0)
        submitted.program(self.bin / "bjobs", "#!/bin/sh\n[ \"$1\" != -u ] || { echo 'No unfinished job found' >&2; exit 255; }\n"
                           "echo '4714|over|EXIT|61 second(s)|2|h0:h1|5|-'\n")
        found = self.jobs("--platform", "lsf")["over"]
        self.assertEqual((found["state"], found["exit_code"]), ("failed", 5))

    def test_lsf_says_of_an_array_what_all_its_jobs_are_and_who_killed_them(self):
        self.client("bsub", "Job <81> is submitted to queue <gold>.")
        self.assertEqual(submit("--platform", "lsf", write(job("lsf", name="wide", array="1-3")), env=self.env).returncode, 0)
        for row, state, code, detail in (
                ("81|wide[1]|DONE|61 second(s)|1|h0|0|-\n81|wide[2]|RUN|61 second(s)|1|h1|-|-", "running", None, "RUN (1 of 2 tasks)"),
                ("81[1]|wide[1]|DONE|61 second(s)|1|h0|0|-\n81[2]|wide[2]|EXIT|9 second(s)|1|h1|5|-", "failed", 5, "EXIT (1 of 2 tasks)"),
                ("81|wide[1]|EXIT|61 second(s)|1|h0|130|TERM_OWNER: job killed by owner", "cancelled", None, "TERM_OWNER: job killed by owner"),
                ("81|wide[1]|PEND|0 second(s)|-|-|-|-", "pending", None, "PEND")):
            with self.subTest(row=row):
                submitted.program(self.bin / "bjobs", f"#!/bin/sh\n[ \"$1\" = -a ] || exit 0\ncat <<'END'\n{row}\nEND\n")
                found = self.jobs("--platform", "lsf")["wide"]
                self.assertEqual((found["id"], found["state"], found["exit_code"], found["detail"]), ("81", state, code, detail))
        for said, code, state in (("Job <81> is not found", 0, "ended"), ("Job <81> is not found", 255, "ended"),
                                  ("batch daemon not responding ... still trying", 255, "unknown")):
            submitted.program(self.bin / "bjobs", f"#!/bin/sh\n[ \"$1\" = -a ] || exit 0\necho '{said}' >&2\nexit {code}\n")
            self.assertEqual(self.jobs("--platform", "lsf")["wide"]["state"], state, said)

    def test_slurm_of_several_clusters_is_asked_about_the_right_one(self):
        """The ids of two clusters may be the same: a job of that id on this one is another job."""
        self.client("sbatch", "51;east")
        done = json.loads(submit("--platform", "slurm", "--json", write(job("slurm", name="far", native=["--clusters=east"])), env=self.env).stdout)
        self.assertEqual(done["id"], "51")
        submitted.program(self.bin / "squeue", "#!/bin/sh\ncase \"$*\" in\n*--clusters=east*) echo 'CLUSTER: east'; echo '51|far|PENDING|0:00|2|(Priority)' ;;\n"
                                               "*) echo '51|near|RUNNING|9:00|1|gpu1' ;;\nesac\n")
        found = self.jobs("--platform", "slurm")
        self.assertEqual((found["far"]["state"], found["near"]["state"]), ("pending", "running"))
        self.client("scontrol", "JobId=51 JobState=PENDING RunTime=00:00:00 ExitCode=0:0")
        self.client("scancel", "")
        self.assertEqual(self.cancel("far").returncode, 0)
        self.assertIn("scancel --clusters=east 51\n", self.called("scancel"))
        self.assertIn("scontrol --clusters=east --oneliner show job 51\n", self.called("scontrol"))

    def test_slurm_array_is_what_all_its_jobs_are(self):
        self.client("squeue", "31_1|wide|RUNNING|1:00|1|gpu1")
        self.client("sbatch", "31")
        self.assertEqual(submit("--platform", "slurm", write(job("slurm", name="wide", array="0-1")), env=self.env).returncode, 0)
        self.client("scontrol", "JobId=32 ArrayJobId=31 ArrayTaskId=0 JobState=FAILED RunTime=00:01:00 ExitCode=5:0\n"
                                "JobId=31 ArrayJobId=31 ArrayTaskId=1 JobState=RUNNING RunTime=00:02:00 ExitCode=0:0")
        done = harness.lockstep("jobs", "--json", "--platform", "slurm", env={**self.env, "XDG_STATE_HOME": self.tmp / "state"})
        found = next(one for one in json.loads(done.stdout)["jobs"] if one["id"] == "31")
        self.assertEqual((found["state"], found["detail"]), ("running", "RUNNING (1 of 2 tasks)"))

    def test_cancel_of_slurm_is_for_jobs_that_wait_or_run(self):
        """scancel says nothing of any other job, and succeeds."""
        self.client("sbatch", "41")
        self.assertEqual(submit("--platform", "slurm", write(job("slurm", name="over")), env=self.env).returncode, 0)
        self.client("scancel", "")
        for state, code in (("COMPLETED", 2), ("RUNNING", 0), ("PENDING", 0)):
            self.client("scontrol", f"JobId=41 JobState={state} RunTime=00:01:00 ExitCode=0:0")
            done = self.cancel("over")
            self.assertEqual((done.returncode, "scancel 41" in self.called("scancel")), (code, code == 0), done.stderr)
        submitted.program(self.bin / "scontrol", "#!/bin/sh\necho 'slurm_load_jobs error: Invalid job id specified' >&2\nexit 1\n")
        submitted.program(self.bin / "sacct", "#!/bin/sh\nexit 1\n")
        for given in (["over"], ["--platform", "slurm", "999"]):
            done = self.cancel(*given)
            self.assertEqual((done.returncode, done.stdout, self.called("scancel")), (2, "", ""), done.stderr)
            self.assertRegex(done.stderr, "does not wait and does not run: ended, the platform no longer knows it")

    def test_slurm_says_where_the_output_is(self):
        self.client("sbatch", "42")
        done = submit("--platform", "slurm", write(job("slurm", name="told", output="%u-%A.out")), env=self.env)
        self.assertEqual(done.returncode, 0, done.stderr)
        (self.tmp / "me-42.out").write_text("step 1\n")
        self.client("scontrol", f"JobId=42 JobState=RUNNING StdErr=/x StdIn=/dev/null StdOut={self.tmp}/me-42.out Power=")
        state = {**self.env, "XDG_STATE_HOME": self.tmp / "state"}
        self.assertEqual(harness.lockstep("logs", "told", env=state).stdout, "step 1\n")
        # One job of an array, whose own id is in no record.
        self.client("sbatch", "43")
        self.assertEqual(submit("--platform", "slurm", write(job("slurm", name="wide", array="0-1")), env=self.env).returncode, 0)
        (self.tmp / "wide-43_1.out").write_text("step 7\n")
        self.client("scontrol", f"JobId=44 ArrayJobId=43 ArrayTaskId=1 JobState=RUNNING StdOut={self.tmp}/wide-43_1.out Power=")
        self.called("scontrol")
        self.assertEqual(harness.lockstep("logs", "43_1", env=state).stdout, "step 7\n")
        self.assertIn("show job 43_1\n", self.called("scontrol"))
        self.client("scancel", "")
        self.assertEqual(self.cancel("43_1").returncode, 0)
        self.assertIn("scancel 43_1\n", self.called("scancel"))

    def test_client_that_refuses(self):
        self.client("bsub", "Queue <gold> does not exist. Job not submitted.", code=255)
        done = submit("--platform", "lsf", write(job("lsf", name="refused")), env=self.env)
        self.assertEqual(done.returncode, 3)
        self.assertRegex(done.stderr, r"bsub ended with exit code 255\n  Queue <gold> does not exist")
        self.assertEqual(list((self.tmp / "state" / "lockstep" / "jobs").glob("refused*")), [])

    def test_client_that_gives_its_reason_on_stdout_after_a_warning(self):
        for answer, found in (("echo 'qsub: maintenance on Friday' >&2; echo 'account expired'", r"  qsub: maintenance on Friday\n  account expired\n"),
                              ("true", r"code 3\n  and said nothing\n")):
            submitted.program(self.bin / "qsub", f"#!/bin/sh\n{answer}; exit 3\n")
            done = submit("--platform", "pbs", write(job("pbs")), env=self.env)
            self.assertEqual(done.returncode, 3)
            self.assertRegex(done.stderr, found)

    def test_sites_that_greet_around_the_id(self):
        for client, platform, answer, known in (
                ("sbatch", "slurm", "-----\n  Welcome to the Stampede3 Supercomputer\n-----\n\n--> Verifying valid jobname...OK\n3 nodes asked for\n519605", "519605"),
                ("sbatch", "slurm", "519606;east\nsbatch: charged to vision", "519606"),
                ("qsub", "pbs", "Your balance is 500 hours\n\n4716[].gadi-pbs\n2026-11-19\n12:30:05", "4716[].gadi-pbs"),
                ("bsub", "lsf", "Project <none>: using <vision>\nJob <4717> is submitted to queue <gold>.", "4717")):
            with self.subTest(answer=answer):
                self.client(client, answer)
                done = submit("--platform", platform, "--json", write(job(platform)), env=self.env)
                self.assertEqual((done.returncode, json.loads(done.stdout)["id"]), (0, known), done.stderr)
        self.client("qsub", "Your job was taken")
        done = submit("--platform", "pbs", write(job("pbs")), env=self.env)
        self.assertEqual(done.returncode, 3)
        self.assertRegex(done.stderr, "qsub took the job and named no id; it said 'Your job was taken'")

    def test_check_says_what_it_found_also_when_the_client_refuses(self):
        self.client("sbatch", "", code=1)
        done = submit("--check", "--platform", "slurm", write(job("slurm", setup=["if true; then"])), env=self.env)
        self.assertEqual(done.returncode, 3)
        self.assertRegex(done.stderr, r"bash cannot read it: (.*\n)+lockstep submit: sbatch ended with exit code 1")

    def test_unknown_job(self):
        for words in (("cancel", "nobody"), ("logs", "nobody"), ("logs", "--platform", "ssh", "nobody"), ("cancel", "--platform", "x", "1")):
            done = harness.lockstep(*words, env={**self.env, "XDG_STATE_HOME": self.tmp / "none"})
            self.assertEqual((done.returncode, done.stdout), (2, ""), done.stderr)
        self.assertRegex(self.cancel("nobody").stderr, "job 'nobody' was not submitted from this account")
        done = harness.lockstep("jobs", env={"XDG_STATE_HOME": self.tmp / "none", "PATH": self.bin})
        self.assertEqual((done.returncode, done.stdout), (0, ""))
        self.client("sbatch", "48")
        self.assertEqual(submit("--platform", "slurm", write(job("slurm", name="night")), env=self.env).returncode, 0)
        done = harness.lockstep("logs", "nihgt", env={**self.env, "XDG_STATE_HOME": self.tmp / "state"})
        self.assertRegex(done.stderr, r"no runs under 'runs', and job 'nihgt' was not submitted from this account \(did you mean 'night'\?\)")


class Followed(_Clients):
    """The states are asked for every three seconds."""

    def test_one_job_of_an_array_is_followed_to_its_own_end(self):
        self.client("sbatch", "43")
        self.assertEqual(submit("--platform", "slurm", write(job("slurm", name="wide", array="0-1")), env=self.env).returncode, 0)
        (self.tmp / "wide-43_1.out").write_text("step 7\n")
        submitted.program(self.bin / "scontrol", f"""#!/bin/sh
echo 'JobId=44 ArrayJobId=43 ArrayTaskId=1 JobState=COMPLETED ExitCode=0:0 StdOut={self.tmp}/wide-43_1.out Power='
[ "$4" = 43_1 ] || echo 'JobId=43 ArrayJobId=43 ArrayTaskId=0 JobState=RUNNING ExitCode=0:0 StdOut=/x Power='
""")
        follow = harness.spawn_lockstep("logs", "-f", "43_1", env={**self.env, "XDG_STATE_HOME": self.tmp / "state"})
        self.assertEqual(follow.wait(), 0, follow.output)
        self.assertIn("step 7\n", follow.output)
        self.assertIn("has ended: succeeded, COMPLETED\n", follow.output)

    def test_job_that_waits_is_followed_although_a_run_of_its_name_is_over(self):
        """As after a time limit: the run of the first start is there, and the job is queued again."""
        self.client("sbatch", "45")
        self.assertEqual(submit("--platform", "slurm", write(job("slurm", name="night")), env=self.env).returncode, 0)
        run = harness.lockstep("run", "--name", "night", "--no-python", "--nproc-per-node", "1", "echo", "first start")
        self.assertEqual(run.returncode, 0, run.stderr)
        output = self.tmp / "night-45.out"
        output.write_text("of the job\n")
        submitted.program(self.bin / "scontrol", f"#!/bin/sh\n[ -e {self.tmp}/over ] && state=COMPLETED || state=PENDING\n"
                                                 f"echo \"JobId=45 JobState=$state ExitCode=0:0 StdOut={output} Power=\"\n")
        state = {**self.env, "XDG_STATE_HOME": self.tmp / "state"}
        follow = harness.spawn_lockstep("logs", "-f", "night", env=state)
        follow.wait_for("run 'night' has ended, and job '45' of that name is pending: following the job")
        follow.wait_for("of the job")
        (self.tmp / "over").touch()
        self.assertEqual(follow.wait(), 0, follow.output)
        self.assertIn("job 'night' has ended: succeeded", follow.output)
        again = harness.lockstep("logs", "-f", "night", env=state)
        self.assertIn("first start", again.stdout)
        self.assertIn("run 'night' has ended", again.stderr)

    def test_pbs_without_a_history_is_followed_to_the_end_of_the_job(self):
        """Many sites keep none: `qstat -x` then says nothing of any job, and succeeds."""
        self.client("qsub", "4715.server")
        done = json.loads(submit("--platform", "pbs", "--json", write(job("pbs", name="live")), env=self.env).stdout)
        submitted.program(self.bin / "qstat", f"""#!/bin/sh
case " $* " in
  *" -x "*) echo 'qstat: PBS is not configured to maintain job history' >&2 ;;
  *) [ ! -e {self.tmp}/over ] || {{ echo 'qstat: Unknown Job Id 4715.server' >&2; exit 153; }}
     printf 'Job Id: 4715.server\\n    Job_Name = live\\n    Job_Owner = me@login\\n    job_state = R\\n\\n' ;;
esac
""")
        output = pathlib.Path(done["output"])
        output.write_text("step 1\n")
        follow = harness.spawn_lockstep("logs", "-f", "live", env={**self.env, "XDG_STATE_HOME": self.tmp / "state"})
        follow.wait_for("step 1")
        with output.open("a") as out:
            out.write("step 2\n")
        follow.wait_for("step 2")
        (self.tmp / "over").touch()
        self.assertEqual(follow.wait(), 0, follow.output)
        self.assertIn("has ended: ended, the platform no longer knows it", follow.output)

    def test_pbs_job_that_was_submitted_again_is_found_by_its_name(self):
        self.client("qsub", "4713.server")
        done = json.loads(submit("--platform", "pbs", "--json", write(job("pbs", name="again")), env=self.env).stdout)
        pathlib.Path(done["file"] + ".id").write_text("4800.server\n")
        self.client("qstat", "".join(f"Job Id: {number}.server\n    Job_Name = {name}\n    Job_Owner = {who}@login\n    job_state = R\n\n"
                                     for number, name, who in ((4800, "again", "me"), (4801, "theirs", "you"))))
        found = self.jobs("--platform", "pbs")
        self.assertEqual((found["again"]["id"], found["again"]["state"]), ("4800.server", "running"))
        self.assertNotIn("theirs", found)
        (self.tmp / "again.o4800").write_text("step 2\n")
        # Who follows the job goes on with the one that it submits in its own place.
        submitted.program(self.bin / "qstat", f"""#!/bin/sh
case "$*" in
  *4800*) [ -e {self.tmp}/again ] && printf 'Job Id: 4800.server\\n    job_state = F\\n    Exit_status = 75\\n' && echo 4900.server > '{done["file"]}.id' \\
            || printf 'Job Id: 4800.server\\n    job_state = R\\n' ;;
  *) printf 'Job Id: 4900.server\\n    job_state = F\\n    Exit_status = 0\\n' ;;
esac
""")
        follow = harness.spawn_lockstep("logs", "-f", "again", env={**self.env, "XDG_STATE_HOME": self.tmp / "state"})
        follow.wait_for("step 2")
        (self.tmp / "again.o4900").write_text("step 3\n")
        (self.tmp / "again").touch()
        self.assertEqual(follow.wait(), 0, follow.output)
        self.assertIn("step 3\n", follow.output)
        self.assertIn("job 'again' has ended: succeeded", follow.output)
        pathlib.Path(done["file"] + ".id").write_text("4800.server\n")
        self.assertEqual(harness.lockstep("logs", "again", env={**self.env, "XDG_STATE_HOME": self.tmp / "state"}).stdout, "step 2\n")
