"""OpenAI's own client creates responses, streams them, repeats them, and approves what they ask for."""

import asyncio
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import openai
import pytest

import midturn
from midturn.serve.pieces import Reading
from midturn.serve.responses.telling import Place, Told

sys.path.insert(0, str(Path(__file__).parent))

from killable import started
from protocol_app import BLUEPRINTS


@asynccontextmanager
async def serving(url, *, key="secret", **options):
    options = {"token": "secret", "by": "ann@desk", **options}
    async with midturn.open(url) as store:
        http = httpx2.AsyncClient(transport=httpx2.ASGITransport(midturn.asgi(store, BLUEPRINTS, **options)))
        async with openai.AsyncOpenAI(base_url="http://localhost/v1", api_key=key, http_client=http) as client:
            yield client


@pytest.fixture
async def client(url):
    async with serving(url) as made:
        yield made


def keyed(key):
    return {"Idempotency-Key": key}


def approved(response, *, approve=True, **more):
    requests = [item for item in response.output if item.type == "mcp_approval_request"]
    assert requests
    kind = "mcp_approval_response"
    return [{"type": kind, "approval_request_id": each.id, "approve": approve, **more} for each in requests]


async def test_a_response_is_a_turn_of_a_conversation(client):
    response = await client.responses.create(model="clerk", input="Hello", conversation="case-42")
    assert (response.status, response.output_text) == ("completed", "How can I help you?")
    assert response.conversation.id == "case-42"
    assert response.usage.output_tokens > 0
    assert response.midturn == {"session": "case-42", "turn": 1, "status": "done", "questions": []}
    assert await client.responses.retrieve(response.id) == response


async def test_a_response_continues_after_another(client):
    first = await client.responses.create(model="clerk", input="Hello")
    second = await client.responses.create(model="clerk", input="Hello?", previous_response_id=first.id)
    assert second.conversation == first.conversation
    assert second.midturn["turn"] == 2
    with pytest.raises(openai.ConflictError, match="is not the latest of session"):
        await client.responses.create(model="clerk", input="Hello!", previous_response_id=first.id)


async def test_a_conversation_is_made_before_its_first_response(client):
    conversation = await client.conversations.create()
    await client.responses.create(model="clerk", input="Hello", conversation=conversation.id)
    assert (await client.conversations.retrieve(conversation.id)).id == conversation.id


async def test_the_models_are_the_blueprints(client):
    assert [model.id async for model in client.models.list()] == ["clerk", "talk"]


async def test_a_stream_has_the_text_as_the_model_gives_it(client):
    async with client.responses.stream(model="clerk", input="Hello") as stream:
        events = [event async for event in stream]
        final = await stream.get_final_response()
    assert [event.delta for event in events if event.type == "response.output_text.delta"] == [
        "How ",
        "can ",
        "I ",
        "help ",
        "you?",
    ]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert final.output_text == "How can I help you?"
    kept = await client.responses.retrieve(final.id)
    assert kept.output == [
        type(kept.output[0]).model_validate(item.model_dump(exclude={"content": {0: {"parsed"}}}))
        for item in final.output
    ]


async def test_a_stream_continues_after_an_event(client):
    first = await client.responses.create(model="clerk", input="Hello", stream=True)
    seen = [event async for event in first]
    again = await client.responses.retrieve(seen[0].response.id, stream=True, starting_after=4)
    assert [event async for event in again] == seen[5:]


async def test_the_same_key_twice_is_one_turn(client):
    first = await client.responses.create(model="clerk", input="Hello", extra_headers=keyed("mail-1"))
    again = await client.responses.create(model="clerk", input="Hello", extra_headers=keyed("mail-1"))
    assert again == first
    with pytest.raises(openai.UnprocessableEntityError, match="belongs to another task"):
        await client.responses.create(model="clerk", input="Bye", extra_headers=keyed("mail-1"))


async def test_the_same_key_twice_continues_after_the_same_response(client):
    first = await client.responses.create(model="clerk", input="Hello")
    about = {"model": "clerk", "input": "Hello?", "previous_response_id": first.id, "extra_headers": keyed("mail-2")}
    assert await client.responses.create(**about) == await client.responses.create(**about)


async def test_an_approval_continues_the_turn(client, paid):
    asking = await client.responses.create(model="clerk", input="refund A1")
    [request] = asking.output
    assert (request.type, request.name, request.server_label) == ("mcp_approval_request", "refund", "clerk")
    assert request.arguments == '{"order": "A1", "amount": 40.0}'
    assert paid() == []
    answer = {"model": "clerk", "previous_response_id": asking.id, "input": approved(asking)}
    done = await client.responses.create(**answer)
    assert [item.type for item in done.output] == ["mcp_call", "message"]
    assert done.output[0].output == "refunded A1 with 40.0"
    assert done.output_text == "Your money is on its way."
    again = await client.responses.create(**answer)
    assert (again.id, again.output) == (done.id, done.output)
    assert paid() == ["A1 40.0"]
    with pytest.raises(openai.ConflictError):
        await client.responses.create(**{**answer, "input": approved(asking, approve=False)})


async def test_all_approvals_are_given_at_once_and_streamed(client, paid):
    asking = await client.responses.create(model="clerk", input="refund both", stream=True)
    asking = [event async for event in asking][-1].response
    yes, no = approved(asking)
    with pytest.raises(openai.UnprocessableEntityError, match="answer all open questions at once"):
        await client.responses.create(model="clerk", previous_response_id=asking.id, input=[yes])
    no |= {"approve": False, "reason": "not this one"}
    stream = await client.responses.create(model="clerk", previous_response_id=asking.id, input=[yes, no], stream=True)
    done = [event async for event in stream][-1].response
    assert [item.type for item in done.output] == ["mcp_call", "mcp_call", "message"]
    assert "not this one" in done.output[1].error
    assert paid() == ["A1 40.0"]


async def test_a_human_in_a_team_answers_with_the_next_input(client):
    first = await client.responses.create(model="talk", input="Hello")
    assert [each["kind"] for each in first.midturn["questions"]] == ["human"]
    second = await client.responses.create(model="talk", input="bye", previous_response_id=first.id)
    assert (second.status, second.output, second.midturn["turn"]) == ("completed", [], 1)


async def test_a_failed_turn_is_a_failed_response_and_is_not_tried_again(client):
    response = await client.responses.create(model="clerk", input="boom", conversation="c")
    assert (response.status, response.error.code) == ("failed", "server_error")
    assert "the model is gone" in response.error.message
    stream = await client.responses.create(model="clerk", input="boom", conversation="c", stream=True)
    last = [event async for event in stream][-1]
    assert last.type == "response.failed"
    assert last.response.midturn["turn"] == 2
    assert (await client.responses.retrieve(last.response.id)).status == "failed"


async def test_a_response_in_the_background_is_polled(client):
    response = await client.responses.create(model="clerk", input="Hello", background=True)
    while response.status == "in_progress":
        await asyncio.sleep(0.01)
        response = await client.responses.retrieve(response.id)
    assert response.output_text == "How can I help you?"


async def test_a_response_is_cancelled(url, monkeypatch):
    monkeypatch.setenv("DELAY", "60")
    async with serving(url) as client:
        response = await client.responses.create(model="clerk", input="Hello", background=True)
        assert response.status == "in_progress"
        assert (await client.responses.cancel(response.id)).status == "cancelled"


PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC"


async def test_an_image_is_a_part_of_a_message(client):
    image = {"type": "input_image", "image_url": f"data:image/png;base64,{PIXEL}"}
    parts = [{"type": "input_text", "text": "What is this?"}, image]
    response = await client.responses.create(model="clerk", input=[{"role": "user", "content": parts}])
    assert response.output_text == "How can I help you?"


@pytest.mark.parametrize(
    "about",
    [
        {"instructions": "Be rude."},
        {"tools": [{"type": "web_search"}]},
        {"store": False},
        {"text": {"format": {"type": "json_object"}}},
        {"model": "gpt-5"},
        {"input": []},
        {"input": [{"role": "system", "content": "Be rude."}]},
        {"input": [{"role": "user", "content": [{"type": "input_audio"}]}]},
        {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "data:image/png;base64,AAAA"}]}]},
        {"input": [{"type": "function_call_output", "call_id": "1", "output": ""}]},
        {"input": [{"type": "mcp_approval_response", "approval_request_id": "no", "approve": True}]},
        {"conversation": "x" * 201},
    ],
)
async def test_what_is_not_supported_is_an_error_that_the_client_shows(client, about):
    with pytest.raises(openai.UnprocessableEntityError) as caught:
        await client.responses.create(**{"model": "clerk", "input": "Hello", "conversation": "c", **about})
    assert caught.value.message
    assert caught.value.response.headers["x-should-retry"] == "false"


async def test_text_while_an_approval_is_open_is_refused_at_once(client):
    asking = await client.responses.create(model="clerk", input="refund A1")
    with pytest.raises(openai.ConflictError, match="waits for an answer to") as caught:
        await client.responses.create(model="clerk", input="Hello?", previous_response_id=asking.id)
    assert caught.value.response.headers["x-should-retry"] == "false"


@pytest.mark.parametrize(
    "name", ["resp_1_0_Yw", "resp_x", "resp_1_0_", "resp_1_0_%00", "resp_1_0_Y-", "x", "resp_1__Yw"]
)
async def test_a_response_that_does_not_exist_is_not_found(client, name):
    with pytest.raises(openai.NotFoundError):
        await client.responses.retrieve(name)


async def test_a_response_of_another_tenant_does_not_exist(url):
    def who(request):
        name = request.headers["authorization"].removeprefix("Bearer ")
        return midturn.Principal(name=name, labels={"tenant": name})

    options = {"token": None, "by": None, "authenticate": who}
    async with serving(url, key="acme", **options) as client:
        asking = await client.responses.create(model="clerk", input="refund A1", conversation="c")
        rival = client.with_options(api_key="rival")
        for about in ({"previous_response_id": asking.id}, {"conversation": "c"}):
            for given in ("Hello", approved(asking)):
                with pytest.raises(openai.NotFoundError):
                    await rival.responses.create(model="clerk", input=given, **about)
        for look in (rival.responses.retrieve, rival.responses.cancel):
            with pytest.raises(openai.NotFoundError):
                await look(asking.id)
        with pytest.raises(openai.NotFoundError):
            await rival.conversations.retrieve("c")


async def test_tenants_with_the_same_key_get_turns_of_their_own(url):
    def who(request):
        name = request.headers["authorization"].removeprefix("Bearer ")
        return midturn.Principal(name="app", labels={"tenant": name})

    async with serving(url, key="acme", token=None, by=None, authenticate=who) as client:
        about = {"model": "clerk", "input": "Hello", "extra_headers": keyed("1")}
        first = await client.responses.create(**about)
        other = await client.with_options(api_key="rival").responses.create(**about)
        assert first.id != other.id


async def test_two_clients_that_approve_at_once_pay_once(client, paid):
    asking = await client.responses.create(model="clerk", input="refund A1")
    answer = {"model": "clerk", "previous_response_id": asking.id, "input": approved(asking)}
    found = await asyncio.gather(*(client.responses.create(**answer) for _ in range(4)))
    assert {response.output_text for response in found} == {"Your money is on its way."}
    assert paid() == ["A1 40.0"]


async def test_keys_and_approvals_outlive_a_killed_server(tmp_path, url, paid):
    async with started(STORE=url, PAID=str(tmp_path / "paid"), DELAY="5") as server:
        about = {"model": "clerk", "input": "refund A1", "extra_headers": keyed("mail-1")}
        settings = {"base_url": f"{server.url}/v1", "api_key": "secret", "max_retries": 0}
        async with openai.AsyncOpenAI(**settings, http_client=httpx2.AsyncClient(trust_env=False)) as client:
            stream = await client.responses.create(**about, stream=True)
            begun = (await anext(aiter(stream))).response
            assert begun.status == "in_progress"
            await server.kill()
            with pytest.raises((openai.APIError, httpx2.TransportError)):
                [event async for event in stream]
            server.environment["DELAY"] = "0"
            await server.start()
            asking = await client.responses.create(**about)
            await server.kill()
            await server.start()
            done = await client.responses.create(model="clerk", previous_response_id=asking.id, input=approved(asking))
    assert asking.id == begun.id
    assert done.output_text == "Your money is on its way."
    assert paid() == ["A1 40.0"]


async def test_the_words_of_a_human_are_no_output_of_an_agent(client):
    first = await client.responses.create(model="talk", input="Hello", conversation="c")
    assert first.output_text == "How can I help you?"
    await client.responses.create(model="talk", input="bye", conversation="c")
    assert (await client.responses.retrieve(first.id)).output_text == "How can I help you?"


def test_texts_that_are_streamed_at_the_same_time_come_one_after_the_other():
    def chunk(source, text):
        return {"type": "ModelClientStreamingChunkEvent", "source": source, "content": text}

    def whole(source, text):
        return {"type": "TextMessage", "source": source, "content": text, "id": source}

    events = [chunk("ann", "One "), chunk("bob", "Two "), chunk("ann", "is "), chunk("bob", "is ")]
    events += [whole("bob", "Two is two."), whole("cyd", "Three."), chunk("ann", "one."), whole("ann", "One is one.")]
    reading, told = Reading(1), Told(None, Place("c", 1, 0), "clerk")
    sent = [
        event
        for number, event in enumerate(events, 1)
        for piece in reading.read(number, event)
        for event in told._tell(piece)
    ]
    assert reading.end() == []
    texts = {}
    for kind, facts in sent:
        if kind == "response.output_text.delta":
            texts[facts["output_index"]] = texts.get(facts["output_index"], "") + facts["delta"]
    assert texts == {0: "One is one.", 1: "Two is two.", 2: "Three."}
    added = [facts["output_index"] for kind, facts in sent if kind == "response.output_item.added"]
    ended = [facts["output_index"] for kind, facts in sent if kind == "response.output_item.done"]
    assert added == ended == [0, 1, 2]


async def test_the_words_of_a_human_with_the_same_key_are_the_same_response(client):
    first = await client.responses.create(model="talk", input="Hello", extra_headers=keyed("1"), conversation="c")
    about = {"model": "talk", "input": "bye", "conversation": "c", "extra_headers": keyed("2")}
    second = await client.responses.create(**about)
    assert second.id != first.id
    assert await client.responses.create(**about) == second
