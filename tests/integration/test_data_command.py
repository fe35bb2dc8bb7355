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

    def test_whole_epochs_say_the_memory_after_each(self):
        found = json.loads(self.data("bench", self.shards, "--epochs", 20, "--batch", 4, "--threads", 2, "--normalise", "--augment",
                                     "--crop-only", "--json").stdout)
        self.assertEqual(len(found["resident_bytes"]), 20)
        # Allocators keep what they had once: the later half may not grow by more than a few pages.
        self.assertLess(found["resident_bytes"][-1] - found["resident_bytes"][9], 1 << 20, found["resident_bytes"])
        self.assertIn("after 2 epochs", self.data("bench", self.shards, "--epochs", 2).stdout)

    def test_only_what_augmentation_is_asked_for_is_done(self):
        photos = self.tmp / "photos"
        photos.mkdir()
        left = Image.new("RGB", (32, 32), (200, 40, 90))
        left.paste((10, 10, 10), (0, 0, 16, 32))  # dark on the left
        for number in range(8):
            left.save(photos / f"{number}.png")
        sheets = []
        for more in ((), ("--crop-only",)):
            self.data("show", photos, "--height", 8, "--width", 8, "--augment", *more, "--columns", 8, "--out", self.tmp / "s.png")
            sheet = Image.open(self.tmp / "s.png")
            sheets.append([sheet.getpixel((n * 10 + 7, 4)) for n in range(8)])
        self.assertGreater(len(set(sheets[0])), 2, "flipped, and in other colours")
        self.assertEqual(set(sheets[1]), {(200, 40, 90)})

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

    def test_short_spike_files_are_prepared_in_the_form_that_is_asked_for(self):
        made = self.tmp / "scenes"
        self.data("prepare", "generated-spike", made, "--clips", 1, "--frames", 2, "--height", 32, "--width", 32, "--divisor", 2)
        sides = [made / "GOPRO_Large" / name for name in ("train_GT", "train_GT_blurred")]
        spikes = made / "GOPRO_Large_spike_seq/train"
        for file in spikes.rglob("*.dat"):
            file.write_bytes(file.read_bytes()[:30 * 16 * 16 // 8])  # 30 steps of 88
        # Folders as a shell completes them; KAIR and the loader look for X.lmdb beside X.
        words = ("prepare", "gopro-spike", made, "--target", f"{sides[0]}/", "--input", f"{sides[1]}/", "--spikes", f"{spikes}/", "--lmdb",
                 "--sensor-height", 16, "--sensor-width", 16)
        self.assertIn("tfp_b4_hw20 needs 41 steps or more, it has 30", self.data(*words, "--artefacts", "tfp:4", code=3).stderr)
        self.data(*words, "--artefacts", "raw_window:21")
        self.assertEqual(len(list(spikes.glob("*/raw_window_l21/*.npy"))), 2)
        for side in sides:
            self.assertTrue(side.with_name(side.name + ".lmdb").is_dir())
            self.assertEqual([path.name for path in side.iterdir()], ["scene_0000"])

    def test_the_sets_of_a_mix_are_looked_at_together(self):
        config = harness.write("mixed.yaml", f"""
            data:
              frames: 1
              height: 16
              width: 16
              mix:
                - {{weight: 3, kind: tar, path: {self.shards}}}
                - {{weight: 1, kind: clips, clips: 10}}
            """)
        training = ("--recipe", "denoise", "--config", config)
        found = json.loads(self.data("stat", *training, "--json", code=3).stdout)
        self.assertEqual((found["samples"], found["read"], [bad["class"] for bad in found["bad"]]), (16, 16, ["decode"]))
        self.assertEqual(found["sets"], [{"samples": 6, "share": 0.75, "bad": 1}, {"samples": 10, "share": 0.25, "bad": 0}])
        self.assertGreater(json.loads(self.data("bench", *training, "--seconds", 0.1, "--json").stdout)["samples_per_second"], 0)
        sheet = self.tmp / "sheet.png"
        self.data("show", *training, "--samples", 8, "--batch", 8, "--columns", 4, "--out", sheet)
        pixels = Image.open(sheet)
        self.assertEqual(pixels.size, (4 * 18 - 2, 2 * 18 - 2))
        flat = [pixels.crop((left, top, left + 16, top + 16)).getcolors(1) is not None
                for top in (0, 18) for left in range(0, 72, 18)]
        # Six of the first eight draws are of the pictures, which are flat; one of them may be the damaged one.
        self.assertIn(sum(flat), (6, 7), flat)

    def test_buckets_are_shown_as_the_model_sees_them(self):
        photos = self.tmp / "photos"
        photos.mkdir()
        for number in range(4):
            (photos / f"{number}.png").write_bytes(png(50, (40, 40) if number % 2 else (80, 40)))
        done = self.data("show", "--recipe", "denoise", "--set", "data.kind=images", "--set", f"data.path={photos}",
                         "--set", "data.buckets=[16x16, 16x32]", "--batch", 2, "--samples", 4, "--columns", 4, "--out", self.tmp / "b.png")
        self.assertIn("4 pictures of 32x16", done.stdout)

    def test_mistakes_say_what_to_do(self):
        for args, message in ((("show", self.shards), "needs --out"), (("stat", self.tmp / "none"), "none"),
                              (("index", self.shards, "--kind", "hdf5"), "needs no index"),
                              (("stat", self.shards, "--set", "data.frames=1"), "--recipe names its recipe"),
                              (("bench", self.shards, "--crop-only"), "kind of --augment, which is missing"),
                              (("bench", "--recipe", "denoise", "--augment", "--crop-only"), "--set data.flip=false"),
                              (("index", "--recipe", "denoise"), "an index is made for one PATH")):
            self.assertIn(message, harness.engine("data", *args).stderr, args)

    def test_paired_clips_are_generated_prepared_and_shown(self):
        scenes, sensor = self.tmp / "scenes", ("--sensor-height", 16, "--sensor-width", 24)
        self.data("prepare", "generated-spike", scenes, "--clips", 2, "--frames", 3, "--height", 32, "--width", 48)
        done = self.data("prepare", "gopro-spike", scenes, *sensor, "--lmdb", "--artefacts", "tfp:2")
        self.assertIn("6 files for 6 frames, 88 to 88 steps", done.stdout)
        self.assertEqual(len(list(scenes.glob("GOPRO_Large_spike_seq/train/*/tfp_b2_hw20/*.npy"))), 6)
        lines = (scenes / "GOPRO_Large" / "train_GT_blurred.lmdb" / "meta_info.txt").read_text().splitlines()
        self.assertEqual((len(lines), lines[0]), (6, "scene_0000/000001.png (32,48,3) 1"))
        self.assertIn("6 were there", self.data("prepare", "gopro-spike", scenes, *sensor, "--artefacts", "tfp:2").stderr)
        # A list that somebody shortened is kept; one of the same clips and frames is as good as ours.
        listed = scenes / "meta_info_GoPro_train_GT.txt"
        for text, code, words in [("scene_0000 3 0 1\n", 2, ()), ("scene_0001 3 0 000001\nscene_0000 3 0 000001\n", 0, ()),
                                  ("scene_0000 3 0 1\n", 0, ("--meta-info", listed))]:
            listed.write_text(text)
            said = self.data("prepare", "gopro-spike", scenes, *sensor, *words, code=code)
            self.assertEqual(listed.read_text(), text)
            self.assertEqual("or write it again with --overwrite" in said.stderr, code == 2, said.stderr)
        self.data("prepare", "gopro-spike", scenes, *sensor, "--overwrite")
        self.assertEqual(listed.read_text(), "scene_0000 3 (32,48,3) 1\nscene_0001 3 (32,48,3) 1\n")
        sheet = self.tmp / "pairs.png"
        self.data("show", scenes, "--kind", "gopro-spike", *sensor, "--height", 32, "--width", 32, "--samples", 2, "--out", sheet)
        self.assertEqual(Image.open(sheet).size, (3 * 32 + 2 * 2, 2 * 32 + 2))
        for form in ("tfp:x", "tfp:4:5", "tfp:"):
            self.assertIn(f"--artefacts {form}: expected one of tfp",
                          self.data("prepare", "gopro-spike", scenes, *sensor, "--artefacts", form, code=2).stderr)
        # 250 x 400 is not what these files have.
        wrong = self.data("prepare", "gopro-spike", scenes, "--sensor-height", 250, "--sensor-width", 400, code=3)
        self.assertIn("no whole number of steps of 250 x 400", wrong.stderr)
        (scenes / "GOPRO_Large_spike_seq/train/scene_0001/spike/000002.dat").unlink()
        self.assertIn("missing    scene_0001/000002", self.data("prepare", "gopro-spike", scenes, *sensor, code=3).stdout)
