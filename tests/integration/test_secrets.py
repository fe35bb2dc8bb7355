"""Secrets that are given to a launch stay out of what it writes."""

import json
import sys

import harness


class Secrets(harness.Case):
    def test_planted_secrets_reach_no_file_of_a_run(self):
        """Keys in the environment, in flags and in arguments of the program."""
        secret = "planted-" + "f00dfeed" * 4
        env = {"WANDB_API_KEY": secret, "HF_TOKEN": secret, "DB_PASSWORD": secret, "AWS_SECRET_ACCESS_KEY": secret}
        program = harness.write("program.py", "import os, sys\nassert len(sys.argv) == 5\nassert os.environ['MY_API_KEY']\n")
        done = harness.lockstep("run", "--nproc-per-node", "2", "--name", "run", "--env", f"MY_API_KEY={secret}", "--no-python",
                                sys.executable, program, "--api-key", secret, f"--hf-token={secret}",
                                f"--url=https://me:{secret}@example.org", env=env)
        self.assertEqual(done.returncode, 0, done.stderr)
        files = [path for path in (self.tmp / "runs").rglob("*") if path.is_file()]
        self.assertGreater(len(files), 5)
        self.assertEqual([str(path) for path in files if secret.encode() in path.read_bytes()], [])
        shown = json.loads((self.tmp / "runs/run/run.json").read_text())["program"]
        self.assertEqual(shown[-4:], ["--api-key", "***", "--hf-token=***", "--url=https://me:***@example.org"])

    def test_a_traceback_with_secrets_stays_in_the_log_of_its_rank(self):
        """The diagnosis, the report and the events quote the log without them."""
        secret = "planted-{}-" + "f00dfeed" * 4
        token = "hf_" + "aB3dE6gH" * 4
        env = {"WANDB_API_KEY": secret.format("key"), "DATABASE_URL": f"postgres://me:{secret.format('url')}@host/db"}
        program = harness.write("program.py", f"import os, sys\nraise ValueError('refused: ' + os.environ['WANDB_API_KEY'] + ' '"
                                              f" + os.environ['DATABASE_URL'] + ' ' + sys.argv[2] + ' {token}')\n")
        done = harness.lockstep("run", "--nproc-per-node", "2", "--name", "run", "--no-python", sys.executable, program,
                                "--api-key", secret.format("flag"), env=env)
        self.assertEqual(done.returncode, 5, done.stderr)
        self.assertIn("ValueError: refused: ***", (self.tmp / "runs/run/report.json").read_text())
        planted = [secret.format(word).encode() for word in ("key", "url", "flag")] + [token.encode()]
        found = {path.name for path in (self.tmp / "runs").rglob("*") if path.is_file() and any(s in path.read_bytes() for s in planted)}
        self.assertTrue(found and found <= {"rank-0.log", "rank-1.log"}, found)
