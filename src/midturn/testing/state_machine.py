"""A state machine that compares a store with a plain dict, with calls in the random order that Hypothesis chooses."""
# ruff: noqa: S101, PLR2004 - a state machine asserts, and its numbers are limits

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from midturn.errors import Conflict, MidturnError, SessionDeleted
from midturn.record.codec import encode
from midturn.record.head import Head, Kind, Removal, Row, Status, Write, by_change, cursor
from midturn.store import DEADLINE, follows
from midturn.testing.concurrency import interrupt, settle
from midturn.testing.samples import HOSTILE_IDS, NEIGHBOURS, SAMPLE_BYTES
from midturn.testing.subject import Subject, snapshot, timeless

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence

    from midturn.store import Store

T = TypeVar("T")

MAX_HANDLES = 3
STATUSES: tuple[Status, ...] = ("idle", "running", "waiting", "failed", "cancelled")

text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=8)
id_lists = st.sampled_from([HOSTILE_IDS, *NEIGHBOURS]).flatmap(
    lambda some: st.lists(st.sampled_from(some) | text, min_size=3, max_size=7, unique=True)
)
# Few keys and values, so that filters find something.
label_sets = st.dictionaries(st.sampled_from(["team", "tier", "a.b"]), st.sampled_from(["claims", "gold", "", "'%"]))
# Short payloads, because Hypothesis prints them, and a store hardly treats long ones differently.
payloads = st.sampled_from([data for data in SAMPLE_BYTES if len(data) < 1_000]) | text.map(encode)
# Few kinds and numbers, so that rows collide.
numbers = st.integers(0, 7) | st.sampled_from([2**53, 2**53 + 1, 2**62])
rows = st.builds(Row, kind=st.sampled_from([Kind.BODY, Kind.DECISION, Kind.KEY, Kind.CALL]), n=numbers, data=payloads)
REMOVED = (Kind.BODY, Kind.KEY, Kind.CALL)
removals = st.builds(Removal, kind=st.sampled_from(REMOVED), start=numbers, stop=numbers)
plans = st.builds(
    Write,
    session=st.just(""),
    seq=st.just(0),
    epoch=st.integers(0, 2**40),
    status=st.sampled_from(STATUSES),
    labels=label_sets,
    owner=st.none() | text,
    lease=st.sampled_from([0.0, 0.5, 3_600.0]),
    token=text,
    data=payloads | st.binary(max_size=9),
    rows=st.lists(rows, max_size=4).map(tuple),
    removes=st.lists(removals, max_size=2).map(tuple),
)
anything = st.integers(0, 1_000)


@dataclass(slots=True)
class Known:
    """A session in the model."""

    head: Head
    rows: dict[tuple[Kind, int], Row]


class StoreMachine(Subject, RuleBasedStateMachine):
    """State machine for a store: subclass it, override ``open_store``, and give its ``TestCase`` to pytest.

    class MyMachine(StoreMachine):
        @asynccontextmanager
        async def open_store(self, where):
            store = await MyStore.open(where)
            try:
                yield store
            finally:
                await store.close()

    TestMyMachine = MyMachine.TestCase
    """

    def __init__(self) -> None:
        super().__init__()
        # A loop of its own, never the thread's current one: synchronous code drives the machine.
        self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        self._folder = tempfile.TemporaryDirectory(prefix="midturn-machine-")
        self._handles: list[tuple[Store, AsyncExitStack]] = []
        self._abandoned: list[AsyncExitStack] = []
        self._known: dict[str, Known] = {}
        self._ids: list[str] = []
        self._touched = ""
        self._tokens = 0

    @initialize(ids=id_lists, first=st.lists(plans, max_size=3))
    def begin(self, ids: list[str], first: list[Write]) -> None:
        """Begin with a few ids, one handle, and some sessions."""
        self._ids = ids
        self._open()
        for which, plan in enumerate(first):
            self._race([self._planned(plan, which)], 0)

    def teardown(self) -> None:
        """Close all handles and remove the files."""
        for stack in [*self._abandoned, *(stack for _, stack in self._handles)]:
            self._run(stack.aclose())
        self._runner.close()
        self._folder.cleanup()

    # Writes and deletions

    @rule(which=anything, handle=anything, plan=plans, off=st.sampled_from([0, 0, 0, 0, 0, -1, 1, -1_000]))
    def write(self, which: int, handle: int, plan: Write, off: int) -> None:
        """Write with the right seq or another one, and with new or existing rows."""
        self._race([self._planned(plan, which, off=off)], handle)

    @rule(
        which=anything,
        handle=anything,
        plan=plans,
        row=anything,
        start=st.integers(-1, 1),
        stop=st.integers(0, 2),
        again=st.none() | payloads,
    )
    def remove_near_a_row(
        self, which: int, handle: int, plan: Write, row: int, *, start: int, stop: int, again: bytes | None
    ) -> None:
        """Remove a range that begins or ends next to a row. The same write may add the row ``again``."""
        known = self._known.get(self._session(which))
        there = [old for old in _in_order(known) if old.kind in REMOVED] if known else []
        if there:
            near = there[row % len(there)]
            removes = (Removal(kind=near.kind, start=max(0, near.n + start), stop=near.n + stop),)
            added = () if again is None else (replace(near, data=again),)
            self._race([self._planned(replace(plan, rows=added, removes=removes), which)], handle)

    @rule(which=anything, handle=anything, rivals=st.lists(plans, min_size=2, max_size=4))
    def race(self, which: int, handle: int, rivals: list[Write]) -> None:
        """Write several times from the same seq, each on another handle if there are enough."""
        self._race([self._planned(plan, which) for plan in rivals], handle)

    @rule(which=anything, handle=anything, other=anything, plan=plans, after=st.integers(0, 7))
    def interrupted_write(self, which: int, handle: int, other: int, plan: Write, after: int) -> None:
        """Cancel a writer, and let another handle find out the outcome of its write."""
        write = self._planned(plan, which)
        if self._verdict(write) is not None:
            return

        async def calls() -> Head:
            await interrupt(self._store(handle).write(write), after=after)
            return await settle(self._store(other), write.session, write.seq, write.token)

        head = self._run(calls())
        fence = replace(write, epoch=head.epoch, status=head.status, labels={}, owner=None, token=head.token)
        fence = replace(fence, data=head.data, rows=(), removes=())
        self._accept(write if head.token == write.token else fence, head)

    @rule(which=anything, handle=anything, data=st.binary(max_size=9) | payloads)
    def delete(self, which: int, handle: int, data: bytes) -> None:
        """Delete a session, an unknown one or a deleted one."""
        self._delete(which, handle, data)

    @rule(which=anything, handle=anything)
    def forget(self, which: int, handle: int) -> None:
        """Forget a deleted session, an unknown one or one that is not deleted."""
        self._forget(which, handle)

    @rule(which=anything, handle=anything, plan=plans)
    def begin_again(self, which: int, handle: int, plan: Write) -> None:
        """Delete and forget a session, and write another one with its id."""
        self._delete(which, handle, b"")
        self._forget(which, handle)
        self._race([self._planned(plan, which)], handle)

    def _delete(self, which: int, handle: int, data: bytes) -> None:
        session = self._session(which)
        known = self._known.get(session)
        found = known is not None and known.head.status != "deleted"
        assert self._run(self._store(handle).delete(session, data=data)) is found
        if found and known is not None:
            head = self._run(self._store(handle).head(session))
            assert head is not None
            assert head.updated >= known.head.updated
            assert timeless(head) == timeless(known.head.deleted(now=head.updated, data=data))
            self._known[session] = Known(timeless(head), {})

    def _forget(self, which: int, handle: int) -> None:
        session = self._session(which)
        known = self._known.get(session)
        if known is not None and known.head.status != "deleted":
            with pytest.raises(Conflict):
                self._run(self._store(handle).forget(session))
        else:
            assert self._run(self._store(handle).forget(session)) is (known is not None)
            self._known.pop(session, None)

    # Reads

    @rule(which=anything, handle=anything, row=anything, start=st.integers(-1, 1), length=st.none() | st.integers(0, 3))
    def read_rows(self, which: int, handle: int, row: int, start: int, length: int | None) -> None:
        """Read rows in a range that begins or ends next to a row."""
        session = self._session(which)
        known = self._known.get(session)
        there = _in_order(known) if known else ()
        near = there[row % len(there)] if there else Row(kind=Kind.BODY, n=1, data=b"")
        first = max(0, near.n + start)
        stop = None if length is None else first + length
        expected = [row for row in there if row.kind is near.kind and first <= row.n and (stop is None or row.n < stop)]
        assert list(self._run(self._store(handle).rows(session, near.kind, start=first, stop=stop))) == expected

    @rule(
        handle=anything,
        prefix=st.sampled_from(["", "%", "_", "*", "a%", "a_", "[a", "C"]) | st.tuples(anything, st.integers(1, 4)),
        after=st.none() | anything,
        limit=st.integers(1, 5),
        reverse=st.booleans(),
    )
    def list_by_prefix(
        self, handle: int, prefix: str | tuple[int, int], after: int | None, limit: int, *, reverse: bool
    ) -> None:
        """List from an id on, with the beginning of an id or the characters of a pattern as the prefix."""
        start = "" if after is None else self._session(after)
        literal = prefix if isinstance(prefix, str) else self._session(prefix[0])[: prefix[1]]
        behind = follows(start, order="id", reverse=reverse)
        expected = [head for head in self._listed(None) if behind(head) and head.session.startswith(literal)]
        expected.sort(key=lambda head: head.session, reverse=reverse)
        found = self._run(self._store(handle).heads(after=start, limit=limit, prefix=literal, reverse=reverse))
        assert [timeless(head) for head in found] == expected[:limit]

    @rule(
        handle=anything,
        of=st.lists(anything, max_size=2),
        status=st.none() | st.sampled_from([*STATUSES, "deleted"]),
        limit=st.integers(1, 5),
    )
    def list_by_labels(self, handle: int, of: list[int], status: Status | None, limit: int) -> None:
        """List by the labels of one session, or of two."""
        labels: dict[str, str] = {}
        for which in of:
            known = self._known.get(self._session(which))
            labels |= known.head.labels if known else {"team": "none"}
        expected = [head for head in self._listed(status) if labels.items() <= head.labels.items()]
        found = self._run(self._store(handle).heads(limit=limit, status=status, labels=labels))
        assert [timeless(head) for head in found] == expected[:limit]

    @rule(
        handle=anything,
        after=st.none() | anything,
        status=st.none() | st.sampled_from([*STATUSES, "deleted"]),
        limit=st.integers(1, 5),
        reverse=st.booleans(),
    )
    def list_by_change(
        self, handle: int, after: int | None, status: Status | None, limit: int, *, reverse: bool
    ) -> None:
        """List by change, from the latest or the oldest one, or from that of any session on."""
        known = None if after is None else self._known.get(self._session(after))
        start = cursor(known.head) if known else ""
        behind = follows(start, order="updated", reverse=reverse)
        expected = sorted(filter(behind, self._listed(status)), key=by_change, reverse=not reverse)
        listed = self._store(handle).heads(after=start, limit=limit, status=status, order="updated", reverse=reverse)
        found = self._run(listed)
        assert [timeless(head) for head in found] == expected[:limit]

    # Handles

    @precondition(lambda self: self.shared and len(self._handles) < MAX_HANDLES)
    @rule()
    def another_handle(self) -> None:
        """Open another handle, as a second process would."""
        self._open()

    @precondition(lambda self: len(self._handles) > 1)
    @rule(handle=anything)
    def close_a_handle(self, handle: int) -> None:
        """Close a handle, as at the end of one of several processes."""
        _, stack = self._handles.pop(handle % len(self._handles))
        self._run(stack.aclose())

    @precondition(lambda self: self.durable)
    @rule()
    def reopen(self) -> None:
        """Close all handles and open one, as after the end of all processes."""
        while self._handles:
            self._run(self._handles.pop()[1].aclose())
        self._open()
        self._compare_all()

    @precondition(lambda self: self.durable and self.shared)
    @rule()
    def crash(self) -> None:
        """Open a handle without closing the others, as after a crash of all processes."""
        self._abandoned += [stack for _, stack in self._handles]
        self._handles.clear()
        self._open()
        self._compare_all()

    # Invariants

    @invariant()
    def every_head_is_as_the_model_says(self) -> None:
        """Compare the heads on every handle with the model."""

        async def compare(store: Store) -> None:
            for status in (None, "deleted"):
                found = await store.heads(limit=1_000, status=status)
                assert [timeless(head) for head in found] == self._listed(status)
            counts = await store.counts()
            assert dict(counts) == dict(Counter(known.head.status for known in self._known.values()))

        for store, _ in self._handles:
            self._run(compare(store))

    @invariant()
    def the_last_session_is_as_the_model_says(self) -> None:
        """Compare the head and all rows of the last session with the model."""
        if self._touched:
            self._compare(self._touched)

    def _compare_all(self) -> None:
        for session in self._ids:
            self._compare(session)

    def _compare(self, session: str) -> None:
        known = self._known.get(session)
        expected = (known.head, _in_order(known)) if known else (None, ())
        for store, _ in self._handles:
            assert self._run(snapshot(store, session)) == expected

    # The model

    def _listed(self, status: Status | None) -> list[Head]:
        heads = [self._known[session].head for session in sorted(self._known)]
        return [head for head in heads if (head.status == status if status else head.status != "deleted")]

    def _planned(self, plan: Write, which: int, *, off: int = 0) -> Write:
        """Return the plan as a write of one of the sessions, with a unique token."""
        session = self._session(which)
        known = self._known.get(session)
        self._tokens += 1
        seq = max(0, (known.head.seq if known else 0) + off)
        return replace(plan, session=session, seq=seq, token=f"{plan.token}-{self._tokens}")

    def _verdict(self, write: Write) -> type[MidturnError] | None:
        """Return the error that the write must raise."""
        known = self._known.get(write.session)
        if known and known.head.status == "deleted":
            return SessionDeleted
        new = {(row.kind, row.n) for row in write.rows}
        collides = len(new) < len(write.rows) or (known is not None and not new.isdisjoint(write.left(known.rows)))
        return Conflict if collides or write.seq != (known.head.seq if known else 0) else None

    def _race(self, writes: list[Write], handle: int) -> None:
        """Start all writes at once, and check that one valid write succeeds and all others raise the right error."""
        verdicts = [self._verdict(write) for write in writes]

        async def calls() -> list[Head | BaseException]:
            stores = [self._store(handle + number) for number in range(len(writes))]
            starts = (store.write(write) for store, write in zip(stores, writes, strict=True))
            return await asyncio.gather(*starts, return_exceptions=True)

        won: list[tuple[Write, Head]] = []
        for write, verdict, result in zip(writes, verdicts, self._run(calls()), strict=True):
            if isinstance(result, Head):
                assert verdict is None, f"accepted instead of {verdict.__name__}"
                won.append((write, result))
            else:
                assert type(result) is (verdict or Conflict), repr(result)
                assert result.session == write.session
        assert len(won) == (1 if None in verdicts else 0)
        for write, head in won:
            self._accept(write, head)

    def _accept(self, write: Write, head: Head) -> None:
        """Check the head of an acknowledged write, and apply the write to the model."""
        known = self._known.get(write.session)
        created = known.head.created if known else head.updated
        assert timeless(head) == timeless(write.head(now=head.updated, created=created))
        assert head.updated >= (known.head.updated if known else 0.0)
        left = {key: known.rows[key] for key in write.left(known.rows)} if known else {}
        self._known[write.session] = Known(timeless(head), left | {(row.kind, row.n): row for row in write.rows})

    # The store

    def _session(self, which: int) -> str:
        self._touched = self._ids[which % len(self._ids)]
        return self._touched

    def _store(self, handle: int) -> Store:
        return self._handles[handle % len(self._handles)][0]

    def _open(self) -> None:
        stack = AsyncExitStack()
        opening = stack.enter_async_context(self.open_store(Path(self._folder.name) / "store"))
        self._handles.append((self._run(opening), stack))

    def _run(self, work: Coroutine[object, object, T]) -> T:
        async def limited() -> T:
            async with asyncio.timeout(DEADLINE):
                return await work

        # Not Runner.run, which also sets and resets the handler of Ctrl-C: with a quick store, a third of the time.
        return self._runner.get_loop().run_until_complete(limited())


def _in_order(known: Known) -> Sequence[Row]:
    return tuple(known.rows[key] for key in sorted(known.rows))
