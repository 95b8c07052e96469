"""Helpers of several peers: names, addresses and pictures."""

from __future__ import annotations

import base64
import sqlite3
from pathlib import Path

SESSION = "case"
FULL = 2
"""``PRAGMA synchronous`` of a SQLite that waits for the disk at every commit."""


def database(address: str) -> str:
    """Return the file of a SQLite database in a folder."""
    return str(Path(address, "store.db"))


def data_url(picture: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(picture).decode()}"


def set_pragmas(connection: sqlite3.Connection, *_: object) -> None:
    """Make a connection as durable as ours: for ``sqlalchemy.event.listen(engine, "connect", ...)``."""
    cursor = connection.cursor()
    cursor.execute("PRAGMA journal_mode=WAL")
    cursor.execute("PRAGMA synchronous=FULL")
    cursor.close()


def require_full() -> None:
    """Check that SQLite is durable by default, for a peer whose connection cannot be reached."""
    (level,) = sqlite3.connect(":memory:").execute("PRAGMA synchronous").fetchone()
    assert level == FULL, "this SQLite is not built with synchronous=FULL as its default"
