"""midturn's own API: sessions, their turns and questions, and what people do with them, in the words of the library."""

from __future__ import annotations

from fastapi import APIRouter

from midturn.serve.api import people, sessions, turns

router = APIRouter()
router.include_router(sessions.router)
router.include_router(turns.router)
router.include_router(people.router)
