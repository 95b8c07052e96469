"""Comparison of two fingerprints: how agents and teams have changed, and the code that migrates a state.

A change is breaking if the stored state may not fit the agents that are built now.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from midturn.record.codec import is_array, is_object
from midturn.versions.drift.changes import (
    Change,
    Drift,
    canonical,
    change,
    display_name,
    line,
    literal,
    said,
    same,
    variable,
)
from midturn.versions.drift.schemas import misfits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

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
"""Types of the known keys in the configuration of an agent or a team; other keys may have any value."""

PLACEHOLDER = "support"
"""Name for a blueprint that has none yet."""

Configurations = dict[str, dict[str, Any]]
"""Configurations of agents or teams, by their paths."""


def digest(fingerprint: Json) -> str:
    """Return a hash of the configuration of all agents and teams, without the versions of the software."""
    known = {"agents": _configurations(fingerprint, "agents"), "teams": _configurations(fingerprint, "teams")}
    return blake2b(canonical(known).encode(), digest_size=16).hexdigest()


def _none(_tool: str) -> int:
    return 0


def compare(before: Json, after: Json, *, mentions: Callable[[str], int] = _none) -> Drift:
    """Return the changes from one fingerprint to another.

    ``mentions`` counts the calls of a tool in the conversation. Malformed parts count as absent.
    """
    found = _SetupComparison(_Setup.of(before), _Setup.of(after), mentions)
    return Drift((*found.changes(), *_versions(before, after)))


def migration_code(drift: Drift, *, name: str, version: int) -> str:
    """Return code to paste: a migration to the next version that handles the changes."""
    mine = variable(name or PLACEHOLDER)
    body: list[str] = []
    for each in sorted(drift.changes, key=lambda each: not each.breaking):
        lines = each.code.splitlines() if each.code else []
        if each.breaking and not lines and each.what != "graph":  # a graph's nodes are the agents
            lines = ["# state = state.map_messages(...), or state.edit(...): adapt the stored messages to the change"]
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
    """Yield a change for each software whose version has changed, where both versions are known."""
    old, new = (_object(each, "versions") for each in (before, after))
    for name in sorted(old.keys() & new.keys()):
        if isinstance(was := old[name], str) and isinstance(now := new[name], str) and was != now:
            text = f"{'AutoGen' if name == 'autogen' else name} {was} before, {now} now"
            yield change(("", name), "version", text, was, now)


def _object(value: Json, key: str) -> dict[str, Any]:
    found = value.get(key) if is_object(value) else None
    return found if is_object(found) else {}


def _configurations(fingerprint: Json, kind: str) -> Configurations:
    """Return the agents or the teams of a fingerprint, without malformed parts."""
    return {
        path: _configuration(configuration)
        for path, configuration in _object(fingerprint, kind).items()
        if is_object(configuration)
    }


def _configuration(configuration: dict[str, Any]) -> dict[str, Any]:
    formed = {key: value for key, value in configuration.items() if key not in FORMS or type(value) is FORMS[key]}
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


def _filled(configuration: dict[str, Any]) -> dict[str, Any]:
    return {
        key: item
        for key, item in configuration.items()
        if item is not None and item is not False and item not in ("", [], {})
    }


def _is_at(path: str, parent: str) -> bool:
    """Return whether a path is ``parent`` itself, or leads to something inside it."""
    return path == parent or path.startswith(f"{parent}/")


@dataclass(frozen=True, slots=True)
class _Setup:
    """The agents and teams of a fingerprint, by their paths."""

    agents: Configurations
    teams: Configurations

    @staticmethod
    def of(fingerprint: Json) -> _Setup:
        return _Setup(_configurations(fingerprint, "agents"), _configurations(fingerprint, "teams"))

    def member(self, team: str, name: str) -> tuple[str, dict[str, Any]] | None:
        """Return the path and the configuration of a participant of a team."""
        folder = f"{team}/participants" if team else "participants"
        for path, configuration in (*self.agents.items(), *self.teams.items()):
            if path.rpartition("/")[0] == folder and configuration.get("name") == name:
                return path, configuration
        return None

    def has(self, path: str) -> bool:
        """Return whether there is an agent or a team at a path or inside it."""
        return any(_is_at(other, path) for other in (*self.agents, *self.teams))

    def moved(self, old: str, new: str, name: str) -> _Setup:
        """Return this setup with the agent or team at ``old``, and all inside it, moved to ``new`` and renamed."""

        def move(configurations: Configurations) -> Configurations:
            return {
                (new + path.removeprefix(old) if _is_at(path, old) else path): (
                    {**configuration, "name": name} if path == old else configuration
                )
                for path, configuration in configurations.items()
            }

        return _Setup(move(self.agents), move(self.teams))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Renaming:
    """A participant that probably has another name now."""

    old: str
    new: str
    old_path: str
    new_path: str


class _SetupComparison:
    """Comparison of two setups. A renamed agent is moved to its new path first, and then compared."""

    def __init__(self, before: _Setup, after: _Setup, mentions: Callable[[str], int]) -> None:
        self._before, self._after, self._mentions = before, after, mentions
        self._covered: list[str] = []
        """The paths of participants whose addition or removal is reported already."""

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
        """Yield the participants that were added to a team, removed from it or renamed in it."""
        whole: list[str] = self._before.teams[team].get("participants", [])
        now: list[str] = self._after.teams[team].get("participants", [])
        removed, added = [name for name in whole if name not in now], [name for name in now if name not in whole]
        name = display_name(self._after.teams[team], team)
        who = f"team {name}"
        renamed: dict[str, str] = {}
        for found in self._renamings(team, removed, added):
            old, new = found.old, found.new
            renamed[old] = new
            self._before = self._before.moved(found.old_path, found.new_path, new)
            yield change(
                (found.new_path, new),
                "agent",
                f"agent {old} removed from {who}, agent {new} added in its place",
                old,
                new,
                breaking=True,
                code=f"state = state.rename_agent({literal(old)}, {literal(new)})\n"
                f"# or, if {line(new)} is not the same agent under another name:\n"
                f"# state = state.add_agent({literal(new)}).remove_agent({literal(old)})",
            )
        for one in added:  # before the removals: a team must never be empty
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

    def _renamings(self, team: str, removed: Sequence[str], added: Sequence[str]) -> list[_Renaming]:
        """Return the probable renamings: one removed and one added participant, each the only one of its class."""
        found: list[_Renaming] = []
        old = {name: at for name in removed if (at := self._before.member(team, name)) is not None}
        new = {name: at for name in added if (at := self._after.member(team, name)) is not None}
        for name, (path, configuration) in old.items():
            alike = [other for other, (_, its) in new.items() if its.get("class") == configuration.get("class")]
            rivals = [other for other, (_, its) in old.items() if its.get("class") == configuration.get("class")]
            if len(alike) == len(rivals) == 1:
                new_path, _ = new[alike[0]]
                if not self._before.has(new_path) and not self._after.has(path):
                    found.append(_Renaming(old=name, new=alike[0], old_path=path, new_path=new_path))
        return found

    def _cover(self, setup: _Setup, team: str, name: str) -> str:
        found = setup.member(team, name)
        path = team if found is None else found[0]
        if found is not None:
            self._covered.append(path)
        return path

    def _kind(
        self,
        kind: str,
        before: Configurations,
        after: Configurations,
        others: Configurations,
        others_before: Configurations,
    ) -> Iterator[Change]:
        """Yield the changes of all agents, or of all teams."""
        other = "agent" if kind == "team" else "team"
        for path in sorted({*before, *after}):
            old, new = before.get(path), after.get(path)
            if old is not None and new is not None:
                yield from _ConfigurationComparison(kind, path, old, new, self._mentions).changes()
            elif any(_is_at(path, covered) for covered in self._covered):
                continue
            elif old is not None:
                name, is_other = display_name(old, path), path in others
                text = f"{kind} {name} is a {other} now" if is_other else f"{kind} {name} removed"
                verb = "reset_agent" if is_other else "remove_agent"
                code = f"state = state.{verb}({literal(name)})" if path else None
                yield change((path, name), kind, text, old, others.get(path), breaking=True, code=code)
            elif new is not None and (path not in others_before or path in others):
                yield change((path, name := display_name(new, path)), kind, f"{kind} {name} added", None, new)


@dataclass(frozen=True, slots=True)
class _ConfigurationComparison:
    """Comparison of one agent or team with what it was before, without the participants of a team."""

    kind: str
    path: str
    before: Mapping[str, Any]
    after: Mapping[str, Any]
    mentions: Callable[[str], int]

    def changes(self) -> Iterator[Change]:
        special = {
            "name": self._name,
            "class": self._class,
            "tools": self._tools,
            "output": self._output,
            "graph": self._graph,
            "settings": self._settings,
        }
        for key in sorted({*self.before, *self.after} - {"participants"}):
            old, new = self.before.get(key), self.after.get(key)
            if not same(old, new):
                yield from special.get(key, partial(self._plain, key))(old, new)

    @property
    def _who(self) -> str:
        name = display_name(self.after, self.path)
        return f"team {name}" if self.kind == "team" else name

    def _change(self, what: str, text: str, old: Json, new: Json, **more: Any) -> Change:
        return change((self.path, display_name(self.after, self.path)), what, text, old, new, **more)

    def _plain(self, key: str, old: Any, new: Any) -> Iterator[Change]:
        what = {"handoffs": "handoff", "workbenches": "workbench"}.get(key, key)
        if key == "handoffs" and is_object(old or {}) and is_object(new or {}):
            yield from self._each("handoff", old or {}, new or {})
        else:
            yield self._change(what, said(f"{key} of {self._who}", old, new), old, new)

    def _each(
        self, what: str, old: Mapping[str, Any], new: Mapping[str, Any], form: str = "{1} {0}"
    ) -> Iterator[Change]:
        for name in sorted({*old, *new}):
            one, other = old.get(name), new.get(name)
            if not same(one, other) or (name in old) != (name in new):
                text = said(f"{form.format(name, what)} of {self._who}", one, other)
                yield self._change(what, text, one, other)

    def _name(self, old: Any, new: Any) -> Iterator[Change]:
        code = None
        if self.kind == "agent" and old and new:
            code = f"state = state.rename_agent({literal(old)}, {literal(new)})"
        yield self._change("name", said(f"name of {self.kind} {new or old}", old, new), old, new, code=code)

    def _class(self, old: Any, new: Any) -> Iterator[Change]:
        if self.kind == "agent":
            yield self._change("class", said(f"class of {self._who}", old, new), old, new)
            return
        code = f"state = state.change_team({literal(new)})" if new else None
        yield self._change("team", said(f"kind of {self._who}", old, new), old, new, breaking=True, code=code)

    def _graph(self, old: Any, new: Any) -> Iterator[Change]:
        nodes = (_nodes(old), _nodes(new))
        if nodes[0] != nodes[1]:
            gone, come = (", ".join(sorted(one - other)) for one, other in (nodes, nodes[::-1]))
            text = f"nodes of the graph of {self._who} changed" + f": {gone} removed" * bool(gone)
            text += f"{',' if gone else ':'} {come} added" * bool(come)
            yield self._change("graph", text, old, new, breaking=True)
        else:
            yield self._change("graph", f"graph of {self._who} changed", old, new)

    def _settings(self, old: Any, new: Any) -> Iterator[Change]:
        old, new = dict(old or {}), dict(new or {})
        yield from self._message_types(old.pop("message_types", {}), new.pop("message_types", {}))
        yield from self._each("setting", old, new, "{0}")

    def _tools(self, old: Any, new: Any) -> Iterator[Change]:
        old, new = old or {}, new or {}
        removed, added = [name for name in old if name not in new], [name for name in new if name not in old]
        renamed: dict[str, str] = {}
        for name in removed:
            alike = [
                other for other in added if other not in renamed.values() and _takes_the_same(old[name], new[other])
            ]
            if alike:
                other = renamed[name] = alike[0]
                text = f"tool {name} of {self._who} removed, tool {other} added that takes the same"
                code = f"state = state.rename_tool({literal(name)}, {literal(other)})"
                yield self._change("tool", text + self._mentioned(name), old[name], new[other], code=code)
        for name in removed:
            if name not in renamed:
                code = f"# state = state.drop_tool({literal(name)})"
                text = f"tool {name} of {self._who} removed{self._mentioned(name)}"
                yield self._change("tool", text, old[name], None, code=code)
        others = {name: schema for name, schema in new.items() if name not in renamed.values()}
        yield from self._each("tool", {name: old[name] for name in others if name in old}, others)

    def _mentioned(self, tool: str) -> str:
        count = self.mentions(tool)
        return f"; {count} call{' in the case mentions' if count == 1 else 's in the case mention'} it" if count else ""

    def _output(self, old: Any, new: Any) -> Iterator[Change]:
        if not old or not new:
            name = (old or new)["name"]
            text = f"structured output {name} of {self._who} {'removed' if old else 'added'}"
            yield self._change("output", text, old, new, breaking=bool(old))
        else:
            yield from self._message_type("output", old["name"], new["name"], old, new)

    def _message_types(self, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Change]:
        removed, added = [name for name in old if name not in new], [name for name in new if name not in old]
        renamed: dict[str, str] = {}
        for name in removed:
            free = [other for other in added if other not in renamed.values()]
            alike = [other for other in free if not misfits(old[name], new[other])]
            if alike or (len(removed) == 1 and len(free) == 1):
                renamed[name] = (alike or free)[0]
        for name in removed:
            if name not in renamed:
                text = f"message type {name} of {self._who} removed"
                yield self._change("message type", text, old[name], None, breaking=True)
        for name in added:
            if name not in renamed.values():
                yield self._change("message type", f"message type {name} of {self._who} added", None, new[name])
        for name in old:
            other = renamed.get(name, name)
            if other in new and (other != name or not same(old[name], new[other])):
                both = {"schema": old[name]}, {"schema": new[other]}
                yield from self._message_type("message type", name, other, *both)

    def _message_type(self, what: str, old: str, new: str, was: Any, now: Any) -> Iterator[Change]:
        """Yield the changes of a message type that was renamed or has another schema."""
        if old != new:
            text = f"{what} {old} of {self._who} renamed to {new}"
            renaming = f"state = state.rename_message_type({literal(old)}, {literal(new)})"
            yield self._change(what, text, old, new, breaking=True, code=renaming)
        before, after = was.get("schema"), now.get("schema")
        problems = misfits(before, after)
        for problem in problems:
            text = f"field {problem.field} of {what} {new} of {self._who} "
            text += {"added": "added, which is required", "removed": "removed", "changed": "takes other values"}[
                problem.what
            ]
            code: str | None = None
            if problem.what == "added" and not problem.is_nested:
                code = f"state = state.add_field({literal(new)}, {literal(problem.field)}, {literal(problem.default)})"
            yield self._change(what, text, before, after, breaking=True, code=code)
        if not problems and not same(_untitled(before), _untitled(after)):
            yield self._change(what, f"schema of {what} {new} of {self._who} changed; old messages fit", before, after)


def _nodes(graph: Any) -> set[str]:
    nodes = graph.get("nodes") if is_object(graph) else None
    return set(nodes) if is_object(nodes) else set()


def _untitled(schema: Json) -> Json:
    """Return a schema without the name of its type."""
    return {key: value for key, value in schema.items() if key != "title"} if is_object(schema) else schema


def _takes_the_same(one: Any, other: Any) -> bool:
    """Return whether two tools take parameters, and take the same ones."""
    parameters = one.get("parameters")
    return bool(parameters) and same(parameters, other.get("parameters"))
