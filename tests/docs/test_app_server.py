import asyncio
import importlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest
from uvicorn_server import first_answer, started
from websockets.asyncio.client import connect

import midturn

ROOT = Path(__file__).parents[2]
APP_SERVER = ROOT / "examples" / "app_server"
CHECKS = 9
SESSIONS, TURNS, EVERY = (50, 10, "1.5") if os.environ.get("MIDTURN_LONG") else (50, 4, "0.5")
"""Number of sessions, of turns in each, and of seconds from one kill to the next."""


@pytest.fixture(scope="module")
def database():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT)
        from tools.servers import Postgres

        with Postgres() as server:
            yield server.url


@pytest.fixture
def environment(database, tmp_path):
    """For the app: a slow model, whose ledger is ``ledger.jsonl``, and nothing of this machine's own settings."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("MIDTURN_", "OPENAI_", "MODEL_"))}
    return {**kept, "MIDTURN_URL": database, "MODEL_LEDGER": str(tmp_path / "ledger.jsonl"), "MODEL_SECONDS": "2"}


@pytest.fixture(scope="module")
def app():
    """The module, which other tests do not find: there are more of that name."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(APP_SERVER)
        for name in ("app", "model"):
            patch.setitem(sys.modules, name, None)
            del sys.modules[name]
        yield importlib.import_module("app")


def instance(environment):
    return started(APP_SERVER, "app:app", environment)


async def until(true):
    end = time.monotonic() + 120
    while not await true():
        assert time.monotonic() < end
        await asyncio.sleep(0.02)


def post(client, session, task, key):
    return client.post(f"/sessions/{session}/turns", json={"task": task, "key": key})


async def in_the_middle_of_a_turn(client, session, tmp_path):
    """A request whose model has been asked and has not answered yet."""
    ledger = tmp_path / "ledger.jsonl"

    async def asked():
        return ledger.exists()

    await first_answer(client, "/health")
    request = asyncio.create_task(post(client, session, "Enter this.", "k1"))
    await until(asked)
    assert not request.done()
    return request


def test_hundreds_of_turns_on_two_instances_survive_kill_after_kill(environment):
    load = ["--sessions", str(SESSIONS), "--turns", str(TURNS), "--every", EVERY]
    done = subprocess.run(
        [sys.executable, APP_SERVER / "drive.py", *load, "--json"],
        env={**environment, "MODEL_SECONDS": "0.3"},
        stdout=subprocess.PIPE,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.stdout, "drive.py did not get to its end; its words are on stderr"
    result = json.loads(done.stdout)
    assert len(result["wrong"]) == CHECKS
    assert {check: wrong for check, wrong in result["wrong"].items() if wrong} == {}
    assert done.returncode == 0
    turns = SESSIONS * TURNS
    assert (result["sessions"], result["turns"], result["acknowledged"]) == (SESSIONS, turns, turns)
    assert result["kills"] >= 3
    assert result["moved"] == SESSIONS
    assert result["cut_off"] > 0  # else the kills have hit nothing
    assert result["model_calls"] >= turns + result["called_again"]


async def test_an_instance_that_is_told_to_end_answers_first(environment, tmp_path):
    async with instance(environment) as (process, client):
        request = await in_the_middle_of_a_turn(client, "case-term", tmp_path)
        process.terminate()
        response = await request
        assert response.status_code == 200, response.text
        assert response.json()["reply"].startswith("Entry 1, receipt ")
        assert await asyncio.wait_for(process.wait(), 120) in (0, -signal.SIGTERM)


async def test_a_turn_that_nobody_asks_for_again_is_finished_by_midturn_resume(environment, tmp_path):
    async with instance(environment) as (process, client):
        request = await in_the_middle_of_a_turn(client, "case-kill", tmp_path)
        process.kill()
        with pytest.raises(httpx.TransportError):
            await request
        await process.wait()
    command = [Path(sys.executable).with_name("midturn"), "resume", "app:support", "--all", "--json"]
    done = await asyncio.to_thread(
        subprocess.run, command, cwd=APP_SERVER, env=environment, check=True, capture_output=True, text=True
    )
    assert "case-kill" in done.stdout
    async with midturn.open(environment["MIDTURN_URL"]) as store:
        [turn] = [turn async for turn in store.session("case-kill").history()]
    assert (turn.status, turn.key) == ("done", "k1")


async def test_what_a_request_cannot_have_is_said_by_the_status(environment):
    async with instance({**environment, "MODEL_SECONDS": "0"}) as (_, client):
        await first_answer(client, "/health")
        assert (await post(client, "case-http", "Enter this.", "k1")).status_code == 200
        other_task = await post(client, "case-http", "Enter that.", "k1")
        assert (other_task.status_code, other_task.json()["error"]) == (409, "Conflict")
        assert "Retry-After" not in other_task.headers
        assert (await client.get("/sessions/nobody")).status_code == 404
        assert (await post(client, "case-http", "Enter this.", "")).status_code == 422
        assert (await post(client, "x" * 201, "Enter this.", "k1")).status_code == 422
        async with midturn.open(environment["MIDTURN_URL"]) as store:
            await store.delete("case-http")
        assert (await post(client, "case-http", "Enter this.", "k1")).status_code == 410


async def read(client, path, *, after=None, stop=None):
    """The events of a stream, as kinds, ids and data; ``stop`` is how many before the client goes away."""
    found, headers = [], {} if after is None else {"Last-Event-ID": after}
    async with client.stream("GET", path, headers=headers) as response:
        response.raise_for_status()
        assert response.headers["content-type"].startswith("text/event-stream")
        event = {}
        async for line in response.aiter_lines():
            name, _, value = line.partition(": ")
            if name:
                event[name] = value
                continue
            found.append((event["event"], event["id"], json.loads(event["data"])))
            if len(found) == stop:
                break
            event = {}
    return found


def ids(events):
    return [name for _, name, _ in events]


async def say(client, session, text, key):
    response = await client.post(f"/sessions/{session}/messages", json={"text": text, "key": key})
    assert response.status_code == 202, response.text
    return response.json()


async def test_a_stream_that_is_cut_again_and_again_misses_no_event(environment):
    slow = {**environment, "MODEL_SECONDS": "0.2"}
    async with instance(slow) as (_, one), instance(environment) as (_, other):
        await first_answer(one, "/health")
        await first_answer(other, "/health")
        path = (await say(one, "case-cut", "Enter this.", "k1"))["events"]
        seen, clients = await read(one, path, stop=2), [other, one]
        while seen[-1][0] != "end":
            seen += await read(clients[len(seen) % 2], path, after=seen[-1][1], stop=1)
        again = await read(other, path)
        assert [each[:2] for each in seen] == [each[:2] for each in again]
        assert ids(seen)[:-1] == [f"1.{number}" for number in range(1, len(seen))]
        *_, (kind, _, reply), (_, _, end) = seen
        assert (kind, end) == ("TextMessage", {"status": "done", "questions": []})
        assert reply["content"].startswith("Entry 1, receipt ")
        assert [kind for kind, _, _ in seen].count("ModelClientStreamingChunkEvent") == len(reply["content"].split())
        assert (await other.get("/sessions/case-cut/turns/2/events")).status_code == 404


async def test_a_stream_continues_on_another_instance_when_its_own_is_killed(environment, tmp_path):
    async with instance(environment) as (process, one), instance(environment) as (_, other):
        await first_answer(one, "/health")
        await first_answer(other, "/health")
        path = (await say(one, "case-stream", "Enter this.", "k1"))["events"]
        first = await read(one, path, stop=1)
        ledger = tmp_path / "ledger.jsonl"

        async def asked():
            return ledger.exists()

        await until(asked)
        process.kill()
        await process.wait()
        rest = await read(other, path, after=first[-1][1])
        assert rest[-1][2] == {"status": "done", "questions": []}
        assert ids(first + rest)[:-1] == [f"1.{number}" for number in range(1, len(rest) + 1)]
        assert len(ledger.read_text().splitlines()) == 2  # the call that the kill cut off, and the one that counts
        known = await say(other, "case-stream", "Enter this.", "k1")
        assert known["turn"] == 1
        [turn] = (await other.get("/sessions/case-stream")).json()["turns"]
        assert (turn["status"], turn["reply"]) == ("done", rest[-2][2]["content"])


async def test_a_websocket_that_is_cut_continues_where_it_was(environment):
    async with instance({**environment, "MODEL_SECONDS": "0.2"}) as (_, client):
        await first_answer(client, "/health")
        url = f"ws://{client.base_url.host}:{client.base_url.port}/sessions/case-ws/socket"
        async with connect(url, proxy=None) as socket:
            await socket.send(json.dumps({"text": "Enter this.", "key": "k1"}))
            first = [json.loads(await socket.recv()) for _ in range(2)]
        async with connect(url, proxy=None) as socket:
            turn, after = map(int, first[-1]["id"].split("."))
            await socket.send(json.dumps({"turn": turn, "after": after}))
            seen = [*first, *[event async for event in until_its_end(socket)]]
            assert [event["id"] for event in seen[:-1]] == [f"1.{number}" for number in range(1, len(seen))]
            await socket.send(json.dumps({"text": "Enter that.", "key": "k2"}))
            seen = [event async for event in until_its_end(socket)]
            assert (seen[0]["id"], seen[-1]["data"]["status"]) == ("2.1", "done")
            assert seen[-2]["data"]["content"].startswith("Entry 2, receipt ")
            await socket.send(json.dumps({"text": "Enter more.", "key": "k2"}))
            assert json.loads(await socket.recv())["data"]["error"] == "Conflict"
            await socket.send(json.dumps({"turn": "x"}))
            assert json.loads(await socket.recv())["data"]["error"] == "ValidationError"


async def until_its_end(socket):
    while (event := json.loads(await socket.recv()))["kind"] != "end":
        yield event
    yield event


@pytest.mark.parametrize(
    ("error", "status", "again"),
    [
        (midturn.SessionBusy("is busy", session="s", owner="o"), 409, True),
        (midturn.LeaseLost("is lost"), 409, True),
        (midturn.Conflict("is another task's"), 409, False),
        (midturn.NotFound("is not there"), 404, False),
        (midturn.InvalidArgument("is wrong", path="p"), 422, False),
        (midturn.SessionDeleted("is deleted"), 410, False),
        (midturn.TurnFailed("has failed", session="s", turn=1), 502, False),
        (midturn.TurnTimeout("took too long", session="s", turn=1, timeout=1.0), 504, False),
        (midturn.StoreUnavailable("is away"), 503, True),
        (midturn.OutcomeUnknown("is away"), 503, True),
        (midturn.StoreFull("is full"), 503, True),
        (midturn.StateInvalid("is damaged", path="p"), 500, False),
        (midturn.HistoryLost("is lost"), 500, False),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
async def test_each_error_has_a_status_and_says_whether_to_try_again(app, error, status, again):
    response = await app.refused(None, error)
    assert response.status_code == status
    assert ("Retry-After" in response.headers) == again
    assert json.loads(response.body) == {"error": type(error).__name__, "detail": str(error)}
