"""`lockstep eval taehv`: scores against PyTorch and NumPy, the table, the picture, and what cannot be measured."""

import json
import re
import sys

import harness

sys.path.append(str(harness.ROOT / "tests"))
sys.path.append(str(harness.ROOT / "tests" / "golden"))
from beds import train  # noqa: E402


def clip(frames, height, width, seed=0):
    """Moving waves as bytes (frames, height, width, 3)."""
    import numpy as np
    t, y, x, c = np.meshgrid(*(np.arange(n) for n in (frames, height, width, 3)), indexing="ij")
    wave = np.sin(0.3 * x + 0.2 * y * (1 + seed % 3) + 0.5 * t + c + seed)
    return (127 + 110 * wave + 10 * np.sin(7.1 * x * y)).astype("uint8")


def write_frames(folder, pictures):
    from PIL import Image
    folder.mkdir(parents=True)
    for number, picture in enumerate(pictures):
        Image.fromarray(picture).save(folder / f"{number:03}.png")


def weights(path, options=None, seed=3):
    """A TAEHV that passes its input on, written by PyTorch under upstream's names."""
    import torch
    from safetensors.torch import save_file
    from taehv import SMALL, Taehv
    torch.manual_seed(seed)
    model = Taehv(**(options or SMALL))
    model.start_near_identity()
    save_file(model.state_dict(), str(path))
    return model


def evaluate(*flags, code=0, variant="taehv-small", env=None):
    done = harness.engine("eval", "taehv", "--variant", variant, "--device", "cpu", *flags, env=env)
    assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
    return done


def scores(*flags, **kwargs):
    return json.loads(evaluate("--json", *flags, **kwargs).stdout)


class Eval(harness.Case):
    TOGETHER = True  # each method would import torch anew

    def test_scores_are_those_of_pytorch_and_numpy(self):
        import numpy as np
        import torch
        model = weights(self.tmp / "w.safetensors")
        for name, frames, height, width in (("a", 9, 40, 48), ("b", 6, 35, 50), ("c", 3, 32, 32)):
            write_frames(self.tmp / "data" / name, clip(frames, height, width, ord(name)))
        found = scores("--weights", self.tmp / "w.safetensors", "--data", self.tmp / "data")
        self.assertEqual([c["name"] for c in found["clips"]], ["a", "b", "c"])
        self.assertEqual(found["frames"], 18)
        for one in found["clips"]:
            pictures = clip(one["frames"], one["height"], one["width"], ord(one["name"]))
            x = torch.from_numpy(pictures).permute(0, 3, 1, 2)[None].float() / 255
            # The right and lower edge repeated to multiples of 8, the end until all frames come back.
            padded = torch.nn.functional.pad(x[0], (0, -one["width"] % 8, 0, -one["height"] % 8), mode="replicate")[None]
            more = 1 + (one["frames"] + 2) // 4 * 4 - one["frames"]
            padded = torch.cat([padded, padded[:, -1:].expand(-1, more, -1, -1, -1)], dim=1)
            with torch.no_grad():
                y = model.decode(model.encode(padded))[:, :one["frames"], :, :one["height"], :one["width"]]
            a = np.round(x[0].double().numpy() * 255)
            b = np.round(y[0].clamp(0, 1).double().numpy() * 255)
            psnr = np.mean(10 * np.log10(255 ** 2 / np.mean((a - b) ** 2, axis=(1, 2, 3))))
            self.assertAlmostEqual(one["psnr"], psnr, delta=0.01)
            moves, moved = np.diff(a, axis=0), np.diff(b, axis=0)
            self.assertAlmostEqual(one["temporal_error"], np.mean(np.abs(moved - moves)), delta=0.01)
            self.assertAlmostEqual(one["temporal_psnr"],
                                   np.mean(10 * np.log10(255 ** 2 / np.mean((moved - moves) ** 2, axis=(1, 2, 3)))), delta=0.01)
            self.assertAlmostEqual(one["flicker"], np.mean(np.abs(moved)) / np.mean(np.abs(moves)), delta=1e-3)
            self.assertFalse(one["exact"])
        for metric in ("psnr", "ssim", "temporal_psnr", "temporal_error", "flicker"):
            values = [c[metric] for c in found["clips"]]
            expected = {"mean": np.mean(values), "std": np.std(values), "min": np.min(values), "max": np.max(values),
                        "p10": np.percentile(values, 10), "p90": np.percentile(values, 90), "count": 3}
            for key, value in expected.items():
                self.assertAlmostEqual(found["overall"][metric][key], value, places=9)
        self.assertNotIn("lpips", found["overall"])
        self.assertNotIn("baseline", found)

    def test_lpips_is_measured_when_its_weights_are_given(self):
        import lpips
        import torch
        model = weights(self.tmp / "w.safetensors")
        net = lpips.model().float()
        convs = [next(m for m in part if isinstance(m, torch.nn.Conv2d)) for part in net.slices]
        torch.save({f"features.{n}.{p}": getattr(conv, p).detach() for n, conv in zip((0, 3, 6, 8, 10), convs) for p in ("weight", "bias")},
                   self.tmp / "alexnet.pth")
        torch.save({f"lin{k}.model.1.weight": lin.weight.detach() for k, lin in enumerate(net.lin)}, self.tmp / "alex.pth")
        pictures = clip(5, 48, 64)
        write_frames(self.tmp / "a", pictures)
        base = ("--weights", self.tmp / "w.safetensors", "--data", self.tmp / "a")
        found = scores(*base, "--lpips", self.tmp / "alexnet.pth", "--lpips", self.tmp / "alex.pth")
        x = torch.from_numpy(pictures).permute(0, 3, 1, 2).float() / 255
        with torch.no_grad():
            y = model.decode(model.encode(x[None]))[0, :5]
            expected = net.double()(x.double() * 2 - 1, (y.clamp(0, 1) * 255).round().double() / 127.5 - 1).mean().item()
        self.assertAlmostEqual(found["clips"][0]["lpips"], expected, delta=2e-3 * expected)
        done = evaluate(*base, "--lpips", self.tmp / "alexnet.pth", code=2)
        self.assertIn("lin0.model.1.weight", done.stderr)
        self.assertIn("second --lpips", done.stderr)
        self.assertIn("alexnet.pth", done.stderr)

    def test_pieces_tensors_sizes_and_parts(self):
        import numpy as np
        import torch
        from safetensors.torch import save_file
        weights(self.tmp / "w.safetensors")
        base = ("--weights", self.tmp / "w.safetensors")
        first, second = clip(30, 40, 40, 1), clip(30, 40, 40, 2)
        save_file({"frames": torch.from_numpy(np.stack([first, second])).permute(0, 1, 4, 2, 3).contiguous().float() / 255},
                  str(self.tmp / "two.safetensors"))
        write_frames(self.tmp / "first", first)
        whole = scores(*base, "--data", self.tmp / "two.safetensors", self.tmp / "first", "--frames", "0")["clips"]
        self.assertEqual([c["frames"] for c in whole], [30, 30, 30])
        self.assertTrue(whole[0]["name"].endswith("two.safetensors [0]"))
        self.assertAlmostEqual(whole[0]["psnr"], whole[2]["psnr"], places=6)
        self.assertNotAlmostEqual(whole[1]["psnr"], whole[2]["psnr"], places=2)
        parts = scores(*base, "--data", self.tmp / "first", "--frames", "5", "--clips-per-video", "3")["clips"]
        self.assertEqual([c["frames"] for c in parts], [5, 5, 5])
        # The second part is frames 12 to 16.
        write_frames(self.tmp / "middle", first[12:17])
        middle = scores(*base, "--data", self.tmp / "middle")["clips"][0]
        self.assertEqual(parts[1]["psnr"], middle["psnr"])
        self.assertNotEqual(parts[0]["psnr"], middle["psnr"])
        small = scores(*base, "--data", self.tmp / "first", "--height", "16", "--width", "24")["clips"][0]
        self.assertEqual((small["height"], small["width"]), (16, 24))

    def test_an_annotation_list_names_the_clips(self):
        weights(self.tmp / "w.safetensors")
        for name in ("a", "b", "c"):
            write_frames(self.tmp / "data" / name, clip(4, 16, 16, ord(name)))
        (self.tmp / "list.json").write_text(json.dumps({"list": [{"path": "c"}, {"path": "gone.mp4"}, {"full_path": "a", "frames": 4}]}))
        found = scores("--weights", self.tmp / "w.safetensors", "--data", self.tmp / "data", "--annotations", self.tmp / "list.json")
        self.assertEqual([c["name"] for c in found["clips"]], ["c", "a"])
        self.assertIn("1 of 3 listed files missing", found["data"])

    def test_what_cannot_be_read_is_left_out_and_named(self):
        from test_train_bad_input import video
        weights(self.tmp / "w.safetensors")
        data = self.tmp / "data"
        data.mkdir()
        video(data / "good.avi", 10, 10)
        video(data / "three.avi", 3, 3)
        (data / "junk.mp4").write_bytes(b"no video at all")
        (data / "empty.mp4").write_bytes(b"")
        found = scores("--weights", self.tmp / "w.safetensors", "--data", data)
        self.assertEqual([(c["name"], c["frames"]) for c in found["clips"]], [("good.avi", 10), ("three.avi", 3)])
        self.assertEqual(sorted(c["name"] for c in found["left_out"]), ["empty.mp4", "junk.mp4"])
        done = evaluate("--weights", self.tmp / "w.safetensors", "--data", data, "--strict", code=3)
        self.assertRegex(done.stderr, "empty.mp4")
        done = evaluate("--weights", self.tmp / "w.safetensors", "--data", data / "junk.mp4", code=2)
        self.assertIn("none of the 1 clips could be measured", done.stderr)

    def test_mistakes_are_usage_errors_that_say_what_to_do(self):
        weights(self.tmp / "w.safetensors")
        good = ("--weights", self.tmp / "w.safetensors")
        for flags, message in (((*good,), "neither --data nor --config"),
                               ((*good, "--data", self.tmp / "absent"), "absent"),
                               ((*good, "--data", self.tmp, "--config", "x.yaml"), "give one"),
                               ((*good, "--data", self.tmp, "--height", "32"), "--width"),
                               ((*good, "--data", self.tmp, "--frames", "-1"), "--frames"),
                               (("--weights", self.tmp / "nothing.pth", "--data", self.tmp), "nothing.pth")):
            done = harness.engine("eval", "taehv", "--variant", "taehv-small", *flags)
            self.assertIn(done.returncode, (2, 3), (flags, done.stderr))
            self.assertIn(message, done.stdout + done.stderr)
        done = harness.engine("eval", "seraena", *good)
        self.assertEqual(done.returncode, 2)
        self.assertTrue(re.search("taehv.*vrt.*seraena", done.stdout + done.stderr))


class WithoutTorch(harness.Case):
    """Methods that need no torch in this process."""

    def test_a_training_brings_its_validation_data_along(self):
        from PIL import Image
        done = train.train(ranks=1, sets={"train.steps": 4, "data.frames": 5, "data.height": 32, "data.width": 32}, cwd=self.tmp)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        run = self.tmp / "runs" / "run"
        picture = self.tmp / "worst.png"
        table = harness.lockstep("eval", "taehv", "--weights", str(run), "--baseline", "--picture", str(picture), "--worst", "2",
                                 env=train.ONE_THREAD)
        self.assertEqual(table.returncode, 0, table.stderr)
        for text in ("step-4 (taehv-small, step 4", "PSNR", "SSIM", "tPSNR", "flicker", "bicubic down and up", "mean", "p10", "overall, 4 clips"):
            self.assertIn(text, table.stdout)
        self.assertRegex(table.stderr, r"clip 4/4")
        with Image.open(picture) as image:
            # Two clips: input, reconstruction and error of two frames each, 32 pixels shown as 160.
            self.assertGreater(image.width, 6 * 160)
            self.assertLess(image.width, 1200)
            self.assertGreater(image.height, 2 * 160)
            # Some frames in it, not one colour.
            self.assertGreater(len(set(image.convert("RGB").resize((64, 64)).getdata())), 200)
        done = evaluate("--weights", run, "--picture", picture, code=3, env={"LOCKSTEP_CAIRO": "/nowhere/libcairo.so.2"})
        self.assertIn("--picture: /nowhere/libcairo.so.2 cannot be loaded", done.stderr)
        self.assertIn("apt-get install libcairo2", done.stderr)
        done = evaluate("--weights", run, "--picture", self.tmp / "nowhere" / "worst.png", code=3)
        self.assertIn("--picture: cannot create", done.stderr)
        self.assertNotIn("clip 1", done.stderr)  # before clips are measured
        for folder in (run / "checkpoints" / "latest", run / "checkpoints" / "step-4"):
            again = json.loads(harness.engine("eval", "taehv", "--weights", folder, "--baseline", "--json").stdout)
            self.assertEqual(len(again["clips"]), 4)
            self.assertEqual(again["step"], 4)
            self.assertIn(f"{again['overall']['psnr']['mean']:.2f}", table.stdout)
            for one in again["clips"]:
                self.assertIn(one["baseline"]["values"]["way"], ("time", "space"))
                self.assertGreater(one["baseline"]["grid"]["psnr"], 0)
            self.assertGreater(again["baseline"]["values"]["psnr"]["mean"], again["baseline"]["grid"]["psnr"]["mean"])
        # The same samples as the training's own validation, which compares all of five frames too: the same scores.
        lines = harness.read_jsonl(run / "metrics" / "rank-0.jsonl")
        last = [line["scalars"] for line in lines if "val/psnr" in line["scalars"]][-1]
        self.assertAlmostEqual(last["val/psnr"], again["overall"]["psnr"]["mean"], delta=0.01)
        self.assertAlmostEqual(last["val/ssim"], again["overall"]["ssim"]["mean"], delta=1e-3)

    def test_the_stored_lpips_distances_are_what_the_description_gives(self):
        done = harness.run([harness.PYTHON, str(harness.ROOT / "tests" / "golden" / "lpips.py"), "--check"])
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
