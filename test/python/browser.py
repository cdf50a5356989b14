"""A page in a real browser: Chromium without a window, driven through the pipe that it speaks its
DevTools protocol on. No package stands between, and no port is opened."""

import contextlib
import json
import os
import pathlib
import shutil
import subprocess


class Page:
    """One page, loaded from disk. `requests`: every address that it asked for."""

    def __init__(self, pipe_in, pipe_out):
        self._in, self._out = pipe_in, pipe_out
        self._buffer = b""
        self._number = 0
        self._session = None
        self._events = []
        self.requests = []

    def _read(self):
        while b"\0" not in self._buffer:
            part = os.read(self._out, 1 << 16)
            if not part:
                raise RuntimeError("the browser has gone")
            self._buffer += part
        message, self._buffer = self._buffer.split(b"\0", 1)
        return json.loads(message)

    def call(self, method, **parameters):
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._in, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]
            self._note(answer)

    def _note(self, event):
        if event.get("method") == "Network.requestWillBeSent":
            self.requests.append(event["params"]["request"]["url"])
        self._events.append(event)

    def wait_for(self, method):
        while not any(event.get("method") == method for event in self._events):
            self._note(self._read())

    def open(self, path):
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network"):
            self.call(f"{domain}.enable")
        self._events.clear()
        self.call("Page.navigate", url=pathlib.Path(path).resolve().as_uri())
        self.wait_for("Page.loadEventFired")
        return self

    def value(self, expression):
        """Of JavaScript in the page; an exception there is one here."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def errors(self):
        """Exceptions of the page's own scripts."""
        return [e["params"] for e in self._events if e.get("method") == "Runtime.exceptionThrown"]

    def hover(self, selector, across=0.5, down=0.5):
        """Moves the mouse to that part of the element's box, which is scrolled into view."""
        box = self.value(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
            "e.scrollIntoView({block: 'center'}); const b = e.getBoundingClientRect();"
            "return [b.left, b.top, b.width, b.height]; })()"
        )
        left, top, width, height = box
        self.call(
            "Input.dispatchMouseEvent", type="mouseMoved",
            x=left + width * across, y=top + height * down,
        )


def program():
    """The browser of the distribution; scripts/install-deps.sh --python installs it."""
    found = shutil.which("chromium")
    assert found, "chromium is missing: run scripts/install-deps.sh --python"
    return found


@contextlib.contextmanager
def opened(path, folder):
    """`folder`: of the browser's profile."""
    to_browser, our_in = os.pipe()
    our_out, from_browser = os.pipe()
    arguments = [
        program(), "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
        "--no-first-run", "--disable-background-networking",
        "--host-resolver-rules=MAP * ~NOTFOUND", "--window-size=1280,900",
        f"--user-data-dir={folder}", "--remote-debugging-pipe",
    ]

    def as_three_and_four():
        os.dup2(to_browser, 63)
        os.dup2(from_browser, 64)
        os.dup2(63, 3)
        os.dup2(64, 4)

    process = subprocess.Popen(
        arguments, close_fds=False, preexec_fn=as_three_and_four,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )
    os.close(to_browser)
    os.close(from_browser)
    page = Page(our_in, our_out)
    try:
        yield page.open(path)
    finally:
        with contextlib.suppress(Exception):
            page._session = None
            page.call("Browser.close")
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
        os.close(our_in)
        os.close(our_out)
