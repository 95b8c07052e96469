"""AG-UI and the Responses API on the stores that many workers share. Their other tests use SQLite."""

import json
from pathlib import Path

import pytest
from http_clients import BEARER, TOKEN, client_of
from protocol_app import BLUEPRINTS

import midturn


@pytest.fixture(scope="module", params=["Postgres", "Redis"])
def shared(request):
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(Path(__file__).parents[2])
        from tools import servers

        with getattr(servers, request.param)() as server:
            yield server.url


async def test_a_call_is_approved_by_both_protocols_on_another_server_of_the_store(shared, paid):
    payload = {"approved": True, "editedArgs": {"order": "A1", "amount": 3.0}}
    thread = {"threadId": "agui", "messages": []}
    task = {**thread, "runId": "r1", "messages": [{"id": "u1", "role": "user", "content": "refund A1"}]}
    told = {"model": "clerk", "conversation": "responses"}
    async with midturn.open(shared) as one, client_of(midturn.asgi(one, BLUEPRINTS, token=TOKEN), BEARER) as client:
        [interrupt] = events(await client.post("/agui/clerk", json=task))[-1]["outcome"]["interrupts"]
        [request] = (await client.post("/v1/responses", json={**told, "input": "refund A1"})).json()["output"]
    assert paid() == []
    async with midturn.open(shared) as two, client_of(midturn.asgi(two, BLUEPRINTS, token=TOKEN), BEARER) as client:
        answers = [{"interruptId": interrupt["id"], "status": "resolved", "payload": payload}]
        ended = events(await client.post("/agui/clerk", json={**thread, "runId": "r2", "resume": answers}))
        assert ended[-1]["outcome"] == {"type": "success"}
        approval = {"type": "mcp_approval_response", "approval_request_id": request["id"], "approve": True}
        done = (await client.post("/v1/responses", json={**told, "input": [approval]})).json()
        assert (done["status"], done["midturn"]["status"]) == ("completed", "done")
    assert paid() == ["A1 3.0", "A1 40.0"]


def events(answer):
    return [json.loads(line.removeprefix("data: ")) for line in answer.text.splitlines() if line]
