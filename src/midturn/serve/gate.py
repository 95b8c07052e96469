"""The gate that every request passes first: where does it come from, who sends it, did a foreign page make it?"""

from __future__ import annotations

import hashlib
import hmac
import inspect
import secrets
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from starlette.requests import Request
from starlette.responses import RedirectResponse

from midturn.errors import InvalidArgument
from midturn.serve.cases import Cases, Service
from midturn.serve.principals import Principal
from midturn.serve.problems import Problem, problem

if TYPE_CHECKING:
    from collections.abc import Collection

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from midturn.serve.principals import Authenticate

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
"""The hosts by which a browser on this machine reaches a server on it."""
LOGIN, CSRF = "midturn_login", "midturn_csrf"
"""The cookies: that a browser has shown the token, and a random value that every form of the page repeats."""
SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
OPEN = ("/healthz", "/readyz", "/static/")
"""Paths for which nobody has to say who they are."""


class TokenLogin:
    """Knows one principal by a token: in the header ``Authorization``, in a cookie, or once in a URL."""

    def __init__(self, token: str, principal: Principal) -> None:
        if not token:
            raise InvalidArgument("is empty", path="token")
        self._token = token
        self._principal = principal

    def __repr__(self) -> str:
        return "TokenLogin(***)"

    def __call__(self, request: Request) -> Principal | None:
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        known = scheme.lower() == "bearer" and self.fits(given.strip())
        return self._principal if known or same(request.cookies.get(LOGIN, ""), self.cookie) else None

    def fits(self, token: str) -> bool:
        """Return whether this is the token."""
        return same(token, self._token)

    @property
    def cookie(self) -> str:
        """Return the value of the login cookie, from which nobody can find out the token."""
        return hmac.new(self._token.encode(), b"midturn login", hashlib.sha256).hexdigest()


def same(given: str, wanted: str) -> bool:
    """Return whether two texts are equal, in a time that says nothing about them."""
    return hmac.compare_digest(given.encode("utf-8", "replace"), wanted.encode("utf-8", "replace"))


class Gate:
    """Lets a request of a known principal through, with its ``cases`` in the state of the request."""

    def __init__(
        self, app: ASGIApp, service: Service, authenticate: Authenticate, *, hosts: Collection[str], read_only: bool
    ) -> None:
        self._app = app
        self._service = service
        self._authenticate = authenticate
        self._hosts = {host.lower() for host in hosts}
        self._read_only = read_only

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive)
        try:
            answer = await self._pass(request)
        except Problem as error:
            answer = await problem(request, error)
        if answer is not None:
            await answer(scope, receive, send)
            return
        await self._app(scope, receive, _with_cookie(request, send))

    async def _pass(self, request: Request) -> Any:
        """Return a response for a request that does not pass, and ``None`` for one that does."""
        self._check_host(request)
        path = request.scope["path"].removeprefix(request.scope.get("root_path", ""))
        if path.startswith(OPEN):
            return None
        if isinstance(self._authenticate, TokenLogin) and (login := _login(request, self._authenticate)) is not None:
            return login
        found = self._authenticate(request)
        principal = await found if inspect.isawaitable(found) else found
        if not isinstance(principal, Principal):
            raise Problem(401, "Unauthorized", "say who you are: send the token", WWW_Authenticate="Bearer")
        if request.method not in SAFE:
            if self._read_only:
                raise Problem(403, "ReadOnly", "this server only reads")
            if "authorization" not in request.headers:
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
            raise Problem(421, "UnknownHost", f"this server has no host {name!r}; pass hosts=[...] or --host")


def _login(request: Request, login: TokenLogin) -> RedirectResponse | None:
    """Return the same page without the token in its address, and with a cookie; ``None`` if there is no token."""
    query = parse_qsl(request.url.query, keep_blank_values=True)
    given = [value for name, value in query if name == "token"]
    if request.method != "GET" or not given:
        return None
    if not login.fits(given[0]):
        raise Problem(401, "Unauthorized", "this is not the token; the server printed it when it started")
    left = urlencode([(name, value) for name, value in query if name != "token"])
    answer = RedirectResponse(request.scope["path"] + (f"?{left}" if left else ""), status_code=303)
    secure = request.url.scheme == "https"
    answer.set_cookie(LOGIN, login.cookie, httponly=True, samesite="strict", secure=secure, path="/")
    answer.headers["Referrer-Policy"] = "no-referrer"
    return answer


def _check_origin(request: Request) -> None:
    """Reject a request that a page of another site made with the cookies of this one."""
    origin = request.headers.get("origin")
    if origin is None:
        if request.headers.get("sec-fetch-site", "same-origin") in ("same-origin", "none"):
            return
    elif urlsplit(origin).netloc.lower() == request.headers.get("host", "").lower():
        return
    raise Problem(403, "ForeignOrigin", "another site made this request")


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
