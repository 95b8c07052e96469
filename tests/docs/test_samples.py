"""AutoGen's samples as examples/samples has them: each is started, and most are killed."""

import importlib.util
import json
import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import asynccontextmanager, closing
from pathlib import Path
from types import SimpleNamespace

import pytest
from uvicorn_server import first_answer, started
from websockets.asyncio.client import connect

import midturn

SAMPLES = Path(__file__).parents[2] / "examples" / "samples"


@pytest.fixture
def environment(tmp_path):
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("MIDTURN_", "MODEL_"))}
    return {**kept, "MIDTURN_URL": f"sqlite:///{tmp_path / 'samples.db'}"}


# The game.


def game(environment, *args, **options):
    command = [sys.executable, str(SAMPLES / "chess_game.py"), *args]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True, **options)


def moves(environment):
    with closing(sqlite3.connect(environment["MIDTURN_URL"].removeprefix("sqlite:///"))) as database:
        return [move for (move,) in database.execute("SELECT move FROM moves ORDER BY n")]


def test_a_game_whose_process_is_killed_again_and_again_is_played_to_its_end(environment, tmp_path):
    other = {**environment, "MIDTURN_URL": f"sqlite:///{tmp_path / 'other.db'}"}
    with game(other) as process:
        whole = process.stdout.read().splitlines()
    assert whole[-1].startswith("The game is over: ")
    shown, kills = [""], 0
    while not shown[-1].startswith("The game is over: "):
        with game({**environment, "MODEL_SECONDS": "0.05"}) as process:
            lines = [process.stdout.readline().strip() for _ in range(4)]
            process.kill()
        kills += process.returncode == -signal.SIGKILL
        shown += [line for line in lines if line not in shown]  # the one at the kill may come again
    assert kills >= 2
    assert moves(environment) == moves(other)
    assert shown[1:] == whole


def test_a_human_plays_and_comes_back_after_the_process_was_killed(environment):
    with game(environment, "human", stdin=subprocess.PIPE) as process:
        process.stdin.write("d2d4\n")
        process.stdin.flush()
        assert process.stdout.readline() == "Your move: white moved d2d4.\n"
        assert process.stdout.readline() == "black moved e7e5.\n"
        process.kill()
        process.stdin.close()
    with game(environment, "human", stdin=subprocess.PIPE) as process:
        shown, _ = process.communicate("d4d6\nd4e5\n")
    assert process.returncode == 0
    assert "white d4d6 is not legal: move 3, white to move: a2a3 a2a4 " in shown
    assert "white moved d4e5.\nblack moved d7d6.\n" in shown
    assert moves(environment) == ["d2d4", "e7e5", "d4e5", "d7d6"]


# The team with a human.


@asynccontextmanager
async def served(environment):
    async with started(SAMPLES, "team_websocket:app", environment) as (process, client):
        assert "new WebSocket(" in (await first_answer(client)).text
        url = f"ws://{client.base_url.host}:{client.base_url.port}/chats/c1"
        yield process, lambda: connect(url, proxy=None)


async def said(socket):
    """Return the messages until the team waits."""
    found = []
    while (event := json.loads(await socket.recv()))["type"] != "status":
        assert event["type"] != "error", event
        if event["type"] == "TextMessage":
            found.append((event["source"], event["content"]))
    assert event["content"] == "waiting"
    return found


async def tell(socket, text, key):
    await socket.send(json.dumps({"text": text, "key": key}))


async def test_a_team_with_a_human_outlives_its_connections_and_its_server(environment):
    async with served({**environment, "MODEL_SECONDS": "0.1"}) as (process, chat):
        async with chat() as socket:
            await tell(socket, "Hello.", "k1")
            first = await said(socket)
            assert first[0] == ("user", "Hello.")
            assert [name for name, _ in first] == ["user", "assistant", "critic"]
            await tell(socket, "Go on.", "k2")
            await socket.recv()  # it goes away in the middle of an answer
        async with chat() as socket:
            second = await said(socket)
            assert second[: len(first)] == first
            assert [name for name, _ in second[len(first) :]] == ["user", "assistant", "critic"]
            await tell(socket, "And now?", "k3")
            await socket.recv()
            process.send_signal(signal.SIGKILL)
            await process.wait()
    async with served(environment) as (_, chat), chat() as socket:
        third = await said(socket)
        assert third[: len(second)] == second
        assert third[len(second)] == ("user", "And now?")
        assert len(third) == len(second) + 3
        await tell(socket, "And now?", "k3")  # the client does not know whether it has arrived
        assert await said(socket) == []
    async with midturn.open(environment["MIDTURN_URL"]) as store:
        assert (await store.info("c1")).turns == 1


# The handlers of Streamlit and Chainlit, with stand-ins for the two packages; examples/samples/README.md says why.

STREAMLIT = """
import json, os

shown = []
query_params = json.loads(os.environ["CHAT"])

def title(text): shown.append(text)

def chat_input(_): return os.environ.get("SAID")

def chat_message(who):
    class Message:
        def markdown(self, text): shown.append([who, text])
    return Message()
"""


def test_a_streamlit_chat_is_the_same_in_every_process(environment, tmp_path):
    (tmp_path / "streamlit.py").write_text(STREAMLIT)

    def visit(**said):
        code = "import streamlit_chat, streamlit; print(streamlit.json.dumps(streamlit.shown))"
        paths = os.pathsep.join([str(tmp_path), str(SAMPLES)])
        variables = {**environment, "CHAT": '{"chat": "c1"}', "PYTHONPATH": paths, **said}
        done = subprocess.run([sys.executable, "-c", code], env=variables, capture_output=True, text=True, check=True)
        return json.loads(done.stdout)

    first = [["user", "Hello."], ["assistant", "I have 2 messages."]]
    title, *shown = visit(SAID="Hello.")
    assert shown == first
    second = [["user", "Again."], ["assistant", "I have 4 messages."]]
    assert visit(SAID="Again.") == [title, *first, *second]
    assert visit() == [title, *first, *second]


class Chainlit:
    """As much of Chainlit as the sample uses. ``press`` is what the user presses when asked."""

    def __init__(self):
        self.shown, self.press = [], None
        self.context = SimpleNamespace(session=SimpleNamespace(thread_id="t1", id="ann"))
        chainlit = self

        class Message:
            def __init__(self, content, name="m1"):
                self.content, self.id = content, name

            async def stream_token(self, token):
                self.content += token

            async def send(self):
                chainlit.shown.append(self.content)

        class AskActionMessage:
            def __init__(self, content, actions):
                self.content, self.actions = content, actions

            async def send(self):
                chainlit.shown.append(self.content)
                return chainlit.press and {"payload": {"answer": chainlit.press}}

        self.Message, self.AskActionMessage = Message, AskActionMessage
        self.Action = SimpleNamespace

    def on_message(self, handler):
        self.handler = handler
        return handler

    async def user_says(self, text, name):
        await self.handler(self.Message(text, name))
        shown, self.shown = self.shown, []
        return shown


@pytest.fixture
def chainlit(environment, monkeypatch):
    monkeypatch.setenv("MIDTURN_URL", environment["MIDTURN_URL"])

    def start():
        """A new server."""
        stand_in = Chainlit()
        monkeypatch.setitem(sys.modules, "chainlit", stand_in)
        spec = importlib.util.spec_from_file_location("chainlit_chat", SAMPLES / "chainlit_chat.py")
        spec.loader.exec_module(importlib.util.module_from_spec(spec))
        return stand_in

    return start


async def test_a_chainlit_chat_asks_before_it_acts_and_asks_again_on_another_server(chainlit):
    question = 'May refund({"order":"A1"}) be called?'
    one = chainlit()
    assert await one.user_says("Hello.", "m1") == ["What can I do for you?"]
    assert await one.user_says("Please refund A1.", "m2") == [question]  # the user leaves
    other = chainlit()
    other.press = "approve"
    assert await other.user_says("Well?", "m3") == [question, "A1 is refunded."]
    other.press = "deny"
    assert await other.user_says("Please refund A1 again.", "m4") == [question, "Then not."]
    async with midturn.open() as store:
        turns = [turn async for turn in store.session("t1").history()]
    assert [decision.answer for turn in turns for decision in turn.decisions] == ["approve", "deny"]
    assert {decision.by for turn in turns for decision in turn.decisions} == {"ann"}
