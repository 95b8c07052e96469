"""``midturn check``: whether a Blueprint has changed without a new version."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from midturn.cli.app_argument import broken, load_blueprint
from midturn.cli.options import json_option
from midturn.cli.output import complain, note, print_json, say
from midturn.cli.signals import run
from midturn.errors import MidturnError, NotFound, StateInvalid
from midturn.record import codec
from midturn.record.codec import is_object
from midturn.versions import drift
from midturn.versions.blueprint import build, fingerprint_of

if TYPE_CHECKING:
    from midturn.versions.blueprint import Blueprint


@click.command()
@click.argument("app")
@click.option(
    "--file",
    "path",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The file to compare with.  [default: BLUEPRINT.fingerprint.json]",
)
@click.option("--write", is_flag=True, help="Write the file: this is how it is meant to be now.")
@json_option
def check(*, app: str, path: Path | None, write: bool, as_json: bool) -> int:
    """See whether the Blueprint APP is built as a committed file says.

    For CI: when prompts, tools, models or participants have changed and the version was not raised, it prints what has
    changed and how to go on, and the exit code is 1. Migrations that do not lead to the version are found as well.
    """
    blueprint = load_blueprint(app)
    blueprint.check()
    file = re.sub(r"[^\w.-]+", "-", blueprint.name) or "blueprint"
    path = path or Path(f"{file}.fingerprint.json")
    built = run(_fingerprint(app, blueprint))
    now: dict[str, Any] = {"blueprint": blueprint.name, "version": blueprint.version, **built}
    now["digest"] = drift.digest(built)
    if write:
        path.write_text(json.dumps(now, indent=2, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")
        if as_json:
            print_json({"written": str(path), "version": blueprint.version, "digest": now["digest"]})
        else:
            say(f"wrote {path}: version {blueprint.version}, {now['digest'][:12]}")
        return 0
    return _compare(app, blueprint, path, now, as_json=as_json)


def _compare(app: str, blueprint: Blueprint, path: Path, now: dict[str, Any], *, as_json: bool) -> int:
    then = _read(app, path)
    changes = drift.compare(then, now)
    version = then["version"]
    migrations = blueprint.migrations(version)  # raises if one is missing
    if version > blueprint.version:
        raise StateInvalid(f"is of version {version}, and {app} is version {blueprint.version}", path=str(path))
    same = now["digest"] == drift.digest(then)
    if as_json:
        print_json({"version": version, "now": blueprint.version, "same": same, "drift": changes.as_json()})
        return 0 if same or migrations else 1
    if same and not migrations:
        say(f"{app} is built as {path} says: version {version}, {now['digest'][:12]}")
        return 0
    if not migrations:
        complain(
            f"{app} has changed, and its version is still {version}",
            *changes.texts,
            "",
            "raise the version, and say what becomes of the states that there are:",
            "",
            drift.migration_code(changes, name=blueprint.name, version=version),
            f"then: midturn check {app} --write",
        )
        return 1
    say(f"{app} went from version {version} to {blueprint.version}, and this has changed:")
    say(str(changes) or "nothing")
    note(f"when it is meant so: midturn check {app} --write, and commit {path}")
    return 0


async def _fingerprint(app: str, blueprint: Blueprint) -> dict[str, Any]:
    from midturn.autogen.adapter import AutoGen

    framework = AutoGen()
    try:
        return await fingerprint_of(await build(blueprint, framework), framework)
    except MidturnError:
        raise
    except Exception as error:
        raise broken(app, error) from error


def _read(app: str, path: Path) -> dict[str, Any]:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        error = NotFound(f"there is no file {path}")
        error.add_note(f"write it and commit it: midturn check {app} --write")
        raise error from None
    found = codec.decode_foreign(data, str(path))
    if not is_object(found) or type(found.get("version")) is not int:
        raise StateInvalid(f"is not a fingerprint; write it anew: midturn check {app} --write", path=str(path))
    return found
