"""A uvicorn server for the app: limits on connections, and a stop that leaves running turns to be resumed.

This is the only file that knows uvicorn. It overrides what ``tests/serve/test_server.py`` names.
"""

from __future__ import annotations

import asyncio
import math
import socket
from typing import TYPE_CHECKING, Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from midturn.serve.gate import MAX_HEAD

if TYPE_CHECKING:
    from types import FrameType

    from midturn.serve.gate import Gate
    from midturn.sessions.opening import OpenStore

HEADER_TIME = 10.0
"""Seconds in which a client has to send the head of a request, once it has a connection or has begun the request."""
KEEP_ALIVE = 30
"""Seconds for which a connection without a request stays open."""
CONNECTIONS = 2000
"""Number of connections that can be open at the same time."""
SLACK = 3
"""Seconds after the drain in which requests and streams end by themselves, before they are cancelled."""


class Protocol(H11Protocol):
    """A connection whose client has to send its requests soon. uvicorn would wait for them for ever."""

    _patience: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > CONNECTIONS:
            transport.abort()
        else:
            self._wait_for_head()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def _wait_for_head(self) -> None:
        if self.conn.their_state is not h11.IDLE:
            self._stop_waiting()
        elif self._patience is None:
            self._patience = self.loop.call_later(HEADER_TIME, self.transport.abort)

    def _stop_waiting(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None


class Server(uvicorn.Server):
    """A server that stops its app when a signal tells it to stop. A second Ctrl-C ends it at once."""

    def __init__(self, config: uvicorn.Config, gate: Gate, store: OpenStore) -> None:
        super().__init__(config)
        self._gate = gate
        self._store = store
        self._loop = asyncio.get_running_loop()
        self._closing: asyncio.Task[None] | None = None
        self.stopped_by = 0
        """The number of the signal that stopped the server."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        super().handle_exit(sig, frame)
        self.stopped_by = sig
        self._captured_signals.clear()  # else uvicorn would raise it again, after the stop
        self._loop.call_soon_threadsafe(self._stop)

    def _stop(self) -> None:
        self._gate.stop()
        if self._closing is None:
            # The store lets turns run for its drain. Meanwhile, uvicorn waits for the requests that wait for them.
            self._closing = asyncio.create_task(self._store.aclose())
        elif self.force_exit:
            self._closing.cancel()


def listen(host: str, port: int) -> socket.socket:
    """Return a socket on which a server listens; port 0 is a free one.

    Raises:
        OSError: the port is taken, or the host is not of this machine.
    """
    return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET, backlog=512)


async def serve(gate: Gate, store: OpenStore, listening: socket.socket, *, drain: float, access_log: bool) -> int:
    """Serve an app until a signal comes, and return its number. ``store`` is open, and is closed at the end."""
    protocol: Any = Protocol
    config = uvicorn.Config(
        gate,
        http=protocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=access_log,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=math.ceil(drain) + SLACK,
        h11_max_incomplete_event_size=MAX_HEAD,
    )
    server = Server(config, gate, store)
    await server.serve(sockets=[listening])
    return server.stopped_by
