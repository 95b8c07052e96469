"""Responses as clients get them: whole, or as a stream of events."""

from __future__ import annotations

import binascii
import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from midturn.errors import Drifted, NotFound, ReplayDiverged
from midturn.history.json_view import questions_json
from midturn.record.codec import is_object
from midturn.record.odd import stored
from midturn.serve.pieces import Chunk, Reading, Result, Words
from midturn.serve.problems import problem_of
from midturn.serve.streams import event_text
from midturn.stores.secrets import hidden

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator, Iterable, Sequence

    from midturn.history.turns import StoredTurn
    from midturn.questions import Question
    from midturn.serve.cases import Case, Cases
    from midturn.serve.pieces import Piece
    from midturn.sessions.runs import Run

Sent: TypeAlias = "tuple[str, dict[str, Any]]"
"""An event of a stream: its type and its other fields."""

STATUS = {"done": "completed", "waiting": "completed", "running": "in_progress", "interrupted": "queued"}
"""The status of a response, by that of its turn. The other words are the same."""


class Place(NamedTuple):
    """The turn of a response, and the number of items of the turn that come before it."""

    session: str
    turn: int
    first: int

    @property
    def id(self) -> str:
        """Return the id of the response."""
        name = urlsafe_b64encode(self.session.encode("utf-8", "surrogatepass")).rstrip(b"=").decode()
        return f"resp_{self.turn}_{self.first}_{name}"

    @classmethod
    def of(cls, response: str) -> Place:
        """Return the place of a response.

        Raises:
            NotFound: this is not the id of a response.
        """
        try:
            _, turn, first, name = response.split("_", 3)
            data = urlsafe_b64decode(name + "=" * (-len(name) % 4))
            place = cls(data.decode("utf-8", "surrogatepass"), int(turn), int(first))
        except (ValueError, binascii.Error):
            place = None
        if place is None or not place.session or place.id != response:
            raise NotFound(f"there is no response {response!r}")
        return place


class Told:
    """A response, as its client gets it."""

    def __init__(self, cases: Cases, place: Place, model: str, *, previous: str | None = None) -> None:
        self._cases = cases
        self._place = place
        self._model = model
        self._previous = previous
        self._number = -1
        self._count = 0
        """The number of items of the turn so far."""
        self._items: list[dict[str, Any]] = []
        self._open: str | None = None
        """The text that is being streamed: one at a time."""
        self._sent = ""
        """The part of this text that was sent."""
        self._later: list[Piece] = []

    async def response(self, case: Case, error: Exception | None = None) -> dict[str, Any]:
        """Return the response as it is now, or with the error that its turn has just had."""
        turn = await self._turn()
        messages: Sequence[Any] = turn.messages
        if turn.status != "done":
            opened = await case.open_turn()
            if opened is not None and opened.number == turn.number:
                messages = [message.dump() for message in opened.messages]
        reading = self._reading(turn)
        for number, message in enumerate(messages, 1):
            for piece in reading.read(number, message):
                for _ in self._tell(piece):
                    pass
        return _failed(self._whole(turn, await self._questions(turn)), error)

    async def events(self, run: Run[Any, Any], *, after: int = -1) -> AsyncGenerator[str, None]:
        """Yield the events of the response after a number."""
        async with aclosing(self._all(run)) as events:
            async for kind, facts in events:
                self._number += 1
                if self._number > after:
                    yield event_text(kind, {"type": kind, "sequence_number": self._number, **facts})

    async def _all(self, run: Run[Any, Any]) -> AsyncGenerator[Sent, None]:
        turn = await self._turn()
        begun = {**self._whole(turn, ()), "status": "in_progress", "error": None, "usage": None}
        yield "response.created", {"response": begun}
        yield "response.in_progress", {"response": begun}
        async with aclosing(self._pieces(run, self._reading(turn))) as pieces:
            async for piece in pieces:
                for event in self._tell(piece):
                    yield event
        error: Exception | None = None
        try:
            await run.result()
        except Exception as failed:  # noqa: BLE001 - the client gets it
            error = failed
        turn = await self._turn()
        questions = await self._questions(turn)
        for request in self._requests(questions):
            index = len(self._items)
            yield "response.output_item.added", {"output_index": index, "item": request}
            yield "response.output_item.done", {"output_index": index, "item": request}
            self._items.append(request)
        whole = _failed(self._whole(turn, questions, requested=True), error)
        end = whole["status"] if whole["status"] in ("completed", "incomplete") else "failed"
        yield f"response.{end}", {"response": whole}

    async def _pieces(self, run: Run[Any, Any], reading: Reading) -> AsyncGenerator[Piece, None]:
        """Yield what the events of the turn say; without events, what the messages of its result say."""
        told = False
        try:
            async with aclosing(run.events()) as events:
                async for item in events:
                    for piece in reading.read(item.number, item.event.dump()):
                        yield piece
                    told = True
        except (NotFound, ReplayDiverged, Drifted):
            for number, message in enumerate(() if told else (await self._turn()).messages, 1):
                for piece in reading.read(number, message):
                    yield piece
        for piece in reading.end():
            yield piece

    def _reading(self, turn: StoredTurn) -> Reading:
        return Reading(turn.number, ids_of(turn.task))

    async def _turn(self) -> StoredTurn:
        return await (await self._cases.reader(self._place.session)).turn(self._place.turn)

    async def _questions(self, turn: StoredTurn) -> Sequence[Question]:
        if turn.status != "waiting":
            return ()
        opened = await (await self._cases.reader(self._place.session)).open_turn()
        return opened.questions if opened is not None and opened.number == turn.number else ()

    def _tell(self, piece: Piece) -> Generator[Sent, None, None]:
        """Yield the events of a piece, and keep its item. What comes while another text is streamed waits."""
        if self._open not in (None, piece.id):
            if not isinstance(piece, Chunk):
                self._later.append(piece)
            return
        yield from self._tell_now(piece)
        while self._open is None and self._later:
            yield from self._tell_now(self._later.pop(0))

    def _tell_now(self, piece: Piece) -> Generator[Sent, None, None]:
        if isinstance(piece, Chunk):
            if self._is_mine:
                yield from self._begin_text(piece.id)
                yield from self._delta(piece.text)
        elif is_item(piece):
            if self._is_mine and isinstance(piece, Words):
                yield from self._begin_text(piece.id)
                if piece.text.startswith(self._sent):
                    yield from self._delta(piece.text.removeprefix(self._sent))
                yield from self._end_text(piece)
            elif self._is_mine and isinstance(piece, Result):
                item, index = _call_item(piece, self._item_id("mcp")), len(self._items)
                begun = {**item, "status": "in_progress", "output": None, "error": None}
                yield "response.output_item.added", {"output_index": index, "item": begun}
                yield "response.output_item.done", {"output_index": index, "item": item}
                self._items.append(item)
            self._count += 1

    @property
    def _is_mine(self) -> bool:
        """Return whether the next item of the turn is one of this response."""
        return self._count >= self._place.first

    def _item_id(self, kind: str) -> str:
        return f"{kind}_{self._place.turn}_{self._count}"

    def _begin_text(self, id_: str) -> Generator[Sent, None, None]:
        if self._open == id_:
            return
        self._open, self._sent = id_, ""
        item = {"id": self._item_id("msg"), "type": "message", "role": "assistant", "status": "in_progress"}
        yield "response.output_item.added", {"output_index": len(self._items), "item": {**item, "content": []}}
        yield "response.content_part.added", {**self._part(), "part": _text("")}

    def _part(self) -> dict[str, Any]:
        return {"item_id": self._item_id("msg"), "output_index": len(self._items), "content_index": 0}

    def _delta(self, text: str) -> Generator[Sent, None, None]:
        self._sent += text
        if text:
            yield "response.output_text.delta", {**self._part(), "delta": _plain(text), "logprobs": []}

    def _end_text(self, words: Words) -> Generator[Sent, None, None]:
        part, text = self._part(), _plain(words.text)
        yield "response.output_text.done", {**part, "text": text, "logprobs": []}
        yield "response.content_part.done", {**part, "part": _text(text)}
        phase = "commentary" if words.thought else "final_answer"
        item: dict[str, Any] = {"id": self._item_id("msg"), "type": "message", "role": "assistant"}
        item |= {"status": "completed", "content": [_text(text)], "phase": phase}
        yield "response.output_item.done", {"output_index": len(self._items), "item": item}
        self._items.append(item)
        self._open, self._sent = None, ""

    def _requests(self, questions: Iterable[Question]) -> list[dict[str, Any]]:
        """Return the items that ask for approvals."""
        turn, count = self._place.turn, self._count
        return [
            {
                "id": f"mcpr_{turn}_{count}_{asked.id}",
                "type": "mcp_approval_request",
                "server_label": asked.agent or self._model,
                "name": asked.tool or "",
                "arguments": json.dumps(stored(asked.arguments, "$"), ensure_ascii=False),
            }
            for asked in questions
            if asked.kind == "approval"
        ]

    def _whole(self, turn: StoredTurn, questions: Sequence[Question], *, requested: bool = False) -> dict[str, Any]:
        """Return the response. ``requested`` is true if its items have the approval requests already."""
        status = STATUS.get(turn.status, turn.status)
        if any(asked.kind == "doubt" for asked in questions):
            status = "incomplete"  # nobody can answer it here
        used = turn.usage
        output = [*self._items, *(() if requested else self._requests(questions))]
        return {
            "id": self._place.id,
            "object": "response",
            "created_at": turn.started.timestamp(),
            "status": status,
            "model": self._model,
            "output": output,
            "error": _error(hidden(turn.error or "the turn failed")) if status == "failed" else None,
            "incomplete_details": None,
            "instructions": None,
            "metadata": {},
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
            "temperature": None,
            "top_p": None,
            "previous_response_id": self._previous,
            "conversation": {"id": self._place.session},
            "usage": _usage(used.prompt_tokens, used.completion_tokens) if turn.status == "done" else None,
            "midturn": {
                "session": self._place.session,
                "turn": self._place.turn,
                "status": turn.status,
                "questions": questions_json(questions),
            },
        }


def ids_of(task: Sequence[Any] | None) -> set[str]:
    """Return the ids of the messages of a task."""
    return {str(each.get("id")) for each in task or () if is_object(each)}


def is_item(piece: Piece) -> bool:
    """Return whether a piece becomes an item of a response."""
    return isinstance(piece, Result) or (isinstance(piece, Words) and not piece.task and not piece.human)


def _call_item(result: Result, id_: str) -> dict[str, Any]:
    return {
        "id": id_,
        "type": "mcp_call",
        "server_label": result.source,
        "name": result.call.name,
        "arguments": _plain(result.call.arguments),
        "output": None if result.failed else _plain(result.text),
        "error": _plain(result.text) if result.failed else None,
        "status": "failed" if result.failed else "completed",
    }


def _text(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _plain(text: str) -> str:
    """Return a text that every JSON parser reads."""
    return text.encode("utf-8", "replace").decode()


def _failed(response: dict[str, Any], error: Exception | None) -> dict[str, Any]:
    """Return a response with an error, unless there is none or the response was cancelled."""
    if error is None or response["status"] == "cancelled":
        return response
    return response | {"status": "failed", "error": _error(str(problem_of(error)["detail"]))}


def _error(message: str) -> dict[str, Any]:
    return {"code": "server_error", "message": message}


def _usage(taken: int, given: int) -> dict[str, Any]:
    return {
        "input_tokens": taken,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": given,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": taken + given,
    }
