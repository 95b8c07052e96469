"""Arguments that routes take from a request: the sessions of its sender."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends
from starlette.requests import Request

from midturn.serve.cases import Cases


def _cases(request: Request) -> Cases:
    found = request.state.cases
    assert isinstance(found, Cases)  # noqa: S101 - the gate has set it
    return found


Mine = Annotated[Cases, Depends(_cases)]
"""The sessions that the sender of a request may see and use."""
