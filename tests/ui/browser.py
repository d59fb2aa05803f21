"""A headless Chromium, driven over its DevTools pipe: JSON messages with a zero byte behind each, in on descriptor 3 and out on 4.

Source: the Chrome DevTools Protocol (domains Target, Page, Runtime, Log, Network, Emulation, Input), and Chromium's
`--remote-debugging-pipe`. A page keeps what its console said, which exceptions nobody caught, and which addresses it asked.
"""

import base64
import itertools
import json
import os
import queue
import shutil
import subprocess
import tempfile
import threading
import time

PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "chrome")
ANSWER_SECONDS = 20


def program():
    """The browser of this machine, or None."""
    named = os.environ.get("CHROMIUM")
    return named or next((path for path in map(shutil.which, PROGRAMS) if path), None)


class Failed(Exception):
    """The browser refused a command, or something did not come in time."""


class Browser:
    """One process with a profile of its own, which goes with it."""

    def __init__(self):
        self.profile = tempfile.mkdtemp(prefix="ceto-ui-")
        # The browser's descriptors 3 and 4 may be taken here: it gets them through the shell's redirections.
        to_read, self.to_browser = os.pipe()
        self.from_browser, to_write = os.pipe()
        options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-extensions",
                   "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
                   "--hide-scrollbars", "--mute-audio", "--remote-debugging-pipe", f"--user-data-dir={self.profile}", "about:blank"]
        command = ["bash", "-c", f'exec "$@" 3<&{to_read} 4>&{to_write}', "browser", program(), *options]
        self.process = subprocess.Popen(command, pass_fds=(to_read, to_write), stdin=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_read)
        os.close(to_write)
        self.numbers = itertools.count(1)
        self.answers = {}
        self.pages = {}
        self.sending = threading.Lock()
        threading.Thread(target=self._receive, daemon=True).start()

    def _receive(self):
        rest = b""
        while part := os.read(self.from_browser, 1 << 16):
            *messages, rest = (rest + part).split(b"\0")
            for message in map(json.loads, messages):
                if "id" in message:
                    self.answers.pop(message["id"]).put(message)
                elif page := self.pages.get(message.get("sessionId")):
                    page.heard(message["method"], message["params"])

    def send(self, method, session=None, **params):
        number, answer = next(self.numbers), queue.Queue()
        self.answers[number] = answer
        message = {"id": number, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        with self.sending:
            os.write(self.to_browser, json.dumps(message).encode() + b"\0")
        try:
            told = answer.get(timeout=ANSWER_SECONDS)
        except queue.Empty:
            raise Failed(f"{method}: no answer within {ANSWER_SECONDS} s") from None
        if "error" in told:
            raise Failed(f"{method}: {told['error']}")
        return told["result"]

    def open(self, address, width=1360, height=900, scale=1, dark=False):
        return Page(self, address, width, height, scale, dark)

    def close(self):
        try:
            self.send("Browser.close")
            self.process.wait(10)
        except (Failed, OSError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()
        os.close(self.to_browser)
        shutil.rmtree(self.profile, ignore_errors=True)


class Page:
    """A tab."""

    def __init__(self, browser, address, width, height, scale, dark):
        self.browser = browser
        self.said, self.asked = [], []
        target = browser.send("Target.createTarget", url="about:blank")["targetId"]
        self.target = target
        self.session = browser.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        browser.pages[self.session] = self
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")
        self.resize(width, height, scale)
        self.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        self.send("Page.navigate", url=address)
        self.wait("document.readyState === 'complete'")

    def send(self, method, **params):
        return self.browser.send(method, self.session, **params)

    def heard(self, method, params):
        if method == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.said.append("exception: " + details.get("exception", {}).get("description", details["text"]))
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.said.append(f"{params['type']}: " + " ".join(str(one.get("value", one.get("description"))) for one in params["args"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            entry = params["entry"]
            self.said.append(f"{entry['level']}: {entry['text']} {entry.get('url', '')}")
        elif method == "Network.requestWillBeSent":
            self.asked.append(params["request"]["url"])

    def resize(self, width, height, scale=1):
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=width < 600)

    def evaluate(self, expression):
        told = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in told:
            raise Failed(f"{expression}: {told['exceptionDetails'].get('exception', {}).get('description')}")
        return told["result"].get("value")

    def wait(self, expression, seconds=20):
        """The expression's value, once it is true; an element's is {}."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            try:
                value = self.evaluate(expression)
                if value not in (None, False, 0, ""):
                    return value
            except Failed:
                pass
            time.sleep(0.05)
        raise Failed(f"not true within {seconds} s: {expression}\nconsole: {self.said}\n{self.evaluate('document.body.innerText')[:2000]}")

    def click(self, selector):
        self.wait(f"document.querySelector({json.dumps(selector)})")
        self.evaluate(f"document.querySelector({json.dumps(selector)}).click()")

    def go(self, tab):
        self.evaluate(f"location.hash = {json.dumps(tab)}")

    def text(self, selector="main"):
        return self.evaluate(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''")

    def picture(self, path, height=None):
        clip = {}
        if height:
            width = self.evaluate("innerWidth")
            clip = {"clip": {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}, "captureBeyondViewport": True}
        shot = self.send("Page.captureScreenshot", format="png", **clip)
        with open(path, "wb") as file:
            file.write(base64.b64decode(shot["data"]))

    def close(self):
        self.browser.send("Target.closeTarget", targetId=self.target)
        self.browser.pages.pop(self.session, None)
