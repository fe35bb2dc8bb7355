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
