"""Tenants: who has a label sees and uses the sessions with that label, by every route, and knows of no others."""

import re

import httpx
import pytest
from fastapi.routing import iter_route_contexts
from http_clients import client_of, inner, served

import midturn
from midturn.serve.principals import Principal

BODIES = {
    "/api/sessions/{session}": {"labels": {"x": "y"}},
    "/api/sessions/{session}/turns": {"task": "hello"},
    "/api/sessions/{session}/say": {"text": "hello"},
    "/api/sessions/{session}/answer": {"answer": "approve"},
    "/api/sessions/{session}/fork": {"session": "fork"},
    "/api/sessions/{session}/rewind": {"checkpoint": 1},
}
"""The bodies of requests that need one."""
QUERIES = {"/api/sessions/{session}/diff": {"before": 1, "after": 1}}
SECRET = "hers"
"""A part of the id, the labels and the words of a session of the other tenant, which no answer has."""


def login(request):
    tenant = request.headers.get("x-tenant")
    return Principal(name=f"{tenant}@desk", labels={"tenant": tenant} if tenant else {})


@pytest.fixture
def app(store, clerks):
    return midturn.asgi(store, [clerks.support], authenticate=login)


@pytest.fixture
async def hers(app):
    """Ann's sessions, one of them a fork, with a question and a decision."""
    async with client_of(app, {"X-Tenant": "ann"}) as client:
        await client.post("/api/sessions/hers/turns", json={"task": "pay what is hers"})
        await client.post("/api/sessions/hers/answer", json={"answer": "approve"})
        await client.post("/api/sessions/hers/fork", json={"session": "hers-too"})
        await client.post("/api/sessions/hers/turns", json={"task": "pay again what is hers"})
        yield client


@pytest.fixture
async def bob(app):
    async with client_of(app, {"X-Tenant": "bob"}) as client:
        yield client


def routes_of(app):
    """Every method and path of the app, its parameters written as in the OpenAPI document."""
    routes = list(iter_route_contexts(inner(app).routes))
    named = [
        (method, re.sub(r"\{(\w+):\w+\}", r"{\1}", route.path)) for route in routes for method in route.methods or ()
    ]
    return sorted({(method, path) for method, path in named if method != "HEAD"})


async def test_the_routes_are_all_there(app):
    documented = {
        (method.upper(), path) for path, methods in inner(app).openapi()["paths"].items() for method in methods
    }
    assert len(documented) >= 24
    assert documented <= set(routes_of(app))
    asked = {path for _, path in routes_of(app)}
    assert BODIES.keys() | QUERIES.keys() <= asked


async def test_by_no_route_does_a_tenant_reach_a_session_of_another(app, store, hers, bob):
    before = {info.id: info for info in [info async for info in store.sessions()]}
    asked = 0
    await bob.get("/")  # the cookie whose value the forms of the page repeat
    for method, path in routes_of(app):
        if "{session}" not in path:
            continue
        form = {"csrf": bob.cookies["midturn_csrf"]} if method == "POST" and not path.startswith("/api/") else None
        answers = []
        for session in ("hers", "nowhere"):
            where = re.sub(r"\{\w+\}", "1", path.replace("{session}", session))
            body = {"json": BODIES.get(path)} if form is None else {"data": form}
            answers.append(await bob.request(method, where, params=QUERIES.get(path), **body))
        theirs, nobodys = answers
        if path in ("/api/sessions/{session}/turns", "/api/sessions/{session}/say") and method == "POST":
            await store.delete("nowhere")  # it was created
            await store.forget("nowhere")
        else:
            assert theirs.status_code == nobodys.status_code, (method, path)
            assert theirs.text == nobodys.text.replace("nowhere", "hers"), (method, path)
        assert theirs.status_code in (404, 422), (method, path, theirs.text)
        if path.startswith("/api/"):
            assert theirs.status_code == 404, (method, path, theirs.text)
        asked += 1
    assert asked >= 20
    assert {info.id: info for info in [info async for info in store.sessions()]} == before


async def test_no_list_shows_a_tenant_the_sessions_of_another(app, hers, bob):
    await bob.post("/api/sessions/his/turns", json={"task": "pay"})
    asked = 0
    for method, path in routes_of(app):
        if method == "GET" and "{" not in path and not path.endswith("/live"):  # they do not end
            answer = await bob.get(path)
            assert answer.status_code == 200, path
            assert SECRET not in answer.text, path
            asked += 1
    assert asked >= 5
    assert [each["session"] for each in (await bob.get("/api/sessions")).json()["sessions"]] == ["his"]
    assert [each["session"] for each in (await bob.get("/api/questions")).json()["waiting"]] == ["his"]
    counts = (await bob.get("/api/counts")).json()
    assert (counts["waiting"], sum(counts.values())) == (1, 1)
    for query in ("label=tenant=ann", "prefix=hers", "status=waiting&label=tenant=ann", "status=deleted"):
        assert (await bob.get(f"/api/sessions?{query}")).json()["sessions"] == []


@pytest.mark.parametrize("path", ["/live", "/live?status=waiting", "/inbox/live"])
async def test_no_live_page_shows_a_tenant_the_sessions_of_another(app, store, hers, path):
    async with (
        served(app, store) as address,
        httpx.AsyncClient(base_url=address, headers={"X-Tenant": "bob"}) as client,
        client.stream("GET", path) as stream,
    ):
        assert stream.status_code == 200
        lines = []
        async for line in stream.aiter_lines():
            if not line:
                break  # the first event has the whole list
            lines.append(line)
    found = "\n".join(lines)
    assert "hx-partial" in found
    assert SECRET not in found


async def test_no_parameter_leads_to_a_session_of_another_tenant(hers, bob):
    await bob.post("/api/sessions/his/turns", json={"task": "hello"})
    diff = await bob.get("/api/sessions/his/diff", params={"before": 1, "after": 1, "other": "hers"})
    assert diff.status_code == 404
    assert (await bob.get("/api/audit", params={"session": "hers"})).status_code == 404
    assert (await bob.get("/api/audit", params={"label": "tenant=ann"})).json()["acts"] == []
    taken = await bob.post("/api/sessions/his/fork", json={"session": "hers"})
    assert taken.status_code == 409  # ids are of the store: one that is taken cannot be used
    assert (await hers.get("/api/sessions/hers")).json()["labels"] == {"tenant": "ann"}


async def test_a_session_stays_with_its_tenant(store, bob):
    labels = {"tenant": "ann", "team": "claims"}
    await bob.post("/api/sessions/his/turns", json={"task": "hello", "labels": labels})
    assert (await store.info("his")).labels == {"tenant": "bob", "team": "claims"}
    fork = await bob.post("/api/sessions/his/fork", json={"session": "his-b", "labels": labels})
    assert fork.json()["labels"] == {"tenant": "bob", "team": "claims"}
    for change in ({"tenant": "ann"}, {"tenant": None}):
        answer = await bob.patch("/api/sessions/his", json={"labels": change})
        assert (answer.status_code, answer.json()["title"]) == (403, "Forbidden")
    assert (await store.info("his")).labels == {"tenant": "bob", "team": "claims"}


async def test_the_pages_of_a_tenant_are_full_of_its_own_sessions(store, clerks, bob):
    for session, tenant in (("b1", "bob"), ("b2", "bob"), ("a1", "ann"), ("a2", "ann")):
        await store.session(session, clerks.support, labels={"tenant": tenant}).run("hello")
    first = (await bob.get("/api/sessions?limit=1")).json()
    second = (await bob.get("/api/sessions", params={"limit": 1, "after": first["next"]})).json()
    assert [each["session"] for page in (first, second) for each in page["sessions"]] == ["b2", "b1"]


async def test_nobody_labels_a_session_out_of_what_they_may_label(store, clerks):
    def authorize(principal, action, session):
        return session.labels.get("team") == "claims"

    app = midturn.asgi(store, authenticate=login, authorize=authorize)
    await store.session("case", clerks.support, labels={"team": "claims"}).run("hello")
    async with client_of(app, {}) as client:
        for team in ("sales", None):
            answer = await client.patch("/api/sessions/case", json={"labels": {"team": team}})
            assert (answer.status_code, answer.json()["title"]) == (403, "Forbidden")
        assert (await client.patch("/api/sessions/case", json={"labels": {"a": "b"}})).status_code == 200
    assert (await store.info("case")).labels == {"team": "claims", "a": "b"}


async def test_a_lineage_over_tenants_shows_each_their_own_part(store, clerks, hers, bob):
    await store.session("hers").fork("his", labels={"tenant": "bob"})  # an operator gives him a copy
    await bob.post("/api/sessions/his/fork", json={"session": "his-b"})
    own = (await bob.get("/api/sessions/his/lineage")).json()
    assert own["ancestors"] == []
    assert [each["session"] for each in own["forks"]] == ["his-b"]
    theirs = (await hers.get("/api/sessions/hers/lineage")).json()
    assert [each["session"] for each in theirs["forks"]] == ["hers-too"]


async def test_two_tenants_who_begin_the_same_session_at_once_do_not_meet_in_it(app, store, bob, monkeypatch):
    """The other one begins it after the check that there is none."""
    create = midturn.serve.cases.Cases._create

    async def late(self, session, labels):
        monkeypatch.undo()
        async with client_of(app, {"X-Tenant": "ann"}) as ann:
            assert (await ann.post("/api/sessions/new/turns", json={"task": "hers"})).status_code == 200
        await create(self, session, labels)

    monkeypatch.setattr("midturn.serve.cases.Cases._create", late)
    answer = await bob.post("/api/sessions/new/turns", json={"task": "his"})
    assert answer.status_code == 404
    assert (await store.info("new")).labels == {"tenant": "ann"}
    assert (await store.info("new")).turns == 1


async def test_a_session_that_another_request_of_the_tenant_has_just_begun_runs_the_turn(app, store, bob, monkeypatch):
    exists = midturn.serve.cases.Cases._exists

    async def late(self, session):
        monkeypatch.undo()
        async with client_of(app, {"X-Tenant": "bob"}) as other:
            assert (await other.post("/api/sessions/new/turns", json={"task": "first"})).status_code == 200
        return await exists(self, session)

    monkeypatch.setattr("midturn.serve.cases.Cases._exists", late)
    assert (await bob.post("/api/sessions/new/turns", json={"task": "second"})).status_code == 200
    assert (await store.info("new")).turns == 2


class Rules:
    """An ``authorize`` that allows what it is told, and notes what it was asked."""

    def __init__(self):
        self.asked, self.refused = set(), set()

    def __call__(self, principal, action, session):
        self.asked.add(action)
        return action not in self.refused and not session.id.startswith("secret")


WITH = {
    "run": [("POST", "/turns", {"task": "x"}), ("POST", "/say", {"text": "x"}), ("POST", "/resume", None)],
    "answer": [("POST", "/answer", {"answer": "approve"})],
    "discard": [("POST", "/discard", None)],
    "fork": [("POST", "/fork", {"session": "b"})],
    "rewind": [("POST", "/rewind", {"checkpoint": 1})],
    "label": [("PATCH", "", {"labels": {"a": "b"}})],
    "export": [("GET", "/export", None)],
    "delete": [("DELETE", "", None)],
}


async def test_every_action_is_authorized(store, clerks):
    rules = Rules()
    app = midturn.asgi(store, [clerks.support], authenticate=login, authorize=rules)
    await store.session("case", clerks.support).run("pay")
    await store.session("secret", clerks.support).run("hello")
    async with client_of(app, {}) as client:
        for action, requests in WITH.items():
            rules.refused = {action}
            for method, path, body in requests:
                answer = await client.request(method, f"/api/sessions/case{path}", json=body)
                assert (answer.status_code, answer.json()["title"]) == (403, "Forbidden"), (action, path)
                assert action in answer.json()["detail"]
        assert rules.asked == {"read", *WITH}
        rules.refused = set()
        assert [each["session"] for each in (await client.get("/api/sessions?limit=1")).json()["sessions"]] == ["case"]
        assert sum((await client.get("/api/counts")).json().values()) == 1
        assert (await client.get("/api/sessions/secret")).status_code == 404
        secret = await client.post("/api/sessions/case/fork", json={"session": "secret-b"})
        assert secret.status_code == 403
    assert (await store.info("case")).status == "waiting"


def test_every_action_has_a_request():
    from typing import get_args

    from midturn.serve.principals import Action

    assert {"read", *WITH} == set(get_args(Action))


async def test_a_damaged_login_does_not_widen_what_somebody_sees(store, hers):
    for found in ("ann", {"name": "ann"}, 1, object()):
        app = midturn.asgi(store, authenticate=lambda _, found=found: found)
        async with client_of(app, {}) as client:
            assert (await client.get("/api/sessions")).status_code == 401
