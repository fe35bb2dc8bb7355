"""The recipe of docs/write-a-recipe.md is the one that is compiled, is short, and trains."""

import harness

PAGE = harness.ROOT / "docs" / "write-a-recipe.md"
SOURCE = harness.ROOT / "src" / "recipes" / "denoise.cc"


class WriteARecipe(harness.Case):
    TIMEOUT = 120

    def test_the_page_shows_the_file_that_is_compiled(self):
        code = PAGE.read_text().split("```cpp\n")[1].split("```")[0]
        self.assertEqual(code, SOURCE.read_text())
        self.assertLess(len(code.splitlines()), 100)

    def test_it_trains_on_two_ranks(self):
        done = harness.run([harness.PROGRAM, "train", "denoise", "--nproc-per-node", "2", "--name", "d", "--set", "train.steps=250",
                            "--set", "train.batch=8", "--set", "data.height=32", "--set", "data.width=32", "--set", "recipe.width=8",
                            "--set", "data.validation.samples=8", "--set", "train.optimizer.lr=5e-3"], cwd=harness.tmp_dir())
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        lines = harness.read_jsonl(harness.tmp_dir() / "runs/d/metrics/rank-0.jsonl")
        losses = [line["scalars"]["loss"] for line in lines if "loss" in line["scalars"]]
        self.assertLess(sum(losses[-10:]), sum(losses[:10]) / 2)
