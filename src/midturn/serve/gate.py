"""The gate that every request passes first: where does it come from, who sends it, did a foreign page make it?

It also limits the size of a request, and the time that a client may take to send it.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import inspect
import logging
import secrets
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlencode

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse

from midturn.errors import InvalidArgument
from midturn.serve.cases import Cases, Service
from midturn.serve.paths import escaped
from midturn.serve.principals import Principal, same
from midturn.serve.problems import Problem
from midturn.serve.web.errors import error_page

if TYPE_CHECKING:
    from collections.abc import Collection

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from midturn.serve.principals import Authenticate

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
"""The hosts by which a browser on this machine reaches a server on it."""
CSRF = "midturn_csrf"
"""The cookie with a random value that every form of the page repeats."""
SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
HEALTH = ("/healthz", "/readyz")
"""Paths for programs that watch the server: by its address, and without saying who they are."""
OPEN = "/static/"
"""The beginning of paths for which nobody has to say who they are."""
MAX_HEAD = 32 * 1024
"""Largest number of bytes in the headers of a request."""
MAX_BODY = 2**20
"""Largest number of bytes in the body of a request, unless the app was made with another ``max_body``."""
BODY_TIME = 60.0
"""Seconds in which a client has to send the body of its request."""

_log = logging.getLogger(__name__)


class TokenLogin:
    """Knows one principal by a token: in the header ``Authorization``, in a cookie, or once in a URL."""

    def __init__(self, token: str, principal: Principal) -> None:
        if not token:
            raise InvalidArgument("is empty", path="token")
        self._token = token
        self._principal = principal
        # Browsers send the cookies of one port to all ports of a host, so each server has a name of its own.
        self.name = f"midturn_login_{self._derived(b'midturn name')[:8]}"

    def __repr__(self) -> str:
        return "TokenLogin(***)"

    def __call__(self, request: Request) -> Principal | None:
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        known = scheme.lower() == "bearer" and self.fits(given.strip())
        return self._principal if known or same(request.cookies.get(self.name, ""), self.cookie) else None

    def fits(self, token: str) -> bool:
        """Return whether this is the token."""
        return same(token, self._token)

    @property
    def cookie(self) -> str:
        """Return the value of the login cookie, from which nobody can find out the token."""
        return self._derived(b"midturn login")

    def _derived(self, what: bytes) -> str:
        return hmac.new(self._token.encode(), what, hashlib.sha256).hexdigest()


class Gate:
    """Lets a request of a known principal through, with its ``cases`` in the state of the request."""

    def __init__(
        self,
        app: ASGIApp,
        service: Service,
        authenticate: Authenticate,
        *,
        hosts: Collection[str],
        read_only: bool,
        max_body: int,
    ) -> None:
        self._app = app
        self._service = service
        self._authenticate = authenticate
        self._hosts = {host.lower() for host in hosts}
        self._read_only = read_only
        self._max_body = max_body

    def stop(self) -> None:
        """End all streams, because the server stops."""
        self._service.stopping.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            given = _taken_token(scope) if isinstance(self._authenticate, TokenLogin) else None
            receive = _limited(receive, self._max_body)
            await self._serve(Request(escaped(scope), receive), given, receive, send)
        else:  # there are no websockets
            await send({"type": "websocket.close", "code": 1008})

    async def _serve(self, request: Request, given: str | None, receive: Receive, send: Send) -> None:
        try:
            answer = await self._pass(request, given)
        except HTTPException as error:
            answer = await error_page(request, error)
        except Exception as error:  # noqa: BLE001 - the hook is the application's
            _log.exception("a request could not be authenticated")
            answer = await error_page(request, error)
        if answer is not None:
            await answer(request.scope, receive, send)
            return
        await self._app(request.scope, receive, _with_cookie(request, send))

    async def _pass(self, request: Request, given: str | None) -> Any:
        """Return a response for a request that does not pass, and ``None`` for one that does."""
        path = request.scope["path"].removeprefix(request.scope.get("root_path", ""))
        if path in HEALTH:
            return None
        self._check_host(request)
        if sum(len(name) + len(value) for name, value in request.headers.raw) > MAX_HEAD:
            raise Problem(431, "TooLarge", f"the headers of a request have at most {MAX_HEAD} bytes")
        length = request.headers.get("content-length", "")
        if length.isdecimal() and int(length) > self._max_body:
            raise _too_large(self._max_body)
        if path.startswith(OPEN):
            return None
        if given is not None and isinstance(self._authenticate, TokenLogin):
            return _login(request, self._authenticate, given)
        found = self._authenticate(request)
        principal = await found if inspect.isawaitable(found) else found
        if not isinstance(principal, Principal):
            raise Problem(401, "Unauthorized", "say who you are: send the token", WWW_Authenticate="Bearer")
        if request.method not in SAFE:
            if self._read_only:
                raise Problem(403, "ReadOnly", "this server only reads")
            # A browser never sends a bearer token by itself; it does send cookies, and passwords that it knows.
            if not request.headers.get("authorization", "").lower().startswith("bearer "):
                _check_origin(request)
        request.state.cases = Cases(self._service, principal)
        request.state.csrf = request.cookies.get(CSRF) or secrets.token_urlsafe(24)
        request.state.nonce = secrets.token_urlsafe(18)
        request.state.read_only = self._read_only
        return None

    def _check_host(self, request: Request) -> None:
        host = request.headers.get("host", "").lower()
        name = host if host.endswith("]") else host.rpartition(":")[0] or host
        if not ({"*", host, name} & self._hosts):
            raise Problem(421, "UnknownHost", f"this server has no host {name!r}; pass hosts=[...] or --host-name")


def _taken_token(scope: Scope) -> str | None:
    """Take the token out of the address of a request; ``None`` if there is none.

    The server that runs the app writes the same ``scope`` to its access log afterwards.
    """
    query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
    given = [value for name, value in query if name == "token"]
    if given:
        scope["query_string"] = urlencode([(name, value) for name, value in query if name != "token"]).encode()
    return given[0] if given and scope["method"] == "GET" else None


def _login(request: Request, login: TokenLogin, given: str) -> RedirectResponse:
    """Return the same page without the token in its address, and with a cookie."""
    if not login.fits(given):
        raise Problem(401, "Unauthorized", "this is not the token; the server printed it when it started")
    left = request.url.query
    where = "/" + request.scope["path"].lstrip("/")  # //host would be an address of another host
    answer = RedirectResponse(where + (f"?{left}" if left else ""), status_code=303)
    secure = request.url.scheme == "https"
    answer.set_cookie(login.name, login.cookie, httponly=True, samesite="strict", secure=secure, path="/")
    answer.headers["Referrer-Policy"] = "no-referrer"
    return answer


def _check_origin(request: Request) -> None:
    """Reject a request that a page of another site made with the cookies of this one."""
    origin = request.headers.get("origin")
    if origin is None:
        if request.headers.get("sec-fetch-site", "same-origin") in ("same-origin", "none"):
            return
    elif origin.partition("://")[2].lower() == request.headers.get("host", "").lower():
        return
    raise Problem(403, "ForeignOrigin", "another site made this request")


def _limited(receive: Receive, most: int) -> Receive:
    """Return a ``receive`` for a body that has to come soon and must not be large."""
    loop, size, ended = asyncio.get_running_loop(), 0, False
    until = loop.time() + BODY_TIME

    async def receiving() -> Message:
        nonlocal size, ended
        if ended:
            return await receive()
        try:
            async with asyncio.timeout_at(until):
                message = await receive()
        except TimeoutError:
            raise Problem(408, "RequestTimeout", "the body of the request did not come", Connection="close") from None
        size += len(message.get("body", b""))
        ended = not message.get("more_body", False)
        if size > most:
            raise _too_large(most)
        return message

    return receiving


def _too_large(most: int) -> Problem:
    return Problem(413, "TooLarge", f"the body of a request has at most {most} bytes", Connection="close")


def _with_cookie(request: Request, send: Send) -> Send:
    """Return a ``send`` that gives a browser the value which the forms of the page repeat."""
    value = getattr(request.state, "csrf", None)
    if value is None or request.cookies.get(CSRF) == value:
        return send

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            secure = "; Secure" if request.url.scheme == "https" else ""
            cookie = f"{CSRF}={value}; Path=/; HttpOnly; SameSite=Strict{secure}"
            message = {**message, "headers": [*message.get("headers", ()), (b"set-cookie", cookie.encode())]}
        await send(message)

    return sending
