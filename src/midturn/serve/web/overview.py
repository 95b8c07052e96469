"""Pages about many sessions: who did what, and which sessions wait for a migration."""

from __future__ import annotations

from collections import Counter
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from midturn.errors import InvalidArgument, MidturnError
from midturn.history.json_view import audit_json
from midturn.history.listing import Listing
from midturn.serve.requests import Mine
from midturn.serve.web.rendering import page

if TYPE_CHECKING:
    from midturn.history.audit import AuditEntry
    from midturn.serve.cases import Cases

router = APIRouter()

ENTRIES = 500
"""Acts in a page."""
HEADS = 20_000
"""Sessions that are counted by version, at most."""
EXAMPLES = 5
"""Sessions of a version that are named."""
SINCE = {"1h": timedelta(hours=1), "1d": timedelta(days=1), "7d": timedelta(days=7), "30d": timedelta(days=30)}
"""Times from which the audit trail is shown, by their names in the address."""


@router.get("/audit")
@router.get("/audit.json")
async def audit(request: Request, cases: Mine, since: str = "7d", by: str = "", session: str = "") -> Response:
    """Show what people did, the latest first."""
    if since not in SINCE and since != "all":
        raise InvalidArgument(f"is {since!r}; it can be one of {', '.join(SINCE)}, all", path="since")
    listing = Listing.of(since=SINCE.get(since))
    found: list[AuditEntry] = []
    more = False
    async with aclosing(cases.audit(session or None, listing=listing, by=by or None)) as entries:
        async for entry in entries:
            if len(found) == ENTRIES:
                more = True
                break
            found.append(entry)
    found.sort(key=lambda entry: entry.at, reverse=True)
    return await page(
        request,
        "audit.html",
        data=lambda: {"entries": [audit_json(entry) for entry in found], "complete": not more},
        entries=found,
        more=more,
        since=since,
        by=by,
        session=session,
        times=[*SINCE, "all"],
    )


@dataclass(slots=True, kw_only=True)
class Versions:
    """The sessions of a version of a blueprint."""

    blueprint: str | None
    version: int
    count: int = 0
    open: int = 0
    """Number of those with an open turn: it continues first."""
    examples: list[str] = field(default_factory=list[str])
    state: str = ""
    """``waits``, ``current``, ``newer``, ``missing`` or ``unknown``."""
    about: str = ""


@router.get("/migrations")
@router.get("/migrations.json")
async def migrations(request: Request, cases: Mine) -> Response:
    """Show how many sessions each version of each blueprint has, and which of them wait for a migration."""
    found: dict[tuple[str, int], Versions] = {}
    total = 0
    async with aclosing(cases.sessions(Listing.of(limit=HEADS))) as infos:
        async for info in infos:
            total += 1
            key = info.blueprint or "", info.version
            each = found.setdefault(key, Versions(blueprint=info.blueprint, version=info.version))
            each.count += 1
            each.open += info.status not in ("idle", "deleted")
            if len(each.examples) < EXAMPLES:
                each.examples.append(info.id)
    rows = [found[key] for key in sorted(found, key=lambda key: (not key[0], key[0], -key[1]))]
    for row in rows:
        _judge(cases, row)
    states = Counter[str]()
    for row in rows:
        states[row.state] += row.count
    return await page(
        request,
        "migrations.html",
        data=lambda: {"versions": [_json(row) for row in rows], "complete": total < HEADS},
        rows=rows,
        states=states,
        blueprints=cases.blueprints,
        complete=total < HEADS,
        total=total,
    )


def _judge(cases: Cases, row: Versions) -> None:
    """Note what today's code makes of a version."""
    blueprint = cases.blueprints.get(row.blueprint or "")
    if blueprint is None:
        row.state = "unknown"
    elif row.version == blueprint.version:
        row.state = "current"
    elif row.version > blueprint.version:
        row.state, row.about = "newer", f"this server has version {blueprint.version}"
    else:
        try:
            steps = blueprint.migrations(row.version)
        except MidturnError as error:
            row.state, row.about = "missing", str(error)
        else:
            row.state, row.about = "waits", ", ".join(map(str, steps)) or f"to version {blueprint.version}"


def _json(row: Versions) -> dict[str, Any]:
    return {name: getattr(row, name) for name in Versions.__slots__}
