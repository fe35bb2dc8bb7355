"""`lockstep watch --http`: the page in a real browser, Prometheus' own checker, and clients that do not behave."""

import http.client
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import time

import browser
import fake_runs
import harness

HOSTILE = "x<img src=q onerror=hit()>\"'&"


def make_run(tmp, name="long", ranks=4, steps=3000):
    """A run directory of several ranks, with one spike, one nan, a restart, a log, a picture and samples of a node."""
    path = tmp / "runs" / name
    for folder in ("metrics", "pictures", "telemetry", "logs/attempt-1/node-0"):
        (path / folder).mkdir(parents=True)
    (path / "run.json").write_text(json.dumps({"format": 1, "name": name, "world_size": ranks, "nnodes": 1, "started": 1.79e9}))
    (path / "config.yaml").write_text(f"train:\n  steps: {2 * steps}\n")
    (path / "events.jsonl").write_text(json.dumps({"t": 1.79e9, "type": "restart", "attempt": 1, "why": HOSTILE}) + "\n")
    for rank in range(ranks):
        lines = []
        for attempt, begin, end in (0, 0, steps // 2), (1, steps // 3, steps):
            for step in range(begin, end):
                scalars = {"rank/time/step": 0.5 + 0.1 * rank, "rank/loss": 1.0}
                if rank == 0:
                    scalars |= {"loss": 777.0 if step == steps // 4 else "nan" if step == steps // 5 else 2 / (1 + step / 100), HOSTILE: step}
                lines.append(json.dumps({"t": 1.79e9 + step, "attempt": attempt, "rank": rank, "step": step, "scalars": scalars}))
        (path / "metrics" / f"rank-{rank}.jsonl").write_text("\n".join(lines) + "\n")
        (path / "logs/attempt-1/node-0" / f"rank-{rank}.log").write_text(f"rank {rank} says {HOSTILE}\x1b[31m!\n")
    (path / "telemetry" / "node-0.jsonl").write_text(json.dumps({
        "t": time.time(), "attempt": 1, "node": 0, "host": "n0", "launcher": 1, "n": 1, "cpu": {"percent": 150, "cores": 4, "load": 1},
        "memory": {"used": 1 << 30, "total": 4 << 30},
        "gpus": [{"gpu": 0, "uuid": "GPU-0", "name": "NVIDIA H200", "util": 97, "memory_util": 61, "memory_used": 1 << 30, "memory_total": 2 << 30,
                  "temperature": 61, "power": 512.3, "power_limit": 700, "sm_clock": 1755, "sm_clock_max": 1980, "memory_clock": 3201,
                  "throttle": ["sw power cap"], "ecc_corrected": 0, "ecc_uncorrected": 0, "xid": 94}],
        "ranks": [{"rank": 0, "pid": 1, "cpu": 100, "rss": 1 << 30, "gpu": 0, "step": steps - 1, "steps": 1, "seconds": {"step": 0.5, "data": 0.1, "collective": 0.1}}],
        "links": [{"name": "eth0", "kind": "ethernet", "speed": 10, "in": 1e6, "out": 1e6, "bytes_in": 1e9, "bytes_out": 1e9, "errors": 0}]}) + "\n")
    (path / "pictures" / "reconstruction-10.png").write_bytes((harness.ROOT / "docs/images/reconstruction.png").read_bytes())
    return path


class Server:
    """`lockstep watch ... --http` on a free port."""

    def __init__(self, case, *arguments, env=None):
        self.process = subprocess.Popen([harness.PROGRAM, "watch", *map(str, arguments), "--interval", "200ms"], cwd=case.tmp,
                                        env=harness.clean_env(env), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        case.addCleanup(self.stop)
        self.url = self.process.stdout.readline().strip()
        assert self.url, self.process.stderr.read()
        self.port = int(re.search(r":(\d+)/", self.url)[1])

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        self.process.communicate()
        return self.process.returncode

    def ask(self, path, **headers):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        body = answer.read()
        connection.close()
        return answer, body

    def json(self, path):
        answer, body = self.ask(path)
        assert answer.status == 200, (path, answer.status, body)
        return json.loads(body)

    def until(self, path, true):
        deadline = time.monotonic() + 30 * harness.PATIENCE
        while time.monotonic() < deadline:
            found = self.json(path)
            if true(found):
                return found
            time.sleep(0.05)
        raise AssertionError(f"{path} never became what was waited for: {str(found)[:500]}")

    def built(self):
        return self.until("/api/state", lambda state: all(run["progress"] == 1 for run in state["runs"]))


class Page(harness.Case):
    TIMEOUT = 60

    def test_the_page_shows_runs_in_a_browser_and_takes_no_text_for_markup(self):
        (make_run(self.tmp, "first") / "config.yaml").write_text("train:\n  steps: 12345678\n")
        make_run(self.tmp, "x<b>y")
        server = Server(self, "first", "x<b>y", "--http", ":0")
        with browser.Page(self.tmp, server.url, 1280, 900) as page:
            page.call("Runtime.evaluate", expression="window.hit = () => { window.was_hit = true }")
            self.assertGreater(int(page.until("document.documentElement.dataset.ready")), 0)
            self.assertEqual(page.value("document.querySelector('h1').textContent"), "first")
            self.assertIn("2,999 / 12,345,678", page.value("document.getElementById('tiles').textContent"))
            self.assertEqual(page.value("[...document.querySelectorAll('#runs button')].map(b => b.textContent).join()"), "first,x<b>y")
            page.until("[...document.querySelectorAll('.chart .title')].map(t => t.textContent).includes('loss')")
            drawn = "[...document.querySelector('.chart.main canvas').getContext('2d').getImageData(0,0,900,200).data].some(v => v > 0)"
            self.assertTrue(page.value(drawn))
            for key, expected in ("2", "step time"), ("2", "500 ms"), ("3", "NVIDIA H200"), ("4", HOSTILE), ("5", f"rank 0 says {HOSTILE}!"), ("6", "reconstruction-10.png"), ("7", "train:"):
                page.press(key)
                page.until(f"document.getElementById('view').textContent.includes({json.dumps(expected)})")
            page.press("t")
            self.assertEqual(page.value("document.documentElement.dataset.theme"), "dark")
            page.press("1")
            page.size(390, 800)
            self.assertTrue(page.until("document.documentElement.scrollWidth <= 390"))
            self.assertIsNone(page.value("window.was_hit"))
            self.assertEqual(page.value("document.querySelectorAll('main b, main img[src=q]').length - document.querySelectorAll('main .finding b, main .strip b').length"), 0)
            self.assertEqual(page.errors, [])
        # The page has its first curves inside: whoever takes a picture of it once it is loaded sees charts.
        server.built()
        text = server.ask("/")[1].decode()
        self.assertNotIn("<img", text)
        inside = json.loads(re.search(r'<script id="first"[^>]*>(.*?)</script>', text, re.DOTALL)[1])
        self.assertEqual([run["name"] for run in inside["state"]["runs"]], ["first", "x<b>y"])
        for curves in inside["curves"]:
            self.assertEqual(max(v for v in curves["loss"]["high"] if v is not None), 777)
            self.assertIn(HOSTILE, curves)
        self.assertEqual(server.stop(), 0)
        self.assertTrue((self.tmp / "runs/first/pyramid/rank-0.pyr").exists())

    def test_charts_keep_the_spike_at_any_zoom_follow_the_run_and_survive_its_end(self):
        run = make_run(self.tmp, steps=20_000)
        server = Server(self, "long", "--http", ":0")
        server.built()
        for n in 16, 200, 2000:
            curve = server.json(f"/api/chart?run=0&name=loss&n={n}")
            self.assertEqual(max(v for v in curve.get("high", curve["mean"]) if v is not None), 777.0, n)
            self.assertLess(len(curve["x"]), n + 20)
            self.assertEqual(len(curve["not_finite"]), 1)
        zoomed = server.json("/api/chart?run=0&name=loss&from=4990&to=5010&n=1000")
        self.assertEqual(zoomed["level"], -1)
        self.assertEqual(zoomed["mean"][zoomed["x"].index(5000)], 777.0)
        stream = socket.create_connection(("127.0.0.1", server.port))
        self.addCleanup(stream.close)
        stream.sendall(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        with open(run / "metrics/rank-0.jsonl", "a") as file:
            file.write('{"t": 1.8e9, "attempt": 1, "step": 20000, "scalars": {"loss": 5.5}}\n{"t": 1.8e9, "att')
        seen = b""
        while b'"step":20000' not in seen:
            piece = stream.recv(1 << 16)
            self.assertTrue(piece)
            seen = seen[-200:] + piece
        server.until("/api/chart?run=0&name=loss&n=100", lambda curve: curve["to"] == 20000)
        shutil.rmtree(run)
        server.until("/api/state", lambda state: True)
        self.assertEqual(server.ask("/api/pictures?run=0")[1], b"[]")
        self.assertEqual(server.json("/api/log?run=0")["lines"], [])
        self.assertEqual(server.stop(), 0)

    def test_the_page_keeps_what_is_held_shows_the_chosen_run_and_comes_back_when_the_server_does(self):
        run = make_run(self.tmp, steps=300)
        shutil.rmtree(make_run(self.tmp, "other", steps=50) / "pictures")
        server = Server(self, "long", "other", "--http", ":0")
        with browser.Page(self.tmp, server.url) as page:
            page.until("document.documentElement.dataset.ready")
            page.value("(window.held = document.querySelectorAll('#tabs button')[1]).focus()")
            with open(run / "metrics/rank-0.jsonl", "a") as file:
                file.write('{"t": 1.8e9, "attempt": 1, "step": 7000, "scalars": {"loss": 5.5}}\n')
            page.until("document.getElementById('tiles').textContent.includes('7,000')")
            self.assertTrue(page.value("window.held.isConnected && document.activeElement === window.held"))
            page.press("2")
            page.until("document.querySelectorAll('.cells button').length === 4")
            page.value("document.querySelector('.cells button').focus()")
            page.press("ArrowRight")
            self.assertTrue(page.value("document.activeElement === document.querySelectorAll('.cells button')[1]"))
            page.press("6")
            page.until("document.getElementById('view').textContent.includes('reconstruction-10.png')")
            page.press("n")
            page.until("document.getElementById('view').textContent.includes('no pictures')")
            page.press("1")
            self.assertEqual(server.stop(), 0)
            page.until("document.getElementById('live').textContent === 'not connected'")
            page.press("+")
            with socket.socket() as refusing:  # an answer after which browsers do not ask again
                refusing.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                refusing.bind(("127.0.0.1", server.port))
                refusing.listen()
                asked = b""
                while b"/events" not in asked:
                    client, _ = refusing.accept()
                    with client:
                        asked = client.recv(1 << 16)
                        client.sendall(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            self.assertNotEqual(page.value("document.querySelector('.chart.main .now').textContent"), "", "the chart stays")
            Server(self, "long", "other", "--http", f":{server.port}")
            page.until("document.getElementById('live').textContent === 'live'")

    def test_metrics_pass_promtool_and_have_every_name_of_the_dashboard(self):
        harness.require("promtool")
        make_run(self.tmp, "run \\ \"quoted\" <é>")
        live = fake_runs.FakeRun(self.tmp / "runs", "live", world=100, nodes=13, owner=os.getpid())
        for step in range(1, 4):
            live.step(step, engine=True)
        live.sample(hot=5, step=3)
        with open(live.path / "metrics/rank-0.jsonl", "a") as file:
            file.write(fake_runs.metric_line(0, 4, loss="nan", tokens_per_second=1e5, lr="inf"))
        server = Server(self, self.tmp / "runs" / "run \\ \"quoted\" <é>", live.path, "--http", ":0")
        answer, text = server.ask("/metrics")
        self.assertEqual(answer.getheader("Content-Type"), "text/plain; version=0.0.4; charset=utf-8")
        checked = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True)
        self.assertEqual((checked.returncode, checked.stdout + checked.stderr), (0, b""))
        source = (harness.ROOT / "src/watch/web/prometheus.cc").read_text()
        families = set(re.findall(r'^    \{"(\w+)", "gauge"', source, re.M))
        used = set()
        dashboard = json.loads((harness.ROOT / "examples/grafana-dashboard.json").read_text())
        queries = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
        queries += [variable["query"]["query"] for variable in dashboard["templating"]["list"] if variable["type"] == "query"]
        for query in queries:
            used |= set(re.findall(r"\b(?:lockstep|DCGM)_\w+", query))
        self.assertGreater(len(used), 25)
        self.assertEqual(used - families, set())
        units = {"_seconds": "s", "_bytes_per_second": "Bps", "_bytes": "bytes", "_ratio": "percentunit", "_FB_USED": "mbytes", "_GPU_TEMP": "celsius",
                 "_GPU_UTIL": "percent", "_POWER_USAGE": "watt", "_errors": "short", "_XID_ERRORS": "short"}
        for panel in dashboard["panels"]:
            config = panel["fieldConfig"]
            for target in panel["targets"]:
                unit = [p["value"] for o in config["overrides"] if o["matcher"]["options"] == target["refId"] for p in o["properties"] if p["id"] == "unit"]
                name = re.search(r"(?:lockstep|DCGM)_\w+", target["expr"])[0]
                wanted = next((unit for ending, unit in units.items() if name.endswith(ending) and " / " not in target["expr"]), None)
                self.assertIn(wanted, (None, *(unit or [config["defaults"]["unit"]])), (panel["title"], name))
                # Several runs are chosen at once: their lines are told apart.
                self.assertTrue("DCGM" in name or re.search("{{(run|host|Hostname)}}", target["legendFormat"]), panel["title"])
        page = (harness.ROOT / "docs/watch-web.md").read_text()
        for name in families:
            self.assertIn(re.sub(r"^(lockstep_[a-z]+|DCGM_FI_DEV)_", "", name), page, name)
        exported = re.findall(r"^# TYPE (\w+)", text.decode(), re.M)
        self.assertEqual(sorted(exported), sorted(families), "each once, and all that exist")
        samples = [line.rsplit(" ", 1)[0] for line in text.decode().splitlines() if not line.startswith("#")]
        self.assertEqual(len(samples), len(set(samples)))


class Access(harness.Case):
    TIMEOUT = 60

    def test_other_addresses_need_the_token_and_it_is_never_shown_again(self):
        make_run(self.tmp, steps=50)
        token = "0123456789abcdef-TEST"
        for arguments, env in ((), {"LOCKSTEP_WATCH_TOKEN": token}), (("--token-file", harness.write("token", token + "\n", 0o600)), None), ((), None):
            server = Server(self, "long", "--http", "0.0.0.0:0", *arguments, env=env)
            made = re.search(r"\?token=([0-9a-f]{32})$", server.url)
            self.assertEqual(bool(made), not arguments and env is None)
            secret = made[1] if made else token
            for headers, status in ({}, 401), ({"Authorization": "Bearer wrong"}, 401), ({"Authorization": "Bearer " + secret}, 200), \
                    ({"Cookie": f"a=b; lockstep_watch_{server.port}={secret}"}, 200), ({"Authorization": "Bearer " + secret, "Host": "node-a"}, 200):
                for path in "/", "/metrics", "/events" if status == 401 else "/api/state", "/picture?run=0&name=reconstruction-10.png":
                    self.assertEqual(server.ask(path, **headers)[0].status, status, (path, headers))
            self.assertEqual(server.ask("/?token=wrong")[0].status, 401)
            moved, _ = server.ask("/?token=" + secret)
            self.assertEqual((moved.status, moved.getheader("Location")), (303, "/"))
            self.assertRegex(moved.getheader("Set-Cookie"), "HttpOnly; SameSite=Strict")
            server.process.send_signal(signal.SIGTERM)
            out, err = server.process.communicate()
            self.assertNotIn(secret, out + err)
            self.assertEqual(server.process.returncode, 0)
        self.assertEqual([p for p in self.tmp.rglob("*") if p.is_file() and p.name != "token" and secret.encode() in p.read_bytes()], [])

    def test_mistakes_are_said_with_their_remedy(self):
        make_run(self.tmp, steps=50)
        server = Server(self, "long", "--http", ":0")
        loose = harness.write("loose", "0123456789abcdef\n", 0o644)
        table = [(("--http", f":{server.port}"), 3, "EADDRINUSE", "--http :0"), (("--http", "192.0.2.7:1"), 3, "EADDRNOTAVAIL", "0.0.0.0"),
                 (("--http", "a:b"), 2, "expected ADDRESS:PORT", "127.0.0.1:7077"), (("--http", "0.0.0.0:0", "--token-file", loose), 2, "others may read", "chmod 600"),
                 (("--http", "0.0.0.0:0", "--token-file", "nowhere"), 3, "nowhere", ""),
                 (("--once", "--http", ":0"), 2, "--http and --once exclude each other", "leave out one"), (("--json", "--http"), 2, "--http and --json", "leave out one")]
        for arguments, code, words, remedy in table:
            done = harness.lockstep("watch", "long", *arguments, cwd=self.tmp)
            self.assertEqual(done.returncode, code, (arguments, done.stderr))
            self.assertIn(words, done.stderr)
            self.assertIn(remedy, done.stderr)
        done = harness.lockstep("watch", "long", "--http", "0.0.0.0:0", cwd=self.tmp, env={"LOCKSTEP_WATCH_TOKEN": "short"})
        self.assertEqual(done.returncode, 2)
        self.assertIn("16 to 512", done.stderr)

    def test_no_path_leads_out_of_the_run_and_no_client_stops_the_others(self):
        make_run(self.tmp, steps=50)
        (self.tmp / "runs/long/pictures/link.png").symlink_to("/etc/passwd")
        (self.tmp / "secret.png").write_text("secret")
        server = Server(self, "long", "--http", ":0")
        for path in ("/../../secret.png", "/%2e%2e/%2e%2e/secret.png", "/picture?run=0&name=../../../secret.png", "/picture?run=0&name=..%2f..%2f..%2fsecret.png",
                     "/picture?run=0&name=link.png", "/picture?run=9&name=loss.png", "/picture?run=-1&name=loss.png", "/api/chart?run=x", "/nothing",
                     "/api/chart?run=0&rank=../1&name=loss&rank=99"):
            answer, body = server.ask(path)
            self.assertEqual(answer.status, 404, path)
            self.assertNotIn(b"secret\n", body)
        self.assertEqual(server.ask("/", Host="evil.example")[0].status, 403)
        self.assertEqual(server.json("/api/chart?run=0&name=nothing&n=1e99&from=nan&to=x")["x"], [])
        stuck = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(63)]
        for client in stuck:
            self.addCleanup(client.close)
            client.sendall(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        self.assertEqual(len(server.json("/api/state")["runs"]), 1)
        memory = int(re.search(r"VmHWM:\s+(\d+)", pathlib.Path(f"/proc/{server.process.pid}/status").read_text())[1])
        self.assertLess(memory, 64 << 10)
