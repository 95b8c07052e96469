"""How one agent or team differs from what it was."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from midturn.record.codec import is_object
from midturn.versions.drift.changes import called, change, literal, said, same
from midturn.versions.drift.schemas import misfits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from midturn.record.codec import Json
    from midturn.versions.drift.changes import Change


@dataclass(frozen=True, slots=True)
class Record:
    """One agent or team, as it was and as it is; all but who the participants of a team are."""

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
        name = called(self.after, self.path)
        return f"team {name}" if self.kind == "team" else name

    def _change(self, what: str, text: str, old: Json, new: Json, **more: Any) -> Change:
        return change((self.path, called(self.after, self.path)), what, text, old, new, **more)

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
        """One that was renamed, or has another schema."""
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
    """A schema without the name of the type, which is told by the type itself."""
    return {key: value for key, value in schema.items() if key != "title"} if is_object(schema) else schema


def _takes_the_same(one: Any, other: Any) -> bool:
    """Whether two tools have the same parameters, and some."""
    parameters = one.get("parameters")
    return bool(parameters) and same(parameters, other.get("parameters"))
