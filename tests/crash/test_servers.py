"""F6 to F9 and F15: the servers behind the stores crash, hang, fail over and are cut off.

Each test has servers of its own. What is quick here is as long as it has to be with MIDTURN_LONG=1.
"""

import asyncio
import os
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from itertools import count, pairwise, product

import pytest
from tools.servers import Postgres, Proxy, Redis, RedisSentinel
from tools.servers.process import wait_until

import midturn

LONG = os.environ.get("MIDTURN_LONG") == "1"
CRASHES, UP, DOWN = (30, (5.0, 35.0), (0.0, 5.0)) if LONG else (6, (0.3, 0.8), (0.0, 0.3))
"""Number of crashes of a database, and the seconds for which it is up and down in between."""
SESSIONS, SHARING = (8 if LONG else 4), 2
"""Number of sessions, and of workers that want the same one."""
DELAY = 1.0 if LONG else 0.05
"""Seconds that a model takes, at the most."""
CUTS = 500 if LONG else 60
FAILOVERS, STRICT_FAILOVERS = (50, 10) if LONG else (6, 2)
DEADLINE, PATIENT = (5.0 if LONG else 1.5), 30.0
"""Seconds that a store waits for its server, when that does not answer and otherwise."""

SERVERS = ("postgres", "redis")

pytestmark = pytest.mark.timeout(3600 if LONG else 300)


@pytest.fixture
def servers():
    """Starts servers that are gone after the test: ``servers(Redis())``."""
    with ExitStack() as stack:
        yield stack.enter_context


@pytest.fixture
def server(kind, servers):
    """A server of a kind that loses nothing when it crashes."""
    return servers(Postgres() if kind == "postgres" else Redis({"appendfsync": "always"}))


@pytest.fixture
def proxy(kind, server, servers):
    """Return the proxy before that server."""
    return servers(Proxy(server.port, kind="postgres" if kind == "postgres" else "plain"))


@contextmanager
def load(crew):
    """Let workers run turns, one after the other, and at the end let each finish the one that it is in.

    What it gives waits until they have told of so many more turns, all together.
    """
    for worker in crew:
        worker.wait_for("found")
    enough = threading.Event()

    def drive(name, worker):
        for i in count():
            worker.tell({"run": f"task {name} {i}", "key": f"{name} {i}"})
            worker.wait_for("done")
            if enough.is_set():
                break
        worker.finish()

    def wait_for_turns(number):
        until = time.monotonic() + 120
        wanted = number + sum(len(worker.all("done")) for worker in crew)
        while sum(len(worker.all("done")) for worker in crew) < wanted:
            for one in driven:
                assert not one.done(), one.result()
            assert time.monotonic() < until, f"no turn ends; the workers said {[worker.heard[-2:] for worker in crew]}"
            time.sleep(0.005)

    with ThreadPoolExecutor(len(crew)) as threads:
        driven = [threads.submit(drive, name, worker) for name, worker in enumerate(crew)]
        try:
            yield wait_for_turns
        finally:
            enough.set()
    for one in driven:
        one.result()


def crews_of(workers, url, tmp_path, **more):
    """Workers by the session that they share."""
    shared = {"url": url, "lease": 3600.0, "writes": True, "listens": True, "delay": DELAY, **more}
    return {
        session: [workers(**shared, session=session, ledger=str(tmp_path / session)) for _ in range(SHARING)]
        for session in map(str, range(SESSIONS))
    }


def silences(crews, since):
    """The longest time without a finished turn, and how long it took after each of the moments to the next one."""
    done = sorted(said["at"] for crew in crews.values() for worker in crew for said in worker.all("done"))
    again = [min(at for at in done if at > moment) - moment for moment in since]
    return {
        "longest_silence": f"{max(b - a for a, b in pairwise(done)):.2f}s",
        "going_again_within": f"{max(again):.2f}s",
    }


@pytest.fixture
def check_crews(check_history, read, tmp_path):
    """The number of turns, when each session has all that its workers told, and each ran once."""

    def checking(crews, url):
        turns = 0
        for session, crew in crews.items():
            told = sum(len(worker.all("done")) for worker in crew)
            _, texts, _ = check_history(crew, read(url, session), told)
            ran = (tmp_path / session).read_text().splitlines()
            assert Counter(ran) == Counter(reply for _, reply in texts), "a turn ran twice"
            turns += told
        return turns

    return checking


@pytest.mark.parametrize("kind", SERVERS)
def test_a_database_that_crashes_again_and_again_loses_nothing(
    workers, kind, server, tmp_path, *, rng, check_crews, figures
):
    crews = crews_of(workers, server.url, tmp_path)
    crew = [worker for workers in crews.values() for worker in workers]
    back = []
    with load(crew) as wait_for_turns:
        for _ in range(CRASHES):
            wait_for_turns(1)
            time.sleep(rng.uniform(*UP))
            server.crash()
            time.sleep(rng.uniform(*DOWN))
            server.start()
            back.append(time.monotonic())
        wait_for_turns(2)
    turns = check_crews(crews, server.url)
    figures(store=kind, crashes=CRASHES, workers=len(crew), turns=turns, **silences(crews, back))


def plain(url):
    """The URL of a store that does not compress: the proxy looks for texts."""
    return f"{url}{'&' if '?' in url else '?'}compress=none"


@pytest.mark.parametrize("kind", SERVERS)
def test_a_write_whose_connection_is_cut_takes_effect_once(
    workers, kind, server, proxy, tmp_path, *, rng, read, check_history, figures
):
    ledger = tmp_path / "ledger"
    url = plain(proxy.url_through(server.url))
    worker = workers(url=url, session="case", ledger=str(ledger), writes=True, listens=True)

    def run(number):
        worker.tell({"run": f"task {number}", "key": f"{number}"})
        assert worker.wait_for("done")["turn"] == number

    run(1)  # until now, the server did not know the statements
    kinds = Counter()
    for number in range(2, CUTS + 2):
        cut, when = rng.choice([(proxy.cut_after_request, "after"), (proxy.cut_before_request, "before")])
        what = rng.choice(["accept", "commit", "any"])
        cuts = proxy.cuts
        match what:
            case "accept":
                cut(matching=f"task {number}".encode())
            case "commit":
                cut(matching=f"task {number} ->".encode())
            case "any":
                cut(n=rng.randint(1, 3))
        run(number)
        assert proxy.cuts == cuts + 1
        kinds[f"{when}_{what}"] += 1
    worker.finish()
    _, texts, _ = check_history([worker], read(server.url, "case"), CUTS + 1)
    assert ledger.read_text().splitlines() == [reply for _, reply in texts]
    figures(store=kind, turns=len(texts), cuts=proxy.cuts, connections=proxy.accepted, **kinds)


@pytest.mark.parametrize("kind", SERVERS)
def test_a_commit_whose_answer_is_lost_is_found_done_after_another_worker_went_on(
    workers, kind, server, proxy, tmp_path, *, read, check_history
):
    gate = tmp_path / "gate"
    # Without a journal, the commit is the first request that has the answer in it.
    request = {"session": "case", "lease": 3600.0, "writes": True, "listens": True, "durability": "turn"}
    cut_off = workers(**request, url=plain(proxy.url_through(server.url)), gate=str(gate))
    other = workers(**request, url=server.url)
    cut_off.tell({"run": "task 1", "key": "1"})
    cut_off.wait_for("wrote")
    other.tell({"run": "task 2", "key": "2"})
    proxy.cut_after_request(matching=b"task 1 ->")
    proxy.refuse()
    gate.touch()
    assert other.wait_for("done")["turn"] == 2
    proxy.accept()
    assert cut_off.wait_for("done")["turn"] == 1
    for worker in (cut_off, other):
        worker.finish()
    check_history([cut_off, other], read(server.url, "case"), 2)


UNANSWERED = list(product(("commit", "accept", "read"), ("silent", "gone"), SERVERS))


@pytest.mark.parametrize(("when", "how", "kind"), UNANSWERED)
def test_a_server_that_does_not_answer_is_an_error_in_time_and_the_turn_goes_on_later(
    workers, kind, server, proxy, tmp_path, *, how, when, read, check, figures
):
    gate, ledger = tmp_path / "gate", tmp_path / "ledger"
    request = {"url": proxy.url_through(server.url), "session": "case", "ledger": str(ledger), "gate": str(gate)}
    worker = workers(**request, writes=True, listens=True)
    gate.touch()
    for number in (1, 2):
        worker.tell({"run": f"task {number}", "key": f"{number}"})
        worker.wait_for("done")
    # Of a turn with a key, whether the key is known is read first; without one, its first request is a write.
    third = {"run": "task 3"} if when == "accept" else {"run": "task 3", "key": "3"}
    worker.tell({"deadline": DEADLINE})
    if when == "commit":
        gate.unlink()
        worker.tell(third)
        worker.wait_for("wrote")
    proxy.pause() if how == "silent" else server.stop()
    since = time.monotonic()
    if when == "commit":
        gate.touch()
    else:
        worker.tell(third)
    while (said := worker.hear())["is"] != "error":
        assert said["is"] == "wrote"
    took = said["at"] - since
    assert said["kind"] in ("StoreUnavailable", "OutcomeUnknown")
    if how == "gone":
        server.start()
    turns, state = read(server.url, "case")
    assert [turn.status for turn in turns] == ["done", "done", "running"][: 3 if when == "commit" else 2]
    assert len(state["llm_context"]["messages"]) == 4
    proxy.resume()
    worker.tell({"deadline": PATIENT})
    worker.tell({"resume": True} if when == "accept" else third)
    if worker.wait_for("done")["turn"] is None:  # nobody had heard of it
        worker.tell(third)
        worker.wait_for("done")
    worker.tell({"run": "task 4", "key": "4"})
    assert worker.wait_for("done")["turn"] == 4
    worker.finish()
    _, texts = check(read(server.url, "case"), 4)
    ran = ledger.read_text().splitlines()
    assert not Counter(reply for _, reply in texts) - Counter(ran)
    # What is unknown is found out before anything else happens; a commit that was never sent is lost, and no other run.
    assert len(ran) == 4 + (when == "commit" and said["kind"] == "StoreUnavailable")
    figures(
        store=kind,
        server=how,
        at=when,
        deadline=f"{DEADLINE}s",
        error=said["kind"],
        after=f"{took:.2f}s",
        longest_stall=f"{worker.all('end')[0]['gap'] * 1000:.0f}ms",
    )


def catch_up(replica, primary):
    """Wait until a replica has all that its primary has."""
    sent = primary.execute("INFO", "replication")["master_repl_offset"]
    wait_until(lambda: replica.execute("INFO", "replication")["slave_repl_offset"] >= sent, f"{replica!r} lags")


def heard_error(worker, task):
    """Return a worker's answer to a task that it must not acknowledge."""
    worker.tell({"run": task, "key": task})
    while (said := worker.hear())["is"] != "error":
        assert said["is"] != "done", f"{task!r} was acknowledged"
    return said["kind"]


def test_a_redis_failover_that_loses_turns_is_told_and_a_new_object_goes_on_with_the_older_whole_state(
    workers, servers, tmp_path, *, rng, read, check, figures
):
    primary = servers(Redis())
    proxy = servers(Proxy(primary.port))
    ledger = tmp_path / "ledger"
    # A short lease: one that comes back with an older state belongs to nobody any more, and has to run out.
    request = {"url": proxy.url_through(primary.url), "session": "case", "ledger": str(ledger), "lease": 1.0}
    worker = workers(**request, listens=True, delay=0.01)
    worker.wait_for("found")
    number, lost = 0, []

    def run(times):
        nonlocal number
        for _ in range(times):
            number += 1
            worker.tell({"run": f"task {number}", "key": f"{number}"})
            yield worker.wait_for("done")

    for _ in range(FAILOVERS):
        replica = servers(primary.replica())
        list(run(5))
        catch_up(replica, primary)
        promoting = threading.Timer(rng.uniform(0, 0.1), replica.promote)
        promoting.start()
        told = {}
        while promoting.is_alive():
            told |= {said["turn"]: said["texts"] for said in run(1)}
        told |= {said["turn"]: said["texts"] for said in run(5)}
        # From some moment in there, the replica has heard no more. The primary has acknowledged all.
        primary.crash()
        reading = read(replica.url, "case")
        interrupted = reading[0][-1].status in ("running", "interrupted")
        done = len(reading[0]) - interrupted
        check((reading[0][:done], reading[1]), done)
        assert done >= min(told) - 1
        assert done < max(told), "it was to have heard less"
        for turn in reading[0][:done]:
            if turn.number in told:
                assert [message["content"] for message in turn.messages] == told[turn.number]
        lost.append(max(told) - done)
        proxy._target = replica.port
        proxy.cut()
        assert heard_error(worker, "unheard") == "HistoryLost"
        worker.tell({"open again": True})
        # What was lost and is delivered again is a new turn, after those that were not.
        number = done + interrupted
        list(run(3))
        check(read(replica.url, "case"), number)
        primary = replica
    worker.finish()
    figures(store="redis", failovers=FAILOVERS, acknowledged_turns_lost=lost, turns=number)


def test_a_worker_that_remembers_lost_turns_does_not_write_them_over_the_turns_of_another(workers, servers, read):
    primary = servers(Redis())
    replica = servers(primary.replica())
    proxy = servers(Proxy(primary.port))
    request = {"session": "case", "agent": "counter", "lease": 3600.0, "listens": True}
    old, new = (workers(**request, url=proxy.url_through(primary.url)) for _ in range(2))

    def run(worker, task):
        worker.tell({"run": task, "key": task})
        return worker.wait_for("done")["texts"]

    run(old, "kept")
    catch_up(replica, primary)
    replica.promote()
    run(old, "lost")
    primary.crash()
    proxy._target = replica.port
    proxy.cut()
    run(new, "instead")  # as many writes as were lost
    assert heard_error(old, "lost") == "HistoryLost"
    assert heard_error(old, "unheard") == "HistoryLost"
    assert run(new, "last")[-1] == "last -> 3"
    for worker in (old, new):
        worker.finish()
    turns, state = read(replica.url, "case")
    assert [turn.task[0]["content"] for turn in turns] == ["kept", "instead", "last"]
    assert state["said"] == ["kept", "instead", "last"]


def refused_kind(worker, attempt, number):
    """The error of an attempt that must not be acknowledged."""
    worker.tell({"deadline": DEADLINE})
    said = attempt(number)
    worker.tell({"deadline": PATIENT})
    assert said["is"] == "error", "it was acknowledged"
    return said["kind"]


def test_strict_redis_has_all_it_acknowledged_on_the_replica_and_refuses_without_one(
    workers, servers, tmp_path, *, read, check, figures
):
    primary = servers(Redis({"appendfsync": "always"}))
    replica = servers(primary.replica())
    proxy = servers(Proxy(primary.port))
    url = proxy.url_through(primary.url) + "?strict=true&replicas=1"
    request = {"url": url, "session": "case", "ledger": str(tmp_path / "ledger"), "lease": 3600.0}
    told, refused, number = [], [], 0
    worker = workers(**request, listens=True)

    def attempt(number):
        worker.tell({"run": f"task {number}", "key": f"{number}"})
        while (said := worker.hear())["is"] not in ("done", "error"):
            pass
        (told if said["is"] == "done" else refused).append(said)
        return said

    for _ in range(STRICT_FAILOVERS):
        for _ in range(10):
            number += 1
            assert attempt(number)["is"] == "done"
        # The primary dies in the middle of a turn.
        number += 1
        worker.tell({"deadline": DEADLINE})
        dying = threading.Timer(0.003, primary.crash)
        dying.start()
        last = attempt(number)
        dying.join()
        replica.promote()
        turns, _ = read(replica.url, "case")
        done = {
            turn.number: [message["content"] for message in turn.messages] for turn in turns if turn.status == "done"
        }
        for said in told:
            assert done[said["turn"]] == said["texts"], "an acknowledged turn is not on the replica"
        # The new primary has no replica, so there is nobody to keep a copy.
        proxy._target = replica.port
        proxy.cut()
        before = read(replica.url, "case")
        assert refused_kind(worker, attempt, number + 1) in ("StoreUnavailable", "OutcomeUnknown")
        assert read(replica.url, "case") == before, "something was written that nobody else has"
        primary, replica = replica, servers(replica.replica())
        if last["is"] == "error":
            said = attempt(number)
            assert (said["is"], said["turn"]) == ("done", number)
    # The replica hangs: what is written is not acknowledged. The replica dies: nothing is written.
    replica.pause()
    number, before = number + 1, read(primary.url, "case")
    # A primary that has noticed the late replica before the write refuses it.
    if (kind := refused_kind(worker, attempt, number)) != "OutcomeUnknown":
        assert (kind, read(primary.url, "case")) == ("StoreUnavailable", before)
    replica.resume()
    assert attempt(number)["turn"] == number
    replica.crash()
    before = read(primary.url, "case")
    # On a busy machine the deadline may cut the last try off, of which nobody knows then what it did.
    assert refused_kind(worker, attempt, number + 1) in ("StoreUnavailable", "OutcomeUnknown")
    assert read(primary.url, "case") == before, "something was written that nobody else has"
    worker.finish()
    check(read(primary.url, "case"), number)
    figures(
        store="redis",
        mode="strict",
        failovers=STRICT_FAILOVERS,
        acknowledged=len(told),
        refused=len(refused),
        errors=dict(Counter(said["kind"] for said in refused)),
    )


def test_workers_go_on_when_sentinels_put_another_redis_in_the_place_of_a_dead_one(
    workers, servers, tmp_path, *, check_crews, figures
):
    primary = servers(Redis({"appendfsync": "always"}))
    # One only: of two, the sentinels might choose the one that has not confirmed the last write.
    replica = servers(primary.replica())
    sentinels = servers(RedisSentinel(primary))
    crews = crews_of(workers, sentinels.url + "?strict=true&replicas=1", tmp_path)
    crew = [worker for workers in crews.values() for worker in workers]
    with load(crew) as wait_for_turns:
        wait_for_turns(10)
        primary.crash()
        gone = time.monotonic()
        wait_until(lambda: sentinels.primary_port() == replica.port, "the sentinels did nothing")
        servers(replica.replica())
        wait_for_turns(10)
    turns = check_crews(crews, sentinels.url)
    figures(store="redis", mode="sentinel, strict", workers=len(crew), turns=turns, **silences(crews, [gone]))


def test_workers_go_on_when_a_standby_takes_the_place_of_a_dead_postgres(
    workers, servers, tmp_path, *, check_crews, figures
):
    primary = servers(Postgres())
    asyncio.run(_open(primary.url))
    standby = servers(primary.standby())
    primary.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
    primary.execute("SELECT pg_reload_conf()")
    hosts = f"127.0.0.1:{primary.port},127.0.0.1:{standby.port}"
    url = f"postgresql://midturn:{primary.password}@{hosts}/midturn?target_session_attrs=read-write"
    crews = crews_of(workers, url, tmp_path)
    crew = [worker for workers in crews.values() for worker in workers]
    with load(crew) as wait_for_turns:
        wait_for_turns(20)
        assert primary.execute("SELECT sync_state FROM pg_stat_replication") == [("sync",)]
        primary.crash()
        gone = time.monotonic()
        standby.promote()
        wait_for_turns(10)
    turns = check_crews(crews, standby.url)
    figures(store="postgres", workers=len(crew), turns=turns, **silences(crews, [gone]))


def test_a_postgres_standby_is_never_read(workers, servers, *, read, check, figures):
    primary = servers(Postgres())
    proxy = servers(Proxy(primary.port, kind="postgres"))
    worker = workers(url=proxy.url_through(primary.url), session="case", listens=True)
    worker.tell({"run": "task 1", "key": "1"})
    worker.wait_for("done")
    standby = servers(primary.standby())
    with pytest.raises(midturn.StoreUnavailable, match="standby"):
        asyncio.run(_open(standby.url))
    # The name of the primary leads to a standby, on connections that are new and later on one that was open before.
    proxy._target = standby.port
    proxy.cut()
    worker.tell({"deadline": DEADLINE})
    worker.tell({"run": "task 2", "key": "2"})
    while (said := worker.hear())["is"] != "error":
        pass
    assert said["kind"] in ("StoreUnavailable", "OutcomeUnknown")
    worker.tell({"run": "task 1", "key": "1"})  # a turn that is done is only read
    while (read_only := worker.hear())["is"] != "error":
        assert read_only["is"] != "done", "a standby was read"
    assert read_only["kind"] == "StoreUnavailable"
    primary.crash()
    standby.promote()
    worker.tell({"deadline": PATIENT})
    for number in (1, 2, 3):
        worker.tell({"run": f"task {number}", "key": f"{number}"})
        assert worker.wait_for("done")["turn"] == number
    worker.finish()
    check(read(standby.url, "case"), 3)
    figures(store="postgres", write_on_a_standby=said["kind"], read_on_a_standby=read_only["kind"])


async def _open(url):
    async with midturn.open(url):
        pass
