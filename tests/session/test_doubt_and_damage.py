"""Sessions that are damaged, belong to another, or whose last write is in doubt."""

import sqlite3
from dataclasses import replace

import pytest
from cast import agents
from kinds import assistant

import leftoff
from leftoff.errors import Conflict, OutcomeUnknown, StoreUnavailable
from leftoff.ledger import Ledger
from leftoff.records import Kind, Row
from leftoff.turns import Progress


async def test_another_blueprint_cannot_run_the_session(store):
    await store.session("case", leftoff.Blueprint("sales", assistant)).run(task="one")
    head = await store.store.head("case")
    with pytest.raises(leftoff.StateInvalid, match="belongs to the blueprint 'sales'"):
        await store.session("case", leftoff.Blueprint("support", assistant)).run(task="two")
    assert (await store.store.head("case")).seq == head.seq


async def test_an_unknown_status_is_refused_and_not_an_empty_list(memory):
    with pytest.raises(leftoff.StateInvalid, match="idle, running, waiting, failed, deleted"):
        [info async for info in memory.sessions(status="interrupted")]


async def test_a_damaged_record_in_sqlite_hides_no_other_session(tmp_path, caplog):
    url = f"sqlite:///{tmp_path / 'store.db'}"
    async with leftoff.open(url) as store:
        for name in ("a", "b", "c"):
            await store.session(name, agents()[0]).run(task="one")
    with sqlite3.connect(tmp_path / "store.db") as db:
        db.execute("UPDATE sessions SET labels = 'nope' WHERE name = 'b'")
    db.close()
    async with leftoff.open(url) as store:
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
    "it was written": (lambda write, old: write.head(now=2.0, created=1.0), None),
    "nothing was written": (lambda write, old: old, StoreUnavailable),
    "another wrote": (lambda write, old: replace(old, seq=old.seq + 1, token="other"), Conflict),
    "others wrote more than once": (lambda write, old: replace(old, seq=old.seq + 2, token="other"), Conflict),
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


async def test_what_a_write_that_failed_would_have_added_is_added_by_the_next_one(memory, monkeypatch):
    live = assistant()
    await live.run(task="one")
    case = memory.session("case", live)
    await case.save()
    context = live.model_context
    await context.add_message((await context.get_messages())[0])  # nothing that is not stored already

    async def unreachable(_):
        raise StoreUnavailable("the network is down")

    with monkeypatch.context() as network:
        network.setattr(memory.store, "write", unreachable)
        with pytest.raises(StoreUnavailable):
            await case.save()
    assert await case.save() == 2
    assert await case.at(2).state() == await live.save_state()
