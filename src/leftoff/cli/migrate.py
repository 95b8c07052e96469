"""``leftoff migrate`` and ``leftoff rollback``: many sessions to the version of a Blueprint, and back."""

from __future__ import annotations

from contextlib import aclosing
from difflib import unified_diff
from itertools import islice
from typing import TYPE_CHECKING, Any

import click
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from leftoff.blueprint import Blueprint
from leftoff.cli.app import broken, load_app
from leftoff.cli.failures import AppInvalid, Interrupted, NotFound
from leftoff.cli.options import command_line, common, label_option
from leftoff.cli.output import clean, complain, console, dump_json, note, print_json, say
from leftoff.cli.places import existing
from leftoff.cli.signals import run, stoppable
from leftoff.errors import LeftoffError, StoreFull, StoreUnavailable
from leftoff.records import check_id

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping, Sequence

    import leftoff
    from leftoff.bulk import Result, Worker

MAX_LINES = 40
"""Lines of a sample that are shown."""

GO_ON = "run the same again: it goes on where it stopped"
COLOURS = {"+": "green", "-": "red", "@": "cyan"}


def _bulk(command: Callable[..., int]) -> Callable[..., int]:
    """The options that both commands have."""
    for option in (
        click.option("--dry-run", is_flag=True, help="Only say what would become of the sessions."),
        click.option("--session", "sessions", metavar="ID", multiple=True, help="Only this session; repeatable."),
        label_option("Only sessions with this label; may be given several times."),
        click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Stop when N sessions are changed."),
        click.option(
            "--jobs", type=click.IntRange(1, 64), default=4, show_default=True, help="How many sessions at a time."
        ),
        click.option(
            "--samples", type=click.IntRange(min=0), default=3, show_default=True, help="How many changes to show."
        ),
    ):
        command = option(command)
    return command


@click.command()
@click.argument("app")
@click.option("--run", "name", metavar="NAME", help="What to call this run, for rollback.  [default: BLUEPRINT-vN]")
@_bulk
@common
def migrate(
    *,
    app: str,
    name: str | None,
    dry_run: bool,
    sessions: tuple[str, ...],
    labels: dict[str, str],
    limit: int | None,
    jobs: int,
    samples: int,
    url: str,
    as_json: bool,
) -> int:
    """Bring sessions to the version of the Blueprint APP.

    Sessions are migrated on their own when they are next used; this does it for all of them now. Each gets a new
    checkpoint, and the one before stays as it is. Sessions of other blueprints are left alone, and so are those in
    which a turn is open: they are migrated when it goes on. Sessions that a worker holds are tried again at the end.
    A run that was stopped or killed goes on where it stopped when it is started again. The exit code is 1 if some
    failed or stayed busy.
    """
    blueprint = load_app(app)
    if not isinstance(blueprint, Blueprint):
        error = AppInvalid(f"{app} is not a Blueprint, so it has no version to migrate to")
        error.add_note('make it one: support = leftoff.Blueprint("support", build_team, version=2)')
        raise error
    from leftoff.autogen import AutoGen
    from leftoff.bulk import Migration

    name = name or f"{blueprint.name}-v{blueprint.version}"

    async def worker(store: leftoff.OpenStore) -> Worker:
        migration = Migration(store.store, blueprint, AutoGen(), run=name, dry_run=dry_run, adopt=bool(sessions))
        try:
            await migration.build()
        except LeftoffError:
            raise
        except Exception as error:
            raise broken(app, error) from error
        return migration

    undo = command_line("rollback", name, url=url)
    score = _Score("migrated", undo, dry_run=dry_run, samples=samples, as_json=as_json)
    return run(score.bulk(url, worker, jobs=jobs, sessions=sessions, labels=labels, limit=limit))


@click.command()
@click.argument("name", metavar="RUN")
@_bulk
@common
def rollback(
    *,
    name: str,
    dry_run: bool,
    sessions: tuple[str, ...],
    labels: dict[str, str],
    limit: int | None,
    jobs: int,
    samples: int,
    url: str,
    as_json: bool,
) -> int:
    """Undo the migration RUN, as leftoff migrate has named it.

    Each of its sessions gets a new checkpoint with the state and the version from before. Sessions that have gone on
    since are left alone and reported, and so are those that were migrated when they were used. The exit code is 1 if
    some could not be undone.
    """
    from leftoff.bulk import Rollback

    async def worker(store: leftoff.OpenStore) -> Worker:
        return Rollback(store.store, run=name, dry_run=dry_run)

    score = _Score("rolled back", None, dry_run=dry_run, samples=samples, as_json=as_json)
    return run(score.bulk(url, worker, jobs=jobs, sessions=sessions, labels=labels, limit=limit))


class _Score:
    """What became of the sessions; only those that need a person are kept by name."""

    def __init__(self, done: str, undo: str | None, *, dry_run: bool, samples: int, as_json: bool) -> None:
        self._done = f"would be {done}" if dry_run else done
        self._undo = None if dry_run else undo
        self._samples = samples
        self._as_json = as_json
        self._counts = dict.fromkeys(("changed", "unchanged", "open", "busy", "failed"), 0)
        self._left: list[dict[str, str]] = []
        self._shown: list[dict[str, str]] = []

    async def bulk(
        self,
        url: str,
        make: Callable[[leftoff.OpenStore], Any],
        *,
        jobs: int,
        sessions: Sequence[str],
        labels: Mapping[str, str],
        limit: int | None,
    ) -> int:
        """Do it, and print the score; the exit code."""
        async with existing(url) as store:
            for id_ in sessions:
                if await store.store.head(check_id(id_)) is None:
                    raise NotFound(f"there is no session {id_!r}", session=id_)
            workers = [await make(store) for _ in range(jobs)]
            try:
                await stoppable(self._each(store, workers, list(dict.fromkeys(sessions)), labels, limit))
            except Interrupted as stop:
                end = Interrupted(stop.number, f"stopped: {self._summary()}")
                end.add_note(GO_ON)
                raise end from None
            except (StoreFull, StoreUnavailable) as error:  # the others would fare no better
                error.add_note(f"{self._summary()}; {GO_ON}")
                raise
            finally:
                if self._as_json:
                    print_json({**self._counts, "left": self._left, "samples": self._shown})
        if not self._as_json:
            say(self._summary())
            if self._undo and self._counts["changed"]:
                note(f"to undo it: {self._undo}")
        return 1 if self._counts["busy"] or self._counts["failed"] else 0

    async def _each(
        self,
        store: leftoff.OpenStore,
        workers: Sequence[Worker],
        sessions: Sequence[str],
        labels: Mapping[str, str],
        limit: int | None,
    ) -> None:
        from leftoff.bulk import in_bulk

        async def ids() -> AsyncGenerator[str, None]:
            if sessions:
                for id_ in sessions:
                    yield id_
                return
            async for info in store.sessions(labels=labels):
                yield info.id

        err = console(err=True)
        quiet = self._as_json or not err.is_terminal
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=err, transient=True, disable=quiet) as bar:
            total = None if quiet else sum([1 async for _ in ids()])
            task = bar.add_task("looking", total=total)
            async with aclosing(in_bulk(ids(), workers)) as results:
                async for result in results:
                    self._count(result)
                    bar.update(task, advance=1, description=f"{self._done} {self._counts['changed']}")
                    if limit is not None and self._counts["changed"] >= limit:
                        return

    def _count(self, result: Result) -> None:
        self._counts[result.outcome] += 1
        if result.outcome == "changed":
            if len(self._shown) < self._samples:
                self._show(result)
        elif result.outcome != "unchanged":
            self._left.append({"session": result.session, "outcome": result.outcome, "reason": result.reason})
            if not self._as_json:
                reason = f"{result.session}: {result.reason}"
                complain(reason) if result.outcome == "failed" else note(reason)

    def _show(self, result: Result) -> None:
        before, after = (dump_json(tree, indent=2).splitlines() for tree in (result.before, result.after))
        lines = list(islice(unified_diff(before, after, n=2, lineterm=""), 2, None))
        self._shown.append({"session": result.session, "diff": "\n".join(lines)})
        if not self._as_json:
            say(f"{result.session}:", style="bold")
            for each in lines[:MAX_LINES]:
                say(Text(clean(each), style=COLOURS.get(each[:1], "")))
            if len(lines) > MAX_LINES:
                note(f"and {len(lines) - MAX_LINES} lines more; --json has all of them")
            if not lines:
                note("only the version changes")

    def _summary(self) -> str:
        counts = [f"{self._done} {self._counts['changed']}", f"unchanged {self._counts['unchanged']}"]
        counts += [f"{how} {self._counts[how]}" for how in ("open", "busy", "failed") if self._counts[how]]
        return ", ".join(counts)
