"""Benchmarks beside a peer that crashes: it is tried again and named, what was measured is kept, the other rows go on."""

import contextlib
import io
import json
import sys
from unittest import mock

import harness

sys.path.append(str(harness.ROOT / "bench"))
import peers  # noqa: E402
import rows  # noqa: E402
import run  # noqa: E402

PAGE = "".join(f"<!-- bench:{name} -->\nold {name}\n<!-- end -->\n" for name in ("first", "second"))

# Crashes before its figures, after them, or not at all, in this order; a file counts the starts.
FAKE_PEER = """
import os, pathlib, sys
count = pathlib.Path(sys.argv[1])
started = int(count.read_text()) if count.exists() else 0
count.write_text(str(started + 1))
how = sys.argv[2:][min(started, len(sys.argv) - 3)]
if how == "before":
    os.abort()
print('{"seconds": 8}', flush=True)
if how == "after":
    os.abort()
"""


class CrashingPeer(harness.Case):
    def setUp(self):
        self.page = harness.write("benchmarks.md", PAGE)
        self.count = self.tmp / "count"
        peers.crashes.clear()

    def peer(self, *ends):
        script = harness.write("peer.py", FAKE_PEER)
        return peers.Peer("DDP", lambda: peers.figures("DDP", [sys.executable, script, self.count, *ends])[-1]["seconds"])

    def bench(self, first):
        """Runs two benchmarks, the first as given; (exit code, standard output, standard error)."""
        out, errors = io.StringIO(), io.StringIO()
        second = lambda folder, repeat: [rows.row("later", 3, None, None, "s", "", None, None, None)]  # noqa: E731
        with mock.patch.multiple(run, BENCHES={"first": first, "second": second}, PAGE=self.page, versions=lambda: "today"), \
                mock.patch.object(sys, "argv", ["run.py", "--only", "first,second", "--repeat", "2"]), \
                contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
            code = run.main()
        return code, out.getvalue(), errors.getvalue()

    def beside(self, *ends):
        def first(folder, repeat):
            ours, other = rows.in_turns(repeat, lambda: 2.0, self.peer(*ends))
            return [rows.times_faster("a step", rows.median(ours), rows.median(other), "DDP", 3, "s", 1)]
        return self.bench(first)

    def test_peer_that_crashes_once_is_tried_again(self):
        code, out, errors = self.beside("before", "fine")
        self.assertEqual(code, 0, errors)
        self.assertIn("| a step | 2 | 8 (DDP) | s | **4.00x** faster | >= 3x faster | yes |", out)
        self.assertIn("peer DDP: crashed 1 time, last: SIGABRT", errors)

    def test_figures_printed_before_a_crash_count(self):
        code, out, errors = self.beside("after")
        self.assertEqual(code, 0, errors)
        self.assertIn("8 (DDP)", out)
        self.assertIn("peer DDP: crashed 2 times, last: SIGABRT after its figures were printed", errors)
        self.assertEqual(self.count.read_text(), "2", "what was measured is not measured again")

    def test_peer_that_always_crashes_leaves_ours_and_the_other_rows(self):
        code, out, errors = self.beside("before")
        self.assertEqual(code, 0, "no program of ours failed")
        self.assertIn("| a step | 2 | DDP: crashed | s |  | >= 3x faster |  |", out)
        self.assertIn("| later | 3 |", out)
        self.assertIn("a step", self.page.read_text())
        self.assertEqual(self.count.read_text(), str(peers.TRIES), "a peer that never comes through is not tried in every round")

    def test_failure_of_ours_is_the_exit_code_and_the_other_rows_go_on(self):
        def first(folder, repeat):
            yield rows.row("measured", 1, None, None, "s", "", None, None, None)
            raise RuntimeError("ours is broken")
        code, out, errors = self.bench(first)
        self.assertEqual(code, 1)
        self.assertIn("| measured | 1 |", out)
        self.assertIn("first: not measured, ours is broken", out)
        self.assertIn("| later | 3 |", out)
        self.assertIn("bench/run.py: first failed: ours is broken", errors)
        self.assertIn("old first", self.page.read_text(), "the last good figures stay")
        self.assertNotIn("old second", self.page.read_text())

    def test_log_rows_without_the_peer(self):
        rates = {"print": {f"lockstep {mode}": {"delivery": 5e3, "writing": 6e3} for mode in ("--tee 3", "--redirects 3")}}
        found = run.log_rows(json.loads(json.dumps({"rates": rates})))
        self.assertEqual([(r["ours"], r["peer_name"]) for r in found],
                         [(5, "torchrun --tee 3: crashed"), (6, "torchrun --redirects 3: crashed")])
