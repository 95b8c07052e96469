"""A proxy between a client and a server on this machine. It can cut, delay, refuse and encrypt connections."""

import asyncio
import socket
import ssl
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, Self, TypeVar
from urllib.parse import urlsplit

from .process import HOST, PATIENCE, free_port

CHUNK = 2**16
QUIET = 0.03
"""Seconds of silence after which an answer counts as complete."""

SSL_REQUEST = struct.pack("!ii", 8, 80877103)
GSS_REQUEST = struct.pack("!ii", 8, 80877104)
READY = b"Z\0\0\0\5"
"""The message with which PostgreSQL ends an answer. One more byte follows."""

T = TypeVar("T")


@dataclass(kw_only=True, slots=True)
class _Rule:
    """The request to cut at, and whether the server receives it."""

    left: int
    matching: bytes | None
    served: bool

    def meets(self, chunk: bytes) -> bool:
        if self.matching is None or self.matching in chunk:
            self.left -= 1
            return self.left == 0
        return False


class Proxy:
    """Forwards bytes between ``proxy.port`` and ``port``, in a thread of its own.

    Args:
        port: the port of the server, which receives plain bytes.
        tls: settings for encrypted clients; without them clients are not encrypted.
        kind: the kind of the server. PostgreSQL starts encryption in its own way, and marks the end of an answer.
    """

    def __init__(
        self, port: int, tls: ssl.SSLContext | None = None, kind: Literal["plain", "postgres"] = "plain"
    ) -> None:
        self.port = free_port()
        self.delay = 0.0
        """Seconds by which every chunk is delayed, in both directions."""
        self.accepted = 0
        """The number of connections so far."""
        self.cuts = 0
        """The number of connections that a rule has cut."""
        self._target = port
        self._tls = tls
        self._kind = kind
        self._rule: _Rule | None = None
        self._open: dict[asyncio.Task[None], _Connection] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._listener: asyncio.Server | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def connections(self) -> int:
        """Return the number of open connections."""
        return len(self._open)

    def url_through(self, url: str) -> str:
        """Return the URL of the server through this proxy. An encrypted Redis has the scheme rediss."""
        parts = urlsplit(url)
        user, at, _ = parts.netloc.rpartition("@")
        scheme = "rediss" if self._tls and parts.scheme == "redis" else parts.scheme
        return parts._replace(scheme=scheme, netloc=f"{user}{at}{HOST}:{self.port}").geturl()

    def start(self) -> None:
        """Start to listen."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self.flow = asyncio.Event()
            self.flow.set()
            self._thread = threading.Thread(target=self._loop.run_forever, name=f"proxy-{self.port}", daemon=True)
            self._thread.start()
            self.accept()

    def close(self) -> None:
        """Cut all connections and end the thread."""
        if self._loop is not None:
            self.refuse()
            self._do(self._end)
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(PATIENCE)
            self._loop.close()
            self._loop = None

    def cut(self) -> None:
        """Reset all connections."""
        self._do(self._cut)

    async def _cut(self) -> None:
        ending = list(self._open)
        for connection in self._open.values():
            connection.cut()
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)

    async def _end(self) -> None:
        """Cut connections until none is left, also those for which asyncio is about to start a task."""
        while asyncio.all_tasks() - {asyncio.current_task()}:
            await self._cut()
            await asyncio.sleep(0)

    def cut_after_request(self, n: int = 1, matching: bytes | None = None) -> None:
        """Forward the n-th request from now, but send the client a reset instead of the answer."""
        self._rule = _Rule(left=n, matching=matching, served=True)

    def cut_before_request(self, n: int = 1, matching: bytes | None = None) -> None:
        """Reset the connection of the n-th request from now. The server never receives the request."""
        self._rule = _Rule(left=n, matching=matching, served=False)

    def pause(self) -> None:
        """Forward nothing, in both directions. New connections are accepted, but hang."""
        self._call(self.flow.clear)

    def resume(self) -> None:
        """Forward everything again after ``pause``."""
        self._call(self.flow.set)

    def refuse(self) -> None:
        """Refuse new connections. Open ones stay."""

        async def refuse(listener: asyncio.Server) -> None:
            # asyncio adds a connection to its server one round after it has accepted it. If the server is closed by
            # then, asyncio drops the connection without closing it.
            for sock in listener.sockets:
                asyncio.get_running_loop().remove_reader(sock.fileno())
            await asyncio.sleep(0)
            listener.close()

        if self._listener is not None:
            self._do(partial(refuse, self._listener))
            self._listener = None

    def accept(self) -> None:
        """Accept connections again, on the same port."""

        async def listen() -> asyncio.Server:
            tls = self._tls if self._kind == "plain" else None
            return await asyncio.start_server(self._serve, HOST, self.port, ssl=tls)

        if self._listener is None:
            self._listener = self._do(listen)

    def _do(self, work: Callable[[], Any]) -> Any:
        if self._loop is None:
            raise RuntimeError("the proxy is not started")
        return asyncio.run_coroutine_threadsafe(work(), self._loop).result(PATIENCE)

    def _call(self, function: Callable[[], T]) -> T:
        async def call() -> T:
            return function()

        result: T = self._do(call)
        return result

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a connection is served in a task")
        self._open[task] = connection = _Connection(self, reader, writer)
        try:
            await connection.serve(self._target, self._tls if self._kind == "postgres" else None)
        except (OSError, EOFError, asyncio.CancelledError):
            connection.cut()
        finally:
            del self._open[task]

    def rule_for(self, chunk: bytes) -> _Rule | None:
        """Return the rule for this request. Each rule is used once."""
        rule = self._rule
        if rule is None or not rule.meets(chunk):
            return None
        self._rule = None
        return rule

    def is_complete(self, answer: bytes) -> bool:
        """Return whether these bytes are a complete answer if the server sends no more."""
        return bool(answer) and (self._kind == "plain" or answer[-6:-1] == READY)


class _Connection:
    """The connection of one client, and its connection to the server."""

    def __init__(self, proxy: Proxy, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._proxy = proxy
        self._client = reader
        self._writers = [writer]
        self._answer: bytes | None = None
        """The bytes of an answer that is held back."""
        self._timer: asyncio.TimerHandle | None = None

    def cut(self) -> None:
        """Reset both sides."""
        for writer in self._writers:
            sock = writer.get_extra_info("socket")  # None: a TLS connection that is gone
            if sock is not None and sock.fileno() >= 0:
                # Without lingering, closing sends a reset.
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()

    async def serve(self, port: int, tls: ssl.SSLContext | None) -> None:
        """Forward bytes until one side ends."""
        await self._proxy.flow.wait()
        client = self._writers[0]
        begin = await self._negotiate(client, tls) if tls else b""
        server, writer = await asyncio.open_connection(HOST, port)
        self._writers.append(writer)
        writer.write(begin)
        pumps = [
            asyncio.create_task(self._pump(self._client, writer, self._sees_request)),
            asyncio.create_task(self._pump(server, client, self._sees_answer)),
        ]
        try:
            done, _ = await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            for pump in done:
                pump.result()
            for end in self._writers:
                # One that has lost its connection counts as closed. Closing it again takes a TLS transport apart:
                # before Python 3.11.4 it can then not be aborted any more, as cut() may want to.
                if not end.is_closing():
                    end.close()
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
        # What is not sent yet, or not yet taken leave of by the other side, is still there to be cut.
        await asyncio.gather(*(end.wait_closed() for end in self._writers), return_exceptions=True)

    async def _negotiate(self, client: asyncio.StreamWriter, tls: ssl.SSLContext) -> bytes:
        """Start encryption as PostgreSQL does, and return the first bytes that the client then sends."""
        while True:
            request = await self._client.readexactly(len(SSL_REQUEST))
            if request == SSL_REQUEST:
                client.write(b"S")
                await client.start_tls(tls)
            elif request == GSS_REQUEST:
                client.write(b"N")
            else:
                return request

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, passes: Callable[[bytes], bool]
    ) -> None:
        while chunk := await reader.read(CHUNK):
            if self._proxy.delay:
                await asyncio.sleep(self._proxy.delay)
            await self._proxy.flow.wait()
            if passes(chunk):
                writer.write(chunk)
                await writer.drain()

    def _sees_request(self, chunk: bytes) -> bool:
        if self._answer is not None:
            self._wait_for_quiet()  # the rest of the request
        elif rule := self._proxy.rule_for(chunk):
            if not rule.served:
                self._cut_by_rule()
                return False
            self._answer = b""
        return True

    def _sees_answer(self, chunk: bytes) -> bool:
        if self._answer is None:
            return True
        self._answer += chunk
        self._wait_for_quiet()
        return False

    def _wait_for_quiet(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(QUIET, self._is_quiet)

    def _is_quiet(self) -> None:
        if self._proxy.is_complete(self._answer or b""):
            self._cut_by_rule()

    def _cut_by_rule(self) -> None:
        self._proxy.cuts += 1
        self.cut()
