"""A real Chromium and a real server, for tests of the page."""

import asyncio
import functools
import inspect
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import front_desk
import httpx

HERE = Path(__file__).parent
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
TOKEN = "secret"
MISSING = (
    "the tests of the page need Chromium; as a user, type: .venv/bin/playwright install chromium; "
    "as root: apt-get install chromium"
)


class Thread:
    """An event loop in a thread, for what has to live longer than one test."""

    def __init__(self):
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, work, timeout=280):
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(timeout)

    def stop(self):
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


def installed():
    """Return the path of a Chromium that was installed now; ``None`` if this is not root on Debian."""
    if os.geteuid() == 0 and shutil.which("apt-get"):
        for words in (["update", "-q"], ["install", "-qy", "--no-install-recommends", "chromium"]):
            subprocess.run(["apt-get", *words], check=False, capture_output=True)
    return shutil.which("chromium")


def found(own):
    """Return the path of a Chromium: the machine's, else the one that playwright has downloaded, else a new one."""
    there = next(filter(None, map(shutil.which, NAMES)), None)
    return there or (own if Path(own).exists() else installed())


async def launched(playwright):
    path = found(playwright.chromium.executable_path)
    if path is None:
        return None
    return await playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])


class Tabs:
    """Tabs of one person, and everything in them that must not be."""

    def __init__(self, browser, server):
        self._browser = browser
        self._context = None
        self.server = server
        self.wrong = []
        self.down = False
        """True while the server is down: the browser says so, and that is no mistake of the page."""

    async def open(self, path="/", *, login=True, **options):
        if self._context is None:
            self._context = await self._browser.new_context(**options)
            self._context.set_default_timeout(60_000)
            self._context.on("request", self._asked)
            if login:
                page = await self._context.new_page()
                await page.goto(f"{self.server.url}/?token={TOKEN}")
                await page.close()
        page = await self._context.new_page()
        page.on("console", self._logged)
        page.on("pageerror", lambda error: self.wrong.append(str(error)))
        page.on("dialog", lambda dialog: self.wrong.append(f"dialog {dialog.message}"))
        await page.goto(self.server.url + path)
        return page

    async def close(self):
        if self._context is not None:
            await self._context.close()

    def _asked(self, request):
        host = urlsplit(request.url).netloc
        if not request.url.startswith("data:") and host != urlsplit(self.server.url).netloc:
            self.wrong.append(f"asked {request.url}")

    def _logged(self, message):
        if message.type == "error" and not self.down:
            self.wrong.append(message.text)


def browsing(test):
    """Run an async test in the browser's thread. Its argument ``tabs`` opens pages."""

    @functools.wraps(test)
    def run(chromium, desk, **rest):
        thread, browser = chromium
        tabs = Tabs(browser, desk)

        async def work():
            try:
                await test(tabs, **rest)
            finally:
                await tabs.close()

        thread.run(work())
        assert tabs.wrong == []

    signature = inspect.signature(test)
    given = [each for name, each in signature.parameters.items() if name != "tabs"]
    names = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in ("chromium", "desk")]
    known = {each.name for each in names}
    run.__signature__ = inspect.Signature(
        [*names, *(e.replace(kind=e.KEYWORD_ONLY) for e in given if e.name not in known)]
    )
    del run.__wrapped__
    return run


class Server:
    """A process that serves the desk, on a port that stays the same when it starts again."""

    def __init__(self, folder, **environment):
        self.store = f"sqlite:///{folder / 'desk.db'}"
        self._environment = {**os.environ, "MIDTURN_URL": self.store, **environment}
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._process = None

    def start(self, **environment):
        words = [
            "-m",
            "uvicorn",
            "front_desk:app",
            "--port",
            str(self.port),
            "--log-level",
            "warning",
            "--lifespan",
            "on",
        ]
        self._process = subprocess.Popen(
            [sys.executable, *words, "--timeout-graceful-shutdown", "1"],
            cwd=HERE,
            env=self._environment | environment,
        )
        for _ in range(600):
            assert self._process.poll() is None, "the server ended"
            try:
                httpx.get(f"{self.url}/static/style.css", timeout=5)
            except httpx.TransportError:
                time.sleep(0.1)
            else:
                return self
        raise AssertionError("the server did not start")

    def kill(self):
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def stop(self):
        if self._process.poll() is None:
            self._process.terminate()
            self._process.wait()


@contextmanager
def serving(folder, **environment):
    server = Server(folder, **environment)
    asyncio.run(front_desk.fill(server.store))
    server.start()
    try:
        yield server
    finally:
        server.stop()
