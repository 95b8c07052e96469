"""Sessions with every kind of record, ways to damage one of them, and everybody who reads it."""

import json
import random
import signal
import sys
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, replace

from autogen_agentchat.agents import AssistantAgent
from autogen_core.models import FunctionExecutionResultMessage
from scripted import Scripted, calls, remembered

import midturn
from midturn.autogen.adapter import AutoGen
from midturn.maintenance.copying import copy as copy_session
from midturn.maintenance.migrating import MigrationRun, RollbackRun
from midturn.record.head import Head, Kind, Row, Write

PATIENCE = 60
"""Seconds after which a reader hangs."""
LONG = "a text that is long enough to be a body of its own, "


@midturn.tool(effect="unsafe", approval=True)
async def refund(order: str) -> str:
    """Refund an order."""
    return f"{order} is refunded: {LONG}"


@midturn.tool(effect="read")
async def look(order: str) -> str:
    """Look at an order."""
    return f"{order} is late: {LONG}"


def clerk():
    def answer(messages):
        asked = next(each.content for each in reversed(messages) if type(each).__name__ == "UserMessage")
        if isinstance(messages[-1], FunctionExecutionResultMessage):
            return remembered(messages)
        if "broken" in asked:
            raise ConnectionError("the model is out of reach")
        return calls(("refund" if "refund" in asked else "look", '{"order": "A1"}'))

    return AssistantAgent("clerk", Scripted(answer), tools=[look, refund], reflect_on_tool_use=False)


@dataclass(frozen=True)
class Stored:
    """A session as it is stored: its head and its rows."""

    head: Head
    rows: tuple[Row, ...]

    async def write(self, store, session):
        head = self.head
        await store.write(
            Write(
                session=session,
                seq=0,
                epoch=head.epoch,
                status=head.status,
                labels=head.labels,
                token=head.token,
                data=head.data,
                rows=self.rows,
            )
        )


async def stored(store, session):
    rows = [row for kind in Kind for row in await store.store.rows(session, kind)]
    return Stored(await store.store.head(session), tuple(rows))


async def subjects():
    """A session that rests, one that waits, and one whose question was answered and that nobody has continued."""
    async with midturn.open("memory://") as store:
        case = store.session("rests", clerk, labels={"desk": "7"})
        await case.run(task=f"look at it: {LONG}", key="k1")
        try:
            await case.run(task="this is broken")
        except midturn.TurnFailed:
            await case.discard()
        await case.run(task="refund it", key="k3")
        await case.answer("approve")
        await case.run(task="look again", key="k4")
        for name in ("waits", "answered"):
            case = store.session(name, clerk)
            await case.run(task=f"look at it: {LONG}", key="k1")
            await case.run(task="refund it", key="k2")
        await store.session("answered").answer("deny: no")
        return {name: await stored(store, name) for name in ("rests", "waits", "answered")}


_good = {}


async def good():
    """The subjects, made once."""
    if not _good:
        _good.update(await subjects())
    return _good


# Damage


ENDLESS = {"arrays": b"[" * 100_000 + b"]" * 100_000, "objects": b'{"v":' * 100_000 + b"1" + b"}" * 100_000}
WRONG = {
    "null": b"null",
    "true": b"true",
    "minus one": b"-1",
    "a number": b"7",
    "a fraction": b"0.5",
    "62 bits": b"4611686018427387904",
    "63 bits": b"9223372036854775808",
    "64 bits": b"18446744073709551615",
    "a huge number": b"9" * 5_000,
    "a huge fraction": b"1e300",
    "a text": b'"x"',
    "an array": b"[]",
    "an object": b"{}",
    "an array of null": b"[null]",
    "numbers": b"[0,1,2]",
    "a mark": b'{"$":0}',
    "a mark of nothing": b'{"$":"x"}',
    "a mark of a form": b'{"$":[0,{"$":[0]}]}',
    "a list's mark": b'{"$log":0}',
    "100 levels": b"[" * 100 + b"]" * 100,
    "400 levels": b'{"d":' * 400 + b"0" + b"}" * 400,
    "1,000 levels": b"[" * 1_000 + b"]" * 1_000,
}
HERE = "something else belongs here"


@dataclass(frozen=True)
class Damage:
    """One change: to the head if ``row`` is None, else to the row with this index."""

    how: str
    row: int | None
    path: tuple = ()
    what: str = ""

    def __str__(self):
        return f"{self.how} {self.what} row={self.row} at {'.'.join(map(str, self.path))}"

    def is_noticed(self, good):
        """Return whether a store without seals can notice a change: a value is gone, or has an impossible type."""
        if self.how == "removed":
            return good.rows[self.row].kind is not Kind.KEY
        if self.how != "wrong" or (self.row is not None and good.rows[self.row].kind is Kind.BODY):
            return False
        if len(self.path) > 1 and self.path[0] in ("value", "arguments", "changed"):
            return False  # what models, tools and people said may be any JSON
        value = json.loads(good.head.data if self.row is None else good.rows[self.row].data)
        for key in self.path:
            value = value[key]
        return kind_of(dumped(value)) != kind_of(WRONG[self.what])

    def apply(self, good, others):
        """The damaged session; ``None`` if it would be the same."""
        row = None if self.row is None else good.rows[self.row]
        if self.how == "removed":
            return replace(good, rows=(*good.rows[: self.row], *good.rows[self.row + 1 :]))
        if self.how in ("swapped", "twice", "foreign"):
            return self._moved(good, others, row)
        data = self._data(good.head.data if row is None else row.data)
        if data is None:
            return None
        if row is None:
            return replace(good, head=replace(good.head, data=data))
        return replace(good, rows=(*good.rows[: self.row], replace(row, data=data), *good.rows[self.row + 1 :]))

    def _moved(self, good, others, row):
        rows, source = list(good.rows), others if self.how == "foreign" else good
        chance = random.Random(str(self))
        if self.how == "twice":
            taken = {each.n for each in rows if each.kind is row.kind}
            return replace(good, rows=(*rows, replace(row, n=max(taken) + 1)))
        found = [
            each for each in source.rows if each.data != row.data and (self.what == "kinds" or each.kind is row.kind)
        ]
        if not found:
            return None
        other = chance.choice(found)
        rows[self.row] = replace(row, data=other.data)
        return replace(good, rows=tuple(rows))

    def _data(self, data):
        chance = random.Random(str(self))
        match self.how:
            case "flipped":
                at = chance.randrange(len(data))
                return data[:at] + bytes([data[at] ^ (1 << chance.randrange(8))]) + data[at + 1 :]
            case "cut":
                return data[: chance.randrange(len(data))]
            case "endless":
                return ENDLESS[self.what]
            case "endless inside":
                return data[:-1] + b',"x":' + ENDLESS[self.what] + b"}"
        return self._inside(data)

    def _inside(self, data):
        tree = place = json.loads(data)
        for key in self.path[:-1]:
            place = place[key]
        if self.how == "deleted":
            del place[self.path[-1]]
            return dumped(tree)
        if dumped(place[self.path[-1]]) == WRONG[self.what]:
            return None
        place[self.path[-1]] = HERE
        return dumped(tree).replace(dumped(HERE), WRONG[self.what])


def kind_of(data):
    """The type of a JSON value, by its first character; a number has any of several."""
    return data[:1] if data[:1] in b'"[{tfn' else b"0"


def dumped(value):
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def paths(value, path=()):
    for key, item in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield (*path, key)
        yield from paths(item, (*path, key))


def damages(good):
    """All ways to damage one record of a session."""
    for row in (None, *range(len(good.rows))):
        data = good.head.data if row is None else good.rows[row].data
        if row is not None:
            for how in ("removed", "twice", "swapped", "foreign"):
                yield Damage(how, row)
            for how in ("swapped", "foreign"):
                yield Damage(how, row, what="kinds")
        for number in range(4):
            yield Damage("flipped", row, what=str(number))
            yield Damage("cut", row, what=str(number))
        for what in ENDLESS:
            yield Damage("endless", row, what=what)
            yield Damage("endless inside", row, what=what)
        for path in paths(json.loads(data)):
            yield Damage("deleted", row, path)
            for what in WRONG:
                yield Damage("wrong", row, path, what)


def chosen(all_of_them, count, seed):
    """The same ones in every run, of each way and each kind of record alike."""
    chance = random.Random(seed)
    groups = {}
    for item in all_of_them:
        _, good, damage = item
        kind = None if damage.row is None else good.rows[damage.row].kind
        groups.setdefault((damage.how, kind), []).append(item)
    for group in groups.values():
        chance.shuffle(group)
    found, queues = [], list(groups.values())
    while len(found) < count and queues:
        queues = [queue for queue in queues if queue]
        found += [queue.pop() for queue in queues]
    return found[:count]


# Everybody who reads


class Hang(BaseException):
    """A reader does not come back."""


@contextmanager
def watchdog():
    """A function to call before each reader. If it is not called again in time, the reader hangs."""
    until, over = [time.monotonic() + PATIENCE], threading.Event()

    def barked(*_):
        raise Hang

    def watch():
        while not over.wait(1.0):
            if time.monotonic() > until[0]:
                signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR2)
                return

    def pat():
        until[0] = time.monotonic() + PATIENCE

    before = signal.signal(signal.SIGUSR2, barked)
    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield pat
    finally:
        over.set()
        thread.join()
        signal.signal(signal.SIGUSR2, before)


WATCHED = ("exec", "compile", "import", "marshal.", "pickle.", "os.", "subprocess.", "ctypes.", "socket.", "code.")
HARMLESS = ("os.listdir", "os.scandir", "os.truncate")  # what the file store itself does


class Listener:
    """Hears what is executed, imported or started while it listens. A hook cannot be removed, so there is one."""

    def __init__(self):
        self.heard = []
        self.listens = False
        sys.addaudithook(self._hook)

    def _hook(self, event, args):
        if self.listens and event.startswith(WATCHED) and event not in HARMLESS:
            self.heard.append(f"{event} {args!r}"[:200])


LISTENER = Listener()


def nameless(turn):
    """A turn as it is in a session of any name."""
    return replace(turn, session="")


def readers(store, session):
    """Those that change nothing, by name."""
    case = store.session(session, clerk, timeout=0.01)

    async def history():
        return [nameless(turn) async for turn in case.history()]

    async def last():
        return [nameless(turn) async for turn in case.history(last=2)]

    async def turn(number):
        return nameless(await case.turn(number))

    async def listed():
        return [(info.id, info.problem) async for info in store.sessions(prefix=session)]

    async def load():
        live = clerk()
        await store.load(session, live)
        return await live.save_state()

    found = {
        "info": lambda: store.info(session),
        "sessions": listed,
        "history": history,
        "history(last=2)": last,
        "open_turn": case.open_turn,
        "waiting": case.waiting,
        "load": load,
    }
    for n in range(1, 5):
        found |= {
            f"turn({n})": lambda n=n: turn(n),
            f"at({n}).tree": lambda n=n: case.at(n).tree(),
            f"at({n}).fingerprint": lambda n=n: case.at(n).fingerprint(),
        }
    return found


async def everything(generator):
    return [item async for item in generator]


def users(store, elsewhere, session):
    """Those that run or write something, in an order in which each finds something to do."""
    case = store.session(session, clerk, timeout=0.01)
    found = {f"replay({n})": lambda n=n: case.replay(n) for n in (1, 3, 4)}
    blueprint = midturn.Blueprint("desk", clerk, version=2)
    blueprint.migration(1, 2)(lambda state: state)
    return found | {
        "copy": lambda: copy_session(store.store, elsewhere.store, session, on_write=lambda _: None),
        "copy again": lambda: copy_session(store.store, elsewhere.store, session, on_write=lambda _: None),
        "fork": lambda: case.fork(f"{session} fork", at=1),
        "history with its origins": lambda: everything(store.session(f"{session} fork").history(origins=True)),
        "lineage": lambda: store.lineage(session),
        "audit": lambda: everything(store.audit(session)),
        "migrate": lambda: MigrationRun(store.store, blueprint, AutoGen(), run="r", dry_run=True, adopt=True)(session),
        "rollback": lambda: RollbackRun(store.store, run="r", dry_run=True)(session),
        "run with a known key": lambda: case.run(task=f"look at it: {LONG}", key="k1"),
        "answer": lambda: case.answer("approve"),
        "resume": case.resume,
        "run": lambda: case.run(task="look once more"),
        "save": lambda: store.session(session).save({"state": {}}, origin="import"),
        "discard": case.discard,
        "edit": lambda: store.session(session).edit(lambda state: state),
        "rewind": lambda: case.rewind(1),
        "delete": case.delete,
    }
