"""The server itself, over real sockets: streams that break, clients that are slow or greedy, and how it stops."""

import asyncio
import json
import random
import resource
import signal
import socket
import sys
from contextlib import suppress

import httpx
import pytest
import uvicorn
from http_clients import BEARER, TOKEN, events, process, served
from uvicorn.protocols.http.h11_impl import H11Protocol

import midturn
from midturn.cli import main
from midturn.serve import cases, gate, server

DROPS = 200


def client_at(address, **options):
    return httpx.AsyncClient(base_url=f"{address}/api", headers=BEARER, trust_env=False, timeout=60, **options)


@pytest.fixture
async def raw():
    """Opens a connection, and sends this much of a request."""
    opened = []

    async def connect(address, text):
        reader, writer = await asyncio.open_connection("127.0.0.1", int(address.rpartition(":")[2]))
        opened.append(writer)
        writer.write(text.replace("\n", "\r\n").encode())
        return reader, writer

    yield connect
    for writer in opened:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


async def status_of(reader):
    return int((await reader.readline()).split()[1])


HEAD = f"Host: localhost\nAuthorization: Bearer {TOKEN}\n"


async def test_a_client_that_loses_its_connection_200_times_misses_no_event(store, clerks, raw):
    teller = midturn.Blueprint("teller", clerks.build_teller)
    app, rng = midturn.asgi(store, [teller], token=TOKEN), random.Random(7)
    seen, drops, ended = [], 0, None
    async with served(app, store) as address:
        while ended is None:
            reader, writer = await raw(address, story(seen[-1][0] if seen else "", again=rng.random() < 0.5))
            assert await status_of(reader) == 200
            left = rng.randint(1, 5) if drops < DROPS else 10**9
            while left and ended is None:
                number, kind, data = await next_event(reader)
                if kind == "end":
                    ended = data
                else:
                    seen.append((number, data["type"]))
                    left -= 1
            drops += ended is None
            writer.transport.abort() if rng.random() < 0.5 else writer.close()
        async with client_at(address) as client:
            whole = events((await client.get("/sessions/a/turns/1/events")).text)
    assert ended == {"session": "a", "turn": 1, "status": "done"}
    assert drops >= DROPS
    assert seen == [(number, data["type"]) for number, kind, data in whole if kind == "message"]
    assert len(seen) > clerks.WORDS
    assert (await store.info("a")).turns == 1


def story(last, *, again):
    """The request for the events after the last one: that of the turn, repeated with its key, or one for the events."""
    head = HEAD + "Accept: text/event-stream\n" + (f"Last-Event-ID: {last}\n" if last else "")
    if last and not again:
        return f"GET /api/sessions/a/turns/1/events HTTP/1.1\n{head}\n"
    body = '{"task": "story"}'
    about = f"Idempotency-Key: k\nContent-Type: application/json\nContent-Length: {len(body)}\n"
    return f"POST /api/sessions/a/turns HTTP/1.1\n{head}{about}\n{body}"


async def next_event(reader):
    """The id, the kind and the data of the next event of a stream."""
    fields = {}
    while "data" not in fields:
        name, _, value = (await reader.readline()).decode().rstrip().partition(": ")
        fields[name] = value
    return fields.get("id"), fields["event"], json.loads(fields["data"])


async def test_a_client_that_never_sends_a_request_is_cut_off_and_others_are_served(app, store, monkeypatch, raw):
    monkeypatch.setattr(server, "HEADER_TIME", 0.3)
    async with served(app, store) as address, client_at(address) as client:
        slow = [await raw(address, text) for text in ("", "GET / HT", "GET / HTTP/1.1\nHost: localhost\nX-A: ") * 20]
        for _, writer in slow[::3]:
            writer.write(b"G")  # a byte now and then does not help
        assert (await client.get("/counts")).status_code == 200
        for reader, _ in slow:
            with suppress(ConnectionResetError):  # as good
                assert await reader.read() == b""
        assert (await client.get("/counts")).status_code == 200


async def test_a_connection_that_has_sent_its_request_may_wait_for_the_answer(app, store, clerks, monkeypatch):
    timers = []
    wait = server.Protocol._wait_for_head

    def waiting(self):
        wait(self)
        timers.append(self._patience)

    monkeypatch.setattr(server.Protocol, "_wait_for_head", waiting)
    async with served(app, store) as address, client_at(address) as client:
        body = {"task": "wait", "blueprint": "support"}
        asked = asyncio.create_task(client.post("/sessions/a/turns", json=body))
        while not (await store.counts())["running"]:  # noqa: ASYNC110 - the store tells nobody
            await asyncio.sleep(0.01)
        assert timers[0] is not None  # the client had a limited time for its request
        assert timers[0].cancelled()
        assert timers[-1] is None
        clerks.GO.set()
        assert (await asked).json()["status"] == "done"


async def test_there_is_a_limit_on_connections(app, store, monkeypatch, raw):
    monkeypatch.setattr(server, "CONNECTIONS", 3)
    async with served(app, store) as address:
        kept = [await raw(address, "GET /healthz HTTP/1.1\nHost: x\n\n") for _ in range(3)]
        assert [await status_of(reader) for reader, _ in kept] == [200] * 3
        reader, _ = await raw(address, "GET /healthz HTTP/1.1\nHost: x\n\n")
        with pytest.raises((ConnectionError, IndexError)):
            await status_of(reader)


@pytest.mark.parametrize("announced", [True, False])
async def test_a_body_of_a_gigabyte_is_refused_after_a_small_part_of_it(address, announced, raw):
    size = f"Content-Length: {2**30}" if announced else "Transfer-Encoding: chunked"
    reader, writer = await raw(address, f"POST /api/sessions/a/turns HTTP/1.1\n{HEAD}{size}\n\n")
    piece, sent = b"x" * 65536, 0
    try:
        while not reader.at_eof() and sent < 2**30:
            writer.write(piece if announced else b"10000\r\n" + piece + b"\r\n")
            await writer.drain()
            sent += len(piece)
            await asyncio.sleep(0)
    except ConnectionError:
        pass  # it does not listen any more
    assert sent < 16 * 2**20


async def test_a_client_that_waits_for_permission_learns_at_once_that_its_body_is_too_large(address, raw):
    head = f"POST /api/sessions/a/turns HTTP/1.1\n{HEAD}Expect: 100-continue\nContent-Length: {2**30}\n\n"
    reader, _ = await raw(address, head)
    assert await status_of(reader) == 413


@pytest.mark.parametrize("size", [gate.MAX_HEAD, 4_000_000])
async def test_the_head_of_a_request_is_limited(address, size, raw):
    reader, _ = await raw(address, f"GET / HTTP/1.1\n{HEAD}X-A: {'x' * size}\n\n")
    assert await status_of(reader) in (400, 431)


async def test_a_thousand_streams_are_refused_but_those_that_one_principal_may_have(address, clerks, raw):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 4096)), hard))
    try:
        async with client_at(address) as client:
            body = {"task": "wait", "blueprint": "support"}
            await client.post("/sessions/a/turns", json=body, headers={"Prefer": "respond-async"})
            follow = f"GET /api/sessions/a/turns/1/events HTTP/1.1\n{HEAD}\n"
            opened = [await raw(address, follow) for _ in range(1000)]
            found = [await status_of(reader) for reader, _ in opened]
            assert (found.count(200), found.count(429)) == (cases.STREAMS_EACH, 1000 - cases.STREAMS_EACH)
            assert (await client.get("/sessions/a")).json()["status"] == "running"
            clerks.GO.set()
            for (reader, _), status in zip(opened, found, strict=True):
                if status == 200:
                    assert b"event: end" in await reader.readuntil(b"event: end")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_what_it_overrides_of_uvicorn_is_there(app, store):
    for name in ("connection_made", "data_received", "connection_lost"):
        assert callable(getattr(H11Protocol, name))
    config = uvicorn.Config(app, http=server.Protocol, log_config=None)
    config.load()
    loop = asyncio.new_event_loop()
    made = server.Protocol(config, uvicorn.server.ServerState(), {}, loop)
    for name in ("conn", "connections", "loop", "transport"):
        assert hasattr(made, name)
    loop.close()
    plain = uvicorn.Server(config)
    assert (plain._captured_signals, plain.force_exit, plain.should_exit) == ([], False, False)
    assert callable(plain.handle_exit)


async def test_a_signal_stops_it_and_turns_get_the_time_to_end(tmp_path):
    url = f"sqlite:///{tmp_path / 'cases.db'}"
    async with process(tmp_path, "clerks:support", "--drain", "3", "--by", "ann@desk", url=url) as (made, started):
        assert started["url"] == f"http://127.0.0.1:{started['port']}/?token={started['token']}"
        headers = {"Authorization": f"Bearer {started['token']}"}
        base = f"http://127.0.0.1:{started['port']}/api"
        async with httpx.AsyncClient(base_url=base, headers=headers, trust_env=False, timeout=60) as client:
            ends = asyncio.create_task(client.post("/sessions/ends/turns", json={"task": "wait for it"}))
            stays = asyncio.create_task(client.post("/sessions/stays/turns", json={"task": "hang", "labels": {}}))
            while (await client.get("/counts")).json()["running"] < 2:
                pass
            stream = asyncio.create_task(client.get("/sessions/stays/turns/1/events"))
            await asyncio.sleep(0.2)
            made.send_signal(signal.SIGTERM)
            assert "event: end" not in (await stream).text  # it does not hold up the stop
            (tmp_path / "go").touch()
            assert (await ends).json()["status"] == "done"
            interrupted = await stays
            assert (interrupted.status_code, interrupted.json()["title"]) == (503, "StoreUnavailable")
            assert interrupted.headers["retry-after"] == "1"
        async with asyncio.timeout(60):
            assert await made.wait() == 128 + signal.SIGTERM
        said = (await made.stderr.read()).decode()
        assert "closing the store interrupted turn 1 of 'stays', which any process can resume" in said
        assert started["token"] not in said
    async with midturn.open(url) as store:
        assert [(await store.info(name)).status for name in ("ends", "stays")] == ["idle", "interrupted"]


@pytest.mark.parametrize("words", [["--host", "0.0.0.0"], ["--host", "::"], ["--host", "10.1.2.3"]])
def test_it_listens_to_others_only_if_it_knows_them(words, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MIDTURN_TOKEN", raising=False)
    with pytest.raises(SystemExit) as stop:
        main(["serve", *words])
    assert stop.value.code == 2
    assert "set MIDTURN_TOKEN, or give --auth" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_port_that_is_taken_is_named(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(SystemExit) as stop:
            main(["serve", "--port", str(port), "--store", "memory://"])
    assert stop.value.code == 1
    assert f"cannot listen on 127.0.0.1:{port}" in capsys.readouterr().err


def know(request):
    """Return who sends a request: a hook of an app."""
    name = request.headers.get("x-user")
    return midturn.Principal(name=name) if name else None


async def only_read(principal, action, session):
    """Return whether somebody may do something: a hook of an app."""
    return action == "read"


@pytest.mark.parametrize("hooks", [True, False])
def test_the_options_of_the_command_reach_the_server(hooks, capsys, tmp_path, monkeypatch):
    found = {}

    async def ask(gate, store, listening, **options):
        listening.close()
        found.update(options)
        await store.session("case", None).save({"state": {}})
        base = "http://desk.example"
        headers = {"X-User": "ann"} if hooks else {"Authorization": "Bearer t"}
        async with httpx.AsyncClient(transport=httpx.ASGITransport(gate), base_url=base, headers=headers) as client:
            found["read"] = (await client.get("/api/sessions/case")).status_code
            found["delete"] = (await client.delete("/api/sessions/case")).json().get("title")
            found["stranger"] = (await client.get("/api/counts", headers=dict.fromkeys(headers, ""))).status_code

    monkeypatch.setattr(server, "serve", ask)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MIDTURN_TOKEN", raising=False)
    words = ["--auth", "test_server:know", "--authorize", "test_server:only_read"] if hooks else ["--token", "t"]
    monkeypatch.setitem(sys.modules, "test_server", sys.modules[__name__])
    local = ["--port", "0", "--host-name", "desk.example", "--drain", "7", "--json", "--store", "memory://"]
    with pytest.raises(SystemExit) as stop:
        main(["serve", *words, *local, *([] if hooks else ["--read-only", "--access-log"])])
    assert not stop.value.code
    title = "Forbidden" if hooks else "ReadOnly"
    assert found == {"read": 200, "delete": title, "stranger": 401, "drain": 7.0, "access_log": not hooks}
    started = json.loads(capsys.readouterr().out)
    assert (started["token"], "token" in started["url"]) == (None, False)


@pytest.mark.parametrize("words", [["nowhere:app"], ["--auth", "nowhere:hook"], ["clerks:build"]])
def test_an_app_or_a_hook_that_is_not_there_is_named(words, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["serve", *words, "--store", "memory://"])
    assert stop.value.code == 2
    assert words[-1].partition(":")[0] in capsys.readouterr().err


def test_a_token_and_a_login_exclude_each_other(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["serve", "--token", "x", "--auth", "http_clients:TOKEN", "--store", "memory://"])
    assert stop.value.code == 2
    assert "exclude each other" in capsys.readouterr().err
