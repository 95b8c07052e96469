"""The programs on the pages about AG-UI and OpenAI's client run, and print what the pages say."""

import asyncio
import os
import re
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.with_name("docs"))]

from npm import NODE, linked  # noqa: E402
from uvicorn_server import first_answer, started  # noqa: E402

PAGES = HERE.parents[1] / "docs" / "how-to"
CASES = {"agui.md": ("js", "client.mjs", NODE), "openai-client.md": ("py", "client.py", sys.executable)}


def blocks(page, kind):
    return "\n".join(re.findall(rf"```{kind}\n(.*?)```", (PAGES / page).read_text(), re.DOTALL))


@pytest.mark.parametrize("page", CASES)
async def test_the_client_on_the_page_prints_what_the_page_says(page, tmp_path):
    kind, name, program = CASES[page]
    (tmp_path / "app.py").write_text(blocks(page, "python"))
    environment = {**os.environ, "TOKEN": "secret", "NO_PROXY": "*"}
    async with started(linked(tmp_path), "app:app", environment) as (_, client):
        await first_answer(client, "/healthz")
        code = blocks(page, kind).replace("localhost:8000", f"127.0.0.1:{client.base_url.port}")
        (tmp_path / name).write_text(code)
        process = await asyncio.create_subprocess_exec(program, name, cwd=tmp_path, env=environment, stdout=PIPE)
        printed, _ = await process.communicate()
    assert printed.decode() == blocks(page, "text")
    assert process.returncode == 0
