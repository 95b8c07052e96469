"""``midturn check``: compare a Blueprint with its committed fingerprint."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from midturn.cli.app_argument import broken, load_blueprint
from midturn.cli.options import json_option
from midturn.cli.output import complain, print_json, say
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
    help="The committed fingerprint.  [default: BLUEPRINT.fingerprint.json]",
)
@click.option("--write", is_flag=True, help="Write the fingerprint instead of comparing.")
@json_option
def check(*, app: str, path: Path | None, write: bool, as_json: bool) -> int:
    """Compare the Blueprint APP with its committed fingerprint.

    Use it in CI. If prompts, tools, models or participants have changed under the same version, it prints the changes
    and the migration to write, and the exit code is 1. The exit code is also 1 if a migration is missing, or if the
    fingerprint is that of an older version: write it again with --write and commit it.
    """
    blueprint = load_blueprint(app)
    blueprint.check()
    file = re.sub(r"[^\w.-]+", "-", blueprint.name)
    write_line = f"midturn check {app} --write" + (f" --file {shlex.quote(str(path))}" if path else "")
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
    return _compare(app, blueprint, path, now, write_line, as_json=as_json)


def _compare(app: str, blueprint: Blueprint, path: Path, now: dict[str, Any], write_line: str, *, as_json: bool) -> int:
    then = _read(path, write_line)
    if then.get("blueprint") != blueprint.name:
        other = f"is the fingerprint of the blueprint {then.get('blueprint')!r}, not of {blueprint.name!r}"
        raise StateInvalid(f"{other}; name another --file", path=str(path))
    changes = drift.compare(then, now)
    version = then["version"]
    blueprint.migrations(version)  # raises if one is missing
    if version > blueprint.version:
        raise StateInvalid(f"has version {version}, but {app} is only version {blueprint.version}", path=str(path))
    same = version == blueprint.version and now["digest"] == drift.digest(then)
    if as_json:
        print_json({"version": version, "now": blueprint.version, "same": same, "drift": changes.as_json()})
    elif same:
        say(f"{app} matches {path}: version {version}, {now['digest'][:12]}")
    elif version == blueprint.version:
        complain(
            f"{app} has changed, but its version is still {version}",
            *changes.texts,
            "",
            "raise the version, and write a migration for the stored states:",
            "",
            drift.migration_code(changes, name=blueprint.name, version=version),
            f"then: {write_line}",
        )
    else:  # else it would pass for ever, and hide the next change that has no version of its own
        complain(
            f"{path} has version {version}, and {app} is version {blueprint.version}",
            *changes.texts,
            f"if this is intended: {write_line}, and commit {path}",
        )
    return 0 if same else 1


async def _fingerprint(app: str, blueprint: Blueprint) -> dict[str, Any]:
    from midturn.autogen.adapter import AutoGen

    framework = AutoGen()
    try:
        return await fingerprint_of(await build(blueprint, framework), framework)
    except MidturnError:
        raise
    except Exception as error:
        raise broken(app, error) from error


def _read(path: Path, write_line: str) -> dict[str, Any]:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        error = NotFound(f"there is no file {path}")
        error.add_note(f"write it and commit it: {write_line}")
        raise error from None
    found = codec.decode_foreign(data, str(path))
    if not is_object(found) or type(found.get("version")) is not int:
        raise StateInvalid(f"is not a fingerprint; write it again: {write_line}", path=str(path))
    return found
