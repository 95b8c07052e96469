"""Dumps: what midturn has written to Postgres and Redis, as text that people can read, and back again."""

import json

import psycopg
import redis
from psycopg import sql

SCHEMA = "midturn"
TABLES = ("heads", "rows")
VERSION = "-- tables of version "
COLUMNS = """
    SELECT column_name FROM information_schema.columns
    WHERE table_schema = %s AND table_name = %s AND is_generated = 'NEVER'
    ORDER BY ordinal_position
"""


def dump_postgres(url):
    """The content as INSERTs, for the tables whose version stands in the first line."""
    with psycopg.connect(url) as db:
        [(version,)] = db.execute(f"SELECT max(number) FROM {SCHEMA}.migrations")
        lines = [f"{VERSION}{version}"]
        for table in TABLES:
            name = sql.Identifier(SCHEMA, table)
            columns = sql.SQL(", ").join(sql.Identifier(column) for (column,) in db.execute(COLUMNS, (SCHEMA, table)))
            for row in db.execute(sql.SQL("SELECT {} FROM {} ORDER BY 1, 2").format(columns, name)).fetchall():
                values = sql.SQL(", ").join(map(_literal, row))
                insert = sql.SQL("INSERT INTO {} ({}) OVERRIDING SYSTEM VALUE VALUES ({});")
                lines.append(insert.format(name, columns, values).as_string(db))
    return "\n".join(lines) + "\n"


def _literal(value):
    if isinstance(value, bytes):
        return sql.SQL("convert_to({}, 'UTF8')").format(value.decode())
    return sql.Literal(json.dumps(value) if isinstance(value, dict) else value)


def load_postgres(url, text):
    """Fill tables that are there and empty."""
    with psycopg.connect(url) as db:
        db.execute(text)
        db.execute(f"SELECT setval(pg_get_serial_sequence('{SCHEMA}.heads', 'id'), max(id)) FROM {SCHEMA}.heads")


def dump_redis(url):
    """The members of every key, with their scores, as JSON."""
    with redis.Redis.from_url(url) as client:
        keys = sorted(client.keys())
        found = {key.decode(): client.zrange(key, 0, -1, withscores=True) for key in keys}
    plain = {key: [[member.decode(), score] for member, score in members] for key, members in found.items()}
    return json.dumps(plain, indent=0) + "\n"


def load_redis(url, text):
    with redis.Redis.from_url(url) as client:
        client.flushdb()
        for key, members in json.loads(text).items():
            client.zadd(key, dict(members))
