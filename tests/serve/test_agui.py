"""AG-UI: its own client runs agents, answers their interrupts, and gets every message once."""

import asyncio
import json
import shutil
import sys
from asyncio.subprocess import PIPE
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

import midturn

sys.path.insert(0, str(Path(__file__).parent))

from killable import started
from npm import NODE, linked
from protocol_app import BLUEPRINTS


class Client:
    """Speaks AG-UI without a network."""

    def __init__(self, http):
        self.http = http
        self.number = 0

    async def post(self, *, thread="t", blueprint="clerk", **body):
        self.number += 1
        body = {"threadId": thread, "runId": f"run-{self.number}", "messages": [], **body}
        return await self.http.post(f"/agui/{blueprint}", json=body)

    async def run(self, **body):
        answer = await self.post(**body)
        assert answer.status_code == 200, answer.text
        return [json.loads(line.removeprefix("data: ")) for line in answer.text.splitlines() if line]


def user(text, name):
    return {"id": name, "role": "user", "content": text}


def kinds(events):
    return [event["type"] for event in events]


def interrupts(events):
    outcome = events[-1]["outcome"]
    assert outcome["type"] == "interrupt"
    return outcome["interrupts"]


def resolved(interrupt, **payload):
    return {"interruptId": interrupt["id"], "status": "resolved", "payload": payload}


def text(events):
    return "".join(event["delta"] for event in events if event["type"] == "TEXT_MESSAGE_CONTENT")


@asynccontextmanager
async def serving(url, **options):
    options = {"token": "secret", "by": "ann@desk", **options}
    async with midturn.open(url) as store:
        app = midturn.asgi(store, BLUEPRINTS, **options)
        headers = {"Authorization": "Bearer secret"}
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=headers) as http:
            yield Client(http)


@pytest.fixture
async def client(url):
    async with serving(url) as made:
        yield made


async def test_a_text_is_streamed_as_the_model_gives_it(client):
    events = await client.run(messages=[user("Hello", "u1")])
    assert kinds(events) == [
        "RUN_STARTED",
        "TEXT_MESSAGE_START",
        *["TEXT_MESSAGE_CONTENT"] * 5,
        "TEXT_MESSAGE_END",
        "RUN_FINISHED",
    ]
    assert text(events) == "How can I help you?"
    assert events[-1]["outcome"] == {"type": "success"}


async def test_an_interrupt_comes_with_the_call_and_after_a_snapshot(client, paid):
    events = await client.run(messages=[user("refund A1", "u1")])
    assert kinds(events)[1:] == [
        "TOOL_CALL_START",
        "TOOL_CALL_ARGS",
        "TOOL_CALL_END",
        "MESSAGES_SNAPSHOT",
        "RUN_FINISHED",
    ]
    [asked] = interrupts(events)
    assert (asked["reason"], asked["toolCallId"]) == ("tool_call", events[1]["toolCallId"])
    assert asked["responseSchema"]["properties"]["editedArgs"]["properties"].keys() == {"order", "amount"}
    assert [message["role"] for message in events[-2]["messages"]] == ["user", "assistant"]
    assert paid() == []


async def test_an_approval_continues_the_turn_and_sends_nothing_twice(client, paid):
    first = await client.run(messages=[user("refund A1", "u1")])
    answer = resolved(interrupts(first)[0], approved=True)
    second = await client.run(messages=first[-2]["messages"], resume=[answer])
    assert kinds(second) == [
        "RUN_STARTED",
        "TOOL_CALL_RESULT",
        "TEXT_MESSAGE_START",
        *["TEXT_MESSAGE_CONTENT"] * 6,
        "TEXT_MESSAGE_END",
        "RUN_FINISHED",
    ]
    assert second[1]["toolCallId"] == first[1]["toolCallId"]
    assert paid() == ["A1 40.0"]


async def test_edited_arguments_replace_all_arguments(client, paid):
    [asked] = interrupts(await client.run(messages=[user("refund A1", "u1")]))
    await client.run(resume=[resolved(asked, approved=True, editedArgs={"order": "A1"})])
    assert paid() == ["A1 5.0"]


async def test_edited_arguments_that_leave_out_one_without_a_default_are_an_error(client, paid):
    [asked] = interrupts(await client.run(messages=[user("refund A1", "u1")]))
    events = await client.run(resume=[resolved(asked, approved=True, editedArgs={"amount": 1.0})])
    assert (events[-1]["type"], events[-1]["code"]) == ("RUN_ERROR", "InvalidArgument")
    assert "'order'" in events[-1]["message"]
    assert paid() == []


async def test_a_denial_tells_the_agent_why(client, paid):
    [asked] = interrupts(await client.run(messages=[user("refund A1", "u1")]))
    events = await client.run(resume=[resolved(asked, approved=False, reason="too much")])
    [result] = [event for event in events if event["type"] == "TOOL_CALL_RESULT"]
    assert "too much" in result["content"]
    assert text(events) == "That is not possible."
    assert paid() == []


async def test_all_interrupts_are_answered_in_one_resume(client, paid):
    asked = interrupts(await client.run(messages=[user("refund both", "u1")]))
    assert len(asked) == 2
    one = await client.run(resume=[resolved(asked[0], approved=True)])
    assert (one[-1]["type"], one[-1]["code"]) == ("RUN_ERROR", "InvalidArgument")
    bad = await client.run(resume=[resolved(asked[0], approved=True), resolved(asked[1], approved="yes")])
    assert bad[-1]["type"] == "RUN_ERROR"
    assert paid() == []
    answers = [resolved(asked[0], approved=True), resolved(asked[1], approved=True, editedArgs={"order": "C3"})]
    events = await client.run(resume=answers)
    assert events[-1]["outcome"] == {"type": "success"}
    assert sorted(paid()) == ["A1 40.0", "C3 5.0"]


async def test_a_repeated_resume_counts_once(client, paid):
    first = await client.run(messages=[user("refund A1", "u1")])
    answer = resolved(interrupts(first)[0], approved=True)
    await client.run(resume=[answer])
    again = await client.run(messages=first[-2]["messages"], resume=[answer])
    assert text(again) == "Your money is on its way."
    assert paid() == ["A1 40.0"]
    other = await client.run(resume=[resolved(interrupts(first)[0], approved=False)])
    assert (other[-1]["type"], other[-1]["code"]) == ("RUN_ERROR", "Conflict")


async def test_two_clients_that_resume_at_once_pay_once(client, paid):
    [asked] = interrupts(await client.run(messages=[user("refund A1", "u1")]))
    answers = [resolved(asked, approved=True) for _ in range(4)]
    found = await asyncio.gather(*(client.run(resume=[answer]) for answer in answers))
    assert [events[-1]["type"] for events in found] == ["RUN_FINISHED"] * 4
    assert paid() == ["A1 40.0"]


async def test_a_cancelled_interrupt_gives_the_turn_up(client, paid):
    [asked] = interrupts(await client.run(messages=[user("refund A1", "u1")]))
    entry = {"interruptId": asked["id"], "status": "cancelled"}
    for _ in range(2):
        events = await client.run(resume=[entry])
        assert events[-1]["outcome"] == {"type": "cancelled"}
    assert paid() == []
    assert text(await client.run(messages=[user("Hello", "u2")])) == "How can I help you?"


async def test_a_cancelled_interrupt_that_nobody_has_asked_gives_nothing_up(client):
    first = await client.run(messages=[user("refund both", "u1")])
    ids = [each["id"] for each in interrupts(first)]
    for wrong in ("1.nobody"), (ids[0]):
        events = await client.run(resume=[{"interruptId": wrong, "status": "cancelled"}])
        assert events[-1]["type"] == "RUN_ERROR"
    assert len(interrupts(await client.run())) == 2


async def test_somebody_who_may_not_discard_cannot_cancel(url):
    async with serving(url, authorize=lambda who, action, session: action != "discard") as client:
        [asked] = interrupts(await client.run(messages=[user("refund A1", "u1")]))
        events = await client.run(resume=[{"interruptId": asked["id"], "status": "cancelled"}])
        assert (events[-1]["type"], events[-1]["code"]) == ("RUN_ERROR", "Forbidden")


async def test_a_new_message_while_interrupts_are_open_is_an_error(client):
    await client.run(messages=[user("refund A1", "u1")])
    events = await client.run(messages=[user("Hello?", "u2")])
    assert (events[-1]["type"], events[-1]["code"]) == ("RUN_ERROR", "SessionBusy")


async def test_the_same_run_twice_is_one_turn(client):
    messages = [user("Hello", "u1")]
    first = await client.run(runId="r", messages=messages)
    again = await client.run(runId="r", messages=messages)
    assert again == first
    part = {**user("", "1.2"), "role": "assistant", "content": "How can"}
    rest = await client.run(runId="r", messages=[*messages, part])
    assert kinds(rest) == ["RUN_STARTED", "MESSAGES_SNAPSHOT", "RUN_FINISHED"]
    assert rest[1]["messages"][1]["content"] == "How can I help you?"
    other = await client.run(runId="r", messages=[user("Bye", "u2")])
    assert (other[-1]["type"], other[-1]["code"]) == ("RUN_ERROR", "Conflict")


async def test_a_client_that_has_lost_its_messages_gets_what_the_thread_has(client):
    await client.run(messages=[user("Hello", "u1")])
    await client.run(messages=[user("Hello", "u1"), user("refund A1", "u2")])
    events = await client.run()
    assert [message["role"] for message in events[-2]["messages"]] == ["user", "assistant", "user", "assistant"]
    assert len(interrupts(events)) == 1


async def test_a_run_takes_all_messages_that_the_thread_does_not_know(client):
    first = [user("Hello", "u1")]
    await client.run(messages=first)
    await client.run(messages=[user("boom", "u2")])
    await client.run(messages=[user("boom", "u2"), user("one", "u3"), user("two", "u4")])
    answer = await client.http.get("/api/sessions/t/turns/3")
    assert [message["content"] for message in answer.json()["task"]] == ["one", "two"]


async def test_a_failed_turn_is_a_run_error_and_the_same_message_tries_again(client):
    for _ in range(2):
        events = await client.run(messages=[user("boom", "u1")])
        assert (events[-1]["type"], events[-1]["code"]) == ("RUN_ERROR", "TurnFailed")
        assert "the model is gone" in events[-1]["message"]
    assert (await client.http.get("/api/sessions/t")).json()["turns"] == 1


async def test_a_human_answers_with_words(client):
    [asked] = interrupts(await client.run(blueprint="talk", messages=[user("Hello", "u1")]))
    assert (asked["reason"], asked["responseSchema"]) == ("input_required", {"type": "string"})
    entry = {"interruptId": asked["id"], "status": "resolved", "payload": "bye"}
    events = await client.run(blueprint="talk", resume=[entry])
    assert {"type": "TEXT_MESSAGE_START", "role": "user", "name": "ann"}.items() <= events[1].items()
    assert text(events) == "bye"


@pytest.mark.parametrize(
    "body",
    [
        {"tools": [{"name": "alert", "description": "", "parameters": {}}]},
        {"context": [{"description": "", "value": ""}]},
        {"messages": [{"id": "u", "role": "user", "content": [{"type": "audio"}]}]},
        {"messages": [{"id": "u", "role": "user", "content": None}]},
        {
            "messages": [
                {"id": "u", "role": "user", "content": [{"type": "image", "source": {"type": "data", "value": "AAAA"}}]}
            ]
        },
        {"messages": []},
        {"resume": [{"interruptId": "1.nobody", "status": "resolved", "payload": {"approved": True}}]},
        {"resume": [{"interruptId": "nobody", "status": "resolved"}]},
        {"resume": [{"interruptId": "1.nobody", "status": "cancelled"}]},
    ],
)
async def test_what_is_not_supported_is_a_run_error(client, body):
    if "resume" in body:
        await client.run(messages=[user("Hello", "u0")])
    events = await client.run(**{"messages": [user("Hello", "u1")], **body})
    assert kinds(events) == ["RUN_STARTED", "RUN_ERROR"]


async def test_a_request_that_is_no_run_is_a_problem(client):
    for body in ({"threadId": None}, {"runId": ""}, {"messages": 1}, {"threadId": "x" * 201}, {"blueprint": "nobody"}):
        answer = await client.post(**{"messages": [user("Hello", "u1")], **body})
        assert answer.status_code == 422, body
        assert answer.json()["error"]["message"]
    answer = await client.http.post("/agui/clerk", content="[" * 100_000)
    assert answer.status_code in (400, 422)


async def test_a_thread_of_another_tenant_does_not_exist(url):
    def who(request):
        name = request.headers["x-name"]
        return midturn.Principal(name=name, labels={"tenant": name})

    async with serving(url, token=None, by=None, authenticate=who) as client:
        client.http.headers["x-name"] = "acme"
        first = await client.run(messages=[user("refund A1", "u1")])
        client.http.headers["x-name"] = "rival"
        for body in (
            {"messages": [user("Hello", "u2")]},
            {"resume": [resolved(interrupts(first)[0], approved=True)]},
            {},
        ):
            answer = await client.post(**body)
            assert answer.status_code == 404
            assert "acme" not in answer.text


async def test_somebody_who_may_not_answer_cannot_resume(url):
    async with serving(url, authorize=lambda who, action, session: action != "answer") as client:
        first = await client.run(messages=[user("refund A1", "u1")])
        answer = await client.post(resume=[resolved(interrupts(first)[0], approved=True)])
        assert answer.status_code == 403


async def test_a_client_that_goes_away_stops_nothing(client):
    body = {"threadId": "t", "runId": "r", "messages": [user("Hello", "u1")]}
    run = asyncio.create_task(client.http.post("/agui/clerk", json=body))
    async with asyncio.timeout(60):
        while (await client.http.get("/api/sessions/t")).status_code == 404:  # noqa: ASYNC110 - it reads a store
            await asyncio.sleep(0.01)
    run.cancel()
    again = await client.run(runId="r", messages=body["messages"])
    assert text(again) == "How can I help you?"


async def test_another_instance_streams_the_same_run_with_the_same_ids(url, monkeypatch):
    monkeypatch.setenv("DELAY", "0.5")
    async with serving(url) as one, serving(url) as other:
        body = {"runId": "r", "messages": [user("Hello", "u1")]}
        found = await asyncio.gather(one.run(**body), other.run(**body))
    assert [text(events) for events in found] == ["How can I help you?"] * 2
    # Whoever comes when the other instance has begun the turn may also get its messages at once.
    snapshots = [event for events in found for event in events if event["type"] == "MESSAGES_SNAPSHOT"]
    assert all([each["id"] for each in snapshot["messages"]] == ["u1", "1.2"] for snapshot in snapshots)
    streamed, again = ([event for event in events if event not in snapshots] for events in found)
    assert streamed == again


async def test_another_instance_answers_what_this_one_has_asked(url, paid):
    async with serving(url) as one, serving(url) as other:
        asked = interrupts(await one.run(messages=[user("refund both", "u1")]))
        events = await other.run(resume=[resolved(each, approved=True) for each in asked])
        assert kinds(events).count("TOOL_CALL_RESULT") == 2
        again = await one.run(resume=[resolved(each, approved=True) for each in asked])
        assert text(again) == text(events) == "Your money is on its way."
    assert sorted(paid()) == ["A1 40.0", "B2 7.0"]


async def test_a_message_whose_id_is_no_text_is_taken(client):
    await client.run(messages=[user("Hello", "u1")])
    assert text(await client.run(messages=[user("Hello", [])])) == "How can I help you?"


class Theirs:
    """AG-UI's own client, in a process of its own."""

    def __init__(self, process):
        self._process = process

    async def run(self, **parameters):
        self._process.stdin.write(json.dumps(parameters).encode() + b"\n")
        return json.loads(await self._process.stdout.readline())


@asynccontextmanager
async def theirs(folder, url, thread):
    shutil.copy(Path(__file__).parent / "node" / "agui.mjs", folder)
    process = await asyncio.create_subprocess_exec(
        NODE, "agui.mjs", url, thread, cwd=folder, stdin=PIPE, stdout=PIPE, limit=2**24
    )
    try:
        yield Theirs(process)
    finally:
        process.stdin.close()
        await process.wait()


@pytest.mark.fault("F1")
async def test_their_client_resumes_with_edited_arguments_after_the_server_was_killed(tmp_path, url, paid):
    linked(tmp_path)
    async with (
        started(STORE=url, PAID=str(tmp_path / "paid")) as server,
        theirs(tmp_path, f"{server.url}/agui/clerk", "case-42") as client,
    ):
        first = await client.run(say="refund both")
        assert first["error"] is None
        assert len(first["pending"]) == 2
        await server.kill()
        lost = await client.run(resume=[resolved(each, approved=True) for each in first["pending"]])
        assert lost["error"]
        await server.start()
        changed = [{"order": "A1", "amount": 30.0}, {"order": "B3"}]
        answers = zip(first["pending"], changed, strict=True)
        second = await client.run(resume=[resolved(each, approved=True, editedArgs=new) for each, new in answers])
        third = await client.run(say="Hello")
    assert second["error"] is None
    assert second["pending"] == []
    assert sorted(paid()) == ["A1 30.0", "B3 5.0"]
    assert [kind for kind in kinds(second["events"]) if kind.startswith("TOOL_CALL_")] == ["TOOL_CALL_RESULT"] * 2
    assert kinds(first["events"]).count("TOOL_CALL_START") == 2
    assert [message["role"] for message in third["messages"]] == [
        *("user", "assistant", "tool", "tool", "assistant"),
        *("user", "assistant"),
    ]
    assert [
        message["content"] for message in third["messages"] if message["role"] == "assistant" and "content" in message
    ] == [
        "Your money is on its way.",
        "How can I help you?",
    ]
