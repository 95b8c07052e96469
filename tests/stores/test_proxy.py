"""The proxy of the tests itself: what it leaves behind would be blamed on another test."""

import gc
import socket
import sys

from tools.servers.process import HOST
from tools.servers.proxy import Proxy


def test_a_connection_that_arrives_while_the_proxy_closes_is_closed_too(monkeypatch):
    left = []
    monkeypatch.setattr(sys, "unraisablehook", lambda found: left.append(str(found.exc_value)))
    with socket.create_server((HOST, 0)) as server:
        for _ in range(20):
            with Proxy(server.getsockname()[1]) as proxy:
                client = socket.create_connection((HOST, proxy.port))
            client.close()
    del proxy
    gc.collect()
    assert left == []
