"""Draw docs/page.png and docs/inbox.png: the page in a real browser, on a case of a real run with the demo's model."""

from __future__ import annotations

import asyncio
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.async_api import async_playwright

DOCS = Path(__file__).parents[1] / "docs"
WIDE, HIGH = 1200, 600


async def main() -> int:
    """Run a case whose worker is killed, serve it, and draw the pages. Return 1 if the case did not come to wait."""
    with tempfile.TemporaryDirectory(prefix="midturn-page-") as folder:
        url = f"sqlite:///{Path(folder, 'page.db')}"
        case = [sys.executable, "-m", "tools.page_case"]
        killed = await asyncio.create_subprocess_exec(*case, "begin", url)
        if await killed.wait() != -signal.SIGKILL:
            return 1
        resumed = await asyncio.create_subprocess_exec(*case, "resume", url)
        if await resumed.wait() != 0:
            return 1
        words = ["web", "--store", url, "--by", "ann@desk", "--port", "0", "--session", "case-42"]
        server = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "midturn", *words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        if server.stdout is None:
            return 1
        try:
            address = (await server.stdout.readline()).decode().split()[-1]
            await _draw(address)
        finally:
            server.terminate()
            await server.wait()
    return 0


async def _draw(address: str) -> None:
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    async with async_playwright() as playwright:
        chromium = await playwright.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        page = await chromium.new_page(viewport={"width": WIDE, "height": HIGH})
        await page.goto(address)
        await page.locator("#live[data-state=on]").wait_for()
        await page.screenshot(path=DOCS / "page.png", full_page=True)
        await page.goto(address.partition("/s/")[0] + "/inbox")
        await page.locator("#live[data-state=on]").wait_for()
        await page.screenshot(path=DOCS / "inbox.png")
        await chromium.close()
    for name in ("page.png", "inbox.png"):
        print(f"{name}: drawn, {(DOCS / name).stat().st_size // 1024} KB")


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
