"""F28: the store goes back in time under a live worker, which says so before it acknowledges anything.

Real servers are emptied and get old backups, and files are replaced, truncated and removed. With MIDTURN_LONG=1, all
combinations are tried, and each many times.
"""

import os
import sqlite3
from collections import Counter
from contextlib import closing, suppress
from itertools import product

import pytest
from backups import backups_of
from tools.servers import Redis, shared

import midturn

LONG = os.environ.get("MIDTURN_LONG") == "1"
TIMES = 20 if LONG else 1
"""Number of repetitions, each with other numbers of turns."""

WAYS = ("emptied", "set back", "begun anew by another", "set back and continued by another")
WHENS = ("between turns", "in a turn")
COMBINATIONS = list(product(WAYS, WHENS)) if LONG else list(zip(WAYS, (*WHENS, *reversed(WHENS)), strict=True))

pytestmark = [pytest.mark.fault("F28"), pytest.mark.timeout(3600 if LONG else 300)]


@pytest.fixture
def place(kind, tmp_path):
    """Makes new stores; a Redis is a server of its own, because it is flushed."""
    if kind != "redis":
        yield lambda name: shared.store_url(kind, tmp_path / name)
        return
    with Redis() as server:
        yield lambda name: server.url


@pytest.fixture
def operator(url, tmp_path):
    return backups_of(url, tmp_path / "backups")


class Driver:
    """Tells a worker what to run, and counts the tasks."""

    def __init__(self, worker):
        self._worker = worker
        self.number = 0

    def begin(self):
        self.number += 1
        self._worker.tell({"run": f"task {self.number}", "key": f"{self.number}"})

    def hear(self):
        while (said := self._worker.hear())["is"] not in ("done", "error"):
            pass
        return said

    def run(self):
        self.begin()
        return self.hear()

    def resume(self):
        self._worker.tell({"resume": True})
        return self.hear()


def go_back(way, operator, backup, *, another, times):
    """Let the store lose all, or all since the backup; then another worker may run more turns than there were."""
    operator.empty() if way in ("emptied", "begun anew by another") else operator.bring_back(backup)
    if "another" in way:
        for _ in range(times):
            assert another().run()["is"] == "done"


@pytest.mark.parametrize(("way", "when"), COMBINATIONS)
def test_a_worker_under_which_the_store_goes_back_in_time_acknowledges_nothing(
    workers, kind, url, operator, tmp_path, *, way, when, rng, read, figures
):
    gate = tmp_path / "gate"
    kinds = Counter()
    for round_ in range(TIMES):
        session = f"case {round_}"
        worker = workers(url=url, session=session, gate=str(gate), writes=True, listens=True, lease=3600.0)
        driver, made = Driver(worker), []

        def another(session=session, made=made):
            if not made:
                made.append(workers(url=url, session=session, listens=True))
                made[0].driver = Driver(made[0])
            return made[0].driver

        gate.touch()
        before, after = rng.randint(1, 3), rng.randint(1, 3)
        for number in range(1, before + 1):
            assert driver.run()["turn"] == number
        operator.back_up(f"old {round_}")
        for _ in range(after):
            assert driver.run()["is"] == "done"
        if when == "in a turn":
            gate.unlink()
            driver.begin()
            worker.wait_for("wrote")
        go_back(way, operator, f"old {round_}", another=another, times=before + after + 3)
        stored = read(url, session)
        if when == "in a turn":
            gate.touch()
            said = driver.hear()
        else:
            said = driver.run()
        assert said["is"] == "error", f"{said['turn']} was acknowledged"
        kinds[said["kind"]] += 1
        assert said["kind"] == "HistoryLost", said["text"]
        assert repr(session) in said["text"]
        for again in (driver.run, driver.resume):
            assert again()["kind"] == "HistoryLost", "the same object accepts the older history"
        assert read(url, session) == stored, "something was written"
        # Whoever accepts what the store has says so, and opens it again; the agent then knows what the store has.
        worker.tell({"open again": True})
        driver.number = 1000  # of no key that another worker has used
        said = driver.run()
        assert said["is"] == "done", said
        assert said["turn"] == len(stored[0]) + 1
        assert said["texts"][-1].endswith(f"-> {2 * said['turn']}")
        for one in (worker, *made):
            one.finish()
    figures(store=kind, way=way.replace(" ", "_"), when=when.replace(" ", "_"), rounds=TIMES, **kinds)


def test_a_session_object_that_has_only_read_notices_as_well(workers, url, operator):
    writer, reader = (Driver(workers(url=url, session="case", listens=True)) for _ in range(2))
    told = writer.run()
    assert reader.run()["texts"] == told["texts"], "it was to get the recorded result"
    assert reader.resume()["turn"] is None
    operator.empty()
    assert reader.run()["kind"] == "HistoryLost"
    assert reader.resume()["kind"] == "HistoryLost"


def test_a_new_session_object_of_the_same_worker_notices_as_well(workers, url, operator):
    worker = workers(url=url, session="case", listens=True)
    driver = Driver(worker)
    assert driver.run()["is"] == "done"
    operator.back_up("old")
    assert driver.run()["is"] == "done"
    for go_back_now in (lambda: operator.bring_back("old"), operator.empty):
        go_back_now()
        worker.tell({"new object": True})  # as a server does for each request
        assert driver.run()["kind"] == "HistoryLost"
        assert driver.resume()["kind"] == "HistoryLost"


def test_nothing_is_made_of_a_history_that_was_set_back(workers, url, operator):
    worker = workers(url=url, session="case", listens=True)
    driver = Driver(worker)
    assert driver.run()["is"] == "done"
    operator.back_up("old")
    assert driver.run()["is"] == "done"
    operator.bring_back("old")
    for act, to in (("fork", {"to": "copy"}), ("rewind", {"to": 1})):
        worker.tell({"act": act, "with": to | {"by": "ann"}})
        assert driver.hear()["kind"] == "HistoryLost", act


def test_a_store_that_gets_its_history_back_is_used_again_by_the_same_object(workers, url, operator):
    driver = Driver(workers(url=url, session="case", listens=True))
    assert [driver.run()["turn"] for _ in range(2)] == [1, 2]
    operator.back_up("latest")
    operator.empty()
    assert driver.run()["kind"] == "HistoryLost"
    operator.bring_back("latest")
    assert driver.run()["texts"][-1] == "task 4 -> 6"


def test_a_turn_that_fails_on_a_store_that_lost_it_does_not_say_that_the_state_is_as_before(
    workers, url, operator, tmp_path
):
    gate = tmp_path / "gate"
    worker = workers(url=url, session="case", gate=str(gate), writes=True, listens=True)
    worker.tell({"run": "bad", "key": "1"})
    worker.wait_for("wrote")
    operator.empty()
    gate.touch()
    assert Driver(worker).hear()["kind"] == "HistoryLost"


def test_a_turn_that_only_waits_for_its_model_hears_of_it_with_the_next_renewal(workers, url, operator, tmp_path):
    never = tmp_path / "gate"
    worker = workers(url=url, session="case", gate=str(never), writes=True, listens=True, lease=0.3)
    driver = Driver(worker)
    driver.begin()
    worker.wait_for("wrote")
    operator.empty()
    assert driver.hear()["kind"] == "HistoryLost"


def test_a_deleted_session_stays_deleted_and_is_lost_history_when_a_backup_brings_it_back(workers, url, operator):
    worker = workers(url=url, session="case", listens=True)
    driver = Driver(worker)
    assert driver.run()["is"] == "done"
    operator.back_up("alive")
    worker.tell({"act": "delete"})
    assert driver.hear()["was"]
    assert driver.run()["kind"] == "SessionDeleted"
    operator.bring_back("alive")
    assert driver.run()["kind"] == "HistoryLost"


# The files of SQLite. A process that has them open can go on with files that nobody will ever find again.


def beside(path, end):
    return path.with_name(path.name + end)


def cut(file, share):
    os.truncate(file, int(file.stat().st_size * share))


def copied(file):
    """Put a copy in the place of a file, as a restored backup of the whole folder does."""
    file.with_suffix(".copy").write_bytes(file.read_bytes())
    file.with_suffix(".copy").replace(file)


def brought_back(path):
    """Put a database of before in the place of the three files."""
    for end in ("-wal", "-shm"):
        beside(path, end).unlink()
    path.with_name("old.db").replace(path)


def overwritten(path, more=b""):
    """Write a database of before over the file in its place, as ``cp`` does. The file gets no shorter."""
    old = path.with_name("old.db").read_bytes()
    assert len(old) == path.stat().st_size
    path.write_bytes(old + more)


LOST = {
    "log removed": lambda path: beside(path, "-wal").unlink(),
    "log moved": lambda path: beside(path, "-wal").rename(path.with_name("elsewhere")),
    "log replaced": lambda path: copied(beside(path, "-wal")),
    "log emptied": lambda path: cut(beside(path, "-wal"), 0),
    "log cut": lambda path: cut(beside(path, "-wal"), 0.5),
    "database removed": lambda path: path.unlink(),
    "database replaced": copied,
    "database brought back": brought_back,
    "database emptied": lambda path: cut(path, 0),
    "database overwritten": overwritten,
    "database overwritten by a longer one": lambda path: overwritten(path, bytes(8192)),
    "folder moved": lambda path: path.parent.rename(path.parent.with_name("elsewhere")),
}
"""Operations on the files, each of which may lose acknowledged writes."""
APART = {
    "index removed": lambda path: beside(path, "-shm").unlink(),
    "index replaced": lambda path: copied(beside(path, "-shm")),
}
"""Operations that lose nothing, but separate the process from all others, whose writes it would overwrite."""


@pytest.mark.parametrize("when", WHENS)
@pytest.mark.parametrize("deed", [*LOST, *APART])
def test_sqlite_acknowledges_nothing_that_a_kill_would_lose(workers, tmp_path, *, deed, when, read, figures):
    folder, gate = tmp_path / "folder", tmp_path / "gate"
    folder.mkdir()
    path = folder / "store.db"
    worker = workers(url=f"sqlite:///{path}", session="case", gate=str(gate), writes=True, listens=True)
    driver = Driver(worker)
    gate.touch()
    assert driver.run()["is"] == "done"
    with closing(sqlite3.connect(path)) as live, closing(sqlite3.connect(path.with_name("old.db"))) as old:
        live.backup(old)
    assert driver.run()["is"] == "done"
    if when == "in a turn":
        gate.unlink()
        driver.begin()
        worker.wait_for("wrote")
    (LOST | APART)[deed](path)
    if when == "in a turn":
        gate.touch()
        said = [driver.hear()]
    else:
        said = [driver.run()]
    said += [driver.run(), driver.resume()]
    worker.kill()
    acknowledged = [each["turn"] for each in said if each["is"] == "done" and each["turn"]]
    if acknowledged:
        with suppress(midturn.MidturnError):
            done = [turn.number for turn in read(f"sqlite:///{path}", "case")[0] if turn.status == "done"]
            assert set(acknowledged) <= set(done), f"{acknowledged} were acknowledged, and {done} are left"
    kinds = {each["kind"] for each in said if each["is"] == "error"}
    assert kinds == ({"HistoryLost"} if deed in LOST else {"StoreUnavailable"}), said
    assert not acknowledged
    if deed in APART:
        turns, _ = read(f"sqlite:///{path}", "case")
        assert [turn.status for turn in turns[:2]] == ["done", "done"]
    figures(store="sqlite", deed=deed.replace(" ", "_"), when=when.replace(" ", "_"), errors=sorted(kinds))


def test_a_log_that_sqlite_itself_makes_shorter_is_no_loss(workers, tmp_path, read):
    """Another process may write the whole log into the database, and begin a new one in the same file."""
    path = tmp_path / "store.db"
    worker = workers(url=f"sqlite:///{path}", session="case", listens=True)
    driver = Driver(worker)
    for number in range(1, 9):
        assert driver.run()["turn"] == number
        with closing(sqlite3.connect(path, timeout=60)) as db:
            assert db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0
            if number % 2:
                db.execute("CREATE TABLE more (x)")
                db.execute("INSERT INTO more VALUES (zeroblob(300000))")
            else:
                db.execute("DROP TABLE more")
            db.commit()
            db.execute("PRAGMA incremental_vacuum").fetchall()
            db.execute(f"PRAGMA wal_checkpoint({'TRUNCATE' if number % 4 else 'PASSIVE'})").fetchall()
    worker.kill()
    turns, _ = read(f"sqlite:///{path}", "case")
    assert [turn.status for turn in turns] == ["done"] * 8
