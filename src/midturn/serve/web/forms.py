"""Forms: the value that shows that this page sent them, and the arguments of a call as fields."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import Depends
from starlette.datastructures import FormData
from starlette.requests import Request

from midturn.errors import InvalidArgument
from midturn.record.codec import is_array, is_object
from midturn.record.readable import visible
from midturn.serve.principals import same
from midturn.serve.problems import Problem
from midturn.serve.web.rendering import as_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from midturn.questions import Question
    from midturn.record.codec import Json

MOST = 1_000
"""Fields of a form."""


async def _form(request: Request) -> FormData:
    found = await request.form(max_files=0, max_fields=MOST)
    given = found.get("csrf")
    if not isinstance(given, str) or not given or not same(given, request.state.csrf):
        raise Problem(403, "StaleForm", "this form is from another login; open the page again, then send it again")
    return found


Form = Annotated[FormData, Depends(_form)]
"""The fields of a form that a page of this server has sent."""


def text_of(form: FormData, name: str) -> str:
    """Return a field as text, with the line ends that browsers have changed; empty if there is none."""
    found = form.get(name, "")
    return found.replace("\r\n", "\n") if isinstance(found, str) else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """An argument of a call as a field of a form."""

    name: str
    """The name of the argument."""
    field: str
    """The name of the field: an argument may have any name."""
    kind: str
    """``text``, ``number``, ``integer``, ``choice`` or ``json``."""
    value: str
    """The text in the field."""
    choices: tuple[str, ...] = ()
    about: str = ""
    """The description of the argument."""
    required: bool = False
    problem: str = ""


def fields_of(question: Question) -> list[Field]:
    """Return a field for each argument of a call, also for those that the call leaves out."""
    return list(_fields(question))


def changed(question: Question, form: FormData) -> dict[str, Json]:
    """Return the arguments that somebody has changed in a form.

    Raises:
        InvalidArgument: some cannot be read. Its ``differences`` have the paths of the arguments.
    """
    found: dict[str, Json] = {}
    problems: list[InvalidArgument] = []
    for field in fields_of(question):
        if field.field not in form:
            continue
        text = text_of(form, field.field)
        if text == field.value.replace("\r\n", "\n"):
            continue  # exactly what the call has, also where its characters cannot be seen
        try:
            found[field.name] = _read(field, text)
        except ValueError as error:
            problems.append(InvalidArgument(str(error), path=f"arguments.{field.name}"))
    if problems:
        raise InvalidArgument.gathered(problems)
    return found


def refilled(question: Question, form: FormData, error: InvalidArgument) -> list[Field]:
    """Return the fields with what somebody has typed, and what is wrong with it."""
    wrong = dict(error.differences)
    return [
        replace(
            field,
            value=text_of(form, field.field) if field.field in form else field.value,
            problem=next((text for path, text in wrong.items() if _is_about(path, field.name)), ""),
        )
        for field in fields_of(question)
    ]


def _is_about(path: str, name: str) -> bool:
    return path == f"arguments.{name}" or path.startswith(f"arguments.{name}.")


def _fields(question: Question) -> Iterator[Field]:
    schema: Mapping[str, Any] = question.schema or {}
    declared: Any = schema.get("properties")
    declared = declared if is_object(declared) else {}
    needed: Any = schema.get("required")
    given = question.arguments or {}
    for number, name in enumerate(dict.fromkeys([*given, *declared])):
        about: Any = declared.get(name)
        about = about if is_object(about) else {}
        kind, choices = _kind(about, given.get(name, ""))
        value = ""
        if name in given:
            value = _written(given[name], kind)
        description = str(about.get("description", ""))
        yield Field(
            name=name,
            field=f"argument.{number}",
            kind=kind,
            value=value,
            choices=choices if name in given else ("", *choices),
            about="" if description == name else description,  # AutoGen writes the name if there is none
            required=is_array(needed) and name in needed,
        )


def _kind(schema: Mapping[str, Any], value: Any) -> tuple[str, tuple[str, ...]]:
    """Return the kind of a field, and what can be chosen."""
    enum: Any = schema.get("enum")
    if is_array(enum) and enum and (value == "" or value in enum):
        return "choice", tuple(visible(as_json(each)) for each in enum)
    match schema.get("type"):
        case "string" if isinstance(value, str):
            return "text", ()
        case "number" | "integer" as kind if isinstance(value, int | float | str) and not isinstance(value, bool):
            return ("json", ()) if isinstance(value, str) and value else (kind, ())
        case "boolean" if isinstance(value, bool) or value == "":
            return "choice", ("true", "false")
        case _:
            return "json", ()


def _written(value: Any, kind: str) -> str:
    """Return a value as the text in its field. What cannot be seen is written as escapes."""
    return visible(value if kind == "text" else as_json(value))


def _read(field: Field, text: str) -> Json:
    """Return the value that somebody typed.

    Raises:
        ValueError: it is not one.
    """
    if field.kind == "text":
        return text
    try:
        found: Json = json.loads(text, parse_constant=_refuse)
    except ValueError:
        what = {"number": "a number, such as 40.5", "integer": "a whole number, such as 40"}
        raise ValueError(f"must be {what.get(field.kind, 'JSON; write a text in quotation marks')}") from None
    return found


def _refuse(word: str) -> Json:
    raise ValueError(f"{word} is not JSON")
