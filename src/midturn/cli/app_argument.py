"""The argument APP: load what ``module:attribute`` names."""

from __future__ import annotations

import importlib
import inspect
import logging
import os
import pkgutil
import sys
import traceback
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from midturn.cli.errors import AppInvalid
from midturn.versions.blueprint import Blueprint

if TYPE_CHECKING:
    from collections.abc import Iterable


def load_app(name: str) -> Any:
    """Return what APP names. The current directory is searched first, as with ``python -m``.

    Raises:
        AppInvalid: APP does not exist, cannot be imported, or is not something that a session can run.
    """
    found = load_attribute(name)
    _check(found, name)
    # A team logs its agents' errors with tracebacks, but we report them. An app that sets up logging gets both.
    logging.getLogger("autogen_core").addHandler(logging.NullHandler())
    return found


def load_attribute(name: str) -> Any:
    """Return what ``module:attribute`` names.

    Raises:
        AppInvalid: it does not exist, or cannot be imported.
    """
    module, colon, attribute = name.partition(":")
    if "@" in name:  # The message does not repeat it: a URL may carry a password.
        raise AppInvalid("APP must be module:attribute, such as app:support, not a URL")
    if not (module and colon and attribute):
        raise AppInvalid(f"APP must be module:attribute, such as app:support, not {name!r}")
    if module.endswith(".py"):
        raise AppInvalid(f"APP names a module, not a file: {module.removesuffix('.py').replace('/', '.')}:{attribute}")
    here = os.getcwd()  # noqa: PTH109 - sys.path is made of strings
    sys.path.insert(0, here)
    found = _import(module, here)
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise AppInvalid(f"{module} has no {attribute!r}{_instead(part, _public(found))}")
        found = getattr(found, part)
    return found


def load_blueprint(name: str) -> Blueprint:
    """Return the Blueprint that APP names.

    Raises:
        AppInvalid: APP names something else.
    """
    return as_blueprint(load_app(name), f"{name} is not a Blueprint with a name and a version")


def as_blueprint(found: object, why: str) -> Blueprint:
    """Return ``found`` if it is a Blueprint with a name, by which sessions know that they belong to it.

    Raises:
        AppInvalid: it is not. ``why`` says why the command needs one.
    """
    if not isinstance(found, Blueprint) or not found.name:
        error = AppInvalid(why)
        error.add_note('write it like this: support = midturn.Blueprint("support", build_team)')
        raise error
    return found


def is_live(what: object) -> bool:
    """Return whether this is an agent or a team, not something that builds one."""
    from midturn.autogen.adapter import AutoGen

    return AutoGen().is_live(what)


def broken(doing: str, error: BaseException) -> AppInvalid:
    """Return the error for an app that raised before its turn started."""
    invalid = AppInvalid(f"{doing} failed: {type(error).__name__}: {error}")
    invalid.add_note("--traceback shows where it failed")
    return invalid


def is_ours(error: Exception) -> bool:
    """Return whether midturn's own code raised the error. Then it is our bug, not the app's fault."""
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    return str(frame.f_globals.get("__name__")).startswith("midturn.")


def _import(module: str, here: str) -> Any:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and (module == error.name or module.startswith(f"{error.name}.")):
            near = _instead(module, [found.name for found in pkgutil.iter_modules([here])])
            raise AppInvalid(f"there is no module {module!r}, neither in {here} nor installed{near}") from None
        raise broken(f"importing {module}", error) from error
    except (Exception, SystemExit) as error:
        raise broken(f"importing {module}", error) from error


def _check(what: object, name: str) -> None:
    if isinstance(what, Blueprint) or is_live(what):
        return
    if not callable(what):
        raise AppInvalid(f"{name} is a {type(what).__name__}; it must be a Blueprint, a factory, an agent or a team")
    try:
        inspect.signature(what).bind()
    except TypeError as error:
        raise AppInvalid(f"{name} must be callable without arguments, like any factory: {error}") from None
    except ValueError:
        return  # its arguments are not known


def _public(what: object) -> list[str]:
    return [name for name in dir(what) if not name.startswith("_")]


def _instead(name: str, names: Iterable[str]) -> str:
    near = get_close_matches(name, names, n=3)
    return f"; did you mean {' or '.join(near)}?" if near else ""
