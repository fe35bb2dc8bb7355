"""What cannot be trained: one clear message on one rank, the same documented exit code on all of them, nothing half-written."""

import ctypes
import ctypes.util
import json
import os
import pickle
import re
import shutil
import sys
import zipfile

import harness

sys.path.append(str(harness.ROOT / "tests"))
from beds import jobs, train  # noqa: E402
from beds.media import video  # noqa: E402


class Xxh128(ctypes.Structure):
    _fields_ = [("low", ctypes.c_uint64), ("high", ctypes.c_uint64)]


def forge(manifest, old, new):
    """Changes the text of a manifest and its checksum, so that it is not damaged but another one."""
    library = ctypes.CDLL(ctypes.util.find_library("xxhash") or "libxxhash.so.0")
    library.XXH3_128bits.restype = Xxh128
    library.XXH3_128bits.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
    head, rest = manifest.read_bytes().split(b"\n", 1)

    def checksum(data):
        value = library.XXH3_128bits(data, len(data))
        return f"xxh3-128:{value.high:016x}{value.low:016x}".encode()

    if checksum(rest) not in head:
        raise AssertionError(f"the checksum of {manifest} is not that of all bytes after its line")
    changed = rest.replace(old.encode(), new.encode())
    if changed == rest:
        raise AssertionError(f"{manifest} has no {old}")
    manifest.write_bytes(head.replace(checksum(rest), checksum(changed)) + b"\n" + changed)


class BadInput(harness.Case):
    TIMEOUT = 120

    def refused(self, message, *flags, code=2, ranks=2, name="run", sets=None, attempt=0, begun=False, **kwargs):
        """Trains; the launcher must say the message once, and all ranks must leave with `code`. What is refused before the
        training has begun is told by the launcher alone, later one rank says it, too. --log-dir asks for a record."""
        before = set(train.checkpoints(train.run_path(name)))
        done = train.train("--log-dir", "runs", *flags, ranks=ranks, name=name, sets=sets, **kwargs)
        text = done.stdout + done.stderr
        self.assertEqual(done.returncode, code, text)
        self.assertRegex(text, message)
        run = train.run_path(name)
        self.assertEqual(train.exit_codes(self.tmp), {rank: code for rank in range(ranks)}, text)
        logs = "".join(train.rank_log(run, rank, attempt) for rank in range(ranks))
        self.assertEqual(len(re.findall(r"^lockstep train: ", logs, re.M)), int(begun), logs)
        self.assertEqual(len(re.findall(message, logs)), int(begun), logs)
        # The launcher's own words: not the console's copy of a rank's, nor the excerpt of a rank's log.
        launcher = [line for line in text.splitlines() if not re.match(r"\d+:\d+\| |    ", line)]
        self.assertEqual(len([line for line in launcher if re.search(message, line)]), 1, text)
        self.assertNotIn("Traceback", logs)
        self.assertNotRegex(logs, r"terminate called|c10::Error|what\(\)")
        report = jobs.report(run)
        self.assertEqual(report["exit_code"], code)
        self.assertRegex(report["reason"], message)
        # The engine's own remedy is the remedy, on the console too; nothing of it is taken for a traceback of Python.
        self.assertEqual([one["traceback"] for one in [report["first_failure"], *report["other_failures"]] if one
                          and one["traceback"]], [])
        if report["do"]:
            self.assertIn(f"do: {report['do']}", text)
        self.assertEqual(set(train.checkpoints(run)), before)
        self.assertEqual(train.stray(run), [])
        self.assertEqual(report["attempts"], 1)
        return text

    # --- configuration ---

    def test_unknown_key_names_the_nearest(self):
        self.refused(r"train\.optimizer\.lrr: unknown key.*'lr'", sets={"train.optimizer.lrr": 1})

    def test_score_that_does_not_exist_names_the_nearest_before_any_step(self):
        self.refused(r"data\.validation\.best: .*'psr'.*'psnr'", sets={"data.validation.best": "psr"})
        self.assertEqual(train.steps_done(train.run_path()), 0)

    def test_mistakes_of_the_configuration_are_named(self):
        """One rank, without the launcher: who says it and how all ranks end is the same for all mistakes, see above."""
        whole = harness.engine("config", "taehv").stdout
        torn = harness.write("torn.yaml", whole[: whole.index("betas: [0.9") + len("betas: [0.9")])
        for message, flags in {
                r"trian.*unknown key.*'train'": ["--set", "trian.steps=1"],
                r"train\.batch: expected .*-4": ["--set", "train.batch=-4"],
                r"train\.steps: expected .*many": ["--set", "train.steps=many"],
                r"train\.precision: .*fp23.*fp32": ["--set", "train.precision=fp23"],
                r"train\.optimizer\.momentum: .*only sgd": ["--set", "train.optimizer.momentum=0.9"],
                r"36x16: height and width must be multiples of 8": ["--set", "data.height=36"],
                r"recipe\.model: there is no TAEHV variant 'taehv9'": ["--set", "recipe.model=taehv9"],
                r"comm\.backend: nccl needs a GPU": ["--set", "comm.backend=nccl", "--set", "train.device=cpu"],
                r"--preset: expected auto or a number of GPUs, found 'many'": ["--preset", "many"],
                r"torn\.yaml.*(line|:)\s*\d+": ["--config", torn],
                r"nowhere\.yaml": ["--config", self.tmp / "nowhere.yaml"],
                r"taehw.*taehv": []}.items():
            with self.subTest(message):
                recipe = "taehw" if "taehw" in message else "taehv"
                done = harness.engine("train", recipe, *train.settings(), *flags)
                self.assertEqual(done.returncode, 3 if "nowhere" in message else 2, done.stdout + done.stderr)
                self.assertEqual(len(re.findall(message, done.stdout + done.stderr)), 1, done.stdout + done.stderr)
                self.assertNotRegex(done.stderr, r"terminate called|c10::Error|what\(\)")
                self.assertEqual(list(self.tmp.glob("runs")), [])

    def test_more_ranks_than_samples_in_a_batch(self):
        self.refused(r"train\.batch is 2, but there are 3 ranks", ranks=3, sets={"train.batch": 2})

    def test_more_ranks_than_canonical_shards(self):
        self.refused(r"train\.shards is 2, but there are 3 ranks", ranks=3,
                     sets={"train.reproducible": "true", "train.shards": 2})

    def test_gpus_that_are_not_there(self):
        self.refused(r"train\.device: cuda: this lockstep-train was built without CUDA", code=3, sets={"train.device": "cuda"})

    def test_bad_input_is_not_tried_again_though_there_is_a_budget(self):
        self.refused(r"train\.bach: unknown key", "--max-restarts", 5, sets={"train.bach": 4})

    # --- data ---

    def folder_of_frames(self, name="videos", count=6, frames=4, size=(32, 32)):
        from PIL import Image

        for number in range(count):
            folder = self.tmp / name / f"v{number}"
            folder.mkdir(parents=True)
            for frame in range(frames):
                Image.new("RGB", size, (number * 40, frame * 20, 7)).save(folder / f"{frame}.png")
        return self.tmp / name

    def frames(self, path, **more):
        return {"data.kind": "frames", "data.path": path, "data.clips": None, "train.batch": 2, "train.steps": 4,
                "data.validation.fraction": 0, **more}

    def test_folder_that_is_not_there(self):
        self.refused(r"/nowhere", code=3, sets=self.frames(self.tmp / "nowhere"))
        self.assertTrue(jobs.report(train.run_path())["do"])

    def test_folder_with_no_usable_file_says_what_it_holds(self):
        folder = self.tmp / "text"
        folder.mkdir()
        (folder / "a.txt").write_text("no picture")
        self.refused(r"no frames in .*text.*1 \.txt", sets=self.frames(folder))

    def test_images_where_clips_of_several_frames_are_asked_for(self):
        self.refused(r"kind images gives clips of one frame, but frames is 4",
                     sets=self.frames(self.folder_of_frames(), **{"data.kind": "images"}))

    def test_smaller_dataset_than_one_batch(self):
        self.refused(r"6 samples do not fill one global batch of 64", sets=self.frames(self.folder_of_frames(), **{"train.batch": 64}))

    def test_frames_of_mixed_size_are_named(self):
        from PIL import Image

        folder = self.folder_of_frames()
        Image.new("RGB", (40, 48)).save(folder / "v3" / "2.png")
        text = self.refused(r"1 unreadable sample in this run, 0 allowed.*frames of mixed size.*v3", code=3, begun=True,
                            sets=self.frames(folder, **{"train.steps": 20}))
        self.assertRegex(text, r"40x48")

    def test_videos_with_too_few_frames_are_named(self):
        folder = self.folder_of_frames()
        (folder / "v2" / "3.png").unlink()
        self.refused(r"1 unreadable sample in this run, 0 allowed.*v2.*4.*3", code=3, begun=True,
                     sets=self.frames(folder, **{"train.steps": 20}))

    def test_unreadable_samples_within_the_budget_are_left_out_and_named(self):
        folder = self.folder_of_frames(count=8)
        (folder / "v2" / "1.png").write_bytes(b"no picture")
        done = train.train(ranks=2, sets=self.frames(folder, **{"train.steps": 20, "data.bad_samples": 0.3}))
        self.assertEqual(done.returncode, 0, done.stderr)
        events = [json.loads(line) for line in (train.run_path() / "events.jsonl").read_text().splitlines()]
        bad = [event for event in events if event["type"] == "bad_sample"]
        self.assertEqual(len(bad), 1, events)
        self.assertTrue(bad[0]["sample"].endswith("v2") and "1.png" in bad[0]["why"], bad)
        line = json.loads((train.run_path() / "metrics" / "rank-1.jsonl").read_text().splitlines()[-1])["scalars"]
        self.assertGreater(line["rank/data/decode"], 0, line)
        self.assertLessEqual(line["rank/data/stall"], 1, line)
        self.assertEqual(len(re.findall(r"unreadable sample .*v2", train.all_logs(train.run_path()))), 1)
        self.assertEqual([step for step in train.lineage(train.run_path())], list(range(1, 21)))

    def test_video_that_ends_early_is_named(self):
        folder = self.tmp / "videos"
        folder.mkdir()
        for number in range(5):
            video(folder / f"v{number}.avi", 12, 12)
        video(folder / "v5.avi", 2, 40)
        probe = train.train(name="probe", sets=self.frames(folder, **{"data.kind": "videos", "data.bad_samples": 50}))
        if "FFmpeg" in probe.stderr:
            self.assertEqual(probe.returncode, 3)  # this build reads no videos, and says so
            return
        self.assertEqual(probe.returncode, 0, probe.stderr)
        shutil.rmtree(train.run_path("probe"))
        self.refused(r"1 unreadable sample in this run, 0 allowed.*v5\.avi.*ends early", code=3, begun=True,
                     sets=self.frames(folder, **{"data.kind": "videos", "train.steps": 20, "data.min_stride": 2, "data.max_stride": 3}))

    # --- weights and checkpoints ---

    def start_from(self, file, **more):
        return {"checkpoint.weights": file, **more}

    def good(self):
        """Weights of a training."""
        done = train.train(name="good", ranks=1, sets={"train.steps": 1, "train.schedule.warmup": 0})
        self.assertEqual(done.returncode, 0, done.stderr)
        file = self.tmp / "small.safetensors"
        shutil.copy(train.last(train.run_path("good")) / "model.safetensors", file)
        shutil.rmtree(train.run_path("good"))
        return file

    def test_weights_of_the_wrong_shape_or_of_another_variant_are_named(self):
        import numpy
        from safetensors.numpy import load_file, save_file

        file = self.good()
        self.refused(r"small\.safetensors: ", sets=self.start_from(file, **{"recipe.model": "taehv"}))
        weights = load_file(file)
        weights["encoder.0.weight"] = numpy.zeros((16, 3, 5, 5), "float32")
        save_file(weights, self.tmp / "wrong.safetensors")
        shutil.rmtree(self.tmp / "runs")
        self.refused(r"wrong\.safetensors: .*encoder\.0\.weight.*16, 3, 5, 5", sets=self.start_from(self.tmp / "wrong.safetensors"))

    def test_missing_weights_file(self):
        self.refused(r"checkpoint\.weights: .*nowhere\.safetensors", code=3, sets=self.start_from(self.tmp / "nowhere.safetensors"))

    def test_pickle_that_would_run_a_program_is_refused_and_not_run(self):
        mark = self.tmp / "executed"

        class Evil:
            def __reduce__(self):
                return os.system, (f"touch {mark}",)

        file = self.tmp / "evil.pth"
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr("evil/data.pkl", pickle.dumps({"encoder.0.weight": Evil()}, protocol=2))
            archive.writestr("evil/version", "3\n")
        self.refused(r"evil\.pth.*system", code=3, sets=self.start_from(file))
        self.assertFalse(mark.exists())

    def test_torch_save_file_of_the_right_weights_is_loaded(self):
        """The control: a file of the same kind without the trick."""
        import torch
        from safetensors.torch import load_file

        torch.save(load_file(self.good()), self.tmp / "good.pth")
        done = train.train(name="from", ranks=1, sets=self.start_from(self.tmp / "good.pth", **{"train.steps": 2}))
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_checkpoint_of_another_recipe(self):
        done = train.train(sets={"train.steps": 4})
        self.assertEqual(done.returncode, 0, done.stderr)
        forge(train.last(train.run_path()) / "manifest.json", '"recipe": "taehv"', '"recipe": "vrt"')
        self.refused(r"a checkpoint of the recipe 'vrt', expected 'taehv'", attempt=1, sets={"train.steps": 8})

    # --- what is left of it ---

    def test_refused_training_leaves_nothing_and_is_said_once_with_its_remedy(self):
        done = train.train("--resume", "absent", ranks=1)
        self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
        text = done.stdout + done.stderr
        self.assertEqual(text.count("neither a file nor a run"), 1, text)
        self.assertRegex(text, r"\n  do: \S+")
        self.assertNotIn("other rank", text)
        self.assertEqual(list(self.tmp.glob("runs")), [], "no run directory, no empty root")

    def test_refused_relaunch_leaves_a_finished_run_as_it_was(self):
        done = train.train(ranks=1, sets={"train.steps": 2, "train.schedule.warmup": 0})
        self.assertEqual(done.returncode, 0, done.stderr)
        run = train.run_path()

        def everything():
            return {str(p.relative_to(run)): p.read_bytes() if p.is_file() else None for p in run.rglob("*")}

        before = everything()
        for flags, sets in ([], {"train.steps": 4, "recipe.model": "taehv"}), (["--resume", "none"], {"train.batch": 400}):
            with self.subTest(sets):
                again = train.train(*flags, ranks=1, sets=sets)
                self.assertEqual(again.returncode, 2, again.stdout + again.stderr)
                self.assertEqual({k: v for k, v in everything().items() if before.get(k) != v}, {})
                self.assertEqual(everything(), before)
        self.assertRegex(harness.lockstep("runs").stdout, r"(?m)^run +succeeded")
        # Without a launcher of ours the engine keeps the record itself.
        alone = harness.run([train.ENGINE, "train", "taehv", "--name", "run", *train.settings({"recipe.model": "taehv"})],
                            env=train.ONE_THREAD)
        self.assertEqual(alone.returncode, 2, alone.stderr)
        self.assertEqual(everything(), before)

    # --- places ---

    def test_file_in_place_of_the_run_folder(self):
        (self.tmp / "runs").write_text("")
        done = train.train()
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertRegex(done.stderr, r"runs")
        self.assertEqual((self.tmp / "runs").read_text(), "")

    def test_file_in_place_of_the_checkpoint_folder(self):
        done = train.train(sets={"train.steps": 4})
        self.assertEqual(done.returncode, 0, done.stderr)
        shutil.rmtree(train.run_path() / "checkpoints")
        (train.run_path() / "checkpoints").write_text("")
        self.refused(r"/checkpoints", code=3, attempt=1, sets={"train.steps": 4})

    def test_read_only_run_folder(self):
        harness.require("netns")  # root, to mount
        runs = self.tmp / "runs"
        runs.mkdir()
        script = (f"mount --bind {runs} {runs} && mount -o remount,bind,ro {runs} && exec "
                  + " ".join(map(str, [harness.PROGRAM, *train.command()])))
        done = harness.run(["unshare", "--mount", "sh", "-c", script], env=train.ONE_THREAD)
        self.assertEqual(done.returncode, 3, done.stdout + done.stderr)
        self.assertRegex(done.stderr, r"[Rr]ead-only")
        self.assertEqual(list(runs.iterdir()), [])

    def test_rank_variables_that_contradict_each_other(self):
        done = harness.run([train.ENGINE, "train", "taehv", *train.settings()], env={"RANK": "3", "WORLD_SIZE": "2"})
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertRegex(done.stderr, r"RANK=3")
        self.assertEqual(list(self.tmp.glob("runs/*")), [])
