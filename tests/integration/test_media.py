"""`lockstep reconstruct`, `encode` and `decode`: against the reference module in Python, with real files of every kind, at
constant memory, and with everything that can go wrong."""

import json
import os
import re
import signal
import sys

import harness

sys.path.append(str(harness.ROOT / "tests"))
sys.path.append(str(harness.ROOT / "tests" / "golden"))
from beds import train  # noqa: E402

ONE_THREAD = train.ONE_THREAD


def reference(variant="taehv-small", seed=3):
    import taehv
    import torch

    torch.set_num_threads(1)  # the models are small: a second thread mostly waits, and that costs as much
    torch.manual_seed(seed)
    model = taehv.Taehv(**taehv.VARIANTS[variant]).eval()
    model.start_near_identity()
    return model


def save(name, **tensors):
    from safetensors.torch import save_file

    path = harness.tmp_dir() / name
    save_file({key: value.contiguous() for key, value in tensors.items()}, path)
    return path


def load(path):
    from safetensors.torch import load_file

    return load_file(path)


def metadata(path):
    from safetensors import safe_open

    with safe_open(path, "pt") as file:
        return file.metadata()


def weights(variant="taehv-small"):
    """A weight file under the variant's name, as upstream names its files."""
    path = harness.tmp_dir() / f"{variant}.safetensors"
    return path if path.exists() else save(path.name, **reference(variant).state_dict())


def clip(clips=1, frames=9, height=24, width=40, seed=1):
    """Soft pictures in slow motion, values in [0, 1]."""
    import torch

    t, y, x = (torch.arange(n, dtype=torch.float32) for n in (frames, height, width))
    shift = torch.arange(clips * 3, dtype=torch.float32).view(clips, 1, 3, 1, 1) + seed
    wave = torch.sin(t.view(1, -1, 1, 1, 1) * 0.3 + y.view(1, 1, 1, -1, 1) * 0.2 + x.view(1, 1, 1, 1, -1) * 0.15 + shift)
    return (wave + 1) / 2


def movie(name, frames, size=64, claimed=None):
    from test_train_bad_input import video

    path = harness.tmp_dir() / name
    video(path, frames, frames if claimed is None else claimed, size)
    return path


def padded(model, frames):
    """What the tools add: the last row and column up to the model's multiple, the last frame until none is lost."""
    import torch

    n = frames.shape[1]
    multiple = 8 * model.patch
    height, width = frames.shape[3:]
    frames = torch.nn.functional.pad(frames.flatten(0, 1), (0, -width % multiple, 0, -height % multiple), "replicate").unflatten(
        0, (len(frames), -1))
    with torch.no_grad():
        while True:
            latents = model.encode(frames)
            if not (model.cogvideox and latents.shape[1] % 2 == 0) and model.decode(latents).shape[1] >= n:
                return latents
            frames = torch.cat([frames, frames[:, -1:]], dim=1)


class Tools(harness.Case):
    TOGETHER = True  # nearly all methods compare with PyTorch in this process

    def tool(self, command, *args, weight=None, code=0, env=None):
        done = harness.engine(command, "--weights", weight or weights(), *args, env=env)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        self.assertNotRegex(done.stderr, r"terminate called|c10::Error|what\(\)|Traceback")
        return done

    def summary(self, command, *args, **kwargs):
        return json.loads(self.tool(command, *args, "--json", **kwargs).stdout)

    def close(self, a, b, tolerance=2e-5):
        self.assertEqual(a.shape, b.shape)
        self.assertLess((a - b).abs().max().item(), tolerance)

    def files(self):
        return sorted(p.name for p in self.tmp.iterdir())


class Compared(Tools):
    """The numbers are those of the module written from the description."""

    def check(self, variant, frames, two_steps=True):
        model = reference(variant)
        latents = padded(model, frames)
        source = save("in.safetensors", frames=frames)
        n, height, width = frames.shape[1], frames.shape[3], frames.shape[4]
        found = self.summary("reconstruct", source, self.tmp / "out.safetensors", "--overwrite", weight=weights(variant))
        import torch
        with torch.no_grad():
            expected = model.decode(latents)[:, :n, :, :height, :width]
        out = load(self.tmp / "out.safetensors")["frames"]
        self.close(out, expected)
        error = (expected * 255).round().clamp(0, 255) - (frames * 255).round()
        psnr = (10 * torch.log10(255**2 / error.double().square().mean((2, 3, 4)))).mean().item()
        self.assertAlmostEqual(found["psnr"], psnr, delta=0.05)
        self.assertEqual([found[k] for k in ("frames", "height", "width", "variant")], [n, height, width, variant])
        if two_steps:
            self.tool("encode", source, self.tmp / "l.safetensors", "--overwrite", weight=weights(variant))
            self.close(load(self.tmp / "l.safetensors")["latents"], latents)
            self.tool("decode", self.tmp / "l.safetensors", self.tmp / "d.safetensors", "--overwrite", weight=weights(variant))
            self.close(load(self.tmp / "d.safetensors")["frames"], expected)


class Reference(Compared):
    def test_every_length_keeps_its_frames(self):
        for frames in (1, 4, 5, 13):  # others: tests/models/taehv_stream_test.cc
            with self.subTest(frames=frames):
                self.check("taehv-small", clip(frames=frames), two_steps=frames > 4)

    def test_several_clips_of_an_odd_size_are_padded_and_cropped_back(self):
        self.check("taehv-small", clip(clips=3, frames=7, height=21, width=35))


class ReferenceVariants(Compared):
    def test_cogvideox_keeps_frames_in_their_places(self):
        for frames in (8, 9):
            self.check("taecvx", clip(frames=frames, height=16, width=16), two_steps=frames == 9)

    def test_minimax_h3_in_chunks(self):
        self.check("taeh3", clip(frames=20, height=16, width=16))

    def test_ltx_eightfold(self):
        self.check("taeltx_2", clip(frames=10, height=40, width=32))

    def test_pieces_of_any_length_give_the_same(self):
        source = save("in.safetensors", frames=clip(frames=30))
        found = {}
        for chunk in (4, 7, 64):
            self.tool("reconstruct", source, self.tmp / f"{chunk}.safetensors", "--chunk", chunk)
            found[chunk] = load(self.tmp / f"{chunk}.safetensors")["frames"]
        self.close(found[4], found[64])
        self.close(found[7], found[64])


class ReferenceTypes(Compared):
    def test_no_tail_gives_upstreams_latents(self):
        import torch
        frames = clip(frames=8)
        source = save("in.safetensors", frames=frames)
        self.tool("encode", "--no-tail", source, self.tmp / "l.safetensors")
        with torch.no_grad():
            self.close(load(self.tmp / "l.safetensors")["latents"], reference().encode(frames))
        self.assertEqual(self.summary("decode", self.tmp / "l.safetensors", self.tmp / "d.safetensors")["frames"], 5)

    def test_types_in_and_out(self):
        import torch
        frames = (clip(frames=5) * 255).round() / 255
        self.tool("reconstruct", save("f32.safetensors", frames=frames), self.tmp / "o.safetensors")
        expected = load(self.tmp / "o.safetensors")["frames"]
        for name, tensor, tolerance in (("u8", (frames * 255).to(torch.uint8), 2e-5), ("f16", frames.half(), 5e-3),
                                        ("bf16", frames.bfloat16(), 5e-2), ("f64", frames.double(), 2e-5)):
            self.tool("reconstruct", save(f"{name}.SAFETENSORS", frames=tensor), self.tmp / f"o-{name}.safetensors")
            self.close(load(self.tmp / f"o-{name}.safetensors")["frames"], expected, tolerance)
        for name, dtype, tolerance in (("u8", torch.uint8, 0.51), ("f16", torch.float16, 1e-3), ("bf16", torch.bfloat16, 5e-3)):
            self.tool("reconstruct", self.tmp / "f32.safetensors", self.tmp / "t.safetensors", "--dtype", name, "--overwrite")
            out = load(self.tmp / "t.safetensors")["frames"]
            self.assertEqual(out.dtype, dtype)
            self.close(out.float(), expected * (255 if name == "u8" else 1), tolerance)

    def test_the_fast_execution_computes_the_same(self):
        source = save("in.safetensors", frames=clip(frames=9, height=21, width=35))
        for name in ("fast", "reference"):
            found = self.summary("reconstruct", source, self.tmp / f"{name}.safetensors", "--execution", name)
            self.assertEqual(found["execution"], name)
        self.close(load(self.tmp / "fast.safetensors")["frames"], load(self.tmp / "reference.safetensors")["frames"])

    def test_half_precision_is_close(self):
        source = save("in.safetensors", frames=clip(frames=5))
        self.tool("reconstruct", source, self.tmp / "a.safetensors")
        found = self.summary("reconstruct", source, self.tmp / "b.safetensors", "--precision", "bf16")
        self.assertEqual(found["precision"], "bf16")
        self.close(load(self.tmp / "b.safetensors")["frames"], load(self.tmp / "a.safetensors")["frames"], 0.1)

    def test_torch_save_files_and_forced_variants(self):
        import torch
        model = reference("taehv")
        source = save("in.safetensors", frames=clip(frames=8, height=16, width=16))
        torch.save(model.state_dict(), self.tmp / "my.pth")
        first = self.summary("reconstruct", source, self.tmp / "a.safetensors", weight=self.tmp / "my.pth")
        self.assertEqual(first["variant"], "taehv")
        self.assertRegex(" ".join(first["notes"]), r"may be .*taecvx.*taken as taehv")
        forced = self.summary("encode", source, self.tmp / "l.safetensors", "--variant", "taecvx", weight=self.tmp / "my.pth")
        self.assertEqual((forced["variant"], forced["latents"] % 2), ("taecvx", 1))


class Checkpoints(Tools):
    def test_a_run_its_checkpoints_and_their_average(self):
        done = train.train(ranks=1, sets={"train.steps": 4, "train.ema.decay": 0.9})
        self.assertEqual(done.returncode, 0, done.stderr)
        run = train.run_path()
        source = save("in.safetensors", frames=clip(frames=5))
        newest = self.summary("reconstruct", source, self.tmp / "run.safetensors", weight=run)
        self.assertEqual((newest["step"], newest["averaged"], newest["variant"]), (4, True, "taehv-small"))
        for name, path in (("step", run / "checkpoints" / "step-4"), ("latest", run / "checkpoints" / "latest"),
                           ("ema", run / "checkpoints" / "step-4" / "ema.safetensors"),
                           ("raw", run / "checkpoints" / "step-4" / "model.safetensors")):
            self.tool("reconstruct", source, self.tmp / f"{name}.safetensors", weight=path)
        out = {name: load(self.tmp / f"{name}.safetensors")["frames"] for name in ("run", "step", "latest", "ema", "raw")}
        for name in ("step", "latest", "ema"):
            self.assertTrue(out["run"].equal(out[name]), name)
        self.assertFalse(out["run"].equal(out["raw"]), "the average differs from the weights of the last step")
        with self.subTest("damaged"):
            file = run / "checkpoints" / "step-4" / "ema.safetensors"
            data = bytearray(file.read_bytes())
            data[-100] ^= 1
            file.write_bytes(data)
            for path in (run, run / "checkpoints" / "step-4"):
                done = self.tool("reconstruct", source, self.tmp / "o.safetensors", weight=path, code=3)
                self.assertRegex(done.stderr, "checksum")
            self.assertNotIn("o.safetensors", self.files())


class Files(Tools):
    def test_a_video_comes_back_with_its_frames_size_and_rate(self):
        source = movie("in.avi", 22)
        for name in ("a.mp4", "a.mkv", "a.webm", "a.avi", "a.mov"):
            found = self.summary("reconstruct", source, self.tmp / name)
            self.assertEqual((found["frames"], found["width"], found["height"], found["rate"]), (22, 64, 64, "25"))
            again = self.summary("reconstruct", self.tmp / name, self.tmp / "again.safetensors", "--overwrite")
            self.assertEqual((again["frames"], again["width"], again["height"]), (22, 64, 64))
            self.assertEqual(again["rate"], "25", name)
            self.assertEqual(metadata(self.tmp / "again.safetensors")["rate"], "25")
            self.assertEqual(again["notes"], [])

    def test_the_file_holds_what_the_model_gave(self):
        self.tool("reconstruct", movie("in.avi", 12), self.tmp / "t.safetensors")
        self.tool("reconstruct", self.tmp / "in.avi", self.tmp / "frames")
        self.tool("reconstruct", self.tmp / "in.avi", self.tmp / "v.mkv", "--codec", "ffv1", "--pixels", "bgr0")
        self.tool("reconstruct", self.tmp / "in.avi", self.tmp / "v.mp4", "--crf", "1")
        import numpy
        import torch
        from PIL import Image
        exact = (load(self.tmp / "t.safetensors")["frames"][0] * 255).round()
        names = sorted(p.name for p in (self.tmp / "frames").iterdir())
        self.assertEqual(names, [f"{i:06d}.png" for i in range(1, 13)])
        pictures = torch.stack([torch.from_numpy(numpy.array(Image.open(self.tmp / "frames" / n))) for n in names])
        self.assertTrue(pictures.permute(0, 3, 1, 2).equal(exact.to(torch.uint8)))
        # The videos' frames, read by our own reader: encoded once more and compared as latents of equal frames.
        for name, tolerance in (("frames", 1e-6), ("v.mkv", 1e-6), ("v.mp4", 0.2)):
            self.tool("encode", self.tmp / name, self.tmp / f"{name}.safetensors")
        same = load(self.tmp / "frames.safetensors")["latents"]
        self.close(load(self.tmp / "v.mkv.safetensors")["latents"], same, 1e-6)
        self.assertFalse(load(self.tmp / "v.mp4.safetensors")["latents"].equal(same))
        self.close(load(self.tmp / "v.mp4.safetensors")["latents"], same, 0.3)

    def test_frame_folders_in_natural_order_with_jpeg(self):
        from PIL import Image
        folder = self.tmp / "in"
        folder.mkdir()
        for i in range(12):
            Image.new("RGB", (40, 24), (i * 20, 0, 0)).save(folder / (f"f{i}.png" if i % 2 else f"f{i}.jpg"))
        (folder / "notes.txt").write_text("x")
        self.tool("encode", folder, self.tmp / "l.safetensors", "--fps", "29.97")
        self.assertEqual(metadata(self.tmp / "l.safetensors")["rate"], "30000/1001")
        found = self.summary("decode", self.tmp / "l.safetensors", self.tmp / "out.mp4")
        self.assertEqual((found["frames"], found["width"], found["height"], found["rate"]), (12, 40, 24, "30000/1001"))
        self.assertEqual(self.summary("reconstruct", self.tmp / "out.mp4", self.tmp / "o.safetensors")["rate"], "30000/1001")


class FilesAsked(Tools):
    def test_resampling_to_a_constant_rate(self):
        source = movie("in.avi", 30)
        for fps, frames in (("12.5", 15), ("50", 60), ("25", 30)):
            found = self.summary("reconstruct", source, self.tmp / f"{frames}.mp4", "--fps", fps)
            self.assertEqual(found["frames"], frames)
            self.assertEqual(self.summary("encode", self.tmp / f"{frames}.mp4", self.tmp / "l.safetensors", "--overwrite")["rate"],
                             fps if fps != "12.5" else "25/2")

    def test_odd_sizes_in_a_video(self):
        found = self.summary("reconstruct", movie("in.avi", 5, size=35), self.tmp / "o.mp4")
        self.assertEqual((found["width"], found["height"]), (35, 35))
        self.assertRegex(found["notes"][0], "35x35 was written as 36x36")
        whole = self.summary("reconstruct", self.tmp / "in.avi", self.tmp / "w.mp4", "--pixels", "yuv444p")
        self.assertEqual(whole["notes"], [])
        self.assertEqual(self.summary("encode", self.tmp / "w.mp4", self.tmp / "l.safetensors")["width"], 35)

    def test_max_frames(self):
        source = movie("in.avi", 20)
        for count in (1, 6, 500):
            found = self.summary("reconstruct", source, self.tmp / "o.mkv", "--max-frames", count, "--overwrite")
            self.assertEqual(found["frames"], min(count, 20))

    def test_progress_goes_to_stderr_and_json_to_stdout(self):
        done = self.tool("reconstruct", movie("in.avi", 20), self.tmp / "o.mp4", "--json")
        self.assertEqual(json.loads(done.stdout)["frames"], 20)
        self.assertRegex(done.stderr, r"frame 20/20 \| [\d.]+ frames/s")
        self.assertNotIn("\x1b", done.stderr)
        self.assertNotIn("\r", done.stderr)

    def test_a_gpu_is_not_asked_for_on_the_cpu(self):
        found = self.summary("reconstruct", movie("a.avi", 4), self.tmp / "o.mp4", "--device", "cpu")
        self.assertTrue(re.match("cpu", found["device"]))

    def test_help_has_examples(self):
        for command in ("reconstruct", "encode", "decode"):
            done = harness.engine(command, "--help")
            self.assertEqual(done.returncode, 0)
            self.assertRegex(done.stdout, rf"examples:\n  lockstep {command} --weights")

    def test_output_may_replace_the_input(self):
        source = movie("in.avi", 6)
        self.tool("reconstruct", source, source, "--overwrite")
        self.assertEqual(self.summary("encode", source, self.tmp / "l.safetensors")["frames"], 6)
        self.assertEqual(self.files(), ["in.avi", "l.safetensors", "taehv-small.safetensors"])


class Refusing(Tools):
    """One clear message, the documented exit code, no output and nothing else left."""

    def refused(self, message, command, *args, code=2, **kwargs):
        weights()
        before = self.files()
        done = self.tool(command, *args, code=code, **kwargs)
        self.assertRegex(done.stderr, message)
        self.assertRegex(done.stderr, rf"(?m)^lockstep {command}: ")
        self.assertEqual(self.files(), before)
        self.assertEqual(done.stdout, "")

    def good(self):
        path = self.tmp / "in.safetensors"
        return path if path.exists() else save(path.name, frames=clip(frames=3))


class Refused(Refusing):
    def test_weights(self):
        good, out = self.good(), self.tmp / "o.mp4"
        self.refused(r"--weights: cannot open '.*absent", "reconstruct", good, out, weight=self.tmp / "absent", code=3)
        other = save("other.safetensors", x=clip())
        self.refused(r"not a TAEHV weight file", "reconstruct", good, out, weight=other)
        model = reference().state_dict()
        model["decoder.22.bias"][0] = float("nan")
        self.refused(r"decoder\.22\.bias has values that are not finite", "reconstruct", good, out, weight=save("nan.safetensors", **model))
        self.refused(r"do not fit the model", "reconstruct", good, out, "--variant", "taew2_2")
        self.refused(r"no TAEHV variant 'teahv'", "reconstruct", good, out, "--variant", "teahv")
        (self.tmp / "text.pth").write_text("hello")
        self.refused(r"text\.pth", "reconstruct", good, out, weight=self.tmp / "text.pth", code=3)
        (self.tmp / "empty").mkdir()
        self.refused(r"empty", "reconstruct", good, out, weight=self.tmp / "empty", code=3)

    def test_usage(self):
        for args in ((), (self.good(),), (self.good(), "a.mp4", "b.mp4"), (self.good(), "a.mp4", "--precison", "fp32"),
                     (self.good(), "a.mp4", "--precision", "fp8"), (self.good(), "a.mp4", "--chunk", "0"),
                     (self.good(), "a.mp4", "--device", "tpu"), (self.good(), "a.mp4", "--crf", "99")):
            self.tool("reconstruct", *args, code=2)
        self.refused(r"--fps: expected a frame rate such as .* found 'fast'", "reconstruct", self.good(), self.tmp / "o.mp4", "--fps", "fast")
        self.refused(r"--device cuda: this lockstep-train was built without CUDA", "reconstruct", self.good(), self.tmp / "o.mp4", "--device", "cuda", code=3,
                     env={"CUDA_VISIBLE_DEVICES": ""})

    def test_inputs(self):
        out = self.tmp / "o.mp4"
        self.refused(r"absent\.mp4.*No such file", "reconstruct", self.tmp / "absent.mp4", out, code=3)
        (self.tmp / "text.mp4").write_text("dear diary")
        self.refused(r"text\.mp4' cannot be decoded", "reconstruct", self.tmp / "text.mp4", out, code=3)
        (self.tmp / "empty.mp4").write_text("")
        self.refused(r"empty\.mp4' is empty", "reconstruct", self.tmp / "empty.mp4", out, code=3)
        (self.tmp / "none").mkdir()
        self.refused(r"none' has no frames: expected \*\.png", "reconstruct", self.tmp / "none", out)
        (self.tmp / "cut.safetensors").write_bytes(self.good().read_bytes()[:-10])
        self.refused(r"cut\.safetensors", "reconstruct", self.tmp / "cut.safetensors", out, code=3)
        wave = b"RIFF\x24\x10\0\0WAVEfmt \x10\0\0\0\1\0\1\0\x40\x1f\0\0\x80\x3e\0\0\2\0\x10\0data\0\x10\0\0" + b"a" * 4096
        (self.tmp / "sound.mp4").write_bytes(wave)
        self.refused(r"sound\.mp4' cannot be decoded: it has no video stream", "reconstruct", self.tmp / "sound.mp4", out, code=3)


class RefusedTensors(Refusing):
    def test_tensors(self):
        import torch
        out = self.tmp / "o.safetensors"
        frames = clip(frames=5)
        nan = frames.clone()
        nan[0, 3, 1, 2, 2] = float("nan")
        for message, tensor in ((r"3 channels.*", torch.cat([frames, frames[:, :, :1]], 2)), (r"NaN at clip 0, time 3, channel 1", nan),
                                (r"from -1 to .*\n.*\(x \+ 1\) / 2", frames * 2 - 1), (r"expected 0 to 1\n.*255", frames * 255),
                                (r"expected \(clips, time, channels", frames[0]), (r"holds I64", (frames * 255).long()),
                                (r"channels come last", frames.permute(0, 1, 3, 4, 2)), (r"swap", frames[:, :5].permute(0, 2, 1, 3, 4)),
                                (r"none of them 0", frames[:, :0])):
            self.refused(message, "reconstruct", save("bad.safetensors", frames=tensor), out)
        self.refused(r"no tensor 'frames'; it has 'latents'", "encode", save("l.safetensors", latents=frames), out)
        self.refused(r"2 clips do not fit into one video", "reconstruct", save("two.safetensors", frames=clip(clips=2)), self.tmp / "o.mp4")

    def test_latents(self):
        import torch
        out = self.tmp / "o.mp4"
        self.refused(r"latents of 4 channels, the weights .* take 16", "decode", save("l.safetensors", latents=torch.zeros(1, 2, 4, 3, 3)), out)
        bad = torch.zeros(1, 3, 16, 3, 3)
        bad[0, 2, 5] = float("inf")
        self.refused(r"infinity at clip 0, time 2, channel 5", "decode", save("l.safetensors", latents=bad), out)
        self.refused(r"no tensor 'latents'; it has 'frames'", "decode", self.good(), out)
        self.refused(r"latents are read from \.safetensors", "decode", movie("v.avi", 3), out)
        self.refused(r"latents are written to \.safetensors", "encode", self.good(), self.tmp / "o.mp4")
        from safetensors.torch import save_file
        save_file({"latents": torch.zeros(1, 3, 16, 3, 3)}, self.tmp / "m.safetensors", {"height": "99", "width": "20"})
        self.refused(r"metadata say height 99, but 3 latents make 24", "decode", self.tmp / "m.safetensors", out)
        save_file({"latents": torch.zeros(1, 3, 16, 3, 3)}, self.tmp / "m.safetensors", {"rate": "0/0"})
        self.refused(r"m\.safetensors': its metadata: expected a frame rate .* found '0/0'", "decode", self.tmp / "m.safetensors", out)


class RefusedOutputs(Refusing):
    def test_outputs(self):
        good = self.good()
        (self.tmp / "there.mp4").write_text("precious")
        self.refused(r"there\.mp4' exists\n.*--overwrite", "reconstruct", good, self.tmp / "there.mp4")
        self.assertEqual((self.tmp / "there.mp4").read_text(), "precious")
        self.refused(r"its ending is not one of a video", "reconstruct", good, self.tmp / "o.gif")
        self.refused(r"No such file", "reconstruct", good, self.tmp / "no" / "such" / "o.mp4", code=3)
        (self.tmp / "docs").mkdir()
        (self.tmp / "docs" / "thesis.tex").write_text("x")
        self.refused(r"docs' exists", "reconstruct", good, self.tmp / "docs")
        self.refused(r"more than numbered pictures \('thesis\.tex'\)", "reconstruct", good, self.tmp / "docs", "--overwrite")
        self.refused(r"no video encoder 'h266'", "reconstruct", good, self.tmp / "o.mp4", "--codec", "h266")
        self.refused(r"webm files do not hold libx264", "reconstruct", good, self.tmp / "o.webm", "--codec", "h264")
        self.refused(r"Not a directory|ENOTDIR", "reconstruct", good, good / "o.mp4", code=3)

    def test_mixed_sizes_and_damage_in_the_middle(self):
        from PIL import Image
        folder = self.tmp / "mixed"
        folder.mkdir()
        for i in range(30):
            Image.new("RGB", (40, 24 if i < 25 else 32)).save(folder / f"{i}.png")
        self.refused(r"25\.png' is 40x32, expected 40x24", "reconstruct", folder, self.tmp / "o.mp4", "--chunk", "4", code=3)
        found = self.summary("reconstruct", folder, self.tmp / "start.mp4", "--max-frames", 25)
        self.assertEqual(found["frames"], 25, "what comes before is readable")
        (folder / "25.png").write_bytes(b"not a picture")
        self.refused(r"25\.png' cannot be decoded", "reconstruct", folder, self.tmp / "o", "--chunk", "4", code=3)

    def test_a_cut_video_gives_what_is_there_and_says_so(self):
        found = self.summary("reconstruct", movie("cut.avi", 9, claimed=15), self.tmp / "o.mp4")
        self.assertEqual(found["frames"], 9)
        self.assertRegex(found["notes"][0], r"cut\.avi' promises 15 frames and ends after 9")

    def test_a_full_disk(self):
        harness.require("netns")  # root, to mount
        import torch
        source = save("in.safetensors", frames=(torch.rand(1, 40, 3, 96, 96) * 255).to(torch.uint8))
        disk = self.tmp / "disk"
        disk.mkdir()
        for name, flags in (("o.safetensors", ""), ("o.mkv", "--codec ffv1 --pixels bgr0"), ("o.mp4", "--crf 1"), ("frames", "")):
            script = (f"mount -t tmpfs -o size=16k tmpfs {disk} && {harness.PROGRAM} reconstruct --weights {weights()} {source} "
                      f"{disk}/{name} {flags}; code=$?; ls -A {disk}; exit $code")
            done = harness.run(["unshare", "--mount", "sh", "-c", script], env=ONE_THREAD)
            self.assertEqual(done.returncode, 3, done.stdout + done.stderr)
            self.assertRegex(done.stderr, r"No space left", name)
            self.assertEqual(done.stdout, "", f"{name}: something is left on the full disk")


class Running(Tools):
    """As users start it, in processes of its own."""

    TOGETHER = False
    TIMEOUT = 240  # the memory test moves 264 frames through a model; on a busy machine that takes a minute

    def long(self, frames=2000, size=64):
        import torch
        return save("long.safetensors", frames=torch.full((1, frames, 3, size, size), 100, dtype=torch.uint8))

    def test_a_signal_leaves_no_partial_output(self):
        source = self.long()
        weights()
        before = self.files()
        for number, code, names in ((signal.SIGINT, 130, ("o.mp4", "o.safetensors", "o-frames")), (signal.SIGTERM, 143, ("o.mp4", "o-frames")),
                                    (signal.SIGHUP, 129, ("o.mp4",))):
            for name in names:
                job = harness.spawn_lockstep("reconstruct", "--weights", weights(), source, self.tmp / name, env=ONE_THREAD)
                job.wait_for("frame ")
                self.assertTrue([f for f in self.files() if f.startswith(f"{name}.tmp-")], "a temporary name while it is written")
                job.send_signal(number)
                self.assertEqual(job.wait(), code, job.output)
                self.assertIn("stopped by a signal; nothing was written", job.stderr)
                self.assertEqual([f for f in self.files() if not f.startswith("proc-")], before)

    def peak(self, *args, says):
        """KiB of memory at most, of the whole process."""
        import subprocess
        process = subprocess.Popen([str(a) for a in args], env=harness.clean_env(ONE_THREAD), stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        text = process.stdout.read().decode()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        process.stdout.close()
        self.assertEqual(process.returncode, 0, text)
        self.assertIn(says, text)
        return usage.ru_maxrss

    def test_memory_does_not_grow_with_the_video(self):
        # 240 frames of this size are 47 MB as the numbers the model sees, once; a program that keeps them shows.
        engine = harness.BIN / "lockstep-train"
        used = {}
        for frames in (24, 240):
            source = movie(f"{frames}.avi", frames, size=128)
            used[frames] = self.peak(engine, "reconstruct", "--weights", weights(), source, self.tmp / f"{frames}.mp4", "--chunk", "8",
                                     says=f"{frames} frames, 128x128")
        self.assertLess(used[240], used[24] + 25_000, used)
