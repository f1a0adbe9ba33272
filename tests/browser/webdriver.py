"""A real browser with real mouse and keys: chromedriver spoken to with the standard library."""

import base64
import json
import os
import re
import shutil
import subprocess
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"  # the key of a reference, fixed by the protocol
KEYS = {"Tab": "\ue004", "Escape": "\ue00c", "Right": "\ue014", "Down": "\ue015"}


@contextmanager
def browser(width=1300, height=1000):
    """A window of headless chromium, gone at the end whatever happens."""
    driver = subprocess.Popen(
        [DRIVER, "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        started = (re.search(r"successfully on port (\d+)", line) for line in driver.stdout)
        window = Browser(int(next(filter(None, started))[1]), width, height)
        try:
            yield window
        finally:
            window.close()
    finally:
        driver.terminate()
        driver.wait(10)
        driver.stdout.close()


class Browser:
    """What a reader does to a page and sees of it."""

    def __init__(self, port, width, height):
        self.port, self.path = port, "/session"
        arguments = ["--headless", "--disable-gpu", f"--window-size={width},{height}"]
        if os.geteuid() == 0:
            arguments.append("--no-sandbox")  # chromium's own sandbox refuses root
        wanted = {
            "goog:chromeOptions": {"binary": CHROMIUM, "args": arguments},
            "goog:loggingPrefs": {"browser": "ALL"},
        }
        session = self._call("POST", "", {"capabilities": {"alwaysMatch": wanted}})
        self.path += f"/{session['sessionId']}"

    def _call(self, verb, path, body=None):
        connection = HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(verb, self.path + path, None if body is None else json.dumps(body))
            value = json.load(connection.getresponse())["value"]
        finally:
            connection.close()
        if isinstance(value, dict) and "error" in value:
            raise RuntimeError(f"{value['error']}: {value['message']}")
        return value

    def close(self):
        self._call("DELETE", "")

    def open(self, path):
        self._call("POST", "/url", {"url": Path(path).resolve().as_uri()})

    def run(self, script, *arguments):
        """The value of a script's `return`."""
        return self._call("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def console(self):
        """What the page has printed or thrown since the last call."""
        return self._call("POST", "/se/log", {"type": "browser"})

    def command(self, name, **parameters):
        """A command of the developer tools."""
        return self._call("POST", "/goog/cdp/execute", {"cmd": name, "params": parameters})

    def prefer(self, scheme):
        """Be a reader who prefers "light" or "dark"."""
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.command("Emulation.setEmulatedMedia", features=[feature])

    def find(self, selector):
        found = self._call("POST", "/element", {"using": "css selector", "value": selector})
        self.run("arguments[0].scrollIntoView({block: 'center'})", found)
        return found

    def click(self, selector):
        self._call("POST", f"/element/{self.find(selector)[ELEMENT]}/click", {})

    def double_click(self, selector):
        press = [{"type": "pointerDown", "button": 0}, {"type": "pointerUp", "button": 0}]
        move = {"type": "pointerMove", "origin": self.find(selector), "x": 0, "y": 0}
        self._act("pointer", [move, *press, *press])

    def mouse(self, selector, *offsets, drag=False):
        """Move the mouse over offsets from the middle of an element; drag: with the button down."""
        origin = self.find(selector)
        moves = [
            {"type": "pointerMove", "duration": 20, "origin": origin, "x": int(x), "y": int(y)}
            for x, y in offsets
        ]
        if drag:
            moves.insert(1, {"type": "pointerDown", "button": 0})
            moves.append({"type": "pointerUp", "button": 0})
        self._act("pointer", moves)

    def press(self, *names):
        keys = [KEYS.get(name, name) for name in names]
        strokes = [{"type": t, "value": key} for key in keys for t in ("keyDown", "keyUp")]
        self._act("key", strokes)

    def _act(self, kind, actions):
        body = {"actions": [{"type": kind, "id": kind, "actions": actions}]}
        self._call("POST", "/actions", body)

    def screenshot(self, path, width=1400):
        """The whole page, however long, at this width; how wide it is."""
        size = {"width": width, "height": 1000, "deviceScaleFactor": 1, "mobile": False}
        self.command("Emulation.setDeviceMetricsOverride", **size)
        height = self.run("return document.documentElement.scrollHeight")
        self.command("Emulation.setDeviceMetricsOverride", **{**size, "height": height})
        # Charts are redrawn at their new width in the next frame.
        self._call(
            "POST",
            "/execute/async",
            {"script": "requestAnimationFrame(() => setTimeout(arguments[0], 50))", "args": []},
        )
        image = self.command("Page.captureScreenshot", captureBeyondViewport=True)["data"]
        Path(path).write_bytes(base64.b64decode(image))
        wide = self.run("return document.documentElement.scrollWidth")
        self.command("Emulation.clearDeviceMetricsOverride")
        return wide
