"""The pages."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from midturn.history.listing import Listing
from midturn.serve.requests import Mine
from midturn.serve.web.rendering import page

router = APIRouter()


@router.get("/")
async def sessions(request: Request, cases: Mine) -> Response:
    """Show the sessions that changed last."""
    found = [info async for info in cases.sessions(Listing.of(order="updated", limit=50))]
    return page(request, "sessions.html", sessions=found, counts=await cases.counts())
