"""Headless Chromium, driven by its DevTools protocol over a pipe: no driver and no library is needed.

https://chromedevtools.github.io/devtools-protocol
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

WAIT_S = 60.0
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"]
FLAGS += ["--disable-background-networking", "--disable-component-update", "--remote-debugging-pipe", "--lang=en"]


def executable() -> str | None:
    """Where Chromium is installed."""
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class Page:
    """A tab. `messages`: what it has written to the console, and its errors."""

    def __init__(self, incoming: int, outgoing: int) -> None:
        self._incoming, self._outgoing = incoming, outgoing
        self._buffer = b""
        self._count = 0
        self._session: str | None = None
        self.messages: list[str] = []
        target = self.command("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.command("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.command(f"{domain}.enable")

    def command(self, method: str, **params: Any) -> dict[str, Any]:
        """The result of a command of the protocol."""
        self._count += 1
        message = {"id": self._count, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._outgoing, json.dumps(message).encode() + b"\0")
        while (answer := self._receive()).get("id") != self._count:
            self._note(answer)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        return answer["result"]

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression; a promise is awaited."""
        result = self.command("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in result:
            raise RuntimeError(result["exceptionDetails"].get("exception", {}).get("description", expression))
        return result["result"].get("value")

    def wait(self, expression: str) -> Any:
        """Wait until a JavaScript expression is true, and return its value."""
        ends_s = time.monotonic() + WAIT_S
        while not (value := self.evaluate(expression)):
            if time.monotonic() > ends_s:
                shown = self.evaluate("document.body.innerText")
                raise AssertionError(f"still not true: {expression}; {self.messages}; shown: {shown[-2000:]}")
            time.sleep(0.05)
        return value

    def open(self, url: str, width: int = 1440, height: int = 900, theme: str = "light") -> None:
        """Load a page, in a window of this size."""
        features = [{"name": "prefers-color-scheme", "value": theme}]
        self.command("Emulation.setEmulatedMedia", features=features)
        self.command(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )
        self.messages.clear()
        self.command("Page.navigate", url="about:blank")
        self.command("Page.navigate", url=url)
        self.wait("document.readyState === 'complete'")

    def click(self, selector: str) -> None:
        """Click in the middle of an element, as a mouse does."""
        x, y = self._middle(selector)
        for kind in ("mousePressed", "mouseReleased"):
            self.command("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def hover(self, selector: str) -> None:
        """Move the mouse over an element."""
        x, y = self._middle(selector)
        self.command("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def type(self, text: str) -> None:
        """Enter text where the focus is."""
        self.command("Input.insertText", text=text)

    def press(self, key: str, code: int, modifiers: int = 0) -> None:
        """Press a key. code: its Windows virtual key code. modifiers: 2 is Ctrl, 8 is Shift."""
        text = {"text": "\r"} if key == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            self.command(
                "Input.dispatchKeyEvent",
                **{
                    "type": kind,
                    "key": key,
                    "code": key,
                    "windowsVirtualKeyCode": code,
                    "modifiers": modifiers,
                    **text,
                },
            )

    def screenshot(self, path: Path) -> None:
        """Write what is visible to a PNG file."""
        path.write_bytes(base64.b64decode(self.command("Page.captureScreenshot", format="png")["data"]))

    def _middle(self, selector: str) -> tuple[float, float]:
        found = f"document.querySelector({json.dumps(selector)})"
        self.wait(f"{found} !== null")
        middle = (
            f"(() => {{ const e = {found}; e.scrollIntoView({{block: 'nearest'}}); const b = e.getClientRects()[0]; "
            "return [b.left + b.width / 2, b.top + b.height / 2]; })()"
        )
        frames = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
        before, now = None, self.evaluate(middle)
        while now != before:  # the page still moves it
            self.evaluate(frames)
            before, now = now, self.evaluate(middle)
        return now[0], now[1]

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._incoming], [], [], WAIT_S)
            assert ready, "Chromium does not answer"
            data = os.read(self._incoming, 2**20)
            assert data, "Chromium has ended"
            self._buffer += data
        message, self._buffer = self._buffer.split(b"\0", 1)
        return json.loads(message)

    def _note(self, event: dict[str, Any]) -> None:
        method, params = event.get("method"), event.get("params", {})
        if method == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.messages.append(details.get("exception", {}).get("description") or details["text"])
        elif method == "Log.entryAdded":
            self.messages.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")
        elif method == "Runtime.consoleAPICalled":
            self.messages.append(" ".join(str(one.get("value", one.get("description"))) for one in params["args"]))


@contextlib.contextmanager
def chromium(folder: Path) -> Iterator[Page]:
    """A tab of a fresh browser. folder: for its profile."""
    (to_browser, commands), (answers, from_browser) = os.pipe(), os.pipe()
    # The browser reads from descriptor 3 and writes to 4.
    program = f'exec 3<&{to_browser} 4>&{from_browser}; exec "$@"'
    command = ["bash", "-c", program, "bash", executable(), *FLAGS, f"--user-data-dir={folder}"]
    process = subprocess.Popen(
        command, pass_fds=(to_browser, from_browser), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    os.close(to_browser)
    os.close(from_browser)
    try:
        yield Page(answers, commands)
    finally:
        os.close(commands)  # the browser ends
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        os.close(answers)
