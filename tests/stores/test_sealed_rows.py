"""Sealed records as other programs show them: with SQL, and in an editor."""

import json

import psycopg
import pytest
from autogen_agentchat.agents import AssistantAgent
from tools.servers.shared import store_url

import midturn
from midturn.stores.sealed.keys import new_key
from midturn.testing import ScriptedModel

KEYS = midturn.Keys.parse(new_key("2026-11"))


def build():
    return AssistantAgent("desk", ScriptedModel({"": "Noted."}))


def failing():
    return AssistantAgent("desk", ScriptedModel({}))


async def test_the_views_of_postgres_say_what_is_sealed(tmp_path):
    url = store_url("postgres", tmp_path)
    async with midturn.open(url, keys=KEYS) as store:
        case = store.session("case-42", build, labels={"team": "claims"})
        await case.run(task="My name is Ann Miller.", key="mail-1")
        with pytest.raises(midturn.TurnFailed):
            await store.session("case-42", failing).run(task="Again.")
        await store.session("case-43", build).run(task="Hello.")
        await store.delete("case-43", by="ann")
    async with await psycopg.AsyncConnection.connect(url.partition("?")[0]) as connection:
        schema = url.partition("schema=")[2]
        found = {}
        for view in ("sessions", "turns", "messages"):
            cursor = await connection.execute(f"SELECT to_jsonb(v) FROM {schema}.{view} AS v")
            found[view] = [row for (row,) in await cursor.fetchall()]
    [session, *_] = [each for each in found["sessions"] if each["session"] == "case-42"]
    assert (session["status"], session["labels"]) == ("failed", {"team": "claims"})
    assert (session["turns"], session["checkpoint"]) == (2, 1)
    assert [each["status"] for each in found["sessions"] if each["session"] == "case-43"] == ["deleted"]
    assert [(each["turn"], each["status"], each["stop_reason"]) for each in found["turns"]] == [
        (1, "done", "(sealed)"),
        (2, "failed", "(sealed)"),
    ]
    assert [(each["turn"], each["content"], each["message"]) for each in found["messages"]] == [(1, "(sealed)", None)]
    assert "Miller" not in str(found)


@pytest.mark.parametrize("compress", ["none", "zstd"])
async def test_each_line_of_a_sealed_file_is_json(tmp_path, compress):
    async with midturn.open(f"file://{tmp_path}/cases", keys=KEYS, compress=compress) as store:
        case = store.session("case-42", build)
        await case.run(task="My name is Ann Miller.")
        await case.run(task="It is still Ann Miller.")
        [file] = (tmp_path / "cases" / "sessions").rglob("*.jsonl")
        lines = [json.loads(line) for line in file.read_text("ascii").splitlines()]
    assert len(lines) > 2
    assert all(row[3:] == ["bytes"] for line in lines[1:] for row in line["rows"])
    assert all(isinstance(text, str) for line in lines[1:] for text in line["data"])
