"""What has changed in how agents and teams are configured since a checkpoint was written, and what to do about it.

Two fingerprints are compared. A change is breaking if the stored state may not fit what is built now.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from midturn.record.codec import is_array, is_object
from midturn.versions.drift.changes import Change, Drift, called, canonical, change, line, literal, variable
from midturn.versions.drift.records import Record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from midturn.record.codec import Json

FORMS: dict[str, type] = {
    "name": str,
    "class": str,
    "description": str,
    "model": dict,
    "prompt": list,
    "tools": dict,
    "handoffs": dict,
    "output": dict,
    "context": dict,
    "settings": dict,
    "participants": list,
    "graph": dict,
    "termination": str,
}
"""What a fingerprint has of an agent or a team, as far as more is known of it than that it may change."""

PLACEHOLDER = "support"
"""The name of a blueprint for those who have none yet."""

Records = dict[str, dict[str, Any]]


def digest(fingerprint: Json) -> str:
    """A hash of how agents and teams are configured; the versions of the software do not count."""
    known = {"agents": _records(fingerprint, "agents"), "teams": _records(fingerprint, "teams")}
    return blake2b(canonical(known).encode(), digest_size=16).hexdigest()


def _none(_tool: str) -> int:
    return 0


def compare(before: Json, after: Json, *, mentions: Callable[[str], int] = _none) -> Drift:
    """What has changed from one fingerprint to another; ``mentions`` counts the calls of a tool in the conversation.

    What is not of the form of a fingerprint counts as absent.
    """
    found = _Comparison(_Setup.of(before), _Setup.of(after), mentions)
    return Drift((*found.changes(), *_versions(before, after)))


def migration_code(drift: Drift, *, name: str, version: int) -> str:
    """Code to paste: a migration to the next version that does what the changes need."""
    mine = variable(name or PLACEHOLDER)
    body: list[str] = []
    for each in sorted(drift.changes, key=lambda each: not each.breaking):
        lines = each.code.splitlines() if each.code else []
        if each.breaking and not lines and each.what != "graph":  # its nodes are the agents
            lines = ["# state = state.map_messages(...), or state.edit(...): say what becomes of what is there"]
        if lines and lines[0] not in body:
            body += [f"# {line(each.text)}", *lines]
    return "\n".join(
        [
            f"# where {mine} = midturn.Blueprint({literal(name or PLACEHOLDER)}, ...) stands: version={version + 1}",
            f"@{mine}.migration({version}, {version + 1})",
            f"def from_{version}_to_{version + 1}(state):",
            *(f"    {each}" for each in body),
            "    return state",
            "",
        ]
    )


def _versions(before: Json, after: Json) -> Iterator[Change]:
    """Which software is another than it was; what is not known of either is not said."""
    old, new = (_object(each, "versions") for each in (before, after))
    for name in sorted(old.keys() & new.keys()):
        if isinstance(was := old[name], str) and isinstance(now := new[name], str) and was != now:
            text = f"{'AutoGen' if name == 'autogen' else name} {was} before, {now} now"
            yield change(("", name), "version", text, was, now)


def _object(value: Json, key: str) -> dict[str, Any]:
    found = value.get(key) if is_object(value) else None
    return found if is_object(found) else {}


def _records(fingerprint: Json, kind: str) -> Records:
    """The agents or the teams of a fingerprint, without what has not the form that it should have."""
    return {path: _record(record) for path, record in _object(fingerprint, kind).items() if is_object(record)}


def _record(record: dict[str, Any]) -> dict[str, Any]:
    formed = {key: value for key, value in record.items() if key not in FORMS or type(value) is FORMS[key]}
    if is_array(members := formed.get("participants")):
        formed["participants"] = list(dict.fromkeys(name for name in members if isinstance(name, str)))
    if "tools" in formed:
        formed["tools"] = _schemas(formed["tools"])
    if is_object(output := formed.get("output")):
        name = output.get("name")
        formed["output"] = {"name": name, "schema": _object(output, "schema")} if isinstance(name, str) else {}
    if is_object(settings := formed.get("settings")):
        formed["settings"] = _filled({**settings, "message_types": _schemas(settings.get("message_types"))})
    return _filled(formed)


def _schemas(value: Json) -> dict[str, Any]:
    known = value if is_object(value) else {}
    return {name: schema if is_object(schema) else {} for name, schema in known.items()}


def _filled(record: dict[str, Any]) -> dict[str, Any]:
    return {
        key: item for key, item in record.items() if item is not None and item is not False and item not in ("", [], {})
    }


def _is_at(path: str, parent: str) -> bool:
    """Say whether a path is that of ``parent``, or leads to something inside it."""
    return path == parent or path.startswith(f"{parent}/")


@dataclass(frozen=True, slots=True)
class _Setup:
    """The agents and teams of a fingerprint, by their paths."""

    agents: Records
    teams: Records

    @staticmethod
    def of(fingerprint: Json) -> _Setup:
        return _Setup(_records(fingerprint, "agents"), _records(fingerprint, "teams"))

    def member(self, team: str, name: str) -> tuple[str, dict[str, Any]] | None:
        """The path and the record of a participant of a team."""
        folder = f"{team}/participants" if team else "participants"
        for path, record in (*self.agents.items(), *self.teams.items()):
            if path.rpartition("/")[0] == folder and record.get("name") == name:
                return path, record
        return None

    def has(self, path: str) -> bool:
        """Whether there is something at a path or inside of it."""
        return any(_is_at(other, path) for other in (*self.agents, *self.teams))

    def moved(self, old: str, new: str, name: str) -> _Setup:
        """The same with what was at one path, and inside of it, at another and by another name."""

        def move(records: Records) -> Records:
            return {
                (new + path.removeprefix(old) if _is_at(path, old) else path): (
                    {**record, "name": name} if path == old else record
                )
                for path, record in records.items()
            }

        return _Setup(move(self.agents), move(self.teams))


class _Comparison:
    """One setup compared with another. Of an agent that was renamed, what it was is taken to where it is now."""

    def __init__(self, before: _Setup, after: _Setup, mentions: Callable[[str], int]) -> None:
        self._before, self._after, self._mentions = before, after, mentions
        self._covered: list[str] = []
        """The paths of participants that were added or removed, which is said already."""

    def changes(self) -> Iterator[Change]:
        done: set[str] = set()
        while (path := min(self._common_teams() - done, default=None)) is not None:
            done.add(path)
            yield from self._members(path)
        before, after = self._before, self._after
        yield from self._kind("team", before.teams, after.teams, after.agents, before.agents)
        yield from self._kind("agent", before.agents, after.agents, after.teams, before.teams)

    def _common_teams(self) -> set[str]:
        return self._before.teams.keys() & self._after.teams.keys()

    def _members(self, team: str) -> Iterator[Change]:
        """Who was added to a team, removed from it or renamed in it."""
        whole: list[str] = self._before.teams[team].get("participants", [])
        now: list[str] = self._after.teams[team].get("participants", [])
        removed, added = [name for name in whole if name not in now], [name for name in now if name not in whole]
        name = called(self._after.teams[team], team)
        who = f"team {name}"
        renamed: dict[str, str] = {}
        for old, new in self._pairs(team, removed, added):
            renamed[old] = new
            path = self._move(team, old, new)
            yield change(
                (path, new),
                "agent",
                f"agent {old} removed from {who}, agent {new} added in its place",
                old,
                new,
                breaking=True,
                code=f"state = state.rename_agent({literal(old)}, {literal(new)})\n"
                f"# or, if {line(new)} is not the same agent under another name:\n"
                f"# state = state.add_agent({literal(new)}).remove_agent({literal(old)})",
            )
        for one in added:  # before those that are removed: a team has somebody in it at any time
            if one not in renamed.values():
                path = self._cover(self._after, team, one)
                code = f"state = state.add_agent({literal(one)})"
                yield change((path, one), "agent", f"agent {one} added to {who}", None, one, breaking=True, code=code)
        for one in removed:
            if one not in renamed:
                path = self._cover(self._before, team, one)
                code = f"state = state.remove_agent({literal(one)})"
                text = f"agent {one} removed from {who}"
                yield change((path, one), "agent", text, one, None, breaking=True, code=code)
        stayed = [renamed.get(name, name) for name in whole if name in now or name in renamed]
        if stayed != [name for name in now if name in stayed]:
            yield change((team, name), "order", f"participants of {who} in another order", whole, now)

    def _pairs(self, team: str, removed: Sequence[str], added: Sequence[str]) -> list[tuple[str, str]]:
        """Who may have been renamed: the only one of a class that is gone, and the only one that is new."""
        found: list[tuple[str, str]] = []
        old = {name: at for name in removed if (at := self._before.member(team, name)) is not None}
        new = {name: at for name in added if (at := self._after.member(team, name)) is not None}
        for name, (path, record) in old.items():
            same = [other for other, (_, its) in new.items() if its.get("class") == record.get("class")]
            rivals = [other for other, (_, its) in old.items() if its.get("class") == record.get("class")]
            if len(same) == len(rivals) == 1 and not self._before.has(new[same[0]][0]) and not self._after.has(path):
                found.append((name, same[0]))
        return found

    def _move(self, team: str, old: str, new: str) -> str:
        was, now = self._before.member(team, old), self._after.member(team, new)
        assert was is not None and now is not None  # noqa: S101, PT018 - only such are pairs
        self._before = self._before.moved(was[0], now[0], new)
        return now[0]

    def _cover(self, setup: _Setup, team: str, name: str) -> str:
        found = setup.member(team, name)
        path = team if found is None else found[0]
        if found is not None:
            self._covered.append(path)
        return path

    def _kind(
        self, kind: str, before: Records, after: Records, others: Records, others_before: Records
    ) -> Iterator[Change]:
        """The changes of all agents, or of all teams."""
        other = "agent" if kind == "team" else "team"
        for path in sorted({*before, *after}):
            old, new = before.get(path), after.get(path)
            if old is not None and new is not None:
                yield from Record(kind, path, old, new, self._mentions).changes()
            elif any(_is_at(path, covered) for covered in self._covered):
                continue
            elif old is not None:
                name, is_other = called(old, path), path in others
                text = f"{kind} {name} is a {other} now" if is_other else f"{kind} {name} removed"
                verb = "reset_agent" if is_other else "remove_agent"
                code = f"state = state.{verb}({literal(name)})" if path else None
                yield change((path, name), kind, text, old, others.get(path), breaking=True, code=code)
            elif new is not None and (path not in others_before or path in others):
                yield change((path, name := called(new, path)), kind, f"{kind} {name} added", None, new)
