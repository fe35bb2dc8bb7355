"""`lockstep data`: what it says about data is true, and an index it wrote is what a training then uses."""

import io
import json
import tarfile

import harness
from PIL import Image


def png(level, size=(40, 30)):
    out = io.BytesIO()
    Image.new("RGB", size, (level, level, 7)).save(out, "PNG")
    return out.getvalue()


class DataCommand(harness.Case):
    TOGETHER = True

    def setUp(self):
        self.shards = self.tmp / "shards"
        self.shards.mkdir()
        with tarfile.open(self.shards / "a.tar", "w") as tar:
            for number in range(6):
                data = b"no picture" if number == 4 else png(20 * number)
                info = tarfile.TarInfo(f"{number:03d}.png")
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))

    def data(self, *args, code=0):
        done = harness.engine("data", *args)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def test_damaged_samples_are_counted_and_named(self):
        done = self.data("stat", self.shards, "--json", code=3)
        found = json.loads(done.stdout)
        self.assertEqual((found["samples"], found["read"], found["bytes"]["count"]), (6, 6, 6), found)
        self.assertEqual([(bad["sample"], bad["class"]) for bad in found["bad"]], [(str(self.shards / "a.tar" / "004.png"), "decode")])
        self.assertIn("1 of 6 samples cannot be read", done.stderr)
        self.assertIn("damaged", self.data("stat", self.shards, code=3).stdout)
        self.assertEqual(self.data("stat", self.shards, "--samples", 4).returncode, 0)

    def test_the_sheet_shows_what_the_model_sees(self):
        sheet = self.tmp / "sheet.png"
        self.data("show", self.shards, "--height", 16, "--width", 24, "--columns", 3, "--out", sheet)
        pixels = Image.open(sheet)
        self.assertEqual(pixels.size, (3 * 26 - 2, 2 * 18 - 2))
        for place, number in enumerate((0, 1, 2, 3, 5)):
            left, top = place % 3 * 26, place // 3 * 18
            self.assertEqual(pixels.getpixel((left + 12, top + 8)), (20 * number, 20 * number, 7))

    def test_the_bottleneck_is_one_of_the_stages(self):
        found = json.loads(self.data("bench", self.shards, "--seconds", 0.2, "--threads", 1, "--json").stdout)
        self.assertGreater(found["samples_per_second"], 0)
        self.assertEqual(sorted(found["seconds_per_sample"]), ["decode", "other", "read", "transform"])
        slowest = max(found["seconds_per_sample"], key=found["seconds_per_sample"].get)
        self.assertTrue(found["bottleneck"].startswith(slowest), found)

    def test_a_training_uses_the_index_and_refuses_one_of_other_data(self):
        index = self.tmp / "shards.index"
        self.data("index", self.shards, "--out", index)
        sets = {"data.kind": "tar", "data.path": self.shards, "data.index": index, "data.frames": 1, "data.height": 16, "data.width": 16,
                "data.bad_samples": 0.5, "data.validation.fraction": 0, "train.steps": 2, "train.batch": 3, "train.micro_batch": 3,
                "train.device": "cpu"}
        train = lambda **more: harness.engine("train", "denoise", *[word for key, value in {**sets, **more}.items()
                                                                    for word in ("--set", f"{key}={value}")])
        done = train()
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        (self.shards / "a.tar").write_bytes(b"")
        done = train()
        self.assertEqual(done.returncode, 3, done.stdout + done.stderr)
        self.assertIn("has 0 bytes here", done.stdout + done.stderr)
        index.write_bytes(index.read_bytes()[:-3])
        self.assertIn("is no index of this version, or it is damaged", train().stderr)

    def test_mistakes_say_what_to_do(self):
        for args, message in ((("show", self.shards), "needs --out"), (("stat", self.tmp / "none"), "none"),
                              (("index", self.shards, "--kind", "hdf5"), "needs no index")):
            self.assertIn(message, harness.engine("data", *args).stderr, args)
