"""`lockstep report`: complete, self-contained, and nothing of a run becomes markup."""

import html.parser
import json
import re

import harness
import test_watch_web as web


class Parser(html.parser.HTMLParser):
    """Tags with their attributes, and the text between them."""

    def __init__(self):
        super().__init__()
        self.tags, self.text = [], []

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_data(self, data):
        self.text.append(data)


class Report(harness.Case):
    TIMEOUT = 60

    def make(self, *names):
        for name in names:
            run = web.make_run(self.tmp, name, steps=600)
            (run / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in [
                {"t": 1.79e9 - 5, "type": "run_started"}, {"t": 1.79e9 - 4, "type": "attempt_started", "attempt": 0},
                {"t": 1.79e9 + 300, "type": "diagnosis", "attempt": 0, "diagnosis": {"cause": "out of memory " + web.HOSTILE, "remedy": "a smaller batch"}},
                {"t": 1.79e9 + 301, "type": "attempt_ended", "attempt": 0}, {"t": 1.79e9 + 302, "type": "restart", "attempt": 0, "why": "rank 3 failed"}]))
            (run / "report.json").write_text(json.dumps({"format": 1, "name": name, "outcome": "succeeded", "exit_code": 0, "reason": web.HOSTILE,
                                                         "do": "nothing", "diagnosis": {"cause": "no memory | left"}, "started": 1.79e9 - 5, "ended": 1.79e9 + 610}))
        if len(names) > 1:
            (self.tmp / "runs" / names[1] / "config.yaml").write_text("train:\n  steps: 1200\n  batch: 8\n")

    def test_html_is_one_file_without_script_or_foreign_resource(self):
        self.make("first", "other <b>")
        file = self.tmp / "runs/first/report.json"
        file.write_text(json.dumps({key: value for key, value in json.loads(file.read_text()).items() if key != "diagnosis"}))
        done = harness.lockstep("report", "first", "--against", "other <b>", "--html", "out.html", cwd=self.tmp)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))
        parser = Parser()
        text = (self.tmp / "out.html").read_text()
        parser.feed(text)
        shown = "".join(parser.text)
        for part in ("first", "other <b>", web.HOSTILE, "Goodput", "out of memory", "a smaller batch", "rank 3 failed", "no memory | left", "train.batch", "reconstruction-10.png"):
            self.assertIn(part, shown)
        names = {tag for tag, _ in parser.tags}
        self.assertFalse(names & {"script", "link", "iframe", "b2", "object"})
        for tag, attributes in parser.tags:
            self.assertFalse([name for name in attributes if name.startswith("on")], attributes)
            self.assertRegex(attributes.get("src", "data:image/png;base64,"), "^data:image/png;base64,")
        self.assertEqual([a for t, a in parser.tags if t == "img" and a.get("src") == "q"], [])
        self.assertNotRegex(text, r"https?://")
        curves = [a["d"] for t, a in parser.tags if t == "path" and a.get("class", "").startswith("line")]
        self.assertGreaterEqual(len([d for d in curves if d.count("L") > 100]), 4)

    def test_json_and_markdown_agree_and_mistakes_are_said(self):
        self.make("first")
        done = harness.lockstep("report", "first", "--json", cwd=self.tmp)
        self.assertEqual(done.returncode, 0, done.stderr)
        figures = json.loads(done.stdout)
        self.assertAlmostEqual(sum(figures["goodput"]["seconds"].values()), figures["goodput"]["wall"], places=3)
        self.assertEqual(figures["goodput"]["steps"], 600)
        self.assertEqual(figures["goodput"]["repeated_steps"], 100)
        self.assertEqual(figures["metrics"]["loss"]["greatest"], 777.0)
        self.assertEqual(figures["metrics"]["loss"]["not_finite"], 1)
        self.assertEqual((figures["restarts"][0]["attempt"], figures["restarts"][0]["remedy"]), (1, "a smaller batch"))
        markdown = harness.lockstep("report", "first", cwd=self.tmp).stdout
        self.assertIn(f"{100 * figures['goodput']['ratio']:.1f} %", markdown)
        self.assertIn("| cause | no memory \\| left |\n| to do | nothing |", markdown)
        self.assertNotIn("<img", markdown)
        self.assertIn("The same all the time: rank/loss 1, ", harness.lockstep("report", "first", "--html", "-", cwd=self.tmp).stdout)
        self.assertIn("| attempt | steps | time |\n|---|---|---|\n| 0 | 0 to 299 | 5m05s |\n| 1 | 200 to 599 |", markdown)
        against = harness.lockstep("report", "first", "--against", "first", cwd=self.tmp).stdout
        self.assertIn("## Settings that differ\n\nNone.\n", against)
        for line in re.findall(r"^\|.*", markdown, re.M):
            self.assertTrue(line.endswith("|"), line)
        log = harness.write("some.log", "step 1/2\n")
        for arguments, code, words in (("nothing",), 2, "do: give a run (`lockstep runs`"), ((log,), 2, "is a log file"), (("first", "--against", "nothing"), 2, "--against"), \
                (("first", "--html", "no/such/folder/x.html"), 3, "no/such/folder"), (("first", "--json", "--html", "-"), 2, "stdout"):
            done = harness.lockstep("report", *arguments, cwd=self.tmp)
            self.assertEqual(done.returncode, code, done.stderr)
            self.assertIn(words, done.stderr)
        (self.tmp / "runs/empty").mkdir()
        (self.tmp / "runs/empty/run.json").write_text('{"format": 1, "name": "empty"}')
        done = harness.lockstep("report", "empty", "--json", cwd=self.tmp)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIsNone(json.loads(done.stdout)["goodput"]["ratio"])
