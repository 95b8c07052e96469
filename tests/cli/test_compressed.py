"""The commands on a store that compresses, which its URL says."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from tools.servers.shared import STORES, store_url


@pytest.fixture
def url(monkeypatch):
    url = "sqlite:///small.db?compress=zstd"
    monkeypatch.setenv("MIDTURN_URL", url)
    return url


@pytest.fixture
def cases(cli, url):
    cli("chat", "app:support", "case-1", "Where is order A7? It should have been here a week ago, says the mail.")
    cli("chat", "app:support", "case-1", "And where is order A8? It should have been here a week ago, too.")
    cli("chat", "app:support", "case-2", "tool please")


def test_they_read_what_is_compressed(cli, cases, tmp_path):
    with closing(sqlite3.connect(tmp_path / "small.db")) as db:
        [(compressed, others)] = db.execute("SELECT sum(hex(data) LIKE '01%'), count(*) FROM rows").fetchall()
    assert 4 < compressed < others
    assert "case-1@2 user: And where is order A8?" in cli("grep", "A8").out
    assert "order A7" in cli("show", "case-1@1").out
    assert "A8" in cli("diff", "case-1@1", "case-1@2").out
    cli("fork", "case-1@1", "case-1-b")
    assert cli("replay", "app:support", "case-1@2").code == 0
    cli("compact", "case-1", "--before", "2", "--yes")
    assert "A8" in cli("show", "case-1@2").out
    cli("prune", "--prefix", "case-1", "--archive", "archive", "--yes")
    assert [line["session"] for line in cli("ls", "--json").json] == ["case-2"]


def test_a_copy_turns_compression_on_and_off(cli, cases, tmp_path):
    before = cli("export", "case-1").out
    cli("copy", "sqlite:///small.db", "sqlite:///plain.db", "--all")
    assert cli("export", "case-1", "--store", "plain.db").out == before
    with closing(sqlite3.connect(tmp_path / "plain.db")) as db:
        assert db.execute("SELECT count(*) FROM rows WHERE hex(data) LIKE '01%'").fetchall() == [(0,)]
    cli("copy", "plain.db", "file://./small?compress=zstd", "--all")
    assert cli("export", "case-1", "--store", "file://./small").out == before


def test_a_hint_repeats_the_option(cli, cases, monkeypatch):
    monkeypatch.delenv("MIDTURN_URL")
    said = cli("chat", "app:support", "case-3", "fail", "--store", "sqlite:///small.db?compress=zstd", code=1).err
    assert "'sqlite:///small.db?compress=zstd'" in said


@pytest.mark.parametrize("kind", STORES)
@pytest.mark.parametrize("option", ["", "compress=zstd", "compress=none"])
def test_the_status_of_a_store_says_how_it_writes(cli, kind, option, tmp_path):
    url = store_url(kind, tmp_path / "store")
    url = f"{url}{'&' if '?' in url else '?'}{option}" if option else url
    usual = {"redis": "zstd", "memory": None}.get(kind, "none")
    if kind in ("sqlite", "file"):
        cli("import", str(_state(tmp_path)), "case", "--store", url)
    facts = cli("db", "status", "--json", "--store", url).json
    assert facts["compress"] == (option.partition("=")[2] or usual)


def _state(folder: Path):
    path = folder / "state.json"
    path.write_text(json.dumps({"type": "AssistantAgentState", "version": "1.0.0", "llm_context": {"messages": []}}))
    return path


def test_a_wrong_option_ends_a_command_before_it_makes_a_file(cli, tmp_path):
    before = sorted(tmp_path.iterdir())
    assert "compress= must be zstd or none" in cli("ls", "--store", "sqlite:///x.db?compress=gzip", code=2).err
    assert sorted(tmp_path.iterdir()) == before
