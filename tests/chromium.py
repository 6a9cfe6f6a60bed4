"""A headless Chromium driven over its debugging pipe: no driver, no library, no port.

The pipe is file descriptors 3 and 4 of the browser; messages are JSON with a zero byte behind each.
"""

import base64
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, TypeAlias

Scheme: TypeAlias = Literal["light", "dark"]
NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
_FLAGS = (
    *("--headless", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu"),
    *("--disable-dev-shm-usage", "--no-first-run", "--hide-scrollbars", "--mute-audio"),
    *("--disable-background-networking", "--disable-component-update", "--disable-extensions"),
)


def find_chromium() -> str | None:
    """The browser on the PATH, if there is one."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Chromium:
    """A running browser with one page.

    Args:
        process: the browser.
        to, back: ends of its pipe.
    """

    def __init__(self, process: "subprocess.Popen[bytes]", to: int, back: int) -> None:
        self._process, self._to, self._back = process, to, back
        self._next, self._rest, self._session = 0, b"", ""
        self.requested: list[str] = []
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        attached = self._call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Network", "Runtime"):
            self._call(f"{domain}.enable")

    def open(self, page: Path, *, width: int, height: int = 800, scheme: Scheme = "light") -> None:
        """Show a page in a window so wide (CSS pixels); ``requested`` lists what it asked for."""
        phone = width < 600
        sizes = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": phone}
        self._call("Emulation.setDeviceMetricsOverride", **sizes)
        self.media("screen", scheme)
        self.requested.clear()
        self._call("Page.navigate", url=page.as_uri())
        while self._read().get("method") != "Page.loadEventFired":
            pass

    def media(self, kind: Literal["screen", "print"], scheme: Scheme = "light") -> None:
        """Show the page for a screen or for print, in a colour scheme."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self._call("Emulation.setEmulatedMedia", media=kind, features=features)

    def value(self, expression: str) -> Any:
        """What a JavaScript expression comes to, promises awaited.

        Raises:
            RuntimeError: it threw.
        """
        asked = {"expression": expression, "awaitPromise": True, "returnByValue": True}
        told = self._call("Runtime.evaluate", **asked)
        if "exceptionDetails" in told:
            raise RuntimeError(json.dumps(told["exceptionDetails"])[:2000])
        return told["result"].get("value")

    def pdf(self) -> bytes:
        """The page in print, on the paper that its style sheet names; the window is forgotten."""
        self._call("Emulation.setEmulatedMedia", media="", features=[])
        self._call("Emulation.clearDeviceMetricsOverride")
        asked = {"preferCSSPageSize": True, "printBackground": True}
        return base64.b64decode(self._call("Page.printToPDF", **asked)["data"])

    def picture(self, *, height: int | None = None) -> bytes:
        """The page as PNG: all of it, or so many pixels from the top."""
        size = self._call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "scale": 1}
        clip["height"] = min(size["height"], height or 16_384)
        asked = {"captureBeyondViewport": True, "clip": clip}
        return base64.b64decode(self._call("Page.captureScreenshot", **asked)["data"])

    def _call(self, method: str, **params: Any) -> Mapping[str, Any]:
        self._next += 1
        message: dict[str, Any] = {"id": self._next, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        payload = json.dumps(message).encode() + b"\0"
        while payload:
            payload = payload[os.write(self._to, payload) :]
        while (answer := self._read()).get("id") != self._next:
            pass
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        result: Mapping[str, Any] = answer["result"]
        return result

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            more = os.read(self._back, 2**20)
            if not more:
                raise RuntimeError(f"the browser ended: {self._process.poll()}")
            self._rest += more
        line, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        if message.get("method") == "Network.requestWillBeSent":
            self.requested.append(message["params"]["request"]["url"])
        return message


@contextmanager
def running(browser: str) -> Iterator[Chromium]:
    """Run a browser, without a profile of its own, until the block ends."""
    commands, to = os.pipe()
    back, answers = os.pipe()

    def hand_over() -> None:  # high numbers first: 3 and 4 may be ends of the pipes themselves
        for place, end in enumerate((commands, answers)):
            os.dup2(end, 100 + place)
        for place in range(2):
            os.dup2(100 + place, 3 + place)

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        process = subprocess.Popen(  # noqa: S603
            [browser, *_FLAGS, f"--user-data-dir={profile}"],
            preexec_fn=hand_over,  # noqa: PLW1509 - tests have no threads here
            close_fds=False,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(commands)
        os.close(answers)
        try:
            yield Chromium(process, to, back)
        finally:
            os.close(to)
            os.close(back)
            process.terminate()
            process.wait(timeout=20)
