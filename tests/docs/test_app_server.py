import asyncio
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

import midturn

ROOT = Path(__file__).parents[2]
APP_SERVER = ROOT / "examples" / "app_server"
CHECKS = 9
SESSIONS, TURNS, EVERY = (50, 10, "1.5") if os.environ.get("MIDTURN_LONG") else (50, 4, "0.5")
"""How many sessions, turns in each, and seconds from one kill to the next."""


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


@contextmanager
def instance(environment):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "uvicorn", "app:app", "--port", str(port), "--log-level", "warning"]
    with subprocess.Popen(command, cwd=APP_SERVER, env=environment) as process:
        try:
            yield process, httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=120, trust_env=False)
        finally:
            process.kill()


async def until(true):
    end = time.monotonic() + 120
    while not await true():
        assert time.monotonic() < end
        await asyncio.sleep(0.02)


async def answers(client):
    try:
        return (await client.get("/health")).is_success
    except httpx.TransportError:
        return False


def post(client, session, task, key):
    return client.post(f"/sessions/{session}/turns", json={"task": task, "key": key})


async def in_the_middle_of_a_turn(client, session, tmp_path):
    """A request whose model has been asked and has not answered yet."""
    ledger = tmp_path / "ledger.jsonl"

    async def asked():
        return ledger.exists()

    await until(lambda: answers(client))
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
    with instance(environment) as (process, client):
        async with client:
            request = await in_the_middle_of_a_turn(client, "case-term", tmp_path)
            process.terminate()
            response = await request
            assert response.status_code == 200, response.text
            assert response.json()["reply"].startswith("Entry 1, receipt ")
            assert process.wait(timeout=120) in (0, -signal.SIGTERM)


async def test_a_turn_that_nobody_asks_for_again_is_finished_by_midturn_resume(environment, tmp_path):
    with instance(environment) as (process, client):
        async with client:
            request = await in_the_middle_of_a_turn(client, "case-kill", tmp_path)
            process.kill()
            with pytest.raises(httpx.TransportError):
                await request
    command = [Path(sys.executable).with_name("midturn"), "resume", "app:support", "--all", "--json"]
    done = await asyncio.to_thread(
        subprocess.run, command, cwd=APP_SERVER, env=environment, check=True, capture_output=True, text=True
    )
    assert "case-kill" in done.stdout
    async with midturn.open(environment["MIDTURN_URL"]) as store:
        [turn] = [turn async for turn in store.session("case-kill").history()]
    assert (turn.status, turn.key) == ("done", "k1")


async def test_what_a_request_cannot_have_is_said_by_the_status(environment):
    with instance({**environment, "MODEL_SECONDS": "0"}) as (_, client):
        async with client:
            await until(lambda: answers(client))
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


@pytest.mark.parametrize(
    ("error", "status", "again"),
    [
        (midturn.SessionBusy("is busy", session="s", owner="o"), 409, True),
        (midturn.LeaseLost("is lost"), 409, True),
        (midturn.Conflict("is another task's"), 409, False),
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
