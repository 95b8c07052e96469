"""The rows of a session as the layers above the store see them, and the progress that its head keeps."""

from __future__ import annotations

import shlex
import time
from dataclasses import MISSING, dataclass, fields, replace
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar, get_args

import orjson

from midturn.errors import StateInvalid
from midturn.record import codec
from midturn.record.codec import class_of, is_array, is_object
from midturn.record.head import FORMAT, NUMBERS, Kind, Row, is_number, is_time, versioned
from midturn.record.odd import packed, unpacked
from midturn.record.packing import Append

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from midturn.record.codec import Json
    from midturn.record.head import Head
    from midturn.record.packing import Span

Origin: TypeAlias = Literal["run", "save", "reset", "import", "migration", "rollback", "rewind", "edit", "fork"]
"""The origin of a checkpoint: a turn that ran, a state saved by hand, a new beginning, AutoGen's JSON from outside, a
migration run, the rollback of a migration run, an older checkpoint of this session, a function that corrected the
state, or a checkpoint of another session."""
Ended: TypeAlias = Literal["failed", "cancelled"]
Opened: TypeAlias = Literal["running", "waiting", "failed", "cancelled"]
What: TypeAlias = Literal["model", "tool", "code", "memory", "human", "approval", "doubt", "tools"]
"""The kind of a call. ``approval`` and ``doubt`` are questions about a tool; ``tools`` asks a workbench for its list
of tools."""
Stage: TypeAlias = Literal["started", "asked", "done"]
Asked: TypeAlias = Literal["human", "approval", "doubt"]
"""The kind of a question. ``human``: an agent that stands for a person asks for an answer. ``approval``: may this tool
act? ``doubt``: did this tool act before the crash?"""
ActKind: TypeAlias = Literal["rewind", "edit", "fork", "reset", "migration", "rollback", "compact", "rekey"]
"""The kind of a decision about the session itself."""
Decided: TypeAlias = Literal["human", "approval", "doubt", "discard", "diverged"] | ActKind
"""The kind of a decision: the answer to a question, giving a turn up, continuing a turn although its recorded calls
do not fit the code, or an act on the session itself."""
Effect: TypeAlias = Literal["read", "idempotent", "unsafe", "transactional"]
"""The effect of a tool. ``read``: may be repeated. ``idempotent``: may be repeated with the same
:func:`midturn.call_key`. ``unsafe``: is never repeated automatically. ``transactional``: works in the store's own
transaction, so it happens exactly once."""

Pair: TypeAlias = "tuple[int, int]"
CallRange: TypeAlias = "Sequence[int]"
"""The numbers of a turn's first call and of the call after its last; empty if calls were not recorded."""

MAX_ERROR = 500
"""Number of characters of an error's message that are kept."""

COPYING = codec.encode({"v": FORMAT, "copying": "session"})
"""Data of the head, in place of the progress, until the whole session has been copied."""
BURYING = codec.encode({"v": FORMAT, "copying": "deletion"})
"""Data of the head of a session that is about to be deleted, so that nobody uses it any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Progress of a session, which its head keeps."""

    turn: int = 0
    """The number of the last turn that was begun."""
    checkpoint: int = 0
    """The number of the latest checkpoint; 0 before the first."""
    bodies: int = 0
    logs: int = 0
    failures: int = 0
    decisions: int = 0
    calls: int = 0
    """Number of calls ever recorded."""
    journal: int = 0
    """The number of the first call of the last turn."""
    generation: Pair = (0, 0)
    """The first turn whose calls are certainly kept, and the number of its first call."""
    open: Opened | None = None
    """Status of the last turn if it has no checkpoint."""
    attempts: int = 0
    """Number of attempts at the last turn."""
    attempted: float = 0.0
    """The time at which the latest attempt began."""
    answers: int = 0
    """Number of answers of people that the last turn has, if it is open."""
    paid: Pair = (0, 0)
    """The prompt and completion tokens of the model calls that the last turn has made so far."""
    blueprint: str = ""
    """The name of the blueprint that the session belongs to."""
    version: int = 1
    """The latest version of the blueprint that has worked on the last turn."""
    forked_from: str = ""
    """The id of the session that this one was forked from."""
    forked_at: int = 0
    """The checkpoint of that session that this one began with."""
    forked_when: float = 0.0
    """The time of that checkpoint, by which it is recognized: its id may be used again after a deletion."""
    restored: int = 0
    """The latest checkpoint that restores an older one, among those that lead to the latest one; 0 if none does."""
    first: int = 1
    """The first turn that is kept; a compaction has removed those before it."""
    first_failure: int = 0
    """The first failure that is kept."""
    holes: int = 0
    """Number of bodies at the time of the latest compaction: those that nothing needs are removed, and not missed."""
    swept: int = 0
    """Number of bodies that this compaction has looked at so far."""
    redacted: bool = False
    """True if a blueprint that redacts texts has run the session: others must not store texts."""

    @property
    def is_unfinished(self) -> bool:
        """Return whether no other turn may replace the last one: nobody has its outcome, or people have answered it."""
        return self.open in ("running", "waiting") or (self.open is not None and self.answers > 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnRow:
    """An accepted input. ``task`` has the numbers of its messages; ``None`` is a run without a task."""

    at: float
    blueprint: str = ""
    version: int = 1
    """Version of the blueprint that accepted the input."""
    task: Sequence[int] | None = None
    streamed: bool = False
    """True if the agent's own stream runs the turn, and not its ``run``."""
    output_task_messages: bool = True
    """True if the messages of the task are part of the result."""
    key: str | None = None
    repairs: Sequence[str] = ()
    """The parts of the previous state that were broken and that the turn repaired."""
    notes: Sequence[str] = ()
    """Notes about earlier turns that a reader of this turn has to know."""
    fingerprint: int | None = None
    """The number of the body with the agents' fingerprint, if no checkpoint has one yet."""
    trace: str = ""
    """The W3C trace context of whoever asked for the turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointRow:
    """The state after a turn, and the turn's result."""

    parent: int
    skeleton: int
    spans: Sequence[Span]
    appends: Sequence[Any] = ()
    """The additions to the logs, as :func:`plain_appends` returns them."""
    bodies: int
    """Number of bodies that the session had then; a reader can ignore later ones."""
    at: float
    origin: Origin = "run"
    blueprint: str = ""
    version: int = 1
    fingerprint: int | None = None
    """The number of the body with the agents' fingerprint."""
    drift: Sequence[str] = ()
    """Changes of the agents since the previous checkpoint."""
    run: str = ""
    """The name of the migration run that made the checkpoint."""
    restores: int | None = None
    """The older checkpoint that has the same state, after a rewind or the rollback of a migration."""
    restored: int = 0
    """The latest checkpoint before this one that restores an older one, among those that lead to this one."""
    messages: Sequence[int] = ()
    stop_reason: str | None = None
    usage: Pair = (0, 0)
    calls: CallRange = ()
    """The numbers of the turn's first call and of the call after its last; empty if calls were not recorded."""
    notes: Sequence[str] = ()
    """The notes of the turn's beginning, and the differences that later attempts found."""
    attempts: int = 1
    """Number of attempts that the turn took."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseRow:
    """The additions to the logs that the first checkpoints of a compacted session need, of those before them.

    It takes the place of the checkpoint before the first turn that is kept.
    """

    appends: Sequence[Any] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionRow:
    """The decision of a person: the answer to a question with everything that it showed, or about the turn itself.

    An act on the session itself is one, too. Its turn is the one that it makes, and its arguments are what it is about.
    """

    turn: int
    question: str
    """The text of the question."""
    kind: Decided
    agent: str = ""
    tool: str = ""
    arguments: dict[str, Any] | None = None
    """The arguments of the call that the question is about."""
    answer: str
    changed: dict[str, Any] | None = None
    """The arguments that the answer gives instead."""
    by: str = ""
    why: str = ""
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Tombstone:
    """The decision to delete a session, which the head of the deleted session keeps."""

    by: str = ""
    why: str = ""
    forked_from: str = ""
    """The origin of the session, as its progress had it: lineage reaches beyond a deletion."""
    forked_at: int = 0
    forked_when: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRow:
    """A call inside a turn, identified by its path, its request, and the number of equal calls before it."""

    path: str
    """The names of the caller and of the called part: ``participants/ann/model_client``."""
    what: What
    key: str
    """A digest of the request."""
    nth: int = 0
    stage: Stage = "done"
    spent: float
    """Seconds for which the turn had run by then, without the time that it waited for people."""
    at: float
    attempt: int = 1
    """Number of the attempt that made the call; 0 if an earlier turn with the same key made it."""
    name: str = ""
    """The tool's name."""
    about: str = ""
    """The arguments, for people to read: long texts are shortened."""
    effect: Effect = "read"
    value: Sequence[Any] | None = None
    """The result of the call, or the question to a human."""
    starts: Sequence[str] = ()
    """The tool calls that this answer of a model starts: the key of each, and the call for people to read."""
    instead: Sequence[int] = ()
    """The rows of the turn whose answers this one replaces, because the request has changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureRow:
    """A turn that ended without a checkpoint, and the reason."""

    turn: int
    status: Ended
    error: str
    at: float
    calls: CallRange = ()
    """The numbers of the turn's first call and of the call after its last; empty if no call was recorded."""
    attempts: int = 1
    """Number of attempts at the turn by then."""
    usage: Pair = (0, 0)
    """The prompt and completion tokens of the model calls that the turn has made by then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRow:
    """The turn that a key stands for, and a digest of its task."""

    key: str
    turn: int
    task: str
    calls: Sequence[Any] = ()
    """The calls of the turn, if it was given up: they count when the key is delivered again. Calls in rows of their own
    are removed after some turns, and keys never are."""


MAY_BE_ODD = {"arguments", "changed", "stop_reason"}
"""Fields whose values JSON may be unable to represent."""


def now() -> float:
    """Return the current time in the form that rows have: seconds since 1970, to the millisecond."""
    return round(time.time(), 3)


def moment(at: float) -> datetime:
    """Return a stored time as users get it."""
    return datetime.fromtimestamp(at, UTC)


def encode_record(record: object) -> bytes:
    """Return a record as JSON with the format's version, without the fields that have their default."""
    values = {"v": FORMAT} | _plain(record)
    for name in MAY_BE_ODD & values.keys():
        values[name] = packed(values[name], name)
    if isinstance(record, CallRow | Progress):  # written with every call; their values were checked or counted before
        return codec.encode_checked(values)
    return codec.encode(values)


T = TypeVar("T")


def decode_record(cls: type[T], data: bytes, what: str) -> T:
    """Return a record from JSON; ``what`` names the record in errors.

    Raises:
        UnknownVersion: a newer midturn wrote it.
        StateInvalid: the JSON is not a record of this class.
    """
    raw = versioned(data, what)
    del raw["v"]
    return _record(cls, raw, what)


def progress_of(head: Head) -> Progress:
    """Return the progress of a session from its head.

    Raises:
        UnknownVersion: a newer midturn wrote the head.
        StateInvalid: the head is damaged, or the session is only half copied or half deleted.
        Tampered, WrongKey: the head is sealed and cannot be opened.
    """
    if head.problem is not None:
        raise head.problem
    if head.data in (COPYING, BURYING):
        id_ = shlex.quote(head.session)
        raise StateInvalid(
            f"only half copied; finish it: midturn copy SRC_URL DST_URL --session {id_}"
            if head.data == COPYING
            else f"only half deleted; finish it: midturn rm {id_}",
            path=f"session {head.session!r}",
            session=head.session,
        )
    progress = decode_record(Progress, head.data, what := f"{head.session} head")
    if not (
        progress.checkpoint <= progress.turn
        and progress.journal <= progress.calls
        and progress.generation[1] <= progress.calls
        and 1 <= progress.first <= max(progress.checkpoint, 1)
        and progress.first_failure <= progress.failures
        and progress.swept <= progress.holes <= progress.bodies
        and (progress.turn > 0 or progress.open is None)
        and (progress.checkpoint < progress.turn or progress.open is None)
    ):
        raise StateInvalid("its numbers contradict each other; restore it from a backup", path=what)
    return progress


def key_row(number: int, key: str, turn: int, task: str) -> Row:
    """Return the row of a key, which stands for a turn and was delivered with a task of this digest."""
    return Row(kind=Kind.KEY, n=number, data=encode_record(KeyRow(key=key, turn=turn, task=task)))


def given_up(key: KeyRow, calls: Sequence[CallRow]) -> KeyRow:
    """Return the record of a key whose turn was given up after these calls."""
    return replace(key, calls=[_plain(call) for call in calls])


def calls_before(key: KeyRow) -> list[CallRow]:
    """Return the calls that earlier turns with this key have made.

    Raises:
        StateInvalid: the record is damaged.
    """
    what = f"key {key.key!r}"
    if not all(map(is_object, key.calls)):
        raise StateInvalid("has a malformed call", path=what)
    return [replace(_record(CallRow, call, what), attempt=0) for call in key.calls]


def plain_appends(appends: Sequence[Append]) -> tuple[list[Any], ...]:
    """Return appends in the form that a checkpoint stores."""
    return tuple(
        [append.log, append.start, list(append.bodies)] + ([append.parent] if append.parent is not None else [])
        for append in appends
    )


def decode_appends(row: Row) -> list[Append]:
    """Return the appends of a checkpoint from its row."""
    what = f"checkpoint row {row.n}"
    found = versioned(row.data, what).get("appends", [])
    if not is_array(found):
        raise StateInvalid("has no appends", path=what)
    appends: list[Append] = []
    for item in found:
        match item:
            case [log, start, bodies] if is_number(log) and is_number(start) and _ints(bodies):
                appends.append(Append(log, start, bodies))
            case [log, start, bodies, parent] if _ints([log, start, parent]) and _ints(bodies):
                appends.append(Append(log, start, bodies, parent))
            case _:
                raise StateInvalid("has a malformed append", path=what)
    return appends


def key_number(key: str) -> int:
    """Return the number at which the search for a key's ``KEY`` row begins."""
    return int.from_bytes(blake2b(key.encode(), digest_size=8).digest()) >> 2


def task_digest(task: Json) -> str:
    """Return a digest of a task, which shows whether two tasks with the same key are the same."""
    return blake2b(orjson.dumps(task), digest_size=12).hexdigest()


def _plain(record: Any) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, default in _defaults(record.__class__):
        value = getattr(record, name)
        if value != default or type(value) is not type(default):
            values[name] = list(value) if class_of(value) is tuple else value
    return values


@lru_cache
def _defaults(cls: Any) -> list[tuple[str, Any]]:
    return [(field.name, field.default) for field in fields(cls)]


def _record(cls: type[T], raw: dict[str, Any], what: str) -> T:
    for name in MAY_BE_ODD & raw.keys():
        raw[name] = unpacked(raw[name], f"{what}.{name}")
    known = _known(cls)  # type: ignore[arg-type]  # a class is hashable
    for name in raw:
        if name not in known:
            raise StateInvalid("is not known", path=f"{what}.{name}")
    for name, (type_, check, is_needed) in known.items():
        if name not in raw:
            if is_needed:
                raise StateInvalid("is missing", path=f"{what}.{name}")
        elif not check(raw[name]):
            raise StateInvalid(f"is not {type_}", path=f"{what}.{name}")
    return cls(**raw)


@lru_cache
def _known(cls: Any) -> dict[str, tuple[str, Callable[[Any], bool], bool]]:
    """Return for each field of a record its type, the check of that, and whether a record needs the field."""
    return {field.name: (str(field.type), _CHECKS[str(field.type)], field.default is MISSING) for field in fields(cls)}


def _ints(value: object) -> bool:
    if not is_array(value):
        return False
    for item in value:  # noqa: SIM110 - there are thousands of short ones, for which a generator takes twice as long
        if type(item) is not int or not 0 <= item < NUMBERS:
            return False
    return True


def _spans(value: object) -> bool:
    return is_array(value) and all(_ints(item) and len(item) == 2 for item in value)  # noqa: PLR2004 - a pair


_DECIDED = [word for kinds in get_args(Decided) for word in get_args(kinds)]
_CHECKS: dict[str, Callable[[Any], bool]] = {
    "int": is_number,
    "int | None": is_number,
    "float": is_time,
    "bool": lambda value: type(value) is bool,
    "str": lambda value: type(value) is str,
    "str | None": lambda value: type(value) is str,
    "Origin": lambda value: value in get_args(Origin),
    "Ended": lambda value: value in get_args(Ended),
    "Opened | None": lambda value: value in get_args(Opened),
    "Sequence[int]": _ints,
    # Two numbers: the first call, and the one after the last.
    "CallRange": lambda value: value == [] or (_ints(value) and len(value) == 2 and value[0] <= value[1]),  # noqa: PLR2004
    "Sequence[str]": lambda value: is_array(value) and all(type(item) is str for item in value),
    "What": lambda value: value in get_args(What),
    "Stage": lambda value: value in get_args(Stage),
    "Decided": lambda value: value in _DECIDED,
    "dict[str, Any] | None": is_object,
    "Effect": lambda value: value in get_args(Effect),
    "Sequence[Any]": is_array,
    "Sequence[Any] | None": is_array,
    "Pair": lambda value: _ints(value) and len(value) == 2,  # noqa: PLR2004 - a pair
    "Sequence[int] | None": _ints,
    "Sequence[Span]": _spans,
}
