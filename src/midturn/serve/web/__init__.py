"""The page on which people see sessions and decide: HTML made on the server, which works without JavaScript."""

from __future__ import annotations

from fastapi import APIRouter

from midturn.serve.web import acts, answers, checkpoints, inbox, overview, session, sessions

router = APIRouter()
for _each in (sessions, inbox, overview, checkpoints, acts, answers, session):
    router.include_router(_each.router)
