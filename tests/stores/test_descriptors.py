"""A process with few file descriptors, or none left: calls work, or end with an error of midturn."""

import subprocess
import sys

import pytest
from tools.servers.shared import DURABLE, store_url

pytestmark = [pytest.mark.fault("F35"), pytest.mark.skipif(sys.platform == "win32", reason="limits of POSIX")]

WORKER = """
import asyncio, os, resource, sys

resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))

import midturn
from midturn.stores.registry import open_store
from midturn.testing import a_row, a_write


def take_all():
    held = []
    try:
        while True:
            held.append(os.open(os.devnull, os.O_RDONLY))
    except OSError:
        return held


async def attempt(call):
    try:
        return await call
    except midturn.StoreUnavailable as error:
        return error


async def main(url, cold):
    if not cold:  # then everything is imported already
        await (await open_store(url)).close()
    held = take_all()
    refused = await attempt(open_store(url))
    for file in held:
        os.close(file)
    print(isinstance(refused, midturn.StoreUnavailable))
    store = await open_store(url)
    await asyncio.gather(*(store.write(a_write(f"case-{n}", rows=[a_row(1)])) for n in range(100)))
    held = take_all()
    calls = [store.head(f"case-{n}") for n in range(100)]
    await asyncio.gather(*map(attempt, [*calls, store.heads(), store.write(a_write("late", rows=[a_row(1)]))]))
    for file in held:
        os.close(file)
    print(len([head for head in await store.heads(prefix="case-", limit=200)]))
    await store.close()


asyncio.run(main(sys.argv[1], sys.argv[2] == "cold"))
"""


@pytest.mark.parametrize("imports", ["cold", "warm"])
@pytest.mark.parametrize("kind", DURABLE)
def test_without_file_descriptors_a_call_works_or_says_that_the_store_is_unavailable(tmp_path, kind, imports):
    command = [sys.executable, "-c", WORKER, store_url(kind, tmp_path / "store"), imports]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.stdout.split(), done.returncode) == (["True", "100"], 0), done.stderr
