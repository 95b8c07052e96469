"""docs/how-to/compress.md says what is so."""

import re
from pathlib import Path

import midturn
from midturn.stores.registry import COMPRESSING, READING, compression

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "compress.md").read_text()
URLS = {
    "Redis": "redis://host",
    "Postgres": "postgresql://host/db",
    "files": "file:///x",
    "SQLite": "sqlite:///x.db",
    "memory": "memory://",
}


def test_the_table_says_which_stores_compress():
    told = dict(
        re.findall(r"^\| (Redis|Postgres|files|SQLite|memory)\b[^|]* \| (compresses|does not) \|", PAGE, re.MULTILINE)
    )
    assert told == {name: "compresses" if compression(url) == "zstd" else "does not" for name, url in URLS.items()}
    assert COMPRESSING.isdisjoint(READING)


async def test_the_examples_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    [url] = re.findall(r'midturn.open\("(.*)"\) as store', PAGE)
    async with midturn.open(url) as store:
        assert store.store.inner is not None
    async with midturn.open("support.db", compress="zstd") as store:
        assert [info async for info in store.sessions()] == []
    [(source, target)] = re.findall(r'midturn copy (\S+) "(\S+)" --all', PAGE)
    assert (compression(source), compression(target)) == ("none", "zstd")
