"""Headless Chromium, driven over its DevTools protocol through two pipes: no port, no driver program.

    with browser.Page(self.tmp, "http://127.0.0.1:7077/") as page:
        page.until("document.documentElement.dataset.ready")
        page.screenshot("page.png")
"""

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

import harness


class Page:
    def __init__(self, tmp, url, width=1280, height=900, dark=False):
        harness.require("chromium")
        program = shutil.which("chromium")
        self.profile = tempfile.mkdtemp(dir=tmp, prefix="chromium-")
        to_read, self.to = os.pipe()
        self.back, from_write = os.pipe()

        def pipes():  # the protocol is spoken on 3 and 4
            a, b = os.dup(to_read), os.dup(from_write)
            os.dup2(a, 3)
            os.dup2(b, 4)

        self.process = subprocess.Popen(
            [program, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
             "--no-first-run", "--disable-extensions", "--disable-background-networking", "--disable-component-update",
             "--disable-sync", "--no-default-browser-check", "--remote-debugging-pipe", f"--user-data-dir={self.profile}", "about:blank"],
            env={**harness.clean_env(), "HOME": self.profile, "XDG_RUNTIME_DIR": self.profile}, pass_fds=(3, 4), preexec_fn=pipes,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, close_fds=True)
        os.close(to_read)
        os.close(from_write)
        self.number, self.buffer, self.session, self.errors = 0, b"", None, []
        target = next(t for t in self.call("Target.getTargets")["targetInfos"] if t["type"] == "page")
        self.session = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")
        self.size(width, height)
        if dark:
            self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])
        self.call("Page.navigate", url=url)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.session = None
        try:
            self.call("Browser.close")
        except (AssertionError, OSError):
            self.process.kill()
        self.process.wait()
        os.close(self.to)
        os.close(self.back)
        shutil.rmtree(self.profile, ignore_errors=True)

    def call(self, method, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + 30 * harness.PATIENCE
        while time.monotonic() < deadline:
            while b"\0" in self.buffer:
                line, self.buffer = self.buffer.split(b"\0", 1)
                answer = json.loads(line)
                if answer.get("id") == self.number:
                    assert "error" not in answer, answer
                    return answer["result"]
                if answer.get("method") == "Runtime.exceptionThrown":
                    self.errors.append(json.dumps(answer["params"]["exceptionDetails"])[:600])
                if answer.get("method") == "Log.entryAdded" and answer["params"]["entry"]["level"] == "error":
                    self.errors.append(answer["params"]["entry"]["text"])
            if select.select([self.back], [], [], 1)[0]:
                piece = os.read(self.back, 1 << 20)
                assert piece, "chromium has gone"
                self.buffer += piece
        raise AssertionError(f"chromium did not answer {method}")

    def size(self, width, height):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def value(self, expression):
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def until(self, expression):
        """Waits until the expression is true, and returns its value."""
        deadline = time.monotonic() + 20 * harness.PATIENCE
        while time.monotonic() < deadline:
            answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
            if answer["result"].get("value") and "exceptionDetails" not in answer:  # while it loads, things are missing
                return answer["result"]["value"]
            time.sleep(0.05)
        raise AssertionError(f"never true in the page: {expression}; errors: {self.errors}")

    def press(self, key):
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, text=key if kind == "keyDown" and len(key) == 1 else "")

    def screenshot(self, path):
        data = self.call("Page.captureScreenshot", format="png")["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(data))
