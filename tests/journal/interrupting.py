"""Interrupting a turn at one of its writes, as if the process had died there, and finishing it in another session."""

from generated_parts import timeless
from kinds import transcript

from midturn.autogen.adapter import AutoGen
from midturn.errors import StoreUnavailable
from midturn.record.head import Kind, Write
from midturn.sessions.session import Session


class Mortal:
    """A store that cannot be reached any more from its ``at``-th write on, which is still done if ``after`` is set."""

    def __init__(self, store, at=0, *, after=False):
        self._store, self._left, self._after = store, at, after
        self.writes = 0
        self.dead = False

    @property
    def profile(self):
        return self._store.profile

    async def write(self, write):
        self.writes += 1
        self._left -= 1
        if self._left == 0:
            if self._after:
                await self._store.write(write)
            self.dead = True
        self._check()
        return await self._store.write(write)

    def __getattr__(self, name):
        self._check()
        return getattr(self._store, name)

    def _check(self):
        if self.dead:
            raise StoreUnavailable("the worker is dead")


async def finish(session, result, settle):
    """Answer whatever is asked, until the turn is done."""
    for _ in range(20):
        if result is None or result.waiting is None:
            return result
        asked = result.waiting.questions[0]
        result = await session.answer(settle(asked), question=asked.id)
    raise AssertionError("it asks for ever")


def retry(_question):
    """Nothing was done."""
    return "retry"


async def outcome(store, build, tasks, *, session="whole", settle=retry):
    """Return what the tasks lead to: the messages, the state in the end, and the number of writes of each turn."""
    writes = []
    for task in tasks:
        mortal = Mortal(store.store)
        case = Session(mortal, session, build, AutoGen())
        await finish(case, await case.run(task=task), settle)
        writes.append(mortal.writes)
    return *await told(store, session), writes


async def told(store, session):
    """Return what was said in each turn, and the state in the end."""
    case = store.session(session)
    turns = [turn async for turn in case.history()]
    checkpoint = case.at(turns[-1].number)
    state = [await checkpoint.state(), await checkpoint.beside()]
    return [timeless(transcript(turn)) for turn in turns], timeless(state)


async def copied(store, source, session):
    """Give a new session the records of another one, as they are stored."""
    head, rows = await store.head(source), [row for kind in Kind for row in await store.rows(source, kind)]
    await store.write(
        Write(
            session=session,
            seq=0,
            epoch=head.epoch,
            status=head.status,
            labels=head.labels,
            token=head.token,
            data=head.data,
            rows=tuple(rows),
        )
    )


async def begun(store, build, tasks, *, session="begun", settle=retry):
    """Run all tasks but the last one, each with its number as its key."""
    for number, task in enumerate(tasks[:-1], 1):
        case = Session(store.store, session, build, AutoGen())
        await finish(case, await case.run(task=task, key=f"{number}"), settle)


async def interrupted(store, build, tasks, at, *, after, session, settle=retry):
    """Return what the tasks lead to when the worker dies at a write of the last one, and another worker finishes it.

    The others were done by ``begun``: each interruption has a copy of that session.
    """
    if tasks[1:]:
        await copied(store.store, "begun", session)
    task, key = tasks[-1], f"{len(tasks)}"
    case = Session(Mortal(store.store, at, after=after), session, build, AutoGen())
    try:
        await finish(case, await case.run(task=task, key=key), settle)
    except StoreUnavailable:
        case = Session(store.store, session, build, AutoGen())
        await finish(case, await case.run(task=task, key=key), settle)
    return await told(store, session)
