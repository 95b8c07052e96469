"""Packing a state for storage: every body once, growing lists as logs, a small skeleton for the rest.

A state is a tree of JSON values. Packing splits it into three kinds of parts:

* A **body** is a value that is stored once for the whole session and has a number: each long string, each message,
  each skeleton. Inside a body ``{"$": 7}`` stands for the string that is body 7. A message is stored as an array: the
  number of its form, which is a body, then its values. A form lists the keys, with the values that most messages
  share. An object of numbers is stored in the same way: ``{"$": [8, 12, 5]}``. :mod:`midturn.record.odd` has the form
  of values that JSON cannot represent.
* A **log** is a list of messages that only grows. It is stored as the numbers of its bodies. When a list no longer
  begins with the items of its log, a new log begins, which shares the common beginning with the old one.
* The **skeleton** is the rest. In it ``{"$log": 0}`` stands for the first list of the checkpoint. The checkpoint says
  which log that is, and how long the list was.

So a checkpoint costs only what is new since the previous one, and any checkpoint is restored without replaying others.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeGuard

import orjson

from midturn.errors import StateInvalid
from midturn.record import codec
from midturn.record.bodies import BODY, unescape
from midturn.record.codec import class_of, is_object
from midturn.record.head import FORMAT, Kind, Row
from midturn.record.odd import ODD, Stored, stored

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from midturn.record.bodies import Bodies
    from midturn.record.codec import Json

MAX_SHARING = 8
"""Longest chain of logs that share their beginnings; a log that would extend it is written whole."""

MAX_ROW = 2000
"""Limit on the bytes of a row with several bodies: small rows fill the pages of databases best."""
BEGIN, END = b'{"v":%d,"bodies":[' % FORMAT, b"]}"
"""The text of a row around its bodies."""
STEADY = {"source", "type"}
"""Keys that have few different values in a session."""
NUMBERS = {int, float}
NOTHING: tuple[Json, ...] = (None, {}, [])
"""Values that many messages share."""

LONG = 48
"""Length from which a string is a body of its own: the same text occurs in contexts, threads and results."""

DIGEST = 16
"""Bytes of the digest by which a body is recognized."""

LOG = "$log"

Path: TypeAlias = tuple[str, ...]
"""Position in a state: the keys that lead to it."""
ROOT: Path = ("$",)

_Body: TypeAlias = tuple[bytes, bool]
"""The JSON of a body that is not stored yet; true if this is the JSON of a whole row with it."""

Span: TypeAlias = "Sequence[int]"
"""A log's number, and the number of its items that belong to a checkpoint."""


@dataclass(frozen=True, slots=True)
class Grown:
    """A live list inside a captured state; packing turns only its new items into JSON.

    ``dump`` must return equal JSON for equal items.
    """

    items: list[Any]
    dump: Callable[[Any], Json]


class Append(NamedTuple):
    """Bodies added to a log from ``start`` on; with a ``parent``, the first ``start`` items are those of that log."""

    log: int
    start: int
    bodies: Sequence[int]
    parent: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed:
    """A packed state: the number of its skeleton, its logs, and the additions to them."""

    skeleton: int
    spans: Sequence[Span]
    appends: Sequence[Append]
    lists: dict[Path, _Log]
    """The lists of the state, which :meth:`Archive.keep` remembers."""
    logs: int
    """Number of logs ever begun."""


@dataclass(frozen=True, slots=True)
class _Log:
    """A packed list.

    If the list has only grown since, the next ``_Log`` uses the same ``bodies`` and ``items`` lists, so old items are
    neither copied nor dumped. Entries beyond ``length`` do not belong to this one.
    """

    number: int
    bodies: list[int]
    length: int
    depth: int
    """Number of logs in the chain from which it takes its beginning."""
    items: list[Any] | None = None
    """The live items at the time of packing, to see without dumping whether they are still the same."""

    def begins(self, items: list[Any]) -> bool:
        """Return whether live items begin with those of this log; if so, ``self.items`` has all of them afterwards."""
        if self.items is None or len(items) < self.length:
            return False
        self.items[self.length :] = items[self.length :]
        return self.items == items  # whole lists: Python does not compare the contents of identical objects


class Archive:
    """The bodies and logs of one session as its writer knows them."""

    def __init__(self) -> None:
        self._numbers: dict[bytes, int] = {}
        self._new = list[_Body]()
        self.taken = list[_Body]()
        """The bodies of the last rows, until these are written."""
        self.size = 0
        """Bytes of all bodies that were ever added."""
        self.stored = 0
        """Number of stored bodies."""
        self._lists: dict[Path, _Log] = {}
        self.logs = 0
        """Number of logs ever begun."""

    @property
    def bodies(self) -> int:
        """Return the number of bodies, including those that are not stored yet."""
        return self.stored + len(self._new)

    def message(self, value: Json, path: str) -> int:
        """Return the number of a message's body; add the body if it is new.

        Raises:
            StateInvalid: the message cannot be stored; ``path`` names the part.
        """
        return self._add(self.inline(value, path), path)

    def inline(self, value: Json, path: str) -> list[Any]:
        """Return an object as an array that a record can contain: the number of its form, then its values.

        Long texts in it become bodies.

        Raises:
            StateInvalid: the object cannot be stored; ``path`` names the part.
        """
        if not codec.fits(value):
            odd = stored(value, path)
            if class_of(odd) is Stored:  # an object with odd keys
                return [self._add([[ODD]], path), odd[ODD]]
            value = odd
        if not is_object(value):
            raise StateInvalid("a message must be an object", path=path)
        form: list[Json] = []
        values: list[Any] = []
        for key, item in value.items():
            # A value that is the same in many messages stands in their form.
            if item in NOTHING or (key in STEADY and type(item) is str and len(item) < LONG):
                form.append([key, item])
            else:
                form.append(key)
                values.append(self._short(item, f"{path}.{key}"))
        return [self._add(form, path), *values]

    def new_bodies(self, stop: int | None = None) -> list[Row]:
        """Return rows with the bodies that are not stored yet, and count these bodies as stored.

        With ``stop``, leave those from this number on.
        """
        count = len(self._new) if stop is None else stop - self.stored
        self.taken, self._new = self._new[:count], self._new[count:]
        groups: list[list[_Body]] = []
        size = MAX_ROW
        for body in self.taken:
            size += len(body[0])
            if size > MAX_ROW:
                groups.append([])
                size = len(body[0])
            groups[-1].append(body)
        rows: list[Row] = []
        for group in groups:
            first, whole = group[0]
            data = first if whole else BEGIN + b",".join([body for body, _ in group]) + END
            rows.append(Row(kind=Kind.BODY, n=self.stored, data=data))
            self.stored += len(group)
        return rows

    def take_back(self) -> None:
        """Count the bodies of the last rows as not stored again, because their write had no effect."""
        self.stored -= len(self.taken)
        self._new[:0] = self.taken
        self.taken = []

    def pack(self, tree: Any) -> Packed:
        """Pack a state, relative to the lists of the state that was kept last."""
        lists: dict[Path, _Log] = {}
        appends: list[Append] = []
        logs = self.logs

        def skeleton(value: Any, path: Path) -> Any:
            nonlocal logs
            if class_of(value) is dict:
                if len(path) > codec.MAX_DEPTH:
                    raise StateInvalid(f"nested deeper than {codec.MAX_DEPTH} levels", path=_name(path))
                if not codec.fits(dict.fromkeys(value)):
                    return stored(as_json(value), _name(path), codec.MAX_DEPTH + 1 - len(path))
                return {_escape(key): skeleton(item, (*path, key)) for key, item in value.items()}
            if isinstance(value, Grown) or _is_messages(value):
                items = value.items if isinstance(value, Grown) else value
                if not items:
                    return []
                lists[path], append = self._log(path, value, logs)
                if append is not None:
                    appends.append(append)
                if lists[path].number == logs:
                    logs += 1
                return {LOG: len(lists) - 1}
            depth = codec.MAX_DEPTH + 1 - len(path)  # the path begins with "$"
            plain = value if codec.fits(value, depth) else stored(value, _name(path), depth)
            return self._short(plain, _name(path))

        root = self._add(skeleton(tree, ROOT), "$")
        spans = [[log.number, log.length] for log in lists.values()]
        return Packed(skeleton=root, spans=spans, appends=appends, lists=lists, logs=logs)

    def keep(self, packed: Packed) -> None:
        """Remember the lists of this state, which is stored now, for the next :meth:`pack`."""
        self._lists, self.logs = packed.lists, packed.logs

    def adopt(self, tree: Any) -> None:
        """Remember the live lists of a state that equals the stored one, so that their items need not be dumped."""

        def walk(value: Any, path: Path) -> None:
            if is_object(value):
                for key, item in value.items():
                    walk(item, (*path, key))
            elif isinstance(value, Grown) and path in self._lists:
                self._lists[path] = replace(self._lists[path], items=list(value.items))

        walk(tree, ROOT)

    def learn(self, path: Path, span: Span, bodies: list[int], depth: int) -> None:
        """Remember a stored list, so that the next state can extend it."""
        self._lists[path] = _Log(span[0], bodies, span[1], depth)

    def learn_bodies(self, bodies: Bodies, count: int) -> None:
        """Remember the first ``count`` bodies, which are those that are stored, so that none is stored again."""
        for number, value in enumerate(islice(bodies.values, count)):
            self._numbers.setdefault(blake2b(orjson.dumps(value), digest_size=DIGEST).digest(), number)
        self.stored = count

    def _log(self, path: Path, value: Grown | list[Any], new: int) -> tuple[_Log, Append | None]:
        """Return a list in its log, or in the ``new`` one, and the addition to that log, if there is one."""
        live = isinstance(value, Grown)
        items, dump = (value.items, value.dump) if isinstance(value, Grown) else (value, _as_is)

        def numbers(start: int) -> list[int]:
            return [self.message(dump(items[i]), f"{_name(path)}[{i}]") for i in range(start, len(items))]

        old = self._lists.get(path, _Log(new, [], 0, 0))
        start, parent = old.length, None
        if live and old.begins(items):
            old.bodies[start:] = numbers(start)
            log = replace(old, length=len(items))
        else:  # Plain JSON may have been changed in place since then, so all of it is compared.
            bodies = numbers(0)
            log = _Log(old.number, bodies, len(bodies), old.depth, list(items) if live else None)
            start = _common(old.bodies[: old.length], bodies)
            if start < old.length:
                start = 0 if old.depth == MAX_SHARING else start
                parent = old.number if start else None
                log = replace(log, number=new, depth=old.depth + 1 if start else 0)
        added = log.bodies[start : log.length]
        return log, Append(log.number, start, added, parent) if added or parent is not None else None

    def _short(self, value: Any, path: str) -> Any:
        kind = class_of(value)
        if kind is str:
            return {BODY: self._add(value, path)} if len(value) >= LONG else value
        if kind is dict:
            if value and set(map(class_of, value.values())) <= NUMBERS:
                return {BODY: [self._add(list(value), path), *value.values()]}
            return {_escape(key): self._short(item, f"{path}.{key}") for key, item in value.items()}
        if kind is list:
            return [self._short(item, f"{path}[{index}]") for index, item in enumerate(value)]
        return value

    def _add(self, value: Json, path: str) -> int:
        # A long text gets a row of its own, so it is encoded as that row: a copy of 50 MB would be one too many.
        long = type(value) is str and len(value) > MAX_ROW
        data = orjson.dumps({"v": FORMAT, "bodies": [value]} if long else value)
        body = memoryview(data)[len(BEGIN) : -len(END)] if long else data
        if len(body) > codec.MAX_BYTES:
            raise codec.too_long(len(body), path)
        digest = blake2b(body, digest_size=DIGEST).digest()
        number = self._numbers.get(digest)
        if number is None:
            number = self._numbers[digest] = self.stored + len(self._new)
            self._new.append((data, long))
            self.size += len(body)
        return number


def restore(
    *, skeleton: int, spans: Sequence[Span], bodies: Bodies, logs: Sequence[Sequence[Append]], archive: Archive
) -> Any:
    """Return the state of a checkpoint, and let ``archive`` remember its lists.

    ``bodies`` has all bodies, and ``logs`` all appends up to the checkpoint in order.
    """
    lists = _read_logs(logs, spans)
    used = 0

    def whole(value: Any, path: Path) -> Any:
        nonlocal used
        if is_object(value):
            if LOG in value:
                index = used
                # In order, and each once: a small record must not stand for an endless state.
                if value[LOG] != index or type(value[LOG]) is not int or index >= len(spans):
                    raise StateInvalid("names a list that the checkpoint does not have", path=_name(path))
                used += 1
                numbers, depth = lists[index]
                archive.learn(path, spans[index], numbers, depth)
                name = _name(path)
                try:
                    return [bodies.message(number, name) for number in numbers]
                except StateInvalid:  # read again with the index in the path, so that the error names the item
                    return [bodies.message(number, f"{name}[{i}]") for i, number in enumerate(numbers)]
            if BODY not in value and ODD not in value:
                return {unescape(key): whole(item, (*path, unescape(key))) for key, item in value.items()}
        return bodies.whole(value, _name(path))

    if not 0 <= skeleton < len(bodies.values):
        raise StateInvalid(f"body {skeleton} is missing", path="$")
    tree = whole(bodies.values[skeleton], ROOT)
    if used < len(spans):
        raise StateInvalid(f"has {used} of {len(spans)} lists", path="$")
    return tree


def as_json(tree: Any, without: Collection[int] = ()) -> Any:
    """Return a captured state as plain JSON; lists whose ``id()`` is in ``without`` become empty."""
    if isinstance(tree, Grown):
        return [] if id(tree.items) in without else [tree.dump(item) for item in tree.items]
    if is_object(tree):
        return {key: as_json(item, without) for key, item in tree.items()}
    return tree


def needed(
    earlier: Sequence[Sequence[Append]], later: Sequence[Sequence[Append]], spans: Sequence[Span]
) -> list[Append]:
    """Return what states with these spans and these ``later`` appends need of the ``earlier`` appends, log by log."""
    lengths = dict[int, int]()
    wanted = [(log, length) for log, length in spans]
    for append in (append for appends in later for append in appends):
        wanted += [(append.log, append.start), *([] if append.parent is None else [(append.parent, append.start)])]
    found: list[Append] = []
    for log, appends in sorted(_by_log(earlier).items(), reverse=True):  # a parent is an older log
        for other, length in wanted:
            lengths[other] = max(length, lengths.get(other, 0))
        wanted.clear()
        first, length = appends[0], lengths.get(log, 0)
        if not length:
            continue
        if first.parent is not None:
            wanted.append((first.parent, first.start))
        bodies = [number for append in appends for number in append.bodies]
        found.append(Append(log, first.start, bodies[: max(0, length - first.start)], first.parent))
    return found[::-1]


def _by_log(logs: Sequence[Sequence[Append]]) -> dict[int, list[Append]]:
    """Return the appends to each log, in order."""
    found: dict[int, list[Append]] = {}
    for appends in logs:
        for append in appends:
            earlier = found.setdefault(append.log, [])
            # Only a new log has a parent, which is older. So reading a log ends, and reads each of its parents once.
            if append.parent is not None and (earlier or append.parent >= append.log):
                raise StateInvalid("begins twice, or with a later log", path=f"log {append.log}")
            earlier.append(append)
    return found


def _read_logs(logs: Sequence[Sequence[Append]], spans: Sequence[Span]) -> list[tuple[list[int], int]]:
    """Return for each span the numbers of its bodies, in order, and the depth of its chain of logs."""
    found = _by_log(logs)
    if len({log for log, _ in spans}) < len(spans):
        raise StateInvalid("a log occurs twice", path="spans")

    def read(log: int, length: int, depth: int) -> tuple[list[int], int]:
        numbers: list[int] = []
        for append in found.get(log, ()) if depth <= MAX_SHARING else ():
            if append.parent is not None:
                numbers, depth = read(append.parent, append.start, depth + 1)
            if append.start != len(numbers):
                break
            numbers.extend(append.bodies)
            if len(numbers) >= length:
                break
        if len(numbers) < length:
            raise StateInvalid(f"has {len(numbers)} of {length} items", path=f"log {log}")
        return numbers[:length], depth

    return [read(log, length, 0) for log, length in spans]


def _is_messages(value: Any) -> TypeGuard[list[dict[str, Any]]]:
    """Return whether a plain list should become a log: it is not empty and has only objects."""
    return class_of(value) is list and set(map(class_of, value)) == {dict}


def _as_is(value: Json) -> Json:
    return value


def _common(one: Sequence[int], other: Sequence[int]) -> int:
    """Return the length of the common beginning of two lists."""
    if other[: len(one)] == one:  # the usual case, without a loop
        return len(one)
    for index, (left, right) in enumerate(zip(one, other, strict=False)):
        if left != right:
            return index
    return min(len(one), len(other))


def _escape(key: str) -> str:
    """Return the stored form of an object's key, which no reader mistakes for one of our markers."""
    return f"${key}" if key.startswith("$") else key


def _name(path: Path) -> str:
    return ".".join(path)
