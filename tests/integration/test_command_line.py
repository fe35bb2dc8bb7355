"""Command lines with mistakes, as a newcomer types them."""

import harness


class CommandLine(harness.Case):
    """Words that are no flags, and flags that nobody knows: refused before anything starts, with what was meant."""

    # name: (arguments, words the message must hold)
    LINES = {
        "forgotten --config": (["train", "taehv", "taehv.yaml"], ["taehv.yaml", "--config taehv.yaml"]),
        "forgotten --set": (["train", "taehv", "train.steps=3"], ["--set train.steps=3"]),
        "a program": (["train", "taehv", "x.py"], ["x.py", "lockstep run x.py"]),
        "a file for the recipe": (["train", "taehv.yaml"], ["taehv.yaml", "RECIPE --config taehv.yaml"]),
        "flags only": (["train", "--max-restarts", "3"], ["recipe"]),
        "engine's flag misspelt": (["train", "taehv", "--confg", "taehv.yaml"], ["--confg", "--config"]),
        "run's flag misspelt": (["train", "taehv", "--nproc-pre-node", "2"], ["--nproc-pre-node", "--nproc-per-node"]),
        "a key as a flag": (["train", "taehv", "--steps", "3"], ["--steps", "--set train.steps=3"]),
        "a key as a flag before the recipe": (["train", "--steps=3", "taehv"], ["--steps", "--set train.steps=3"]),
        "a script as a module": (["run", "--nproc-per-node", "2", "-m", "x.py"], ["lockstep run --nproc-per-node 2 x.py"]),
        "flag without value": (["train", "taehv", "--config"], ["--config", "expected a value"]),
        "selftest's flag misspelt": (["selftest", "--scael"], ["--scael", "--scale"]),
        "preflight's flag misspelt": (["doctor", "preflight", "--chekcs", "gpu"], ["--chekcs", "--checks"]),
        "watch's flag misspelt": (["watch", "latest", "--intervall", "2s"], ["--intervall", "--interval"]),
        "config of a file": (["config", "taehv.yaml"], ["taehv.yaml", "--config taehv.yaml"]),
        "config with a stray file": (["config", "taehv", "taehv.yaml"], ["taehv.yaml", "--config taehv.yaml"]),
        "eval's flag misspelt": (["eval", "taehv", "--weigths", "a"], ["--weigths", "--weights"]),
        "weights of no run": (["export", "--weights", "nihgt-1", "o.safetensors"], ["nihgt-1", "neither a file nor a run"]),
        "command misspelt": (["trian", "taehv"], ["trian", "train"]),
        "version's short flag": (["-v"], ["lockstep version"]),
        "a test cannot resume": (["train", "taehv", "--smoke", "--resume", "night-1"], ["--resume night-1", "--smoke", "drop"]),
        "no command": (["x.py", "--lr", "1"], ["lockstep run x.py --lr 1"]),
        "flags before the command": (["--nproc-per-node", "2", "x.py"], ["lockstep run --nproc-per-node 2 x.py"]),
    }

    def test_mistakes_are_refused_with_what_was_meant_and_start_nothing(self):
        harness.write("x.py", "open('started', 'w')\n")
        harness.write("taehv.yaml", "train:\n  steps: 3\n")
        for name, (args, words) in self.LINES.items():
            with self.subTest(name):
                done = harness.lockstep(*args)
                self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
                for word in words:
                    self.assertIn(word, done.stderr)
                self.assertLess(len(done.stderr.splitlines()), 4, done.stderr)
                self.assertFalse((self.tmp / "runs").exists())
                self.assertFalse((self.tmp / "started").exists())

    def test_flags_may_stand_before_the_recipe(self):
        done = harness.lockstep("train", "--dry-run", "--nproc-per-nod", "2", "taehv", "--set", "train.steps=3", "--smoke")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"would start 2 ranks on this node, 1 node\b")
        self.assertRegex(done.stdout, r"lockstep-train train taehv --set=train\.steps=3 --smoke")
