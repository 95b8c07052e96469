"""Everything that the pages on Postgres and Redis tell people to type works as the pages say."""

import asyncio
import re
from pathlib import Path

import psycopg
import pytest
import redis
from autogen_agentchat.agents import AssistantAgent
from autogen_ext.models.replay import ReplayChatCompletionClient
from click.testing import CliRunner
from tools.servers import Postgres, Redis, redis_binaries

import midturn
from midturn.cli import main
from midturn.stores.postgres.store import PostgresStore
from midturn.stores.redis.url import parse

DOCS = Path(__file__).parents[2] / "docs"


def blocks(page, language):
    return re.findall(rf"```{language}\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)


FORBIDDEN = (
    "INSERT INTO midturn.rows (series, n, data) VALUES (1, 1, '')",
    "UPDATE midturn.heads SET seq = 9",
    "DELETE FROM midturn.rows",
    "SELECT midturn.bury('case-42', '')",
    "SELECT midturn.write('x', 0, '', 1, 'idle', '{}', NULL, 0, '', '', '{}', '{}', '{}', '{}', '{}', '{}')",
    "TRUNCATE midturn.rows",
    "CREATE TABLE midturn.mine (x int)",
    "CREATE OR REPLACE FUNCTION midturn.items(value jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT value $$",
    "CREATE TRIGGER mine BEFORE INSERT ON midturn.heads EXECUTE FUNCTION suppress_redundant_updates_trigger()",
)
"""Statements that a reader must not run; a worker must not run the last three."""


async def use(url, task):
    async with midturn.open(url) as store:
        agent = AssistantAgent("support_agent", model_client=ReplayChatCompletionClient(["Noted."]))
        await store.session("case-42", agent, labels={"team": "claims"}).run(task=task)


def midturn_command(*words):
    """Type a command; return what it prints."""
    result = CliRunner().invoke(main, [*words])
    assert result.exit_code == 0, result.output
    return result.output


def test_the_three_roles_on_the_page_can_do_their_work_and_nothing_else():
    roles, grants, queries = blocks("how-to/postgres.md", "sql")
    passwords = dict(re.findall(r"CREATE ROLE (\w+) LOGIN PASSWORD '(.*?)'", roles))
    task = "Remember that the customer prefers email."
    with Postgres() as server:
        server.execute(roles)
        owner, worker, reader = (server.url_for(user=role, password=word) for role, word in passwords.items())
        midturn_command("db", "upgrade", "--store", owner)
        with psycopg.connect(owner, autocommit=True) as connection:
            connection.execute(grants)
        for stranger in (worker, reader):
            with pytest.raises(midturn.StoreUnavailable, match="belongs to the role 'midturn_owner'"):
                asyncio.run(use(stranger, task))
        asyncio.run(use(f"{worker}?owner=midturn_owner", task))
        trusting = f"{reader}?owner=midturn_owner"
        assert "case-42" in midturn_command("ls", "--store", trusting)
        assert "Noted." in midturn_command("show", "case-42", "--store", trusting)
        with pytest.raises(midturn.StoreUnavailable, match="does not allow this role to do that"):
            asyncio.run(use(trusting, task))
        with psycopg.connect(reader, autocommit=True) as connection:
            sessions, turns, messages = (
                connection.execute(query).fetchall() for query in queries.strip().split(";") if query
            )
            for statement in FORBIDDEN:
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    connection.execute(statement)
        with psycopg.connect(worker, autocommit=True) as connection:
            for statement in FORBIDDEN[-3:]:
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    connection.execute(statement)
    assert [row[:3] for row in sessions] == [("case-42", "idle", 1)]
    assert [row[:2] for row in turns] == [(1, "done")]
    assert [row[1:] for row in messages] == [
        ("user", "Remember that the customer prefers email."),
        ("support_agent", "Noted."),
    ]


async def prepare(url):
    store = await PostgresStore.open(url)
    await store.close()


def test_every_url_on_the_redis_page_is_one():
    text = (DOCS / "how-to/redis.md").read_text()
    found = re.findall(r"`(rediss?(?:\+\w+)?://[^`]*@[^`]*)`", text)
    assert [parse(url).layout for url in found] == ["server", "cluster", "sentinel"]
    options = re.findall(r"^\| `(\w+=\w+)` \|", text, re.MULTILINE)
    assert options == ["prefix=claims", "strict=true", "replicas=1", "ttl=30d"]
    assert parse(f"redis://host/0?{'&'.join(options)}").ttl == 30 * 86_400_000


def test_the_columns_on_the_page_are_those_of_the_views():
    table = re.findall(r"^\| `(\w+)` \| (`session`.*) \|$", (DOCS / "how-to/postgres.md").read_text(), re.MULTILINE)
    with Postgres() as server:
        asyncio.run(prepare(server.url))
        for view, columns in table:
            query = "SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0 ORDER BY attnum"
            found = server.execute(query, f"midturn.{view}")
            assert [name for (name,) in found] == re.findall(r"`(\w+)`", columns)
    assert len(table) == 3


def test_the_rights_on_the_redis_page_are_all_that_a_worker_needs():
    [line] = re.findall(r"^(ACL SETUSER .*)$", (DOCS / "how-to/redis.md").read_text(), re.MULTILINE)
    for binary in redis_binaries():
        with Redis({"appendfsync": "always"}, binary) as server:
            try:
                server.execute(*line.split())
            except redis.ResponseError:  # before 7.2
                server.execute(*line.removesuffix(" +waitaof").split())
            mine = server.url.replace(f":{server.password}@", "worker:password@")
            asyncio.run(use(f"{mine}?strict=true&ttl=1d", "Remember that the customer prefers email."))
            assert asyncio.run(listed(mine)) == ["case-42"]


async def listed(url):
    async with midturn.open(url) as store:
        found = [info.id async for info in store.sessions()]
        for name in found:
            assert await store.delete(name)
        return found
