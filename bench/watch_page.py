#!/usr/bin/env python3
"""The page of `lockstep watch --http` over a long run: time to build the pyramid once, then time until every visible chart
is drawn in headless Chromium, memory of the server, and whether every injected spike is in the charts.

    .venv/bin/python bench/watch_page.py --points 10000000 --series 10 [--keep DIR]
"""

import argparse
import json
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "integration"))
import browser  # noqa: E402

PROGRAM = ROOT / "build" / "bin" / "lockstep"


def write_run(path, points, series):
    """Metric lines of one rank; returns {name: steps of its spikes}."""
    names = ["loss", "lr", "grad_norm", "time/step"] + [f"layer/{i}" for i in range(series - 4)]
    (path / "metrics").mkdir(parents=True)
    (path / "run.json").write_text(json.dumps({"format": 1, "name": path.name, "world_size": 1, "nnodes": 1}))
    (path / "report.json").write_text(json.dumps({"format": 1, "name": path.name, "outcome": "succeeded", "exit_code": 0,
                                                  "reason": "all ranks succeeded", "started": 1.79e9, "ended": 1.79e9 + points / 10}))
    random.seed(1)
    spikes = {name: sorted(random.sample(range(points), 20)) for name in names}
    at = {}
    for name, steps in spikes.items():
        for step in steps:
            at.setdefault(step, []).append(name)
    noise = [random.random() for _ in range(4096)]
    form = "{" + ", ".join(f'"{name}": %.5f' for name in names) + "}"
    with open(path / "metrics" / "rank-0.jsonl", "w", buffering=1 << 20) as file:
        for step in range(points):
            base = 2 / (1 + step * 1e-5)
            values = [base + noise[(step * (i + 1)) & 4095] for i in range(series)]
            for name in at.get(step, ()):
                values[names.index(name)] = 1000.0 + step % 977
            file.write('{"t": %.3f, "attempt": 0, "rank": 0, "step": %d, "scalars": %s}\n' % (1.79e9 + step * 0.1, step, form % tuple(values)))
    return spikes


def serve(run):
    server = subprocess.Popen([PROGRAM, "watch", str(run), "--http", ":0"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    return server, server.stdout.readline().strip()


def memory(server, what):
    return int(re.search(rf"{what}:\s+(\d+) kB", pathlib.Path(f"/proc/{server.pid}/status").read_text())[1]) / 1024


def ask(url, path):
    with urllib.request.urlopen(url + path) as answer:
        return json.load(answer)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--points", type=int, default=10_000_000)
    parser.add_argument("--series", type=int, default=10)
    parser.add_argument("--keep", type=pathlib.Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or pathlib.Path(temporary)
        run, known = folder / "long", folder / "spikes.json"
        if not run.exists():
            known.write_text(json.dumps(write_run(run, options.points, options.series)))
        spikes = json.loads(known.read_text())
        size = (run / "metrics" / "rank-0.jsonl").stat().st_size
        begin = time.monotonic()
        server, url = serve(run)
        while ask(url, "api/state")["runs"][0]["progress"] < 1:
            time.sleep(0.2)
        built = time.monotonic() - begin
        peak = memory(server, "VmHWM")
        server.terminate()
        server.wait()
        pyramid = (run / "pyramid" / "rank-0.pyr").stat().st_size
        print(f"built once: {built:.1f} s for {size / 1e9:.2f} GB of lines, pyramid {pyramid / 1e6:.0f} MB, server at most {peak:.1f} MiB")

        begin = time.monotonic()
        server, url = serve(run)
        up = time.monotonic() - begin
        times = []
        for _ in range(5):
            with browser.Page(temporary, url, 1280, 1000) as page:
                times.append(int(page.until("document.documentElement.dataset.ready")))
        missing = sum(not any(high is not None and high >= 1000 for high, x in zip(curve.get("high", curve["mean"]), curve["x"]) if abs(x - step) <= options.points / 300)
                      for name, steps in spikes.items()
                      for curve in [ask(url, f"api/chart?run=0&n=600&name={urllib.parse.quote(name)}")] for step in steps)
        print(f"opened again: server answers after {up * 1000:.0f} ms; page with its charts after {sorted(times)[2]} ms (median of {times}); "
              f"server at most {memory(server, 'VmHWM'):.1f} MiB; spikes missing: {missing} of {sum(map(len, spikes.values()))}")
        server.terminate()
        server.wait()


if __name__ == "__main__":
    main()
