"""Routes for programs that watch the server: does it live, and does it reach its store?"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from fastapi import APIRouter
from starlette.responses import JSONResponse

from midturn.errors import MidturnError, StoreUnavailable

if TYPE_CHECKING:
    from midturn.sessions.opening import OpenStore

SOON = 5.0
"""Seconds in which a store that is reachable answers."""
NOBODY = "midturn-readiness"
"""The id of a session that is read to see whether the store answers. It need not exist."""


def health(store: OpenStore) -> APIRouter:
    """Return the routes ``/healthz`` and ``/readyz`` of a server of this store."""
    router = APIRouter()

    @router.get("/healthz")
    async def live() -> JSONResponse:
        return JSONResponse({"status": "ok"})

    @router.get("/readyz")
    async def ready() -> JSONResponse:
        try:
            async with asyncio.timeout(SOON):
                await store.store.head(NOBODY)
        except (MidturnError, OSError):  # a TimeoutError is an OSError
            raise StoreUnavailable("the store does not answer") from None  # the reason may name its address
        return JSONResponse({"status": "ok"})

    return router
