"""HTML from templates, with the headers that keep foreign code out of the page; and the same data as JSON."""

from __future__ import annotations

import json
import secrets
from datetime import UTC, datetime
from hashlib import sha256
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from starlette.responses import HTMLResponse, Response

from midturn.history.listing import Listing
from midturn.history.session_info import SessionStatus
from midturn.record.odd import stored
from midturn.record.readable import visible
from midturn.serve.paths import segment
from midturn.serve.replies import reply

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request

    from midturn.serve.cases import Cases

POLICY = (
    "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; "
    "trusted-types htmx"
)
SHOWN: tuple[SessionStatus, ...] = ("waiting", "running", "interrupted", "failed", "cancelled", "idle")
"""The statuses that the page counts, those that need a person first."""
FOLDED = 280
"""Characters of a text that are shown before it is unfolded."""
LINES = 6
"""Lines of a text that are shown before it is unfolded."""
MANY = 20
"""Waiting sessions that the navigation counts, at most."""


def page_values(request: Request) -> dict[str, Any]:
    """Return what every template may use."""
    state = request.state
    if not hasattr(state, "nonce"):  # a page for somebody whom the gate does not know
        state.nonce = secrets.token_urlsafe(18)
    return {
        "request": request,
        "root": request.scope.get("root_path", ""),
        "path": request.scope["path"],
        "nonce": state.nonce,
        "csrf": getattr(state, "csrf", ""),
        "read_only": getattr(state, "read_only", False),
        "me": state.cases.principal.name if hasattr(state, "cases") else None,
        "now": datetime.now(UTC),
    }


async def page(request: Request, template: str, *, data: Any = None, status: int = 200, **values: Any) -> Response:
    """Return a page, or its ``data`` if the address ends with ``.json``. All ``values`` are text: templates escape it.

    ``data`` is the JSON itself, or a function that returns it.
    """
    if request.scope["path"].endswith(".json"):
        found = data() if callable(data) else data
        return reply(found, status)
    given = page_values(request)
    if "waiting" not in values:
        values["waiting"] = await waiting_for(request.state.cases) if hasattr(request.state, "cases") else 0
    html = TEMPLATES.get_template(template).render(given | values)
    headers = {
        "Content-Security-Policy": POLICY.format(nonce=given["nonce"]),
        "Referrer-Policy": "same-origin",
        "X-Content-Type-Options": "nosniff",
        "Cache-Control": "no-store",
    }
    return HTMLResponse(html, status, headers)


def part(request: Request, template: str, **values: Any) -> str:
    """Return a part of a page, for those who look at it already."""
    return TEMPLATES.get_template(template).render(page_values(request) | values)


async def waiting_for(cases: Cases) -> int:
    """Return the number of sessions that wait for people, up to a limit: nobody counts all for a link."""
    return len([info async for info in cases.sessions(Listing.of(status="waiting", order="updated", limit=MANY))])


def _shown(value: Any) -> Any:
    """Return a text with its invisible characters as escapes. Text in HTML that we have made is done already."""
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def ago(at: datetime, now: datetime) -> str:
    """Return how long ago a time was. ``static/page.js`` uses the same words."""
    seconds = max(0, int((now - at).total_seconds()))
    for unit, size, limit in (("s", 1, 60), ("min", 60, 3600), ("h", 3600, 86400), ("d", 86400, 7 * 86400)):
        if seconds < limit:
            return "now" if seconds < 1 else f"{seconds // size} {unit} ago"
    return at.strftime("%Y-%m-%d")


def exact(at: datetime) -> str:
    """Return a time for people who want to know exactly."""
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def duration(seconds: float) -> str:
    """Return a duration in the unit that fits it."""
    if seconds < 1:
        return f"{max(seconds, 0) * 1000:.0f} ms"
    if seconds < 60:  # noqa: PLR2004 - a minute
        return f"{seconds:.1f} s"
    minutes, left = divmod(int(seconds), 60)
    return f"{minutes} min {left} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"  # noqa: PLR2004


def is_long(text: str) -> bool:
    """Return whether a text is folded at first."""
    return len(text) > FOLDED or text.count("\n") >= LINES


def preview(text: str) -> str:
    """Return the beginning of a text."""
    return "\n".join(text[:FOLDED].split("\n")[:LINES]).rstrip()


def as_json(value: Any) -> str:
    """Return a value as JSON of several lines."""
    return json.dumps(stored(value, "$"), indent=2, ensure_ascii=False)


def argument(value: Any) -> str:
    """Return an argument of a call for people: a text as it is, unless it could be taken for another value."""
    if not isinstance(value, str):
        return as_json(value)
    try:
        json.loads(value)
    except ValueError:
        return value if value.strip() == value and value else json.dumps(value, ensure_ascii=False)
    return json.dumps(value, ensure_ascii=False)


def _version() -> str:
    """Return a text that changes with the static files, so that browsers do not use old ones."""
    static = files("midturn.serve.web") / "static"
    return sha256(b"".join((static / name).read_bytes() for name in ("style.css", "page.js"))).hexdigest()[:12]


TEMPLATES = Environment(
    loader=PackageLoader("midturn.serve.web"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    finalize=_shown,
)
_filters: dict[str, Callable[..., Any]] = {
    "segment": segment,
    "visible": visible,
    "ago": ago,
    "exact": exact,
    "duration": duration,
    "preview": preview,
    "as_json": as_json,
    "argument": argument,
}
TEMPLATES.filters.update(_filters)
_tests: dict[str, Any] = {"long": is_long}
_names: dict[str, Any] = {"version": _version(), "SHOWN": SHOWN}
TEMPLATES.tests.update(_tests)
TEMPLATES.globals.update(_names)
