"""`lockstep plan` as a whole: what it prints, that train says the same, and what it refuses."""

import json

import harness


class Plan(harness.Case):
    def plan(self, *words, code=0):
        done = harness.lockstep("plan", *words, cwd=self.tmp)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def test_a_number_of_parameters_is_enough(self):
        picture = self.tmp / "plan.svg"
        done = self.plan("--parameters", "7B", "--gpus", "8", "--gpu", "h100", "--batch", "64", "--host-memory", "1000GiB",
                         "--scale", "8..64", "--picture", picture, "--json")
        said = json.loads(done.stdout)
        self.assertEqual(len(said["lines"]), 18)
        self.assertEqual([point["gpus"] for point in said["scale"]], [8, 16, 32, 64])
        self.assertIsNotNone(said["recommended"]["line"])
        for line in said["lines"]:
            self.assertGreaterEqual(line["device_bytes"], sum(line["device"].values()))
        self.assertTrue(picture.read_text().startswith("<svg"))

    def test_the_plan_of_a_recipe_is_what_its_ranks_hold(self):
        keys = ["train.steps=2", "train.batch=4", "data.length=32", "recipe.layers=1", "train.zero.stage=2",
                "data.validation.samples=2", "track.tensorboard=false"]
        words = [word for key in keys for word in ("--set", key)]
        line = json.loads(self.plan("lm", "--cpu", "--gpus", "2", "--json", *words).stdout)["configured"]
        done = harness.lockstep("train", "lm", "--nproc-per-node", "2", "--name", "planned", *words, cwd=self.tmp)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("plan        ", done.stdout + done.stderr)
        rows = (self.tmp / "runs" / "planned" / "metrics" / "rank-1.jsonl").read_text().splitlines()
        owned = next(json.loads(row)["scalars"] for row in rows if "rank/memory/owned/parameters" in row)
        for component in ("parameters", "gradients", "optimizer", "buckets"):
            self.assertEqual(owned[f"rank/memory/owned/{component}"], line["device"][component], component)

    def test_what_is_refused(self):
        for words, text in [
            ([], "a recipe or --parameters"),
            (["nothing"], "nothing"),
            (["lm", "--parameters", "7B"], "--parameters"),
            (["--parameters", "-7B"], "expected a number of parameters"),
            (["--parameters", "many"], "expected a number of parameters"),
            (["--parameters", "7B", "--gpus", "0"], "--gpus"),
            (["--parameters", "7B", "--gpus", "8", "--nodes", "16"], "a node has at least one"),
            (["--parameters", "7B", "--gpus", "8", "--nodes", "3"], "--gpus 9"),
            (["--parameters", "7B", "--picture", "plan.png"], "ends in .svg"),
            (["--parameters", "7B", "--gpus", "64", "--batch", "8"], "a rank would have no sample"),
            (["--parameters", "7B", "--gpu", "h2000"], "did you mean 'h200'"),
            (["--parameters", "7B", "--links", "nvl"], "there is no preset"),
            (["--parameters", "7B", "--memory", "much"], "expected a size"),
            (["--parameters", "7B", "--flops", "-3"], "above 0"),
            (["--parameters", "7B", "--clip", "12x8x8"], "--sequence"),
            (["--parameters", "7B", "--scale", "64..8"], "8..16384"),
            (["--parameters", "7B", "--ring", "--tree"], "--tree"),
            (["--parameters", "7B", "--stage", "3"], "--scale"),
        ]:
            with self.subTest(words=words):
                self.assertIn(text, self.plan(*words, code=2).stderr)
