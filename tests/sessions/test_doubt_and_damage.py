"""Sessions that are damaged, belong to another, or whose last write is in doubt."""

import asyncio
import sqlite3
from dataclasses import replace

import pytest
from autogen_agentchat.agents import UserProxyAgent
from autogen_core.models import UserMessage
from cast import agents
from kinds import assistant
from scripted import calls

import midturn
from midturn.errors import Conflict, HistoryLost, OutcomeUnknown, StoreUnavailable
from midturn.framework import Input
from midturn.lease.ledger import Ledger
from midturn.record.head import Kind, Row
from midturn.record.rows import Progress
from midturn.stopping import stop_of


async def test_another_blueprint_cannot_run_the_session(store):
    await store.session("case", midturn.Blueprint("sales", assistant)).run(task="one")
    head = await store.store.head("case")
    with pytest.raises(midturn.InvalidArgument, match="belongs to the blueprint 'sales'"):
        await store.session("case", midturn.Blueprint("support", assistant)).run(task="two")
    assert (await store.store.head("case")).seq == head.seq


async def stay_interrupted(store, blueprint):
    """Leave the first turn of a session open, as a crash would."""
    case = store.session("case", blueprint)
    await case._ledger.refresh()
    await case._runner.begin(Input(task=case._framework.accept("one")), None, 0, "", None)
    await case._ledger.write(status="running", progress=case._ledger.progress, release=True)


async def test_another_blueprint_cannot_finish_the_first_turn(store):
    await stay_interrupted(store, midturn.Blueprint("sales", assistant))
    with pytest.raises(midturn.InvalidArgument, match="belongs to the blueprint 'sales'"):
        await store.session("case", midturn.Blueprint("support", assistant)).resume()
    await store.session("case", midturn.Blueprint("sales", assistant)).resume()
    assert (await store.info("case")).blueprint == "sales"


async def test_agents_without_a_blueprint_do_not_run_a_session_that_has_one(store):
    """A blueprint may declare effects and approvals, of which a plain factory and a live agent know nothing."""
    sales = midturn.Blueprint("sales", assistant)
    await stay_interrupted(store, sales)
    for what in (assistant, assistant()):
        for call in (store.session("case", what).resume(), store.session("case", what).run(task="two")):
            with pytest.raises(midturn.InvalidArgument, match="session 'case': belongs to the blueprint 'sales'"):
                await call
    assert (await store.session("case", sales).resume()).turn == 1
    with pytest.raises(midturn.InvalidArgument, match="belongs to the blueprint 'sales'"):
        await store.session("case", assistant).run(task="two")
    assert (await store.info("case")).turns == 1


async def test_a_session_without_a_blueprint_belongs_to_the_first_that_names_it(store):
    await stay_interrupted(store, assistant)
    failing = midturn.Blueprint("support", lambda: assistant(answer=lambda messages: 1 / 0))
    with pytest.raises(midturn.TurnFailed):
        await store.session("case", failing).resume()
    assert (await store.info("case")).blueprint == "support"
    with pytest.raises(midturn.InvalidArgument, match="belongs to the blueprint 'support'"):
        await store.session("case", midturn.Blueprint("sales", assistant)).resume()


async def test_a_turn_that_is_given_up_leaves_the_session_to_its_old_owner(store):
    await store.session("case", assistant).run(task="one")
    failing = midturn.Blueprint("sales", lambda: assistant(answer=lambda messages: 1 / 0), version=2)
    failing.migration(1, 2)(lambda state: state)
    with pytest.raises(midturn.TurnFailed):
        await store.session("case", failing).run(task="two")
    await store.session("case").discard()
    info = await store.info("case")
    assert (info.blueprint, info.version) == (None, 1)
    await store.session("case", midturn.Blueprint("support", assistant)).run(task="two")


async def test_an_unknown_status_is_refused_and_not_an_empty_list(memory):
    with pytest.raises(
        midturn.InvalidArgument, match="idle, running, interrupted, waiting, failed, cancelled, deleted"
    ):
        [info async for info in memory.sessions(status="done")]


async def test_a_damaged_record_in_sqlite_hides_no_other_session(tmp_path, caplog):
    url = f"sqlite:///{tmp_path / 'store.db'}"
    async with midturn.open(url) as store:
        for name in ("a", "b", "c"):
            await store.session(name, agents()[0]).run(task="one")
    with sqlite3.connect(tmp_path / "store.db") as db:
        db.execute("UPDATE sessions SET labels = 'nope' WHERE name = 'b'")
    db.close()
    async with midturn.open(url) as store:
        assert [info.id async for info in store.sessions()] == ["a", "c"]
    assert "'b'" in caplog.text


class CutOff:
    """A store whose write ends in doubt; ``after`` is what the session's head is found to be."""

    def __init__(self, before, after):
        self.found, self._after = before, after

    async def head(self, session):
        if isinstance(self.found, Exception):
            raise self.found
        return self.found

    async def write(self, write):
        self.found = self._after(write, self.found)
        raise OutcomeUnknown("cut off")


OUTCOMES = {
    "it was written": (lambda write, old: write.head(now=2.0, created=old.created), None),
    "nothing was written": (lambda write, old: old, StoreUnavailable),
    "another wrote": (lambda write, old: replace(old, seq=old.seq + 1, token="other"), Conflict),
    "others wrote more than once": (lambda write, old: replace(old, seq=old.seq + 2, token="other"), Conflict),
    "all was lost": (lambda write, old: None, HistoryLost),
    "it was set back": (lambda write, old: replace(old, seq=old.seq - 1, token="older"), HistoryLost),
    "it was set back, and another wrote": (lambda write, old: replace(old, token="other"), HistoryLost),
    "nobody can tell": (lambda write, old: StoreUnavailable("down"), OutcomeUnknown),
}


@pytest.mark.parametrize(("after", "error"), OUTCOMES.values(), ids=OUTCOMES)
async def test_a_write_that_was_cut_off_is_resolved_by_its_token(memory, after, error):
    await memory.session("case", agents()[0]).run(task="one")
    ledger = Ledger(CutOff(await memory.store.head("case"), after), "case")
    await ledger.refresh()
    if error is None:
        await ledger.write(status="idle", progress=Progress(turn=1))
        assert ledger.owned
    else:
        with pytest.raises(error) as caught:
            await ledger.write(status="idle", progress=Progress(turn=1))
        assert type(caught.value) is error


@pytest.mark.parametrize("written", [True, False])
async def test_a_write_that_others_followed_is_known_by_its_rows(memory, written):
    await memory.session("case", agents()[0]).run(task="one")
    row, late = (Row(kind=Kind.FAILURE, n=0, data=data) for data in (b"ours", b"theirs"))
    store = CutOff(await memory.store.head("case"), lambda write, old: replace(old, seq=old.seq + 2, token="other"))

    async def rows(session, kind, *, start, stop):
        return [row if written else late]

    store.rows = rows
    ledger = Ledger(store, "case")
    await ledger.refresh()
    if written:
        await ledger.write(status="idle", progress=Progress(turn=1), rows=[row], release=True)
        assert not ledger.owned
    else:
        with pytest.raises(Conflict):
            await ledger.write(status="idle", progress=Progress(turn=1), rows=[row], release=True)


def unreachable(store, patch):
    """Let no write get through."""

    async def write(_):
        raise StoreUnavailable("the network is down")

    patch.setattr(store.store, "write", write)


async def test_what_a_write_that_failed_would_have_added_is_added_by_the_next_one(memory, monkeypatch):
    live = assistant()
    await live.run(task="one")
    case = memory.session("case", live)
    await case.save()
    context = live.model_context
    await context.add_message((await context.get_messages())[0])  # nothing that is not stored already
    with monkeypatch.context() as network:
        unreachable(memory, network)
        with pytest.raises(StoreUnavailable):
            await case.save()
    assert await case.save() == 2
    assert await case.at(2).state() == await live.save_state()


@pytest.mark.parametrize("turns", range(6))  # with one of them, both have added as much
async def test_what_others_have_written_since_a_write_failed_is_not_taken_for_our_own(memory, monkeypatch, turns):
    live = assistant()
    await live.run(task="one")
    case = memory.session("case", live)
    await case.save()
    for number in range(4):
        await live.model_context.add_message(UserMessage(content=f"{number}", source="user"))
    with monkeypatch.context() as network:
        unreachable(memory, network)
        with pytest.raises(StoreUnavailable):
            await case.save()
    for number in range(turns):
        with pytest.raises(midturn.TurnFailed):
            await memory.session("case", failing).run(f"task {number}")
    saved = await case.save()
    assert await case.at(saved).state() == await live.save_state()


def failing():
    """An agent whose model is out of reach."""

    def answer(_):
        raise ConnectionError

    return assistant(answer=answer)


class Crowded:
    """A store with a session that another runs without end; between two turns it is free for a moment."""

    def __init__(self, head, turn, moment, phase):
        self._head, self._turn, self._moment, self._phase = head, turn, moment, phase
        self.now, self.looks = 0.0, 0

    async def head(self, _):
        self.looks += 1
        turn, rest = divmod(self.now + self._phase, self._turn)
        free = rest < self._moment
        return replace(
            self._head, epoch=int(turn), owner=None if free else "other", expires=self.now + 30, now=self.now
        )

    async def sleep(self, seconds):
        self.now += seconds


@pytest.mark.parametrize("turn", [0.1, 0.5, 2.0])
async def test_one_who_waits_for_a_session_that_is_always_in_use_comes_in_between(memory, monkeypatch, turn):
    await memory.save("case", assistant())
    for phase in range(10):
        store = Crowded(await memory.store.head("case"), turn, moment=turn / 25, phase=turn * phase / 10 + 0.01)
        monkeypatch.setattr("midturn.lease.ledger.asyncio.sleep", store.sleep)
        monkeypatch.setattr("midturn.lease.ledger.time.monotonic", lambda store=store: store.now)
        ledger = Ledger(store, "case")
        await ledger.refresh()
        await ledger.wait(30.0, stop_of(None))
        assert store.looks < 1000
        monkeypatch.undo()


@pytest.mark.parametrize("many", [1, 2, 3, 4, 100])
async def test_a_body_that_is_missing_is_found_wherever_a_piece_of_them_ends(memory, monkeypatch, many):
    case = memory.session("case", assistant)
    for number in range(3):
        await case.run(f"task {number} " * 10)
    rows = await memory.store.rows("case", Kind.BODY)
    head = await memory.store.head("case")
    monkeypatch.setattr("midturn.history.checkpoints.MANY", many)
    assert (await memory.session("case", assistant).at(3).state()) == await case.at(3).state()
    reading = memory.store.rows
    for gone in rows:

        async def without(*args, gone=gone, **options):
            return [row for row in await reading(*args, **options) if row != gone]

        with monkeypatch.context() as damage:
            damage.setattr(memory.store, "rows", without)
            for use in (memory.session("case", assistant).run("on"), memory.save("case", assistant())):
                with pytest.raises(midturn.StateInvalid):
                    await use
    assert (await memory.store.head("case")).seq == head.seq


@pytest.mark.parametrize("how", ["save", "run", "answer", "discard"])
async def test_what_is_refused_although_nobody_else_writes_ends(memory, monkeypatch, how):
    if how in ("answer", "discard"):
        await memory.session("case", lambda: UserProxyAgent("user", input_func=midturn.human)).run(task="one")
    else:
        await memory.save("case", assistant())

    async def refused(write):
        raise Conflict.of(write.session)

    monkeypatch.setattr(memory.store, "write", refused)
    case = memory.session("case", None if how in ("answer", "discard") else assistant(), timeout=0.05)
    work = {
        "save": case.save,
        "run": lambda: case.run("two"),
        "answer": lambda: case.answer("yes"),
        "discard": case.discard,
    }
    with pytest.raises(midturn.StateInvalid, match="the store has a row that the head does not count"):
        await work[how]()


async def test_a_turn_that_runs_is_not_said_to_be_answered(memory):
    running = asyncio.Event()

    async def wait() -> str:
        """Wait."""
        running.set()
        await asyncio.Event().wait()
        return ""

    case = memory.session("case", lambda: assistant(answer=lambda _: calls(("wait", "{}")), tools=[wait]))
    task = asyncio.create_task(case.run(task="one"))
    await running.wait()
    with pytest.raises(Conflict, match="waits for no answer; its turn runs now"):
        await memory.session("case").answer("approve")
    task.cancel()
    await asyncio.wait({task})


async def test_what_its_owner_told_an_agent_is_still_there_when_a_turn_is_cancelled_as_it_is_accepted(
    memory, monkeypatch
):
    live = assistant()
    case = memory.session("case", live)
    await case.run(task="one")
    await live.model_context.add_message(UserMessage(content="by hand", source="owner"))
    before = await live.save_state()
    written, real = asyncio.Event(), memory.store.write

    async def slow(write):
        head = await real(write)
        written.set()
        await asyncio.sleep(0.05)
        return head

    with monkeypatch.context() as network:
        network.setattr(memory.store, "write", slow)
        task = asyncio.create_task(case.run(task="two " * 20))
        await written.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert await live.save_state() == before
    await case.run(task="three")
    assert "by hand" in str(await live.save_state())
    assert await case.at(3).state() == await live.save_state()
