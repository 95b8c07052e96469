"""``midturn.asgi``: sessions over HTTP as an ASGI app, to serve or to mount into another one."""

from __future__ import annotations

from contextlib import asynccontextmanager
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from midturn.errors import InvalidArgument, MissingExtra

try:
    from fastapi import FastAPI
    from fastapi.exceptions import RequestValidationError
    from starlette.exceptions import HTTPException
    from starlette.staticfiles import StaticFiles
except ModuleNotFoundError as error:
    raise MissingExtra("serve", "serving sessions over HTTP needs more packages") from error

import midturn
from midturn.errors import MidturnError
from midturn.serve import agui, api, responses, web
from midturn.serve.api.models import EXAMPLES
from midturn.serve.cases import Forbidden, Service, TooManyStreams
from midturn.serve.document import document, name_of
from midturn.serve.gate import LOOPBACK, MAX_BODY, Gate, TokenLogin
from midturn.serve.health import health
from midturn.serve.principals import Principal
from midturn.serve.web.errors import error_page

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Collection, Iterable

    from midturn.serve.principals import Authenticate, Authorize
    from midturn.sessions.opening import OpenStore
    from midturn.versions.blueprint import Blueprint


def asgi(
    store: OpenStore,
    blueprints: Iterable[Blueprint] = (),
    *,
    token: str | None = None,
    by: str = "token",
    authenticate: Authenticate | None = None,
    authorize: Authorize | None = None,
    hosts: Collection[str] = LOOPBACK,
    read_only: bool = False,
    max_body: int = MAX_BODY,
) -> Gate:
    """Return an ASGI app with the API and the page of a store. Serve it, or mount it into FastAPI or Starlette.

    ``store`` is what :func:`midturn.open` returns. The app opens it when it starts and closes it when it stops. An app
    that is mounted does neither: open the store in the outer app's ``lifespan``. ``blueprints`` are those whose
    sessions this server runs. It shows all others, too, and takes answers for them, which another worker continues.

    Say who may use the server, in one of two ways. Whoever knows the ``token`` is the principal with the name ``by``.
    Or ``authenticate`` returns the :class:`Principal` who sends a request. ``authorize`` may restrict what they do.
    ``hosts`` are the host names under which browsers may reach the server; ``"*"`` allows all. ``read_only=True``
    rejects everything but reading. ``max_body`` is the largest number of bytes in the body of a request.

    Raises:
        InvalidArgument: there is neither a token nor ``authenticate``, or both; or a blueprint has no name.
        MissingExtra: ``midturn[serve]`` is not installed.
    """
    made = list(blueprints)
    for blueprint in made:
        if not getattr(blueprint, "name", ""):
            raise InvalidArgument(f"must be Blueprints with names, not {blueprint!r}", path="blueprints")
    if (token is None) == (authenticate is None):
        raise InvalidArgument("give either a token or authenticate", path="token")
    known: Authenticate | None = authenticate
    if token is not None:
        known = TokenLogin(token, Principal(name=by))
    service = Service(store, made, authorize)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncGenerator[None]:
        async with store:
            yield

    app = FastAPI(
        title="midturn",
        version=midturn.__version__,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        openapi_url="/api/openapi.json",
        generate_unique_id_function=name_of,
    )
    app.openapi = cache(partial(document, app, EXAMPLES))  # type: ignore[method-assign]  # as FastAPI's documentation does it
    for kind in (MidturnError, HTTPException, Forbidden, TooManyStreams, Exception):
        app.add_exception_handler(kind, error_page)
    app.add_exception_handler(RequestValidationError, error_page)
    app.mount("/static", StaticFiles(packages=[("midturn.serve.web", "static")]))
    app.include_router(api.router, prefix="/api")
    app.include_router(agui.router)
    app.include_router(responses.router)
    app.include_router(web.router, include_in_schema=False)
    app.include_router(health(store), include_in_schema=False)
    return Gate(app, service, _demanded(known), hosts=hosts, read_only=read_only, max_body=max_body)


def _demanded(known: Authenticate | None) -> Any:
    if known is None:
        raise AssertionError("asgi() has checked it")
    return known
