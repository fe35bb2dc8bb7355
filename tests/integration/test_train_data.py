"""The data of a training over ranks: one rank looks, all train on the same samples, and what is missing or broken is named."""

import ctypes
import json
import os
import re
import struct
import sys

import harness

sys.path.append(str(harness.ROOT / "tests"))
from beds import train  # noqa: E402
from test_eval import clip, write_frames  # noqa: E402
from test_train_bad_input import video  # noqa: E402

IN_OPEN, IN_NONBLOCK = 0x20, 0o4000


class Opens:
    """Counts how often a file or folder is opened, by anyone."""

    def __init__(self, *paths):
        libc = ctypes.CDLL(None, use_errno=True)
        self.fd = libc.inotify_init1(IN_NONBLOCK)
        self.names = {libc.inotify_add_watch(self.fd, os.fsencode(path), IN_OPEN): str(path) for path in paths}
        self.counts = dict.fromkeys(self.names.values(), 0)
        assert -1 not in self.names, os.strerror(ctypes.get_errno())

    def read(self):
        while True:
            try:
                data = os.read(self.fd, 1 << 16)
            except BlockingIOError:
                return self.counts
            while data:
                watch, _, _, length = struct.unpack_from("iIII", data)
                name = data[16:16 + length].rstrip(b"\0")
                if not name:  # the watched thing itself, not a file in it
                    self.counts[self.names[watch]] += 1
                data = data[16 + length:]


def sets(tmp, **more):
    return {"data.kind": "annotations", "data.path": tmp / "data", "data.annotations": tmp / "list.json", "data.clips": None,
            "data.validation.fraction": 0.25, "data.validation.samples": 0, "train.steps": 4, "train.batch": 3, "checkpoint.every": 0,
            **more}


class AnnotationList(harness.Case):
    def prepare(self):
        for n in range(8):
            write_frames(self.tmp / "data" / f"v{n}", clip(6, 36, 48, n))
        entries = [{"path": "v0"}, {"full_path": "v1", "duration": 0.2, "frames": 6}, {"path": "gone/a.mp4"}]
        entries += [{"path": f"v{n}"} for n in range(2, 8)] + [{"path": "./v3"}]
        (self.tmp / "list.json").write_text(json.dumps({"total": len(entries), "list": entries}))

    def test_one_rank_looks_for_all(self):
        self.prepare()
        found = []
        for ranks in (1, 3):
            opens = Opens(self.tmp / "list.json", self.tmp / "data")
            done = train.train(ranks=ranks, name=f"on-{ranks}", sets=sets(self.tmp), cwd=self.tmp)
            text = done.stdout + done.stderr
            self.assertEqual(done.returncode, 0, text)
            found.append(opens.read())
            self.assertEqual(len(re.findall(r"1 of 10 listed files missing: \S*gone/a.mp4", text)), 2, text)  # data, validation
        self.assertEqual(found[0][str(self.tmp / "list.json")], 1, found)
        self.assertGreater(found[0][str(self.tmp / "data")], 0, found)
        self.assertEqual(found[0], found[1])

    def test_sets_are_mixed_by_weight_alike_on_any_number_of_ranks(self):
        self.prepare()
        for n in range(3):
            write_frames(self.tmp / "other" / f"v{n}", clip(6, 36, 48, 20 + n))
        entries = [{"weight": 0.75, "kind": "annotations", "path": str(self.tmp / "data"), "annotations": str(self.tmp / "list.json")},
                   {"weight": 0.25, "kind": "frames", "path": str(self.tmp / "other")}]
        (self.tmp / "mix.yaml").write_text(json.dumps({"data": {"mix": entries}}))
        options = {"data.clips": None, "data.validation.fraction": 0, "data.validation.samples": None, "train.steps": 4,
                   "checkpoint.every": 0, "data.check": "all"}
        used = []
        for ranks in (1, 2):
            done = train.train("--config", self.tmp / "mix.yaml", ranks=ranks, name=f"on-{ranks}",
                               sets={**options, "data.threads": ranks - 1}, cwd=self.tmp)
            text = done.stdout + done.stderr
            self.assertEqual(done.returncode, 0, text)
            self.assertRegex(text, r"75 % annotations: \d+ videos.* [+] 25 % frames: 3 videos")
            lines = [line for r in range(ranks) for line in harness.read_jsonl(train.run_path(f"on-{ranks}") / "samples" / f"rank-{r}.jsonl")]
            used.append({step: [s for line in lines if line["step"] == step for s in line["samples"]] for step in range(1, 5)})
        self.assertEqual(used[0], used[1])

    def test_broken_videos_are_left_out_within_the_budget_and_named(self):
        data = self.tmp / "data"
        data.mkdir()
        for n in range(6):
            video(data / f"good{n}.avi", 8, 8)
        video(data / "three.avi", 3, 3)
        (data / "junk.mp4").write_bytes(b"no video at all")
        os.mkfifo(data / "hang.avi")  # opening it waits for somebody who writes, as on a dead mount
        names = [f"good{n}.avi" for n in range(6)] + ["three.avi", "junk.mp4", "hang.avi"]
        (self.tmp / "list.json").write_text(json.dumps({"list": [{"path": name} for name in names]}))
        options = sets(self.tmp, **{"data.validation.fraction": 0, "train.batch": 4, "data.validation.samples": None,
                                    "data.threads": 1, "data.timeout": "2s"})
        done = train.train(ranks=2, name="none", sets=options, cwd=self.tmp)
        self.assertEqual(done.returncode, 3, done.stdout + done.stderr)
        done = train.train(ranks=2, name="some", sets={**options, "data.bad_samples": 10}, cwd=self.tmp)
        text = done.stdout + done.stderr
        self.assertEqual(done.returncode, 0, text)
        self.assertRegex(text, "three.avi' is too short|three.avi.*3 frames")
        self.assertIn("junk.mp4", text)
        events = [e for e in harness.read_jsonl(train.run_path("some") / "events.jsonl") if e["type"] == "bad_sample"]
        self.assertEqual({os.path.basename(e["sample"]): e["class"] for e in events},
                         {"three.avi": "shape", "junk.mp4": "decode", "hang.avi": "timeout"}, events)
