"""The routes: making responses, reading them, cancelling them; conversations and models."""

from __future__ import annotations

import json
import time
from functools import wraps
from hashlib import blake2b
from typing import TYPE_CHECKING, Annotated, Any, ParamSpec
from uuid import uuid4

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from midturn.errors import Conflict, InvalidArgument, MidturnError, NotFound, ReplayDiverged, TurnFailed, TurnTimeout
from midturn.serve.answers import answer_all
from midturn.serve.cases import Forbidden
from midturn.serve.paths import SESSION
from midturn.serve.pieces import Reading, Words
from midturn.serve.problems import problem
from midturn.serve.replies import reply
from midturn.serve.requests import Key, Mine
from midturn.serve.responses.asking import Asked, Conversation, NewConversation, NewResponse
from midturn.serve.responses.telling import Place, Told, ids_of, is_item
from midturn.serve.streams import EventStream

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from midturn.serve.cases import Case, Cases
    from midturn.sessions.runs import Run

P = ParamSpec("P")

router = APIRouter(prefix="/v1", tags=["responses"], include_in_schema=False)


def _explained(route: Callable[P, Awaitable[Response]]) -> Callable[P, Awaitable[Response]]:
    """Return a route whose errors tell OpenAI's clients not to try again on their own, unless that helps."""

    @wraps(route)
    async def explaining(*args: P.args, **options: P.kwargs) -> Response:
        try:
            return await route(*args, **options)
        except (MidturnError, Forbidden) as error:
            answer = await problem(Request({"type": "http"}), error)
            if "Retry-After" not in answer.headers:
                answer.headers["x-should-retry"] = "false"
            return answer

    return explaining


@router.post("/responses")
@_explained
async def create_response(new: NewResponse, cases: Mine, key: Key) -> Response:
    """Run a turn. It belongs to the server: it continues when the client goes away."""
    asked = Asked.of(new)
    session = _session(new, cases, key)
    case = await cases.runnable(session, blueprint=new.model)
    run, place = await _begun(new, cases, case, asked, key)
    told = Told(cases, place, new.model, previous=new.previous_response_id)
    if new.stream:
        return EventStream(told.events(run), session=session)
    error: MidturnError | None = None
    if not new.background:
        try:
            await run.result()
        except (TurnFailed, TurnTimeout, ReplayDiverged) as failed:  # the turn is there, and its id tells more
            error = failed
    return reply(await told.response(case, error))


@router.get("/responses/{response}")
@_explained
async def get_response(
    response: str,
    cases: Mine,
    *,
    stream: bool = False,
    starting_after: Annotated[int, Query(ge=-1)] = -1,
) -> Response:
    """Return a response as it is now, or follow it."""
    place, case, model = await _found(response, cases)
    run = await case.follow(place.turn)
    told = Told(cases, place, model)
    if stream:
        return EventStream(told.events(run, after=starting_after), session=place.session)
    return reply(await told.response(case))


@router.post("/responses/{response}/cancel")
@_explained
async def cancel_response(response: str, cases: Mine) -> Response:
    """Cancel the turn of a response, if this server runs it."""
    place, case, model = await _found(response, cases, cancels=True)
    run = await case.follow(place.turn)
    await run.cancel()
    return reply(await Told(cases, place, model).response(case))


@router.post("/conversations")
@_explained
async def create_conversation(new: NewConversation, cases: Mine) -> Response:  # noqa: ARG001 - only who is known
    """Return the id of a session that nobody has used. Its first turn creates it."""
    if new.items:
        raise InvalidArgument("is not supported: a conversation begins with its first response", path="items")
    return reply(_conversation(f"conv_{uuid4().hex}", time.time()))


@router.get(f"/conversations/{SESSION}")
@_explained
async def get_conversation(session: str, cases: Mine) -> Response:
    """Return a session as a conversation."""
    info = await cases.info(session)
    return reply(_conversation(session, info.created.timestamp()))


@router.get("/models")
async def list_models(cases: Mine) -> Response:
    """List the blueprints that this server runs."""
    data = [{"id": name, "object": "model", "created": 0, "owned_by": "midturn"} for name in cases.blueprints]
    return reply({"object": "list", "data": data})


async def _begun(
    new: NewResponse, cases: Cases, case: Case, asked: Asked, key: str | None
) -> tuple[Run[Any, Any], Place]:
    """Start what the client asks for; return its run and its place when the input is durable."""
    if asked.answers is not None:
        turn, first = asked.place
        await cases.info(case.id, "answer")
        run = await answer_all(cases, case, turn, asked.answers)
        return run, Place(case.id, turn, first)
    if new.previous_response_id is not None:
        await _check_latest(cases, case, Place.of(new.previous_response_id), key)
    before = await _waiting(case)
    if asked.words is not None:
        run = await case.start_say(asked.words, key=key, by=cases.principal.name)
    else:
        run = await case.start(asked.task, key=key)
    if before[0] == run.turn:
        return run, Place(case.id, run.turn, before[1])
    first = 0 if key is None or asked.words is None else await _before_words(cases, case, run.turn, key, asked.words)
    return run, Place(case.id, run.turn, first)


async def _before_words(cases: Cases, case: Case, turn: int, key: str, words: str) -> int:
    """Return the number of items before the words of a human, if a key has delivered them to a turn of another key."""
    found = await (await cases.reader(case.id)).turn(turn)
    if found.key == key:
        return 0
    opened = await case.open_turn() if found.status != "done" else None
    messages = found.messages if opened is None else [message.dump() for message in opened.messages]
    reading, count = Reading(turn, ids_of(found.task)), 0
    for number, message in enumerate(messages, 1):
        for piece in reading.read(number, message):
            if isinstance(piece, Words) and piece.human and piece.text == words:
                return count
            count += is_item(piece)
    return 0


async def _waiting(case: Case) -> tuple[int, int]:
    """Return the number of a turn that waits for words, and of its items so far."""
    waiting = await case.waiting()
    opened = await case.open_turn() if waiting is not None and waiting.kind == "human" else None
    if opened is None:
        return 0, 0
    reading = Reading(opened.number, {message.id for message in opened.task or ()})
    found = [piece for n, message in enumerate(opened.messages, 1) for piece in reading.read(n, message.dump())]
    return opened.number, sum(is_item(piece) for piece in found)


async def _check_latest(cases: Cases, case: Case, place: Place, key: str | None) -> None:
    """Check that a session has had no turn since a response, unless that turn has this key.

    Raises:
        Conflict: it has had one.
    """
    info = await cases.info(case.id)
    if info.turns == place.turn:
        return
    if key is not None:
        try:
            await case.follow(key=key)
        except NotFound:
            pass
        else:
            return
    raise Conflict(
        f"response {place.id!r} is not the latest of session {case.id!r}; continue after its latest, or fork it",
        session=case.id,
    )


async def _found(response: str, cases: Cases, *, cancels: bool = False) -> tuple[Place, Case, str]:
    """Return the place of a response, its session and its model.

    Raises:
        NotFound: there is no such response.
    """
    place = Place.of(response)
    info = await cases.info(place.session, "run" if cancels else "read")
    case = await cases.case(place.session, "read")
    return place, case, info.blueprint or ""


def _session(new: NewResponse, cases: Cases, key: str | None) -> str:
    """Return the session of a new response. Without a name, the same key leads to the same one.

    Raises:
        InvalidArgument: the conversation is not that of the previous response.
    """
    named = new.conversation.id if isinstance(new.conversation, Conversation) else new.conversation
    if new.previous_response_id is not None:
        previous = Place.of(new.previous_response_id).session
        if named not in (None, previous):
            raise InvalidArgument("is not the conversation of previous_response_id", path="conversation")
        return previous
    if named is not None:
        return named
    if key is None:
        return f"conv_{uuid4().hex}"
    text = json.dumps([cases.principal.name, dict(sorted(cases.principal.labels.items())), new.model, key])
    return f"conv_{blake2b(text.encode(), digest_size=16).hexdigest()}"


def _conversation(session: str, created: float) -> dict[str, Any]:
    return {"id": session, "object": "conversation", "created_at": int(created), "metadata": {}}
