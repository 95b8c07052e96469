"""Operations on a store behind the back of its workers: back it up, empty it, and bring a backup back."""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import psycopg
import redis
from psycopg import sql

COLUMNS = """
    SELECT table_name, string_agg(quote_ident(column_name), ', ' ORDER BY ordinal_position)
    FROM information_schema.columns
    WHERE table_schema = %s AND table_name IN ('heads', 'rows') AND is_generated = 'NEVER'
    GROUP BY 1 ORDER BY 1
"""


def backups_of(url, folder):
    """The operator of a store: ``back_up(name)``, ``bring_back(name)`` and ``empty()``."""
    kinds = {"file": Files, "sqlite": Sqlite, "postgresql": Postgres, "redis": Redis}
    return kinds[urlsplit(url).scheme](url, folder)


class Operator:
    def __init__(self, url, folder):
        self.url = url
        self.path = Path(urlsplit(url).path)
        self.folder = folder
        folder.mkdir()


class Files(Operator):
    def back_up(self, name):
        shutil.copytree(self.path, self.folder / name)

    def bring_back(self, name):
        self.empty()
        shutil.copytree(self.folder / name, self.path, dirs_exist_ok=True)

    def empty(self):
        for file in (self.path / "sessions").iterdir():
            file.unlink()


class Sqlite(Operator):
    """It goes through SQLite, as ``.backup`` and ``.restore`` do; the files stay in their places."""

    def back_up(self, name):
        self._copy(self.path, self.folder / name)

    def bring_back(self, name):
        self._copy(self.folder / name, self.path)

    def empty(self):
        with closing(sqlite3.connect(self.path, timeout=60)) as db, db:
            for table in ("sessions", "rows", "turn_calls"):
                db.execute(f"DELETE FROM {table}")

    def _copy(self, source, target):
        with closing(sqlite3.connect(source, timeout=60)) as one, closing(sqlite3.connect(target, timeout=60)) as other:
            one.backup(other)


class Postgres(Operator):
    def __init__(self, url, folder):
        super().__init__(url, folder)
        self._schema = parse_qs(urlsplit(url).query)["schema"][0]
        self._server = url.partition("?")[0]

    def back_up(self, name):
        with psycopg.connect(self._server) as db:
            for table, columns in db.execute(COLUMNS, [self._schema]).fetchall():
                with db.cursor().copy(self._sql("COPY {} ({}) TO STDOUT", table, columns)) as copy:
                    (self.folder / f"{name} {table}").write_bytes(b"".join(copy))

    def bring_back(self, name):
        with psycopg.connect(self._server) as db:
            self._truncate(db)
            for table, columns in db.execute(COLUMNS, [self._schema]).fetchall():
                with db.cursor().copy(self._sql("COPY {} ({}) FROM STDIN", table, columns)) as copy:
                    copy.write((self.folder / f"{name} {table}").read_bytes())

    def empty(self):
        with psycopg.connect(self._server) as db:
            self._truncate(db)

    def _truncate(self, db):
        db.execute(self._sql("TRUNCATE {}", "heads", "") + sql.SQL(", ") + sql.Identifier(self._schema, "rows"))

    def _sql(self, text, table, columns):
        return sql.SQL(text).format(sql.Identifier(self._schema, table), sql.SQL(columns))


class Redis(Operator):
    def __init__(self, url, folder):
        super().__init__(url, folder)
        self._kept = {}

    def back_up(self, name):
        with redis.Redis.from_url(self.url) as client:
            self._kept[name] = {key: client.dump(key) for key in client.scan_iter()}

    def bring_back(self, name):
        with redis.Redis.from_url(self.url) as client, client.pipeline() as pipeline:
            pipeline.flushall()
            for key, value in self._kept[name].items():
                pipeline.restore(key, 0, value)
            pipeline.execute()

    def empty(self):
        with redis.Redis.from_url(self.url) as client:
            client.flushall()
