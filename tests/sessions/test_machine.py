"""A state machine of sessions: people rewind, edit, fork, compact, delete and prune them in any order, beside turns.

A dict of lists says what each session must have. Its states are the texts that the model of the agent sees.
"""

import asyncio
import tempfile
from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from cast import agents, said
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tools.servers.shared import store_url

import midturn

NAMES = ("a-1", "a-2", "b-1")
WORDS = ("red", "green", "blue")
KEYS = ("k1", "k2", "k3")

names, words, numbers = st.sampled_from(NAMES), st.sampled_from(WORDS), st.integers(1, 6)


@dataclass
class Case:
    """A session as it must be."""

    states: dict[int, list[str]] = field(default_factory=dict)
    origins: dict[int, str] = field(default_factory=dict)
    back: dict[int, int] = field(default_factory=dict)
    """For each rewind, the checkpoint that it restored."""
    keys: dict[str, tuple[int, str, str]] = field(default_factory=dict)
    """The turn of each key, its task, and its answer."""
    acts: list[tuple[str, int | None]] = field(default_factory=list)
    labels: dict[str, str] = field(default_factory=dict)
    first: int = 1
    fork: tuple[str, int] | None = None
    deleted: str | None = None

    @property
    def last(self):
        return max(self.states, default=0)

    def has(self, number):
        return self.first <= number <= self.last

    def add(self, origin, state):
        number = self.last + 1
        self.states[number], self.origins[number] = state, origin
        if origin != "run":
            self.acts.append((origin, number))
        return number

    @property
    def history(self):
        """The turns that are kept, their origins, and the rewinds that left them behind."""
        behind, at = {}, self.last
        while at >= 1:
            if to := self.back.get(at):
                behind |= dict.fromkeys(range(to + 1, at), at)
                at = to
            else:
                at -= 1
        return [(n, self.origins[n], behind.get(n)) for n in self.states if n >= self.first]


class SessionMachine(RuleBasedStateMachine):
    kind = "memory"

    def __init__(self):
        super().__init__()
        self.runner = asyncio.Runner()
        self.stack, self.folder = AsyncExitStack(), tempfile.TemporaryDirectory()
        self.factory, self.model = agents()
        self.cases: dict[str, Case] = {}
        self.open = {}
        self.answers = {}
        self.touched = NAMES[0]

    @initialize(first=st.lists(words, min_size=3, max_size=5))
    def begin(self, first):
        """Begin with a session of some turns, so that there is something to go back to."""
        url = store_url(self.kind, Path(self.folder.name) / "store")
        self.store = self.run(self.stack.enter_async_context(midturn.open(url)))
        for word in first:
            self.turn(NAMES[0], word, None, anew=False)

    def teardown(self):
        self.run(self.stack.aclose())
        self.runner.close()
        self.folder.cleanup()

    def run(self, work):
        return self.runner.run(work)

    def refused(self, error, work):
        with pytest.raises(error):
            self.run(work)

    def session(self, name, *, anew=False, **options):
        """A session object that was used before, or a new one, as another process has it."""
        self.touched = name
        if anew or options or name not in self.open:
            self.open[name] = self.store.session(name, self.factory, **options)
        return self.open[name]

    def known(self, name):
        """The session with this name, if it is there."""
        case = self.cases.get(name)
        return case if case and case.deleted is None else None

    def gone(self, name):
        return midturn.SessionDeleted if name in self.cases else midturn.NotFound

    # Turns

    @rule(name=names, word=words, key=st.none() | st.sampled_from(KEYS), anew=st.booleans())
    def turn(self, name, word, key, anew):
        session, case = self.session(name, anew=anew), self.cases.get(name)
        if case and case.deleted is not None:
            return self.refused(midturn.SessionDeleted, session.run(task=word, key=key))
        case = self.cases.setdefault(name, Case())
        asked = len(self.model.seen)
        if key in case.keys:
            turn, task, answer = case.keys[key]
            if task != word:
                self.refused(midturn.Conflict, session.run(task=word, key=key))
            elif turn < case.first:
                self.refused(midturn.NotFound, session.run(task=word, key=key))
            else:
                assert said(self.run(session.run(task=word, key=key))) == answer
            assert len(self.model.seen) == asked
            return None
        answer = said(self.run(session.run(task=word, key=key)))
        assert len(self.model.seen) == asked + 1
        told = [*case.states.get(case.last, []), word]
        assert self.answers.setdefault(tuple(told), answer) == answer, "the model saw something else than before"
        number = case.add("run", [*told, answer])
        if key is not None:
            case.keys[key] = number, word, answer
        return None

    # Acts of people

    @rule(name=names, to=numbers, anew=st.booleans())
    def rewind(self, name, to, anew):
        session, case = self.session(name, anew=anew), self.known(name)
        if case is None or not case.has(to):
            return self.refused(midturn.NotFound if case else self.gone(name), session.rewind(to, by="ann"))
        number = case.add("rewind", case.states[to])
        case.back[number] = to
        assert self.run(session.rewind(to, by="ann")) == number
        return None

    @rule(name=names, old=words, new=words, anew=st.booleans())
    def edit(self, name, old, new, anew):
        session, case = self.session(name, anew=anew), self.known(name)
        work = session.edit(lambda state: state.correct(old, new), by="ann")
        if case is None:
            return self.refused(self.gone(name), work)
        state = case.states[case.last]
        if old == new or not any(old in text for text in state):
            return self.refused(midturn.InvalidArgument, work)
        assert self.run(work) == case.add("edit", [text.replace(old, new) for text in state])
        return None

    @rule(name=names, other=names, at=st.none() | numbers)
    def fork(self, name, other, at):
        session, case = self.session(name), self.known(name)
        work = session.fork(other, at=at, by="ann", labels={"from": name[0]})
        if case is None or (at is not None and not case.has(at)):
            return self.refused(midturn.NotFound if case else self.gone(name), work)
        if other in self.cases:
            return self.refused(midturn.Conflict if self.known(other) else midturn.SessionDeleted, work)
        self.open[other], self.touched = self.run(work), other
        number = at or case.last
        made = self.cases[other] = Case(fork=(name, number), labels={"from": name[0]})
        made.add("fork", case.states[number])
        return None

    @rule(name=names, before=numbers)
    def compact(self, name, before):
        session, case = self.session(name), self.known(name)
        if case is None or before > case.last:
            return self.refused(midturn.NotFound if case else self.gone(name), session.compact(before=before, by="ann"))
        removed = max(0, before - case.first)
        assert self.run(session.compact(before=before, by="ann")).turns == removed
        if removed:
            case.first = before
            case.acts.append(("compact", case.last))
        return None

    # Ends

    @rule(name=names)
    def delete(self, name):
        found = self.known(name)
        assert self.run(self.store.delete(name, by="bob")) is (found is not None)
        if found:
            self.end(name, "bob")

    def end(self, name, by):
        self.touched = name
        self.cases[name] = Case(deleted=by, acts=[("delete", None)], fork=self.cases[name].fork)

    @rule(name=names, reuse=st.booleans())
    def forget(self, name, reuse):
        if self.known(name):
            self.refused(midturn.Conflict, self.store.forget(name))
        elif reuse and name in self.cases:
            answer = said(self.run(self.session(name, reuse=True).run(task="red")))
            self.cases[name] = Case()
            self.cases[name].add("run", ["red", answer])
            assert self.answers.setdefault(("red",), answer) == answer
        else:
            assert self.run(self.store.forget(name)) is (name in self.cases)
            self.cases.pop(name, None)

    @rule(
        prefix=st.sampled_from(["a-", "b-"]),
        labels=st.sampled_from([{}, {}, {"from": "a"}]),
        keep=st.integers(0, 2),
    )
    def prune(self, prefix, labels, keep):
        there = [name for name in self.cases if self.known(name)]
        fitting = [n for n in there if n.startswith(prefix) and labels.items() <= self.cases[n].labels.items()]
        rule = {"prefix": prefix, "labels": labels, "keep_last": keep, "by": "eve"}
        named = self.run(self.store.prune(**rule, dry_run=True))
        done = self.run(self.store.prune(**rule))
        assert done.deleted == named.deleted
        assert set(done.deleted) <= set(fitting)
        assert len(done.deleted) == max(0, len(fitting) - keep)
        assert not done.skipped
        for name in done.deleted:
            self.end(name, "eve")

    # What is there

    @rule(name=names, one=numbers, two=numbers)
    def diff(self, name, one, two):
        session, case = self.session(name), self.known(name)
        if case is None or not (case.has(one) and case.has(two)):
            return
        found = self.run(session.diff(one, two))
        before, after = self.run(self.messages(name, one)), self.run(self.messages(name, two))
        changes = [change for change in found.conversations if change.kind == "context"]
        assert (changes[0].apply(before) if changes else before) == after
        assert bool(found) is (before != after)

    async def messages(self, name, number):
        return (await self.store.session(name).at(number).state())["llm_context"]["messages"]

    @invariant()
    def the_last_session_is_as_the_model_says(self):
        self.run(self.check(self.touched, self.cases.get(self.touched)))

    @invariant()
    def the_sessions_and_their_lineage_are_as_the_model_says(self):
        self.run(self.check_all())

    async def check(self, name, case):
        if case is None:
            with pytest.raises(midturn.NotFound):
                await self.store.info(name)
            return
        info = await self.store.info(name)
        acts = [entry async for entry in self.store.audit(name)]
        assert [(entry.what, entry.turn) for entry in acts] == case.acts
        assert {entry.by for entry in acts} <= {case.deleted or "ann"}
        if case.deleted is not None:
            assert (info.status, info.deleted.by) == ("deleted", case.deleted)
            return
        assert (info.status, info.turns, info.checkpoint, info.first_turn) == ("idle", case.last, case.last, case.first)
        session = self.store.session(name)
        told = [(turn.number, turn.origin, turn.left_behind_by) async for turn in session.history()]
        assert told == case.history
        for number in range(1, case.last + 1):
            if case.has(number):
                assert [each["content"] for each in await self.messages(name, number)] == case.states[number]
            else:
                with pytest.raises(midturn.NotFound):
                    await self.messages(name, number)

    async def check_all(self):
        there = {name for name in self.cases if self.known(name)}
        assert {info.id async for info in self.store.sessions()} == there
        counts = Counter("idle" if self.known(name) else "deleted" for name in self.cases)
        assert {status: count for status, count in (await self.store.counts()).items() if count} == counts
        for name, case in self.cases.items():
            info = await self.store.info(name)
            fork = info.forked_from and (info.forked_from.session, info.forked_from.checkpoint)
            assert fork == case.fork
            if case.fork:
                found = await self.store.lineage(name)
                assert found.ancestors[-1].session == case.fork[0]


def machine(kind, share):
    """The machine on one kind of store."""
    made = type(f"{kind.title()}Machine", (SessionMachine,), {"kind": kind})
    made.TestCase.settings = settings(max_examples=max(1, settings().max_examples // share), stateful_step_count=25)
    return made.TestCase


TestMemory = pytest.mark.timeout(7_200)(machine("memory", 2))
TestSqlite = pytest.mark.timeout(7_200)(machine("sqlite", 10))
