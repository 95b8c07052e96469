"""States with something wrong in them, and what may come of loading one."""

import json
import warnings
from copy import deepcopy
from dataclasses import dataclass
from itertools import count, pairwise

from autogen_agentchat.messages import TextMessage

import midturn
from midturn.autogen.adapter import AutoGen
from midturn.autogen.state.repairs import INTERRUPTED
from midturn.record.packing import as_json

VALUES = ("text", "", 7, -1, 1.5, None, True, False, [], {}, ["text"], [{}], {"content": "text"})
"""One or more of each JSON type."""

MARKS = {
    "type": (
        "TeamState",
        "AssistantAgentState",
        "UserMessage",
        "AssistantMessage",
        "TextMessage",
        "StopMessage",
        "Nobody",
    ),
    "version": ("1.0.1", "2.0.0", "0", ""),
    "source": ("nobody",),
}
"""Other keys that somebody may write in place of these by mistake."""

_NUMBERS = count()


@dataclass(frozen=True)
class Mutation:
    """A mutation and its place; ``value`` is the new value, or the new name."""

    what: str
    place: tuple
    value: object = None

    def __str__(self):
        return f"{self.what} {named(self.place)}: {json.dumps(self.value)}"

    def apply(self, tree):
        """Another tree, or ``None`` if this cannot be done to it."""
        tree = deepcopy(tree)
        if not self.place:
            return deepcopy(self.value)
        parent, key = _inside(tree, self.place[:-1]), self.place[-1]
        if not _has(parent, key):
            return None
        if self.what == "delete":
            del parent[key]
        elif self.what == "change":
            parent[key] = deepcopy(self.value)
        elif self.what == "add":
            if not isinstance(parent[key], dict) or self.value in parent[key]:
                return None
            parent[key][self.value] = "text"
        elif self.what == "repeat":
            parent.insert(key, deepcopy(parent[key]))
        else:
            if self.value in parent:
                return None
            items = [(self.value if name == key else name, item) for name, item in parent.items()]
            parent.clear()
            parent.update(items)
        return tree

    def places(self):
        """Return the path at which the tree differs, as an error may name it."""
        around = self.place and (isinstance(self.place[-1], int) or self.place[-1] == "type")
        yield self.place[:-1] if around else self.place
        if self.what == "rename":
            yield (*self.place[:-1], self.value)
        elif self.what == "add":
            yield (*self.place, self.value)


@dataclass(frozen=True)
class Exchange(Mutation):
    """Two places with each other's values; ``value`` is the other place."""

    def apply(self, tree):
        tree = deepcopy(tree)
        ends = [(_inside(tree, place[:-1]), place[-1]) for place in (self.place, self.value)]
        if not all(_has(parent, key) for parent, key in ends) or _within(self.place, self.value):
            return None
        (one, first), (other, second) = ends
        one[first], other[second] = other[second], one[first]
        return tree

    def places(self):
        yield self.place
        yield self.value


def _within(one, other):
    return one[: len(other)] == other or other[: len(one)] == one


def _inside(tree, place):
    for key in place:
        if not _has(tree, key):
            return None
        tree = tree[key]
    return tree


def _has(parent, key):
    if isinstance(key, int):
        return isinstance(parent, list) and 0 <= key < len(parent)
    return isinstance(parent, dict) and key in parent


def named(place):
    """A place as midturn's errors name it."""
    return "$" + "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in place)


def places(tree, place=()):
    """All places of a tree, of a list those in the first, the middle and the last item."""
    if place:
        yield place
    if isinstance(tree, dict):
        for key, item in tree.items():
            yield from places(item, (*place, key))
    elif isinstance(tree, list):
        for index in sorted({0, len(tree) // 2, len(tree) - 1} if tree else ()):
            yield from places(tree[index], (*place, index))


def mutations(tree):
    """Every single thing that can go wrong with a tree."""
    for place in places(tree):
        key, value = place[-1], _inside(tree, place)
        yield Mutation("delete", place)
        for other in (*VALUES, *_alike(value), *MARKS.get(key, ())):
            if json.dumps(other) != json.dumps(value):
                yield Mutation("change", place, other)
        if isinstance(key, int):
            yield Mutation("repeat", place)
        else:
            yield from (Mutation("rename", place, name) for name in (f"{key}_", key.swapcase(), "$", "$log", ""))
        if isinstance(value, dict):
            yield from (Mutation("add", place, name) for name in ("more", "$"))
            names = [(*place, name) for name in value]
            yield from (Exchange("exchange", *pair) for pair in pairwise(names))
        if key == "agent_states":
            states = [(*place, name, "agent_state") for name, item in value.items() if "agent_state" in item]
            yield from (Exchange("exchange", *pair) for pair in pairwise(states))
    for value in (*VALUES, {"state": {}}, {"state": None, "beside": {}}, tree.get("state")):
        yield Mutation("change", (), value)


def _alike(value):
    """Return the value that a lenient reader takes for the same."""
    if isinstance(value, bool):
        yield from (int(value), str(value).lower(), not value)
    elif isinstance(value, int):
        yield from (str(value), float(value), value + 1, value + 100)
    elif isinstance(value, str):
        yield from (f" {value}", value.encode().hex(), [value], {"data": value})
    elif isinstance(value, list):
        yield from ({str(i): item for i, item in enumerate(value)}, value * 2, value[::-1], [*value, None])
    elif isinstance(value, dict):
        yield from ([value], list(value), json.dumps(value))


async def state_of(build, use):
    """The complete state of something that was used."""
    live = build()
    await use(live)
    return await captured(live)


async def captured(live):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", midturn.NotKept)
        return json.loads(json.dumps(as_json(await AutoGen().capture(live))))


def related(path, place):
    """Return whether an error names a place, something in it, or what it is in."""
    one, other = (f"{text.replace('[', '.').replace(']', '')}." for text in (path, named(place)))
    return one.startswith(other) or other.startswith(one)


def check_error(error, changed):
    """See that an error names where the tree was changed."""
    assert error.differences, error
    assert error.differences[0][0] == error.path, error
    paths = [path for path, _ in error.differences]
    if any("message_thread" in place for place in changed):  # what stands beside the thread counts its messages
        paths += ["$.state" for path in paths if path.startswith("$.beside") and "manager/message_thread" in path]
    assert any(related(path, place) for path in paths for place in changed), error


def unlike(tree, found, *allowed):
    """Return where a live object that was given ``tree`` differs; parts that it lacks may be as in ``allowed``."""
    tree, found, *allowed = (_comparable(deepcopy(one)) for one in (tree, found, *allowed))
    wanted, beside = tree["beside"], found["beside"]
    for path in [path for path, value in wanted.items() if isinstance(value, dict) and "next_speaker" in value]:
        for one in (tree, found):
            _manager(one, path)["next_speaker_index"] = 0  # the name counts
    problems = [path for path in wanted if path not in beside or same(wanted[path]) != same(beside[path])]
    for path in set(beside) - set(wanted):
        if path.endswith("manager/message_thread"):
            continue  # it follows from the thread, which is compared
        if same(beside[path]) not in [same(one["beside"].get(path)) for one in allowed]:
            problems += [path]
    return problems + (["state"] if same(tree["state"]) != same(found["state"]) else [])


def same(value):
    """Equal texts for equal JSON, to the type."""
    return json.dumps(value, sort_keys=True)


def _comparable(tree):
    """Return the state with each part beside it under its shortest path, and without repairs."""
    beside = tree.get("beside", {})
    return {
        "state": _without_repairs(tree["state"]),
        "beside": {
            path.replace("manager/model_context", "model_context"): _without_repairs(item)
            for path, item in beside.items()
        },
    }


def _manager(tree, path):
    """The state of a team's manager, by the path of what stands beside it."""
    names = path.split("/")[:-1]
    state = tree["state"]
    for end in range(len(names), 0, -1):
        if "/".join(names[:end]) in tree["beside"]:
            state, names = tree["beside"]["/".join(names[:end])], names[end:]
            break
    for name in names:
        if name == "team":
            state = state.get("inner_team_state", {})
        elif name != "participants":
            state = state.get("agent_states", {}).get(name, {}).get("agent_state", {})
    found = [item for name, item in state.get("agent_states", {}).items() if name.endswith("Manager")]
    return found[0] if found else {}


def _without_repairs(value):
    """Messages without the answers to calls that had none."""
    if isinstance(value, dict):
        return {key: _without_repairs(item) for key, item in value.items()}
    if not isinstance(value, list):
        return value
    kept = []
    for item in value:
        if isinstance(item, dict) and isinstance(content := item.get("content"), list):
            item["content"] = [one for one in content if not isinstance(one, dict) or one.get("content") != INTERRUPTED]
        if not isinstance(item, dict) or item.get("content") != []:
            kept.append(_without_repairs(item))
    return kept


class Subject:
    """Something live that states are loaded into, and that has one of its own."""

    def __init__(self, build, use):
        self._build, self._use, self._live = build, use, None

    async def load(self, store, tree, changed):
        """Load a tree and see that either it is there exactly, or an error says where it is wrong; which of both."""
        session = f"session {next(_NUMBERS)}"
        await store.session(session).save(tree, origin="import")
        if self._live is None:
            self._live = self._build()
            await self._use(self._live)
            self._before = await captured(self._live)
        try:
            await store.session(session, self._live, on_drift="raise").load()
        except midturn.StateInvalid as error:
            refused = error
        else:
            refused = None
        if refused is not None:
            check_error(refused, changed)
            assert same(await captured(self._live)) == same(self._before), f"something was loaded: {refused}"
            return "refused"
        live, self._live = self._live, None
        found = await captured(live)
        if unlike(tree, found, self._before):
            fresh = self._build()
            await fresh.load_state(deepcopy(tree["state"]))
            problems = unlike(tree, found, self._before, await captured(fresh))
            assert not problems, f"restored as something else: {problems}"
        return "restored"

    async def goes_on(self, task):
        """See that it says what one says into which nothing was loaded."""
        if self._live is not None:
            other = self._build()
            await self._use(other)
            assert await _said(self._live, task) == await _said(other, task)


async def _said(live, task):
    try:
        result = await live.run(task=task)
    except (RuntimeError, ValueError) as error:  # a swarm that has asked the user something wants a handoff
        return str(error).splitlines()[0]
    return [(message.source, message.to_text()) for message in result.messages if isinstance(message, TextMessage)]
