"""Checkpoints of a session, the differences between two, and the sessions that it is related to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from midturn.autogen.adapter import AutoGen
from midturn.history.json_view import diff_json, lineage_json
from midturn.serve.paths import SESSION
from midturn.serve.requests import Mine
from midturn.serve.web.rendering import page

if TYPE_CHECKING:
    from collections.abc import Iterator

    from midturn.history.lineage import Lineage, Relative

router = APIRouter()

SHOWN = 200
"""Messages of a conversation that the page of a checkpoint shows. The ``.json`` has all."""
LONGEST = 20_000
"""Characters of a text that it shows."""
RAW = 100_000
"""Characters of the raw state that it shows."""
WIDE, HIGH, STEP = 230, 46, 34
"""Measures of the picture of a lineage."""
NAME = 24
"""Characters of an id in the picture; the list beside it has whole ids."""


@router.get(f"/s/{SESSION}/at/{{number}}")
@router.get(f"/s/{SESSION}/at/{{number}}.json")
async def checkpoint(session: str, number: int, request: Request, cases: Mine) -> Response:
    """Show a checkpoint: what the models see, other values, and what is kept beside AutoGen's own state."""
    info = await cases.info(session)
    stored = await (await cases.reader(session)).at(number).read()
    data = {
        "session": session,
        "checkpoint": number,
        "blueprint": stored.row.blueprint or None,
        "version": stored.row.version,
        "state": stored.tree["state"],
        "beside": stored.tree.get("beside", {}),
        "fingerprint": stored.fingerprint,
    }
    outline = AutoGen().outline(stored.tree)
    return await page(
        request,
        "checkpoint.html",
        data=data,
        info=info,
        number=number,
        row=stored.row,
        conversations=[
            (each, each.messages[-SHOWN:], max(len(each.messages) - SHOWN, 0))
            for each in outline.conversations.values()
        ],
        speakers=outline.speakers,
        values={".".join(place): value for place, value in outline.values.items() if place[0] != "beside"},
        beside=data["beside"],
        fingerprint=stored.fingerprint,
        longest=LONGEST,
        raw=RAW,
        state=data["state"],
    )


@router.get(f"/s/{SESSION}/diff")
@router.get(f"/s/{SESSION}/diff.json")
async def diff(
    session: str, request: Request, cases: Mine, *, before: int | None = None, after: int | None = None, other: str = ""
) -> Response:
    """Show the differences between two checkpoints, also of two sessions: from ``other``, else from the same."""
    info = await cases.info(session)
    after = info.checkpoint if after is None else after
    before = max(after - 1, 1) if before is None else before
    found = await cases.diff((other or session, before), (session, after))
    return await page(request, "diff.html", data=lambda: diff_json(found), info=info, diff=found, other=other)


@router.get(f"/s/{SESSION}/lineage")
@router.get(f"/s/{SESSION}/lineage.json")
async def lineage(session: str, request: Request, cases: Mine) -> Response:
    """Show which sessions were forked from which."""
    info = await cases.info(session)
    found = await cases.lineage(session)
    nodes = list(_nodes(found))
    return await page(
        request,
        "lineage.html",
        data=lambda: lineage_json(found),
        info=info,
        nodes=nodes,
        width=max(each.x for each in nodes) + WIDE + 10,
        height=len(nodes) * HIGH + 6,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A session in the picture of a lineage."""

    relative: Relative
    me: bool
    depth: int
    x: int
    y: int
    path: str
    """The line from the session that it was forked from; empty for the first."""

    @property
    def name(self) -> str:
        """Return the id, shortened."""
        id_ = self.relative.session
        return id_ if len(id_) <= NAME else f"{id_[: NAME - 1]}…"


def _nodes(found: Lineage) -> Iterator[Node]:
    """Yield the sessions from the oldest ancestor on, each after the one that it was forked from."""
    chain: list[Relative] = [*found.ancestors, found]
    left: list[tuple[int, int, Relative]] = []
    row = 0
    for depth, each in enumerate(chain):
        yield _node(each, depth, row, row - 1, me=each is found)
        row += 1
    left = [(len(chain), row - 1, each) for each in reversed(found.forks)]
    while left:  # a chain of forks may be longer than the calls that Python can nest
        depth, above, each = left.pop()
        yield _node(each, depth, row, above, me=False)
        left += [(depth + 1, row, fork) for fork in reversed(each.forks)]
        row += 1


def _node(relative: Relative, depth: int, row: int, above: int, *, me: bool) -> Node:
    x, y = min(depth, 20) * STEP, row * HIGH
    left, top = min(max(depth - 1, 0), 20) * STEP + 14, above * HIGH + HIGH - 10
    path = "" if not depth else f"M{left} {top} V{y + 18} H{x}" if x > left else f"M{left} {top} V{y}"
    return Node(relative=relative, me=me, depth=depth, x=x, y=y, path=path)
