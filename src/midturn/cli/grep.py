"""``midturn grep``: find the lines of sessions that match a pattern."""

from __future__ import annotations

import re
import shlex
from contextlib import aclosing
from dataclasses import fields
from typing import TYPE_CHECKING, Any, get_args

import click
from rich.progress import Progress
from rich.text import Text

from midturn.cli import times
from midturn.cli.copy import heard
from midturn.cli.options import common, label_option
from midturn.cli.output import clean, console, note, print_json, say
from midturn.cli.session_argument import existing
from midturn.cli.signals import run
from midturn.history.listing import Listing
from midturn.history.search import Match, Search, Where, read_place
from midturn.history.session_info import SessionStatus
from midturn.history.spoken import said, who_and_what

if TYPE_CHECKING:
    from datetime import datetime

    import midturn
    from midturn.history.search import Searched

BEFORE, LONG = 60, 200
"""Characters of a line that are shown: before the match, and in all."""


def _pattern(text: str, *, fixed: bool, ignore_case: bool) -> re.Pattern[str]:
    try:
        return re.compile(re.escape(text) if fixed else text, re.IGNORECASE if ignore_case else 0)
    except (re.error, RecursionError, OverflowError) as error:
        message = f"{text!r} is no regular expression: {error}; --fixed takes it literally"
        raise click.BadParameter(message, param_hint="'PATTERN'") from None


def _places(_context: click.Context, _parameter: click.Parameter, value: str) -> tuple[Where, ...]:
    known: dict[str, Where] = {where: where for where in get_args(Where)}
    words = value.split(",")
    for word in words:
        if word not in known:
            raise click.BadParameter(f"{word!r} is not one of {', '.join(known)}")
    return tuple(known[word] for word in words)


@click.command()
@click.argument("pattern", metavar="PATTERN")
@click.option("--fixed", is_flag=True, help="PATTERN is a text, not a regular expression.")
@click.option("--ignore-case", "-i", is_flag=True, help="Upper and lower case are the same.")
@click.option(
    "--in",
    "within",
    metavar="PLACES",
    default="task,messages,calls",
    show_default=True,
    callback=_places,
    help="Where to look. Without calls it is faster.",
)
@click.option(
    "--status",
    "statuses",
    type=click.Choice(get_args(SessionStatus)),
    multiple=True,
    help="Only sessions with this status; repeatable.",
)
@label_option("Only sessions with this label; repeatable.")
@click.option("--prefix", default="", help="Only sessions whose id begins with this.")
@click.option("--since", type=times.since, metavar="WHEN", help="Only sessions that have changed since: 2d, or a time.")
@click.option("--limit", type=click.IntRange(min=1), default=1_000, show_default=True, help="Stop after N lines.")
@click.option("--after", default="", metavar="CURSOR", help="Continue after the cursor that --json prints as next.")
@common
def grep(
    *,
    pattern: str,
    fixed: bool,
    ignore_case: bool,
    within: tuple[Where, ...],
    statuses: tuple[SessionStatus, ...],
    labels: dict[str, str],
    prefix: str,
    since: datetime | None,
    limit: int,
    after: str,
    url: str,
    as_json: bool,
) -> int:
    """Find the lines of sessions that match a pattern.

    PATTERN is a regular expression of Python: `midturn grep "A[0-9]+" --label team=claims`. Each line that matches is
    printed with its session and turn, for `midturn show SESSION@N`. Sessions come in the order of their ids. A session
    whose record is damaged is reported and skipped, and the exit code is 1. Calls are kept for the latest turns only.
    """
    listing = Listing.of(status=statuses or None, labels=labels, prefix=prefix, since=since)
    compiled = _pattern(pattern, fixed=fixed, ignore_case=ignore_case)
    if after:
        read_place(after)
    search = Search(pattern=compiled, listing=listing, within=within, message=_message, call=who_and_what)
    return run(_Grep(search, limit, as_json=as_json).print(url, after))


def _message(message: Any) -> tuple[str, str]:
    found = said(message)
    return found.who, found.text


class _Grep:
    """Prints what a search finds."""

    def __init__(self, search: Search, limit: int, *, as_json: bool) -> None:
        self._search = search
        self._limit = limit
        self._as_json = as_json
        self._matches: list[dict[str, Any]] = []
        self._found = 0
        self._searched = 0
        self._skipped: list[dict[str, str | None]] = []
        self._next: str | None = None

    async def print(self, url: str, after: str) -> int:
        """Print the matches after a cursor, and return the exit code."""
        async with existing(url) as store:
            with heard() as warnings:
                await self._read(store, after)
        # A session that cannot even be listed is reported, too.
        self._skipped += [{"session": None, "problem": warning} for warning in dict.fromkeys(warnings)]
        if self._as_json:
            print_json(
                {
                    "matches": self._matches,
                    "searched": self._searched,
                    "skipped": self._skipped,
                    "next": self._next,
                }
            )
        else:
            for each in self._skipped:
                note(f"skipped: {each['problem']}")
            if self._next is not None:
                note(f"stopped after {self._limit} lines; for more, add: {shlex.join(['--after', self._next])}")
            elif not self._found:
                note("no line matches")
        return 1 if self._skipped else 0

    async def _read(self, store: midturn.OpenStore, after: str) -> None:
        # The bar is on the same console as the lines, which would break it otherwise.
        screen = console() if console().is_terminal else console(err=True)
        hidden = self._as_json or not screen.is_terminal
        with Progress(console=screen, transient=True, disable=hidden) as bar:
            total = None if hidden else await _total(store, self._search.listing)
            task = bar.add_task("searching", total=total)
            async with aclosing(self._search.read(store.store, after)) as items:
                async for item in items:
                    if isinstance(item, Match):
                        if self._found == self._limit:
                            return
                        self._take(item)
                    else:
                        self._end(item)
                        bar.advance(task)
        self._next = None

    def _take(self, match: Match) -> None:
        self._found += 1
        if self._found == self._limit:
            self._next = match.cursor
        if self._as_json:
            self._matches.append({field.name: getattr(match, field.name) for field in fields(match)})
            return
        start = max(0, match.start - BEFORE)
        shown = match.line[start : start + LONG]
        before, found = shown[: match.start - start], shown[match.start - start : match.end - start]
        say(
            Text.assemble(
                (clean(f"{match.session}@{match.turn}"), "magenta"),
                (f" {clean(match.who)}: ", "cyan"),
                ("…" if start else "", "dim"),
                clean(before),
                (clean(found), "bold red"),
                clean(shown[len(before) + len(found) :]),
                ("…" if start + LONG < len(match.line) else "", "dim"),
            )
        )

    def _end(self, searched: Searched) -> None:
        if searched.problem is None:
            self._searched += 1
        else:
            self._skipped.append({"session": searched.session, "problem": searched.problem})


async def _total(store: midturn.OpenStore, listing: Listing) -> int | None:
    """Return the number of sessions to search; ``None`` if counting them is as much work as listing them."""
    if listing.labels or listing.prefix or listing.since:
        return None
    counts = await store.counts()
    wanted = get_args(SessionStatus) if listing.status is None else listing.status
    return sum(counts[word] for word in wanted if word != "deleted")
