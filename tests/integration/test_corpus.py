"""The labelled logs of tests/corpus: how many `lockstep doctor diagnose` names right, plain and (a third of them) with
noise mixed in; score.py does the whole.

The held-out part is scored like the rest, but a failure prints totals only, so that nobody tunes on it."""

import hashlib
import json
import sys

import harness

CORPUS = harness.ROOT / "tests" / "corpus"
sys.path.insert(0, str(CORPUS))
import noise  # noqa: E402
import score  # noqa: E402

GOAL = 0.9


class Scored(harness.Case):
    TIMEOUT = 300

    def at_least_goal(self, part, seed=None):
        rows = score.run(part, seed, harness.PROGRAM, every=1 if seed is None else 3)
        right, asked = score.totals(rows)["signature"]
        wrong = [row[0] for row in rows if not row[3]["signature"]] if part != "heldout" else "not shown"
        self.assertGreaterEqual(right / asked, GOAL, f"{part}: {right} of {asked} causes right; wrong: {wrong}")

    def no_alarm(self, seed=None):
        rows = score.run("healthy", seed, harness.PROGRAM, every=1 if seed is None else 3)
        alarms = [(row[0], row[2].get("signature"), row[2].get("cause")) for row in rows if row[3]["alarm"]]
        self.assertEqual(alarms, [])

    def test_nine_of_ten_causes_are_named_right_in_the_open_part(self):
        self.at_least_goal("dev")

    def test_nine_of_ten_causes_are_named_right_in_the_open_part_with_noise(self):
        self.at_least_goal("dev", seed=1)

    def test_nine_of_ten_causes_are_named_right_in_the_held_out_part(self):
        self.at_least_goal("heldout")

    def test_nine_of_ten_causes_are_named_right_in_the_held_out_part_with_noise(self):
        self.at_least_goal("heldout", seed=1)

    def test_no_healthy_log_raises_an_alarm(self):
        self.no_alarm()

    def test_no_healthy_log_raises_an_alarm_with_noise(self):
        self.no_alarm(seed=1)


class Kept(harness.Case):
    """The set itself: enough logs, split by name alone, nothing of the machine they were made on."""

    def labels(self, part):
        return {case.name: score.label(case) for case in score.cases(part)}

    def test_a_hundred_failures_and_twenty_healthy_logs(self):
        dev, heldout, healthy = (self.labels(part) for part in ("dev", "heldout", "healthy"))
        self.assertGreaterEqual(len(dev) + len(heldout), 100)
        self.assertGreaterEqual(len(healthy), 20)
        self.assertGreaterEqual(len(heldout), (len(dev) + len(heldout)) * 0.25)

    def test_the_split_follows_from_the_names(self):
        for part in ("dev", "heldout"):
            for name in self.labels(part):
                held = int(hashlib.sha256(name.encode()).hexdigest()[:8], 16) % 3 == 0
                self.assertEqual("heldout" if held else "dev", part, name)

    def test_every_label_is_complete_and_its_words_stand_in_the_log(self):
        for part in ("dev", "heldout", "healthy"):
            for name, label in self.labels(part).items():
                self.assertEqual(label["verdict"], "healthy" if part == "healthy" else "failure", name)
                self.assertIn(label["made"], ("real", "after the form"), name)
                if part == "healthy":
                    continue
                self.assertTrue(label["signature"] and label["restart"] and label["what"] and label["names"], name)
                text = "".join(p.read_text(errors="replace") for p in (CORPUS / part / name / "log").rglob("*") if p.is_file())
                self.assertTrue(any(word.lower() in text.lower() for word in label["names"]), name)

    def test_noise_keeps_every_line_in_order_and_depends_on_the_seed_only(self):
        text = "\n".join(f"line {i}" for i in range(200))
        mixed = noise.mix(text, 5)
        self.assertEqual(mixed, noise.mix(text, 5))
        self.assertNotEqual(mixed, noise.mix(text, 6))
        self.assertGreater(mixed.count("\n"), 250)
        self.assertEqual([line for line in mixed.split("\n") if line.startswith("line ")], text.split("\n"))

    def test_the_scorer_counts_a_wrong_answer_as_wrong(self):
        wanted = {"verdict": "failure", "signature": ["py-exception"], "names": ["KeyError"], "rank": 1, "node": None, "restart": ["no"]}
        right = {"verdict": "failure", "signature": "py-key-error", "cause": "a key is missing", "evidence": [{"text": "KeyError: 'x'"}], "rank": 1, "restart": "no"}
        self.assertEqual(score.judge(right, wanted), {"signature": True, "named": True, "rank": True, "node": None, "restart": True})
        for change in ({"signature": "cuda-oom"}, {"verdict": "healthy"}, {"evidence": [{"text": "ValueError: y"}]}):
            self.assertFalse(score.judge({**right, **change}, wanted)["signature"], json.dumps(change))
        self.assertFalse(score.judge({**right, "rank": 0}, wanted)["rank"])
        self.assertFalse(score.judge({**right, "restart": "yes"}, wanted)["restart"])
        self.assertTrue(score.judge({"verdict": "failure"}, {"verdict": "healthy"})["alarm"])
