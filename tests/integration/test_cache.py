"""The feature cache through its commands: built by ranks of the launcher, looked at, damaged, repaired, read by the page's own
Python, and trained from with the bits of a live teacher."""

import json
import os
import re
import sys
import textwrap

import harness

sys.path.append(str(harness.ROOT / "tests"))
from beds import train  # noqa: E402

PAGE = (harness.ROOT / "docs" / "formats" / "feature-cache.md").read_text()
GUIDE = (harness.ROOT / "docs" / "feature-cache.md").read_text()


def block(page, word, language="python"):
    """The page's example that has this word."""
    return next(found for found in re.findall(rf"```{language}\n(.*?)```", page, re.S) if word in found)

# Latents of taehv-small that are means of pixels, and their deviation.
TEACHER = """
import torch

class Teacher(torch.nn.Module):
    def forward(self, x):
        n, t, c, h, w = x.shape
        y = torch.nn.functional.avg_pool2d(x.flatten(0, 1), 8).reshape(n, t // 4, 12, h // 8, w // 8)
        y = torch.cat([y, y[:, :, :4]], 2)
        return y, y * 0.1

torch.jit.script(Teacher()).save("teacher.pt")
"""


class Cache(harness.Case):
    TIMEOUT = 120

    def sets(self, cached=True, **more):
        teacher = {"kind": "torchscript", "path": "teacher.pt"}
        if cached:
            teacher["cache"] = {"root": "cache"}
        return {"recipe.loss.encoder": 1, "recipe.teacher": json.dumps(teacher), "data.augment": "false", "data.clips": 24,
                "train.steps": 3, "train.schedule.warmup": 0, "checkpoint.every": 3, **more}

    def cache(self, *args, code=0):
        done = harness.lockstep("cache", *args)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout

    def build(self, ranks=2, **more):
        words = [word for word in train.settings(self.sets(**more))]
        return harness.lockstep("cache", "build", "taehv", "--nproc-per-node", str(ranks), *words, env=train.ONE_THREAD, timeout=60)

    def prepare(self):
        done = harness.run([harness.PYTHON, harness.write("teacher.py", TEACHER)])
        self.assertEqual(done.returncode, 0, done.stderr)
        (self.tmp / "cache").mkdir()

    def test_two_ranks_fill_it_and_every_command_answers(self):
        self.prepare()
        done = self.build()
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertRegex(done.stdout, r"rank 0: \d+ of \d+ units \(100 %\)")
        found = json.loads(self.cache("ls", "cache", "--json"))["namespaces"]
        self.assertEqual([(one["records"], one["leases"], one["damaged"]) for one in found], [(24, 0, [])])
        folder = self.tmp / "cache" / found[0]["namespace"]
        self.assertEqual({plan["samples"] - plan["covered"] for plan in found[0]["plans"]}, {0})
        self.assertIn("mean F32 [1, 16, 2, 2], deviation", self.cache("ls", "cache"))
        self.assertIn("total", self.cache("du", "cache"))
        self.assertEqual(self.cache("coverage", "cache").count("(100.0 %)"), 2)
        self.assertIn("24 records", self.cache("export", folder, "exported"))
        self.assertIn("io_uring", self.cache("doctor", "cache"))
        self.assertEqual(json.loads(self.cache("gc", "cache", "--json"))["removed"], [])

        # The page's reader, and upstream's, see the same.
        space = {}
        exec(block(PAGE, "def read_unit"), space)
        records = space["read_namespace"](folder)
        self.assertEqual(len(records), 24)
        import numpy
        import safetensors.numpy
        unit = sorted((folder / "units").iterdir())[0]
        keys, columns = space["read_unit"](unit)
        upstream = safetensors.numpy.load_file(unit)
        for name in ("mean", "deviation"):
            self.assertTrue(numpy.array_equal(columns[name], upstream[name]), name)
        self.assertTrue(numpy.array_equal(keys, upstream["__key__"]))
        self.assertTrue(all(numpy.allclose(one["deviation"], one["mean"] * 0.1, atol=1e-6) for one in records.values()))

        # One bit, found and mended.
        data = bytearray(unit.read_bytes())
        data[-1] ^= 1
        unit.write_bytes(data)
        self.assertIn(unit.stem, self.cache("verify", "cache", code=1))
        self.cache("repair", "cache", "--dry-run", code=1)
        self.assertIn("moved to quarantine", self.cache("repair", "cache", code=1))
        self.cache("verify", "cache")
        self.assertNotEqual(self.cache("coverage", "cache").count("(100.0 %)"), 2)
        self.assertEqual(self.build(ranks=1).returncode, 0)
        self.assertEqual(self.cache("coverage", "cache").count("(100.0 %)"), 2)
        removed = json.loads(self.cache("gc", "cache", "--older", "0s", "--json"))["removed"]
        self.assertEqual([one["why"] for one in removed], ["damaged unit"])

    def test_a_training_from_it_has_the_bits_of_a_live_one(self):
        self.prepare()
        self.assertEqual(self.build().returncode, 0)
        live = train.train(name="live", sets=self.sets(cached=False))
        self.assertEqual(live.returncode, 0, live.stdout + live.stderr)
        done = train.train("--cache", "require", name="cached", sets=self.sets())
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertRegex(done.stdout + done.stderr, r"training: 2\d of 2\d samples of an epoch \(100.0 %\)")
        self.assertEqual(train.differences(train.last(train.run_path("live")), train.last(train.run_path("cached"))), [])
        self.assertEqual(train.values(train.run_path("cached"), "rank/cache/live")[-1][1], 0)

    def test_a_python_program_is_a_teacher_as_well(self):
        harness.write("program.py", block(PAGE, "def serve") + textwrap.dedent("""
            import torch

            def encode(tensors):
                x = tensors["frames"]
                n, t, c, h, w = x.shape
                y = torch.nn.functional.avg_pool2d(x.flatten(0, 1), 8).reshape(n, t // 4, 12, h // 8, w // 8)
                print("this goes to stderr")
                return {"latents": torch.cat([y, y[:, :, :4]], 2)}

            serve(encode)
            """))
        harness.write("weights", "1")
        (self.tmp / "cache").mkdir()
        teacher = {"kind": "program", "path": "program.py", "weights": ["weights"], "cache": {"root": "cache"}}
        path = {"PATH": f"{os.path.dirname(harness.PYTHON)}:{os.environ['PATH']}", **train.ONE_THREAD}
        words = train.settings(self.sets(**{"recipe.teacher": json.dumps(teacher)}))
        done = harness.lockstep("cache", "build", "taehv", "--nproc-per-node", "1", *words, env=path)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(self.cache("coverage", "cache").count("(100.0 %)"), 2)
        done = harness.lockstep("train", "taehv", "--cache", "require", "--nproc-per-node", "1", "--name", "run", *words, env=train.ONE_THREAD)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        harness.write("weights", "2")
        done = harness.lockstep("train", "taehv", "--cache", "require", "--nproc-per-node", "1", "--name", "other", *words, env=train.ONE_THREAD)
        self.assertIn("has no latents of program.py", done.stdout + done.stderr)

    def test_the_guides_context_dependent_encoder_is_cached_as_it_is_live(self):
        import numpy
        import safetensors.numpy
        import safetensors.torch
        import torch
        torch.set_num_threads(1)
        torch.manual_seed(1)
        source = block(PAGE, "def serve") + block(GUIDE, "class Alternating")
        harness.write("alternating.py", source)
        harness.write("alternating.yaml", block(GUIDE, "alternating.py", "yaml"))
        space = {"__name__": "example"}
        exec(source, space)
        model = space["Alternating"]().eval()
        torch.save(model.state_dict(), self.tmp / "alternating.pt")
        # The third clip is the first with two frames swapped, the fourth the first again.
        clips = torch.randint(0, 256, (2, 4, 3, 32, 32), dtype=torch.uint8)
        clips = torch.cat([clips, clips[:1, [0, 2, 1, 3]], clips[:1]])
        safetensors.torch.save_file({"frames": clips}, self.tmp / "clips.safetensors")
        path = {"PATH": f"{os.path.dirname(harness.PYTHON)}:{os.environ['PATH']}", **train.ONE_THREAD}
        done = harness.lockstep("cache", "build", "--config", "alternating.yaml", "--nproc-per-node", "2", env=path, timeout=60)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertTrue(next((self.tmp / "runs").glob("cache-build-*"), None), "the run is named after its command")
        self.assertIn("(100.0 %)", self.cache("coverage", "cache"))
        self.cache("verify", "cache")
        folder = next((self.tmp / "cache").iterdir())
        self.assertIn("records", self.cache("export", folder, "exported"))
        stored = [record.tobytes() for unit in sorted((self.tmp / "exported").iterdir())
                  for record in safetensors.numpy.load_file(unit)["tokens"]]
        with torch.inference_mode():
            live = [model(clip[None].float() / 255)[0].numpy() for clip in clips]
            alone = model(clips[0, :1][None].float() / 255)[0, 0].numpy()
        self.assertEqual(set(stored), {one.tobytes() for one in live})
        self.assertEqual(len(set(stored)), 3)  # ranks that work at the same time may both have encoded what is there twice
        self.assertFalse(numpy.allclose(live[0][0], alone, atol=0.01), "a cache by frame would be wrong")
        self.assertFalse(numpy.allclose(live[0][0], live[2][0], atol=0.001), "so would one that forgets the order")

    def test_a_training_has_the_features_of_an_encoder_that_no_recipe_knows(self):
        done = harness.run([harness.PYTHON, harness.write("encoder.py", textwrap.dedent("""
            import torch
            class Encoder(torch.nn.Module):
                def forward(self, x):
                    return x.cumsum(1).mean([3, 4])
            torch.jit.script(Encoder()).save("encoder.pt")
            """))])
        self.assertEqual(done.returncode, 0, done.stderr)
        harness.write("features.yaml", """
            encoder: {path: encoder.pt}
            data: {kind: clips, clips: 24, frames: 1, height: 16, width: 16}
            cache: {root: cache}
            """)
        done = harness.lockstep("cache", "build", "--config", "features.yaml", "--nproc-per-node", "1", env=train.ONE_THREAD, timeout=60)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

        def training(name, policy, *flags):
            sets = {"data.clips": 24, "data.height": 16, "data.width": 16, "data.augment": "false", "train.steps": 4, "train.batch": 8,
                    "train.device": "cpu", "data.features": json.dumps({"config": "features.yaml", "policy": policy})}
            words = [word for key, value in sets.items() for word in ("--set", f"{key}={value}")]
            done = harness.lockstep("train", "denoise", "--nproc-per-node", "2", "--name", name, *words, *flags, env=train.ONE_THREAD)
            lines = [json.loads(line) for line in (self.tmp / "runs" / name / "metrics" / "rank-0.jsonl").read_text().splitlines()] \
                if done.returncode == 0 else []
            last = next((line["scalars"] for line in reversed(lines) if "rank/cache/hits" in line.get("scalars", {})), None)
            return done, last
        done, last = training("cached", "require")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("first batch features/features", done.stdout)
        self.assertEqual((last["rank/cache/misses"], last["rank/cache/live"], last["rank/cache/damaged"]), (0, 0, 0))
        self.assertGreaterEqual(last["rank/cache/hits"], 16)
        units = sorted((self.tmp / "cache").glob("*/units/*"))
        for unit in units[::2]:
            unit.unlink()
        done, last = training("partly", "read")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("clips are encoded live", done.stdout + done.stderr)
        self.assertGreater(last["rank/cache/live"], 0)
        self.assertGreater(last["rank/cache/hits"], 0)
        # What was built is the whole set, and a part of it validates.
        done, _ = training("refused", "read", "--cache", "require")
        self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
        self.assertRegex(done.stdout + done.stderr, r"not started after .* of 24 samples, of which training is a part, are not built yet")
        self.assertFalse((self.tmp / "runs" / "refused").exists())

    def test_bad_input_is_refused_with_what_to_do(self):
        self.prepare()
        done = harness.lockstep("train", "denoise", "--cache", "require", "--nproc-per-node", "1")
        self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
        self.assertIn("--cache require: the configuration names no feature cache", done.stdout + done.stderr)
        (self.tmp / "cache" / ("a" * 32)).mkdir()
        (self.tmp / "cache" / ("a" * 32) / "namespace.json").write_text('{"format":"lockstep-cache","version":2}')
        for args, code, words in (
                (("ls", "nowhere"), 3, "cannot list"),
                (("verify", "."), 2, "no namespace of a feature cache"),
                (("ls", "cache"), 2, "expected format lockstep-cache version 1, found 'lockstep-cache' version 2"),
                (("export", "cache", "out"), 3, "name a namespace"),
                (("gc", "cache", "--remove", "abc"), 2, "has no namespace 'abc'"),
                (("verfy", "cache"), 2, "did you mean 'verify'"),
                (("build",), 2, "usage: lockstep cache build"),
                (("build", "--nproc-per-node", "1"), 2, "lockstep cache build RECIPE"),
                (("build", "--set", "cache.root=c", "--nproc-per-node", "1"), 2, "encoder.path")):
            with self.subTest(args=args):
                done = harness.lockstep("cache", *args)
                self.assertEqual(done.returncode, code, done.stdout + done.stderr)
                self.assertIn(words, done.stdout + done.stderr)
        done = self.build(ranks=1, **{"recipe.teacher": json.dumps({"kind": "torchscript", "path": "teacher.pt"})})
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("there is nothing to build", done.stdout + done.stderr)
