"""Redacting texts before they are stored: the function of a blueprint, and the texts that are final.

A text comes in at a door: a task, the answer of a call, the answer of a person. There the function is called, and
agents get what it returns, so agents, records and readers all have the same text. Texts that agents make themselves
pass a gate before they are stored or shown. A text that has passed is final: it is not given to the function again.
"""

from __future__ import annotations

import json
import re
import traceback
from dataclasses import dataclass, replace
from inspect import isawaitable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, TypeVar, cast

from midturn.errors import InvalidArgument, RedactionFailed
from midturn.record.codec import is_array, is_object

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

T = TypeVar("T")

Spoken: TypeAlias = Literal["task", "model", "tool", "memory", "human", "agent", "error"]
"""The kinds of texts. ``agent`` is what an agent says or keeps without any call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """The origin of a text, for the function of ``Blueprint(redact=...)``."""

    kind: Spoken
    """``task``, ``model``, ``tool``, ``memory``, ``human``, ``agent`` for what an agent says or keeps by itself, or
    ``error`` for the text of an exception."""
    agent: str = ""
    """The name of the agent that gets or has the text; empty for a task."""
    tool: str = ""
    """The name of the tool whose result or arguments the text is in, or that a person is asked about."""


Redact: TypeAlias = "Callable[[str, Where], str | Awaitable[str]]"


class Clean(Protocol):
    """Returns the text that takes the place of another. ``tool`` names the tool whose arguments have the text."""

    def __call__(self, text: str, tool: str = "") -> str: ...


_FIELD = re.compile(r"[a-z_]+")
"""A key that is the name of a field, and not data."""


class Redaction:
    """The redaction of one session in this process."""

    def __init__(self, function: Redact, session: str) -> None:
        self._function = function
        self._session = session
        self._final: set[str] = set()
        """Texts that are recorded, or that may be recorded as they are."""
        self._own: dict[str, str] = {}
        """The texts that agents made themselves, and the texts that stand for them."""

    async def given(self, walk: Callable[[Clean], T], where: Where) -> T:
        """Return what ``walk`` returns when it gets the redacted text for each text that it finds. It is final then."""
        found = await self._walked(walk, where, {})
        self.learn(found)
        return found

    async def own(self, walk: Callable[[Clean], T], where: Where) -> T:
        """Do the same for texts of agents. A final text stays as it is, and equal texts become equal texts."""
        return await self._walked(walk, where, None)

    def learn(self, value: Any) -> None:
        """Note that all texts in a JSON value are final."""
        if isinstance(value, str):
            if value not in self._final:
                self._final.add(value)
                if (inside := _parsed(value)) is not None:
                    self.learn(inside)
        elif is_object(value):
            self._final.update(value)
            for item in value.values():
                self.learn(item)
        elif is_array(value):
            for item in value:
                self.learn(item)
        elif type(value) in (int, float):
            self._final.add(str(value))

    async def error(self, error: BaseException, agent: str = "") -> BaseException:
        """Return an error without texts that the function replaces: the same one if there are none in its chain.

        Otherwise, it is an error with the name of its class and the redacted text. It has no cause, no notes and no
        frames of the program, in which debuggers would find the text.
        """
        chain, left = list[BaseException](), [error]
        while left:
            each = left.pop()
            if not any(each is known for known in chain):
                chain.append(each)
                left += [other for other in (each.__cause__, each.__context__) if other is not None]
                left += cast("Sequence[BaseException]", getattr(each, "exceptions", ()))  # of a group
        texts = [[str(each), *map(str, getattr(each, "__notes__", ()))] for each in chain]
        where = Where(kind="error", agent=agent)
        shown = await self.own(lambda clean: [[clean(text) for text in each] for each in texts], where)
        if shown == texts:
            return error
        name, text = type(error).__name__, shown[0][0]
        shown_error: type[Exception] = type(name, (Exception,), {"__module__": type(error).__module__})
        return shown_error(text)

    async def described(self, text: str) -> str:
        """Return the description of an error for the record. If that cannot be redacted, only its first word stays."""
        try:
            return await self.own(lambda clean: clean(text), Where(kind="error"))
        except RedactionFailed:
            return f"{text.partition(':')[0]}: its text could not be redacted"

    async def _walked(self, walk: Callable[[Clean], T], where: Where, given: dict[tuple[str, str], str] | None) -> T:
        """Walk again and again, until each text is known. ``given`` is ``None`` for texts of agents."""
        while True:
            missing: dict[tuple[str, str], None] = {}

            def clean(text: str, tool: str = "", missing: dict[tuple[str, str], None] = missing) -> str:
                if not text or (given is None and text in self._final):
                    return text
                known = self._own.get(text) if given is None else given.get((text, tool))
                if known is None:
                    missing[text, tool] = None
                    return text
                return known

            found = walk(clean)
            if not missing:
                return found
            for text, tool in missing:
                redacted = await self._call(text, replace(where, tool=tool) if tool else where)
                if given is not None:
                    given[text, tool] = redacted
                else:
                    self._final.add(self._own.setdefault(text, redacted))

    async def _call(self, text: str, where: Where) -> str:
        try:
            found: object = self._function(text, where)
            found = await found if isawaitable(found) else found
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a user's function
            failure = f"raised {type(error).__name__} ({_place(error)})"
        else:
            if isinstance(found, str):  # pyright: ignore[reportUnnecessaryIsInstance] - it may be untyped
                return str(found)
            failure = f"returned a {type(found).__name__}, not a text"
        # Outside of the handler: the error of the function may have the text, and must not be the context of this one.
        raise RedactionFailed(
            f"the function redact of the blueprint {failure}, for a text of the kind {where.kind!r} in session "
            f"{self._session!r}. Nothing of the text was stored",
            session=self._session,
            hint="Correct the function, then run the turn again: resume(), or run() with the same key.",
        )


def _place(error: BaseException) -> str:
    """Return the line that raised an error."""
    frames = traceback.extract_tb(error.__traceback__)
    return f"{Path(frames[-1].filename).name}, line {frames[-1].lineno}" if frames else "no line"


def text_in(text: str, clean: Clean, tool: str = "") -> str:
    """Return the text that stands for another. If it is a JSON object or array, its parts are cleaned one by one."""
    inside = _parsed(text)
    if inside is None:
        return clean(text, tool)
    found = texts_in(inside, clean, tool)
    return text if found == inside else json.dumps(found, ensure_ascii=False)


def texts_in(value: Any, clean: Clean, tool: str = "", *, numbers: bool = True) -> Any:
    """Return a JSON value whose texts are cleaned: the keys that are data, and the ``numbers``, as their text."""
    if isinstance(value, str):
        return text_in(value, clean, tool)
    if is_object(value):
        return {
            key if _FIELD.fullmatch(key) else clean(key, tool): texts_in(item, clean, tool, numbers=numbers)
            for key, item in value.items()
        }
    if is_array(value):
        return [texts_in(item, clean, tool, numbers=numbers) for item in value]
    if numbers and type(value) in (int, float) and (found := clean(str(value), tool)) != str(value):
        return found
    return value


def _parsed(text: str) -> Any:
    """Return the JSON object or array that a text is; ``None`` for any other text."""
    if text[:1] not in ("{", "[") and not text.lstrip().startswith(("{", "[")):
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def check_redact(function: Redact) -> Redact:
    """Return the function that redacts.

    Raises:
        InvalidArgument: it is not a function.
    """
    if not callable(function):  # pyright: ignore[reportUnnecessaryComparison] - callers may be untyped
        raise InvalidArgument(f"must be a function, not a {type(function).__name__}", path="redact")
    return function
