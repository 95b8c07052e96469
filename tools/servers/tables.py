"""The tables in Postgres as an older midturn made them."""

from __future__ import annotations

from importlib.resources import files

import psycopg


def make_tables(url: str, schema: str, upto: int) -> None:
    """Apply the migrations up to a number, in a schema that does not exist yet."""
    read = files("midturn.stores").joinpath
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {schema}".encode())
        connection.execute(f"SET search_path TO {schema}, pg_temp".encode())
        connection.execute(b"BEGIN;" + read("postgres/migrations.sql").read_bytes() + b"; COMMIT")
        for number in range(1, upto + 1):
            connection.execute(read(f"postgres/{number:04}.sql").read_bytes())
            connection.execute("INSERT INTO migrations (number) VALUES (%s)", (number,))
