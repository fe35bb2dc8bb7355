"""`lockstep train` from the first line to the last file: what a training prints, and what other programs read of it."""

import json
import re
import struct
import sys

import harness

sys.path.append(str(harness.ROOT / "tests"))
from beds import train  # noqa: E402

# Prints what TensorBoard's own reader finds, as JSON.
TENSORBOARD = """
import json, sys
from tensorboard.backend.event_processing import event_accumulator, plugin_event_accumulator
sizes = {"tensors": 0, "scalars": 0, "images": 0}
events = plugin_event_accumulator.EventAccumulator(sys.argv[1], size_guidance=sizes)
events.Reload()
kinds = {}
for tag in events.Tags()["tensors"]:
    kinds.setdefault(events.SummaryMetadata(tag).plugin_data.plugin_name, []).append(tag)
from tensorboard.util import tensor_util
loss = [(e.step, float(tensor_util.make_ndarray(e.tensor_proto))) for e in events.Tensors("loss")]
image = tensor_util.make_ndarray(events.Tensors(kinds["images"][0])[0].tensor_proto)
text = tensor_util.make_ndarray(events.Tensors(kinds["text"][0])[0].tensor_proto)
print(json.dumps({"kinds": kinds, "loss": loss, "image": [len(image), image[2][:8].hex()], "text": text.tobytes().decode("utf8", "replace") if text.dtype.kind == "S" else str(text.ravel()[0])}))
"""


class Training(harness.Case):
    """One training on two ranks, looked at from all sides: it takes longer than the looking."""

    TIMEOUT = 180

    def test_loss_falls_and_everything_it_leaves_is_read_by_others(self):
        harness.require("torch")
        steps = 45
        done = train.train(sets={"train.steps": steps, "data.validation.every": 15, "checkpoint.every": 15})
        self.assertEqual(done.returncode, 0, done.stderr)
        run = train.run_path()
        with self.subTest("the loss falls"):
            loss = [value for _, value in train.values(run, "loss")]
            self.assertEqual([step for step, _ in train.values(run, "loss")], list(range(1, steps + 1)))
            self.assertLess(sum(loss[-9:]), 0.6 * sum(loss[:9]), loss)
        with self.subTest("the validation score rises"):
            scores = train.values(run, "val/psnr")
            self.assertEqual([step for step, _ in scores], [15, 30, 45])
            self.assertGreater(scores[-1][1], scores[0][1])
        with self.subTest("what is said before the first step"):
            for word in ("devices     2 ranks on CPU", "precision   fp32 (auto: on a CPU)", "parameters  717667 trained", "data        36 of 40 samples",
                         "validation  4 of 40 samples", "batch       2 samples x 2 ranks x 1 pass = 4"):
                self.assertIn(word, done.stdout)
        with self.subTest("metric lines"):
            for rank in range(2):
                for line in train.metrics(run, rank):
                    self.assertEqual((line["attempt"], line["rank"]), (0, rank))
                    self.assertTrue({"t", "step", "scalars"} <= line.keys(), line)
                names = {name for line in train.metrics(run, rank) for name in line["scalars"]}
                self.assertTrue({"rank/time/step", "rank/time/data", "rank/time/comm_exposed", "rank/memory/host",
                                 "rank/comm/shm_bytes", "rank/comm/tcp_bytes"} <= names, names)
            self.assertNotIn("loss", {name for line in train.metrics(run, 1) for name in line["scalars"]})
        with self.subTest("pictures"):
            for path in (run / "loss.png", run / "pictures" / f"reconstruction-{steps}.png"):
                self.assertEqual(path.read_bytes()[:8], b"\x89PNG\r\n\x1a\n", path)
        with self.subTest("checkpoints"):
            first, second, third = train.checkpoints(run)
            self.assertEqual((first, third), (15, 45))
            self.assertIn(second, range(30, 45))  # 30, or later where the first took more than 15 steps to write
            self.assertEqual(train.stray(run), [])
            self.upstream_names(train.last(run))
        with self.subTest("TensorBoard's own reader"):
            found = harness.run([harness.PYTHON, "-c", TENSORBOARD, run / "tensorboard"])
            self.assertEqual(found.returncode, 0, found.stderr)
            seen = json.loads(found.stdout)
            self.assertEqual(seen["loss"], [[s, as_float32(v)] for s, v in train.values(run, "loss")])
            self.assertIn("reconstruction", seen["kinds"]["images"])
            self.assertEqual(seen["image"], [3, b"\x89PNG\r\n\x1a\n".hex()])
            self.assertIn("taehv-small", seen["text"])
        with self.subTest("watch and runs"):
            watched = harness.lockstep("watch", "run", "--once", "--json")
            self.assertEqual(watched.returncode, 0, watched.stderr)
            seen = json.loads(watched.stdout)
            self.assertEqual([rank["step"] for rank in seen["ranks"]], [steps, steps])
            listed = harness.lockstep("runs")
            self.assertRegex(listed.stdout, r"\brun\b.*succeeded")
        with self.subTest("the effective configuration"):
            again = harness.lockstep("config", "taehv", "--config", run / "train.yaml", "--plain")
            self.assertEqual(again.stdout, (run / "train.yaml").read_text())

    def upstream_names(self, checkpoint):
        """The names of the published weights of this family: numbered layers of one encoder and one decoder."""
        from safetensors import safe_open

        with safe_open(checkpoint / "model.safetensors", "pt") as file:
            names = set(file.keys())
            self.assertIn("encoder.0.weight", names)
            self.assertTrue({"decoder.1.weight", "decoder.1.bias"} <= names)
            self.assertTrue(any(re.fullmatch(r"encoder\.\d+\.conv\.0\.weight", name) for name in names))
            for name in names:
                self.assertRegex(name, r"^(encoder|decoder)\.\d+\.(conv\.\d+\.|conv\.|skip\.)?(weight|bias)$")
            self.assertEqual(sum(file.get_tensor(name).numel() for name in names), 717667)


def as_float32(value):
    """A number as float32, the way event files hold it."""
    return struct.unpack("f", struct.pack("f", value))[0]


class Data(harness.Case):
    def test_every_clip_comes_once_an_epoch(self):
        done = train.train(ranks=1, sets={"train.steps": 18, "checkpoint.every": 0})
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(train.problems_of_lineage(train.run_path(), 18), "")
        self.assertIn("36 of 40 samples", done.stdout)
        self.assertIn("4 of 40 samples", done.stdout)

    def test_validation_sees_no_video_that_is_trained_on(self):
        """Every video is damaged, so that training and validation name each one they touch."""
        from PIL import Image

        videos = [f"v{number}" for number in range(10)]
        for video in videos:
            folder = self.tmp / "videos" / video
            folder.mkdir(parents=True)
            for frame in range(4):
                Image.new("RGB", (32, 32), (25, frame * 20, 0)).save(folder / f"{frame}.png")
            whole = (folder / "2.png").read_bytes()
            (folder / "2.png").write_bytes(whole[: len(whole) // 2])
        done = train.train(sets={"train.steps": 4, "train.batch": 2, "data.kind": "frames", "data.path": self.tmp / "videos", "data.clips": None,
                                 "data.last_batch": "keep", "data.validation.fraction": 0.3, "data.bad_samples": 100, "checkpoint.every": 0})
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        text = train.all_logs(train.run_path())
        trained = set(re.findall(r"unreadable sample (?:\S*/)?(v\d)", text))
        validated = set(re.findall(r"unreadable validation sample (?:\S*/)?(v\d)", text))
        self.assertEqual((len(trained), len(validated)), (7, 3), text)
        self.assertEqual(trained | validated, set(videos))


class Configuration(harness.Case):
    TOGETHER = True  # one engine for all

    def test_printed_configuration_is_a_file_that_means_the_same(self):
        printed = harness.engine("config", "taehv", "--set", "train.batch=6", "--set", "train.ema.decay=0.9")
        self.assertEqual(printed.returncode, 0, printed.stderr)
        file = harness.write("taehv.yaml", printed.stdout)
        plain = harness.engine("config", "taehv", "--plain", "--set", "train.batch=6", "--set", "train.ema.decay=0.9")
        again = harness.engine("config", "taehv", "--plain", "--config", file)
        self.assertEqual(again.returncode, 0, again.stderr)
        self.assertEqual(again.stdout, plain.stdout)
        self.assertIn("decay: 0.9", plain.stdout)
        self.assertNotEqual(again.stdout, harness.engine("config", "taehv", "--plain").stdout)

    def test_every_section_is_printed(self):
        printed = harness.engine("config", "taehv").stdout
        for section in ("run:", "train:", "data:", "comm:", "checkpoint:", "track:", "recipe:"):
            self.assertIn(f"\n{section}" if section != "run:" else section, printed)

    def test_mistaken_command_line_is_code_2(self):
        for words in (["taehv", "--bogus"], [], ["taehv", "--set"], ["taehv", "--set", "train.steps"]):
            done = harness.engine("config", *words)
            self.assertEqual(done.returncode, 2, f"{words}: {done.stderr}")
        self.assertEqual(harness.engine("config", "--help").returncode, 0)

    def test_unknown_recipe_names_the_nearest(self):
        done = harness.engine("config", "taehw")
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("taehv", done.stderr)


class Batch(harness.Case):
    TIMEOUT = 180

    def test_global_batch_stays_what_the_configuration_says_on_any_number_of_ranks(self):
        expected = {1: r"12 samples x 1 rank x 1 pass = 12", 2: r"6 samples x 2 ranks x 1 pass = 12",
                    3: r"4 samples x 3 ranks x 1 pass = 12", 4: r"3 samples x 4 ranks x 1 pass = 12"}
        for ranks, text in expected.items():
            done = train.train(ranks=ranks, name=f"r{ranks}", sets={"train.steps": 2, "train.batch": 12, "checkpoint.every": 0})
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn(text, done.stdout)
            counts = [len(samples) for samples in train.lineage(train.run_path(f"r{ranks}")).values()]
            self.assertEqual(counts, [12, 12], f"{ranks} ranks")

    def test_micro_batches_become_accumulation(self):
        for ranks, text in ((1, "2 samples x 1 rank x 4 passes = 8"), (2, "2 samples x 2 ranks x 2 passes = 8"),
                            (3, "8 samples over 3 ranks, 2 or 3 each, in 2 passes")):
            done = train.train(ranks=ranks, name=f"r{ranks}", sets={"train.steps": 2, "train.batch": 8, "train.micro_batch": 2, "checkpoint.every": 0})
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn(text, done.stdout)

    def test_losses_do_not_depend_on_the_number_of_ranks(self):
        losses = {}
        for ranks in (1, 3):
            done = train.train(ranks=ranks, name=f"r{ranks}", sets={"train.steps": 4, "train.batch": 8, "train.micro_batch": 2})
            self.assertEqual(done.returncode, 0, done.stderr)
            losses[ranks] = [value for _, value in train.values(train.run_path(f"r{ranks}"), "loss")]
        for one, three in zip(losses[1], losses[3], strict=True):
            self.assertAlmostEqual(one / three, 1, places=3)


class Smoke(harness.Case):
    def test_good_configuration_is_ready(self):
        done = train.train("--smoke=8", sets={"train.steps": 1000, "train.ema.decay": 0.99})
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"ready: 8 steps")
        self.assertNotIn("not ready", done.stdout)
        self.assertRegex(done.stdout, r"resuming from \S+ at step 4")
        self.assertRegex(done.stdout, r"validation at step")

    def test_broken_configuration_is_not_ready_and_says_why(self):
        done = train.train("--smoke=8", sets={"train.bach": 4})
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertRegex(done.stderr, r"not ready: .*train\.bach")
        self.assertEqual((done.stdout + done.stderr).count("train.bach: "), 1, "said once")
        self.assertFalse((self.tmp / "runs").exists())

    def test_data_that_is_not_there_is_not_ready(self):
        done = train.train("--smoke=8", sets={"data.kind": "frames", "data.path": self.tmp / "nowhere", "data.clips": None})
        self.assertIn(done.returncode, (2, 3), done.stderr)
        self.assertRegex(done.stderr, r"not ready: .*nowhere")
        self.assertFalse((self.tmp / "runs").exists())

    def test_dry_run_leaves_a_training_of_the_same_name_alone(self):
        done = train.train(sets={"train.steps": 4})
        self.assertEqual(done.returncode, 0, done.stderr)
        before = train.state(train.last(train.run_path()))
        lines = train.metrics(train.run_path())
        for _ in range(2):
            done = train.train("--smoke=8", sets={"train.steps": 8})
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(list(train.checkpoints(train.run_path())), [4])
        self.assertEqual((train.state(train.last(train.run_path())), train.metrics(train.run_path())), (before, lines))
        done = train.train(sets={"train.steps": 8})
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"resuming from \S+/step-4 at step 4")

    def test_impossible_number_of_steps_is_refused(self):
        done = train.train("--smoke=1")
        self.assertEqual(done.returncode, 2, done.stderr)
