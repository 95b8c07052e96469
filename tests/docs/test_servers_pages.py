"""What the pages on Postgres and Redis tell people to type does what they say."""

import asyncio
import re
from pathlib import Path

import psycopg
import redis
from autogen_agentchat.agents import AssistantAgent
from autogen_ext.models.replay import ReplayChatCompletionClient
from tools.servers import Postgres, Redis, redis_binaries

import midturn
from midturn.stores.postgres.store import PostgresStore
from midturn.stores.redis.url import parse

DOCS = Path(__file__).parents[2] / "docs"


def blocks(page, language):
    return re.findall(rf"```{language}\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)


async def use(url, task):
    async with midturn.open(url) as store:
        agent = AssistantAgent("support_agent", model_client=ReplayChatCompletionClient(["Noted."]))
        await store.session("case-42", agent, labels={"team": "claims"}).run(task=task)


def test_the_rights_on_the_page_are_all_that_a_worker_needs():
    grants, queries = blocks("how-to/postgres.md", "sql")
    with Postgres() as server:
        server.execute("CREATE ROLE worker LOGIN PASSWORD 'secret'")
        asyncio.run(prepare(server.url))
        for grant in grants.split(";\n"):
            server.execute(grant)
        mine = server.url_for(user="worker", password="secret")
        asyncio.run(use(mine, "Remember that the customer prefers email."))
        with psycopg.connect(mine) as connection:
            sessions, turns, messages = (
                connection.execute(query).fetchall() for query in queries.strip().split(";") if query
            )
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
