"""The gate: who may use the server, from where, and how much of it."""

import asyncio
import logging

import httpx
import pytest
from http_clients import BEARER, TOKEN, client_of, served

import midturn
from midturn.serve import cases, gate, streams
from midturn.serve.gate import TokenLogin
from midturn.serve.principals import Principal


@pytest.mark.parametrize("path", ["/", "/api/sessions", "/api/openapi.json", "/nothing"])
@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": "Bearer wrong"},
        {"Authorization": "Bearer "},
        {"Authorization": f"Basic {TOKEN}"},
        {"Authorization": f"Bearer {TOKEN}x"},
        {"Authorization": "Bearer \xe4"},
        {"Cookie": f"midturn_login={TOKEN}"},
    ],
)
async def test_a_stranger_sees_nothing(app, path, headers):
    async with client_of(app, {name: value.encode("latin-1") for name, value in headers.items()}) as client:
        answer = await client.get(path)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"
    assert TOKEN not in answer.text


async def test_a_token_in_an_address_becomes_a_cookie_that_does_not_tell_it(app):
    async with client_of(app, {}) as client:
        wrong = await client.get("/?token=wrong")
        assert wrong.status_code == 401
        answer = await client.get("/api/counts", params={"token": TOKEN, "x": "1"})
        assert (answer.status_code, answer.headers["location"]) == (303, "/api/counts?x=1")
        [cookie] = [each for each in answer.headers.get_list("set-cookie") if each.startswith("midturn_login")]
        assert {"HttpOnly", "SameSite=strict", "Path=/"} <= set(cookie.split("; "))
        assert TOKEN not in cookie
        assert (await client.get("/api/counts")).status_code == 200


async def test_a_login_leads_to_no_other_host(app):
    async with client_of(app, {}) as client:
        answer = await client.get("http://localhost//evil.example/", params={"token": TOKEN})
    assert answer.headers["location"].startswith("/evil.example/")


async def test_two_servers_on_one_host_do_not_take_each_others_cookies(store):
    ann, bob = (TokenLogin(token, Principal(name="x")) for token in ("one", "two"))
    assert ann.name != bob.name
    one, two = midturn.asgi(store, token="one"), midturn.asgi(store, token="two")
    async with client_of(one, {}) as first, client_of(two, {}) as second:
        await first.get("/", params={"token": "one"})
        second.cookies = first.cookies  # as a browser does, which does not look at the port
        await second.get("/", params={"token": "two"})
        first.cookies = second.cookies
        assert (await first.get("/api/counts")).status_code == (await second.get("/api/counts")).status_code == 200


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example", "evil.example:80", "", "[::2]"])
async def test_a_foreign_host_is_refused_before_anything_else(app, host):
    async with client_of(app) as client:
        answer = await client.get("/api/sessions", headers={"Host": host})
    assert answer.status_code == 421


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:8000", "127.0.0.1:1", "[::1]", "[::1]:80", "desk.example"])
async def test_the_hosts_of_the_server_are_served(store, host):
    app = midturn.asgi(store, token=TOKEN, hosts=[*gate.LOOPBACK, "desk.example"])
    async with client_of(app) as client:
        assert (await client.get("/api/sessions", headers={"Host": host})).status_code == 200


async def test_any_host_is_served_if_the_operator_wants_that(store):
    async with client_of(midturn.asgi(store, token=TOKEN, hosts="*")) as client:
        assert (await client.get("/api/sessions", headers={"Host": "any.example"})).status_code == 200


FOREIGN = [
    {"Origin": "http://evil.example"},
    {"Origin": "http://localhost:9999"},
    {"Origin": "null"},
    {"Origin": "http://[::1"},
    {"Origin": "localhost"},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
]


@pytest.mark.parametrize("headers", FOREIGN)
async def test_a_page_of_another_site_cannot_act_with_the_cookies_of_a_person(app, store, headers):
    async with client_of(app, {}) as client:
        await client.get("/", params={"token": TOKEN})
        answer = await client.post("/api/sessions/a/turns", json={"task": "x", "blueprint": "support"}, headers=headers)
        assert (answer.status_code, answer.json()["title"]) == (403, "ForeignOrigin")
        assert [info async for info in store.sessions()] == []
        own = {"Origin": "http://localhost", "Sec-Fetch-Site": "same-origin"}
        answer = await client.post("/api/sessions/a/turns", json={"task": "x", "blueprint": "support"}, headers=own)
        assert answer.status_code == 200


async def test_a_password_that_a_browser_sends_by_itself_does_not_excuse_a_foreign_page(store):
    app = midturn.asgi(store, authenticate=lambda _: Principal(name="ann"))
    async with client_of(app, {"Authorization": "Basic YW5uOmFubg=="}) as client:
        answer = await client.patch("/api/sessions/a", json={"labels": {}}, headers=FOREIGN[0])
        assert answer.status_code == 403
        bearer = {**FOREIGN[0], "Authorization": "Bearer x"}  # no browser does that by itself
        assert (await client.patch("/api/sessions/a", json={"labels": {}}, headers=bearer)).status_code == 404


async def test_a_login_of_the_applications_own_may_be_async_refuse_or_fail(store, caplog):
    async def authenticate(request):
        match request.headers.get("x-user"):
            case None:
                return None
            case "banned":
                from fastapi import HTTPException

                raise HTTPException(403, "not you")
            case "bug":
                raise KeyError("a secret of the hook")
            case name:
                return Principal(name=name)

    async with client_of(midturn.asgi(store, authenticate=authenticate), {}) as client:
        for user, status in ((None, 401), ("banned", 403), ("bug", 500), ("ann", 200)):
            answer = await client.get("/api/counts", headers={} if user is None else {"X-User": user})
            assert answer.status_code == status
            assert "secret" not in answer.text
    assert "could not be authenticated" in caplog.text


def test_a_server_has_exactly_one_way_to_know_people(store):
    for options in ({}, {"token": ""}, {"token": "x", "authenticate": lambda _: None}):
        with pytest.raises(midturn.InvalidArgument, match="token"):
            midturn.asgi(store, **options)


def test_what_is_secret_is_not_shown(store):
    login = TokenLogin(TOKEN, Principal(name="ann"))
    assert TOKEN not in repr(login)


async def test_tokens_are_compared_in_constant_time(monkeypatch):
    compared = []
    monkeypatch.setattr(gate.hmac, "compare_digest", lambda *both: bool(compared.append(both)))
    assert gate.same("given", "wanted") is False
    assert compared == [(b"given", b"wanted")]


async def test_a_read_only_server_changes_nothing(store, clerks):
    await store.session("case", clerks.support).run("hello")
    before = await store.info("case")
    async with client_of(midturn.asgi(store, [clerks.support], token=TOKEN, read_only=True)) as client:
        for method in ("POST", "PATCH", "DELETE", "PUT"):
            answer = await client.request(method, "/api/sessions/case", json={"labels": {"a": "b"}})
            assert (answer.status_code, answer.json()["title"]) == (403, "ReadOnly")
        assert (await client.get("/api/sessions/case")).status_code == 200
    assert await store.info("case") == before


async def test_a_large_body_is_refused_whether_its_size_was_announced_or_not(store):
    app = midturn.asgi(store, token=TOKEN, max_body=1000)
    taken = 0

    async def pieces():
        nonlocal taken
        for _ in range(1000):
            taken += 100
            yield b"x" * 100

    async with client_of(app) as client:
        for content in (b"x" * 1001, pieces()):
            answer = await client.post("/api/sessions/a/turns", content=content)
            assert (answer.status_code, answer.json()["title"]) == (413, "TooLarge")
            assert answer.headers["connection"] == "close"
        fits = await client.post("/api/sessions/a/turns", content=b"x" * 1000)
        assert fits.status_code == 422
    assert taken == 1100


async def test_a_body_that_does_not_come_ends_the_request(app, monkeypatch):
    monkeypatch.setattr(gate, "BODY_TIME", 0.0)

    async def slowly():
        yield b"{"
        await asyncio.sleep(60)
        yield b"}"

    async with client_of(app) as client:
        answer = await client.post("/api/sessions/a/turns", content=slowly())
    assert answer.status_code == 408


async def test_websockets_are_closed(app):
    sent = []

    async def send(message):
        sent.append(message)

    await app({"type": "websocket", "path": "/api/sessions", "headers": []}, None, send)
    assert sent == [{"type": "websocket.close", "code": 1008}]


async def test_streams_are_counted_and_too_many_are_refused(address, clerks, monkeypatch):
    monkeypatch.setattr(cases, "STREAMS_EACH", 3)
    async with httpx.AsyncClient(base_url=f"{address}/api", headers=BEARER, trust_env=False) as client:
        body = {"task": "wait", "blueprint": "support"}
        await client.post("/sessions/a/turns", json=body, headers={"Prefer": "respond-async"})

        def follow():
            return client.send(client.build_request("GET", "/sessions/a/turns/1/events"), stream=True)

        opened = [await follow() for _ in range(3)]
        refused = await follow()
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
        await refused.aclose()
        await opened.pop().aclose()
        while (again := await follow()).is_error:
            await again.aclose()
        clerks.GO.set()
        assert '"status": "done"' in (await again.aread()).decode()
        for each in opened:
            await each.aclose()


async def test_a_stream_ends_when_its_reader_may_no_longer_see_the_session(store, clerks, monkeypatch):
    monkeypatch.setattr(streams, "CHECK", 0.0)
    monkeypatch.setattr(streams, "BEAT", 0.02)
    may = {"read", "run"}
    app = midturn.asgi(
        store,
        [clerks.support],
        authenticate=lambda _: Principal(name="ann"),
        authorize=lambda principal, action, session: action in may,
    )
    async with client_of(app, {}) as client:
        body = {"task": "wait"}
        await client.post("/api/sessions/a/turns", json=body, headers={"Prefer": "respond-async"})
        following = asyncio.create_task(client.get("/api/sessions/a/turns/1/events"))
        await asyncio.sleep(0.1)
        assert not following.done()
        may.clear()
        assert "event: end" not in (await following).text
        assert (await client.get("/api/sessions/a/turns/1/events")).status_code == 404
    clerks.GO.set()


async def test_streams_end_when_the_server_stops(app, clerks):
    async with client_of(app) as client:
        body = {"task": "wait", "blueprint": "support"}
        await client.post("/api/sessions/a/turns", json=body, headers={"Prefer": "respond-async"})
        following = asyncio.create_task(client.get("/api/sessions/a/turns/1/events"))
        await asyncio.sleep(0.05)
        app.stop()
        assert "event: end" not in (await following).text
    clerks.GO.set()


async def test_the_access_log_of_a_server_does_not_have_the_token(app, store, caplog):
    caplog.set_level(logging.INFO, "uvicorn.access")
    async with served(app, store, access_log=True) as address, httpx.AsyncClient(trust_env=False) as client:
        for method, status in (("GET", 303), ("HEAD", 405), ("POST", 405)):
            answer = await client.request(method, f"{address}/api/counts", params={"token": TOKEN, "x": "y"})
            assert answer.status_code == status
    records = [record for record in caplog.records if record.name == "uvicorn.access"]
    assert '"GET /api/counts?x=y HTTP/1.1" 303' in records[0].getMessage()
    assert [record for record in records if TOKEN in record.getMessage() or "token" in record.getMessage()] == []
