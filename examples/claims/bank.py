"""The bank: a SQLite file `bank.db` that midturn does not know. If you tell the bank to pay twice, it pays twice."""

import sqlite3
from contextlib import closing
from typing import Any

TABLES = """
CREATE TABLE IF NOT EXISTS reservations (key TEXT PRIMARY KEY, claim TEXT, amount INTEGER);
CREATE TABLE IF NOT EXISTS payouts (number INTEGER PRIMARY KEY, reference TEXT, claim TEXT, amount INTEGER);
"""


def reserve(claim: str, amount: int, key: str) -> str:
    """Set an amount aside. With the same key it happens only once."""
    _execute("INSERT OR IGNORE INTO reservations VALUES (?, ?, ?)", key, claim, amount)
    return f"{amount} EUR are set aside for {claim}."


def pay(claim: str, amount: int, reference: str) -> str:
    """Pay an amount. Every call pays."""
    _execute("INSERT INTO payouts (reference, claim, amount) VALUES (?, ?, ?)", reference, claim, amount)
    return find(reference) or ""


def find(reference: str) -> str | None:
    """Return the receipt of a payout, if there is one."""
    found = _execute("SELECT number, amount, claim FROM payouts WHERE reference = ?", reference)
    return f"Payout {found[-1][0]}: {found[-1][1]} EUR for {found[-1][2]}." if found else None


def books() -> tuple[int, int]:
    """Return the number of reservations and the number of payouts."""
    [counts] = _execute("SELECT (SELECT count(*) FROM reservations), (SELECT count(*) FROM payouts)")
    return counts


def _execute(statement: str, *values: Any) -> list[Any]:
    with closing(sqlite3.connect("bank.db")) as connection, connection:
        connection.executescript(TABLES)
        return connection.execute(statement, values).fetchall()
