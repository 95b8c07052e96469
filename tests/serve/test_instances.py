"""Several servers on one store: any of them serves any session, and one that is killed loses nothing."""

import asyncio
import os
import random
from collections import Counter
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import httpx
import pytest
from http_clients import process

import midturn

ROOT = Path(__file__).parents[2]
LONG = bool(os.environ.get("MIDTURN_LONG"))
SESSIONS, TURNS, KILLS = (20, 10, 12) if LONG else (5, 4, 2)
"""Number of sessions, of turns in each, and of servers that are killed."""

pytestmark = pytest.mark.timeout(1200 if LONG else 300)


@pytest.fixture(scope="module")
def database():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT)
        from tools.servers import Postgres

        with Postgres() as server:
            yield f"{server.url}{'&' if '?' in server.url else '?'}lease=3"


class Instances:
    """Two servers, of which one after the other is killed and started again."""

    def __init__(self, stack, folder, url):
        self._stack, self._folder, self._url = stack, folder, url
        self._ends = {}
        self.clients = {}

    async def start(self, name):
        """Start a server, and a client of it."""
        stack = AsyncExitStack()
        made, started = await stack.enter_async_context(
            process(self._folder, "clerks:slow", "--drain", "0", url=self._url, env={"MIDTURN_TOKEN": "t"})
        )
        client = httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{started['port']}/api",
            headers={"Authorization": "Bearer t"},
            trust_env=False,
            timeout=60,
        )
        self.clients[name] = await stack.enter_async_context(client)
        self._ends[name] = made, stack

    async def kill(self, name):
        """Kill a server with SIGKILL."""
        made, stack = self._ends.pop(name)
        made.kill()
        await made.wait()
        await stack.aclose()

    async def close(self):
        for _, stack in list(self._ends.values()):
            await stack.aclose()


@pytest.fixture
async def instances(tmp_path, database):
    async with AsyncExitStack() as stack:
        found = Instances(stack, tmp_path, database)
        stack.push_async_callback(found.close)
        await asyncio.gather(*map(found.start, "ab"))
        yield found


class Load:
    """Clients that repeat each request with its key, at one server or the other, until it is acknowledged."""

    def __init__(self, instances):
        self._instances = instances
        self.acknowledged = {}
        self.outcomes = Counter()

    async def drive(self, session, rng):
        for number in range(TURNS):
            key = f"{session} {number}"
            while key not in self.acknowledged:
                if (turn := await self._deliver(session, key, rng.choice("ab"))) is not None:
                    self.acknowledged[key] = turn

    async def _deliver(self, session, key, name):
        try:
            answer = await self._instances.clients[name].post(
                f"/sessions/{session}/turns", json={"task": key}, headers={"Idempotency-Key": key}
            )
        except (httpx.TransportError, RuntimeError):  # a client whose server was killed is closed
            self.outcomes["cut off"] += 1
            await asyncio.sleep(0.1)
            return None
        self.outcomes[answer.status_code] += 1
        if answer.status_code == 200:
            return answer.json()
        assert answer.status_code == 409, answer.text
        await asyncio.sleep(float(answer.headers["retry-after"]) / 10)
        return None


@pytest.mark.fault("F1")
async def test_turns_on_two_servers_of_which_one_is_killed_again_and_again_run_once(instances, database):
    load, rng = Load(instances), random.Random(3)
    clients = [asyncio.create_task(load.drive(f"case-{number}", random.Random(number))) for number in range(SESSIONS)]
    for kill in range(KILLS):
        while len(load.acknowledged) < SESSIONS * TURNS * (kill + 1) // (KILLS + 2):
            await asyncio.sleep(0.02)
            assert not any(client.done() and client.exception() for client in clients)
        name = "ab"[kill % 2]
        await asyncio.sleep(rng.uniform(0, 0.2))
        await instances.kill(name)
        if kill + 1 < KILLS:  # the other one ends the work alone
            await instances.start(name)
    await asyncio.gather(*clients)
    assert len(load.acknowledged) == SESSIONS * TURNS
    assert load.outcomes["cut off"] > 0
    async with midturn.open(database) as store:
        for number in range(SESSIONS):
            session = f"case-{number}"
            turns = [turn async for turn in store.session(session).history()]
            assert [turn.key for turn in turns] == [f"{session} {turn}" for turn in range(TURNS)]
            for turn in turns:
                assert turn.status == "done"
                known = load.acknowledged[turn.key]
                assert known["turn"] == turn.number
                assert [message["id"] for message in known["messages"]] == [message.id for message in turn.messages]
                assert turn.messages[-1].content == f"Noted: {turn.key}"


async def test_any_server_streams_the_turn_of_another_and_finishes_it(instances):
    a, b = instances.clients["a"], instances.clients["b"]
    await a.post("/sessions/case/turns", json={"task": "wait"}, headers={"Idempotency-Key": "k", "Prefer": "wait=0"})
    async with b.stream("GET", "/sessions/case/turns/1/events") as stream:
        lines = stream.aiter_lines()
        assert await anext(lines) == "id: 1.1"
        assert (await b.get("/sessions/case")).json()["status"] == "running"
        busy = await b.post("/sessions/case/turns/1/cancel")
        assert (busy.status_code, busy.json()["title"]) == (409, "SessionBusy")
        await instances.kill("a")
        (instances._folder / "go").touch()
        with suppress(StopAsyncIteration):
            while not (line := await anext(lines)).startswith("event: end"):
                pass
        assert line == "event: end"
        assert '"interrupted"' in await anext(lines)
    done = await b.post("/sessions/case/turns", json={"task": "wait"}, headers={"Idempotency-Key": "k"})
    assert (done.status_code, done.json()["status"], done.json()["attempts"]) == (200, "done", 2)
