"""HTML from templates, with the headers that keep foreign code out of the page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.responses import HTMLResponse

from midturn.record.readable import visible
from midturn.serve.paths import segment

if TYPE_CHECKING:
    from starlette.requests import Request

POLICY = (
    "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; "
    "trusted-types htmx"
)

_templates = Environment(
    loader=PackageLoader("midturn.serve.web"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
)
_templates.filters |= {"segment": segment, "visible": visible}


def page(request: Request, template: str, status: int = 200, **values: Any) -> HTMLResponse:
    """Return a page. Everything in ``values`` is text: the template escapes it."""
    root = request.scope.get("root_path", "")
    html = _templates.get_template(template).render(request=request, root=root, state=request.state, **values)
    headers = {
        "Content-Security-Policy": POLICY.format(nonce=request.state.nonce),
        "Referrer-Policy": "same-origin",
        "X-Content-Type-Options": "nosniff",
        "Cache-Control": "no-store",
    }
    return HTMLResponse(html, status, headers)
