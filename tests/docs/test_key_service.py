"""The example of a key service, over HTTP with a service that is slow, fails, hangs and rotates."""

import asyncio
import base64
import json
import os
import sys
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

import midturn
from midturn.stores.sealed import store as sealed_store

EXAMPLE = Path(__file__).parents[2] / "examples" / "key_service"


class KeyServer:
    """A stand-in for the transit engine. Its tokens have the data key and the context in them."""

    def __init__(self):
        self.version, self.oldest = 1, 1
        self.delay, self.fails = 0.0, False
        self.goes_on = asyncio.Event()
        self.goes_on.set()
        self.asked, self.now, self.most = [], 0, 0
        self._tasks = set()

    async def serve(self, reader, writer):
        self._tasks.add(asyncio.current_task())
        with suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
                size = int(head.split("content-length: ")[1].split("\r\n")[0])
                question = json.loads(await reader.readexactly(size))
                status, answer = await self._answer(head.split()[1], question)
                body = json.dumps(answer).encode()
                writer.write(f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
                await writer.drain()
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()

    async def _answer(self, path, question):
        what, name = path.split("/")[-2:]
        assert name == "midturn"
        self.asked.append(what)
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            await self.goes_on.wait()
            await asyncio.sleep(self.delay)
        finally:
            self.now -= 1
        if self.fails:
            return 500, {"errors": ["internal"]}
        if what == "encrypt":
            sealed = base64.b64encode(json.dumps([question["plaintext"], question["associated_data"]]).encode())
            return 200, {"data": {"ciphertext": f"vault:v{self.version}:{sealed.decode()}"}}
        _, version, sealed = question["ciphertext"].split(":")
        plaintext, context = json.loads(base64.b64decode(sealed))
        if int(version[1:]) < self.oldest or context != question["associated_data"]:
            return 400, {"errors": ["it cannot be decrypted"]}
        return 200, {"data": {"plaintext": plaintext}}

    def break_down(self, way):
        """Answer with errors, or not at all."""
        self.fails = way == "fails"
        if way == "hangs":
            self.goes_on.clear()

    def recover(self):
        self.fails = False
        self.goes_on.set()

    async def stop(self):
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@pytest.fixture
def app(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLE))
    monkeypatch.delitem(sys.modules, "app", raising=False)
    import app

    yield app
    sys.modules.pop("app")


@pytest.fixture
async def service(app):
    """A running service, and the example's client of it."""
    server = KeyServer()
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    server.keys = known = app.Transit(f"http://127.0.0.1:{port}", "token", "midturn")
    yield server
    await server.keys.close()
    await known.close()
    listening.close()
    await server.stop()
    await app.keys.close()


@pytest.fixture
def opened(service, tmp_path):
    @asynccontextmanager
    async def opened():
        async with midturn.open(f"sqlite:///{tmp_path}/x.db", keys=service.keys) as store:
            yield store

    return opened


async def test_turns_of_known_sessions_survive_an_outage_and_others_raise_a_typed_error(
    app, service, opened, monkeypatch
):
    monkeypatch.setattr(sealed_store, "DEADLINE", 0.5)
    async with opened() as store:
        await store.session("known", app.build).run(task="Remember that the customer prefers email.")
        await store.session("later", app.build).run(task="hello")
    async with opened() as store:
        known = store.session("known", app.build)
        await known.run(task="hello")
        for way in ("fails", "hangs"):
            service.break_down(way)
            assert (await known.run(task="hello")).messages
            for session in ("later", "new"):
                with pytest.raises(midturn.StoreUnavailable, match="the key service"):
                    await store.session(session, app.build).run(task="hello")
            service.recover()
        assert (await store.session("later", app.build).run(task="hello")).messages
        assert (await store.session("new", app.build).run(task="hello")).turn == 1
    service.keys = app.Transit("http://127.0.0.1:1", "token", "midturn")  # nobody listens there
    async with opened() as store:
        with pytest.raises(midturn.StoreUnavailable, match="the key service failed: ConnectError"):
            await store.info("known")


async def test_a_worker_that_wants_to_know_the_current_key_in_an_outage_goes_on(app, service, opened, monkeypatch):
    async with opened() as store:
        known = store.session("known", app.build)
        await known.run(task="hello")
        monkeypatch.setattr(sealed_store, "CURRENT_FOR", 0.0)  # it asks with each write
        monkeypatch.setattr(sealed_store, "BRIEFLY", 0.2)
        monkeypatch.setattr(sealed_store, "ASK_AGAIN", 5.0)
        await known.run(task="hello")
        for way in ("fails", "hangs"):
            service.break_down(way)
            service.asked.clear()
            assert (await known.run(task="hello")).messages
            assert len(service.asked) <= 1  # not again with each write
            service.recover()


async def test_a_list_asks_for_ten_sessions_at_a_time_and_for_each_once(app, service, opened):
    async with opened() as store:
        for number in range(25):
            await store.session(f"case-{number:02}", app.build).run(task="hello")
    service.delay, service.most = 0.02, 0
    service.asked.clear()
    async with opened() as store:
        for _ in range(2):
            assert [info.problem async for info in store.sessions()] == [None] * 25
    assert (service.most, service.asked) == (10, ["decrypt"] * 25)


async def test_a_list_that_fails_asks_nothing_more(app, service, opened, monkeypatch):
    async with opened() as store:
        for number in range(25):
            await store.session(f"case-{number:02}", app.build).run(task="hello")
    service.asked.clear()
    service.break_down("hangs")
    monkeypatch.setattr(sealed_store, "DEADLINE", 0.2)
    async with opened() as store:
        with pytest.raises(midturn.StoreUnavailable, match="has not answered"):
            [info async for info in store.sessions()]
        asked = len(service.asked)
        await asyncio.sleep(1.0)  # time enough for all of them
        assert (len(service.asked), asked <= 20) == (asked, True)


async def test_a_worker_learns_of_a_rotation_and_an_old_version_can_be_retired(app, service, opened, monkeypatch):
    async with opened() as store:
        used = store.session("used", app.build)
        for session in (used, store.session("unused", app.build)):
            await session.run(task="hello")
        service.version = 2
        await used.run(task="hello")
        assert dict((await store.key_counts()).sessions) == {"midturn.v1": 2}  # nobody has asked since
        monkeypatch.setattr(sealed_store, "CURRENT_FOR", 0.0)
        await used.run(task="hello")
        assert dict((await store.key_counts()).sessions) == {"midturn.v2": 1, "midturn.v1": 1}
    service.oldest = 2
    async with opened() as store:
        with pytest.raises(midturn.WrongKey, match=r"'unused'.*'midturn.v1', and the service does not open it"):
            await store.info("unused")
        assert (await store.session("used", app.build).run(task="hello")).messages
        service.oldest = 1
        assert (await store.rekey()).rekeyed == ["unused"]
        service.oldest = 2
    async with opened() as store:
        assert [info.problem async for info in store.sessions()] == [None, None]


async def test_an_answer_that_makes_no_sense_is_a_failure_of_the_service(opened, service, app, monkeypatch):
    async def nothing(*_):
        return {}

    async with opened() as store:
        monkeypatch.setattr(service.keys, "_ask", nothing)
        with pytest.raises(midturn.StoreUnavailable, match="the key service failed: KeyError"):
            await store.session("new", app.build).run(task="hello")


async def test_the_commands_in_the_readme_work(service, tmp_path):
    [block] = (EXAMPLE / "README.md").read_text().split("```console\n")[1:]
    lines = [line for line in block.split("```")[0].splitlines() if line.startswith("midturn")]
    assert len(lines) == 2
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MIDTURN_")}
    environment |= {
        "MIDTURN_KEY_SERVICE": "app:keys",
        "VAULT_ADDR": str(service.keys._client.base_url).removesuffix("/v1/transit/"),
        "VAULT_TOKEN": "token",
        "KEY_NAME": "midturn",
        "MIDTURN_URL": f"sqlite:///{tmp_path}/x.db",
    }
    said = b""
    for line in lines:
        process = await asyncio.create_subprocess_shell(
            line.replace("midturn ", f"{sys.executable} -m midturn ", 1),
            cwd=EXAMPLE,
            env=environment,
            stdout=asyncio.subprocess.PIPE,
        )
        said += (await process.communicate())[0]
        assert process.returncode == 0
    assert b"midturn.v1 (current)" in said
