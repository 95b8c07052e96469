"""A canary: numbers that are redacted are looked for in all files of all stores, in logs, streams and HTTP answers."""

import logging
from pathlib import Path

import httpx
import pytest
from autogen_agentchat.agents import UserProxyAgent
from autogen_agentchat.conditions import MaxMessageTermination
from autogen_agentchat.teams import RoundRobinGroupChat
from desks import CARD, HIDDEN, Failing, Talker, build, card, redact
from tools.servers import Postgres, Redis

import midturn
from midturn.testing import ToolCall

CANARY = card(0)[:4].encode()


async def look(order: str) -> str:
    """Look an order up."""
    return f"{order} was paid with {card(2)}"


async def broken(order: str) -> str:
    """Look an order up, in vain."""
    raise LookupError(f"{order}: no {card(14)}")


SCRIPT = {
    "My order": [ToolCall("look", {"order": card(1)}), ToolCall("broken", {"order": card(1)})],
    "was paid": f"It was paid with {card(3)}.",
    "": f"I know {card(5)}.",
}


def members():
    person = UserProxyAgent("person", input_func=midturn.human)
    return RoundRobinGroupChat(
        [build(SCRIPT, [look, broken]), Talker(), person], termination_condition=MaxMessageTermination(5)
    )


def desks(function):
    effects = {"look": midturn.tool(approval=True), "broken": "read"}
    return (
        midturn.Blueprint("desk", members, effects=effects, redact=function),
        midturn.Blueprint("failing", lambda: RoundRobinGroupChat([Failing()], max_turns=1), redact=function),
    )


async def live_a_case(store, function):
    """Run turns that wait, go on, fail and are corrected; return what their readers saw."""
    desk, failing = desks(function)
    case = store.session("case", desk)
    seen = [repr(item) async for item in case.run_stream(f"My order with {card(0)}", key="k")]
    seen.append(repr(await case.answer("approve", arguments={"order": card(6)}, by="ann")))
    seen.append(repr(await case.say(f"It is {card(9)}")))
    run = await case.start(f"and {card(10)}")
    seen += [repr(event) async for event in run.events()]
    seen += [repr(await run.result()), repr(run)]
    await case.discard()
    await case.edit(lambda state: state.correct("It was", f"It was {card(7)},"), why="a typing error")
    await case.fork("other")
    with pytest.raises(midturn.TurnFailed) as raised:
        await store.session("failing", failing).run(f"hello {card(0)}")
    seen += [repr(raised.value), str(raised.value), repr(raised.value.__cause__), repr(raised.value.__context__)]
    seen += [repr(await case.turn(number)) for number in (1, 2)]
    seen += [repr(await store.info("case")), repr(await case.open_turn())]
    return "\n".join(seen)


def bytes_below(folder):
    return b"\n".join(path.read_bytes() for path in sorted(Path(folder).rglob("*")) if path.is_file())


def plain(url):
    """Return the URL of a store that does not compress: nothing could be found in it otherwise."""
    return f"{url}{'&' if '?' in url else '?'}compress=none"


@pytest.mark.parametrize("kind", ["file", "sqlite"])
async def test_no_file_reader_or_log_has_a_redacted_text(tmp_path, kind, caplog, capfd):
    caplog.set_level(logging.DEBUG, "midturn")
    caplog.set_level(logging.DEBUG, "asyncio")
    async with midturn.open(plain(f"{kind}:///{tmp_path}/store")) as store:
        seen = await live_a_case(store, redact)
        stored = bytes_below(tmp_path)  # with the write-ahead log, which closing removes
    stored += bytes_below(tmp_path)
    logged = caplog.text + "".join(capfd.readouterr())
    assert HIDDEN.encode() in stored
    assert CANARY not in stored + seen.encode() + logged.encode()


@pytest.mark.parametrize("kind", ["file", "sqlite"])
async def test_the_canary_is_found_without_the_function(tmp_path, kind):
    async with midturn.open(plain(f"{kind}:///{tmp_path}/store")) as store:
        seen = await live_a_case(store, None)
        stored = bytes_below(tmp_path)
    for number in (0, 1, 2, 3, 6, 7, 8, 9, 10, 11, 14):
        assert card(number).encode() in stored, number
    assert CANARY in seen.encode()


@pytest.mark.parametrize("server", [Postgres, Redis])
async def test_no_file_of_a_server_has_a_redacted_text(server):
    """The tables and the write-ahead log of Postgres, the append-only file of Redis, and the logs of both."""
    with server() as running:
        async with midturn.open(plain(running.url)) as store:
            await live_a_case(store, redact)
        running.stop()
        stored = bytes_below(running.folder)
    assert HIDDEN.encode() in stored
    assert CANARY not in stored


@pytest.mark.parametrize("server", [Postgres, Redis])
async def test_the_canary_is_found_in_the_files_of_a_server_without_the_function(server):
    with server() as running:
        async with midturn.open(plain(running.url)) as store:
            await live_a_case(store, None)
        running.stop()
        assert CANARY in bytes_below(running.folder)


async def test_no_http_answer_stream_or_page_has_a_redacted_text():
    """The case is run over HTTP, so that a session of the server itself has the texts."""
    async with midturn.open("memory://", drain=0) as store:
        app = midturn.asgi(store, list(desks(redact)), token="t" * 32, by="ann")
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        headers = {"authorization": f"Bearer {'t' * 32}"}
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=headers) as client:
            told = []

            async def ask(path, json=None, expected=200):
                answer = await (client.get(path) if json is None else client.post(path, json=json))
                assert answer.status_code == expected, answer.text
                told.append(answer.text)
                return answer

            turns = "/api/sessions/case/turns"
            asked = await ask(turns, {"task": f"My order with {card(0)}", "blueprint": "desk"})
            question = asked.json()["questions"][0]["id"]
            answer = {"answer": "approve", "arguments": {"order": card(6)}, "question": question}
            await ask("/api/sessions/case/answer", answer)
            await ask("/api/sessions/failing/turns", {"task": f"hello {card(0)}", "blueprint": "failing"}, 500)
            await ask("/api/sessions/case/say", {"text": f"It is {card(7)}", "blueprint": "desk"})
            for path in ("turns", "turns/1", "turns/1/events", "lineage", "export"):
                await ask(f"/api/sessions/case/{path}")
            for path in ("sessions", "questions", "audit", "sessions/failing/turns"):
                await ask(f"/api/{path}")
            for path in (
                "",
                "inbox",
                "audit",
                "s/case",
                "s/case/turns/1",
                "s/case/at/1",
                "s/failing",
                "s/failing.json",
            ):
                await ask(f"/{path}")
        assert HIDDEN in "".join(told)
        assert not CARD.search("".join(told))
