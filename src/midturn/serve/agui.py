"""AG-UI: a thread is a session, the id of a run is the key of its turn, interrupts are the questions of a turn.

A session remembers its conversation, so a run takes only what its thread does not know: the user's messages at the end
of the list. The rest of the list tells which messages the client has. These are not sent again.
"""

from __future__ import annotations

import binascii
import json
import logging
from base64 import b64decode
from contextlib import aclosing
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import APIRouter
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.alias_generators import to_camel
from starlette.responses import Response

from midturn.autogen.adapter import replayed
from midturn.autogen.messages.conversion import of_user
from midturn.errors import Conflict, Drifted, InvalidArgument, MidturnError, NotFound, ReplayDiverged
from midturn.record.codec import is_array, is_object
from midturn.record.head import MAX_ID
from midturn.record.odd import stored
from midturn.serve.answers import Given, answer_all, followed, is_number
from midturn.serve.cases import Forbidden
from midturn.serve.paths import BLUEPRINT
from midturn.serve.pieces import Calls, Chunk, Reading, Result, Words
from midturn.serve.problems import problem_of
from midturn.serve.requests import Mine
from midturn.serve.streams import EventStream
from midturn.sessions.background import check_key

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator, Iterable, Mapping

    from midturn.history.turns import StoredTurn
    from midturn.questions import Question
    from midturn.serve.cases import Case, Cases
    from midturn.serve.pieces import Piece, ToolCall
    from midturn.sessions.runs import Run

_log = logging.getLogger(__name__)

router = APIRouter(tags=["agui"], include_in_schema=False)

SHOWN = 20
"""Number of turns that a client gets when it asks what its thread has."""
REASONS = {"human": "input_required", "approval": "tool_call", "doubt": "midturn:in_doubt"}
WORDS_SCHEMA = {"type": "string"}
DOUBT_SCHEMA = {
    "type": "object",
    "properties": {"outcome": {"enum": ["retry", "done", "fail"]}, "result": {"type": "string"}},
    "required": ["outcome"],
}


class _Taken(BaseModel):
    """A part of a body. Keys that are not known are left out, as AG-UI wants it."""

    model_config = ConfigDict(alias_generator=to_camel)


class ResumeEntry(_Taken):
    """The answer to one interrupt."""

    interrupt_id: str
    status: Literal["resolved", "cancelled"]
    payload: Any = None


def _listed(value: Any) -> Any:
    return [] if value is None else value


class RunInput(_Taken):
    """A request of a client to run an agent."""

    thread_id: str
    run_id: str
    protocol_version: str | None = None
    messages: list[dict[str, Any]] = Field(default_factory=list[dict[str, Any]])
    tools: Annotated[list[Any], BeforeValidator(_listed)] = Field(default_factory=list[Any])
    context: Annotated[list[Any], BeforeValidator(_listed)] = Field(default_factory=list[Any])
    resume: list[ResumeEntry] | None = None


@router.post(f"/agui/{BLUEPRINT}")
async def run_agent(blueprint: str, given: RunInput, cases: Mine) -> Response:
    """Run an agent, or answer its interrupts. The run belongs to the server: it continues when the client goes away."""
    case = await cases.runnable(given.thread_id, blueprint=blueprint)
    if given.resume:
        await cases.info(given.thread_id, "answer")
    check_key(given.run_id)
    return EventStream(_Thread(cases, case, given).events(), session=given.thread_id)


class _Cancelled(Exception):
    """The client gave the open turn up."""


class _Thread:
    """A run of a thread, as one client follows it."""

    def __init__(self, cases: Cases, case: Case, given: RunInput) -> None:
        self._cases = cases
        self._case = case
        self._given = given
        self._has = {str(each["id"]): each for each in given.messages if isinstance(each.get("id"), str)}
        """The messages that the client has."""
        self._messages: dict[str, dict[str, Any]] = dict(self._has)
        """The messages of a snapshot."""
        self._behind = False
        """True if the client lacks something that was not sent."""
        self._open: set[str] = set()
        """The messages that have begun, and have not ended."""

    async def events(self) -> AsyncGenerator[str, None]:
        """Yield the events of the run, as they are sent."""
        given = self._given
        about = {"threadId": given.thread_id, "runId": given.run_id}
        version = {} if given.protocol_version is None else {"protocolVersion": "1.0"}
        yield _sent("RUN_STARTED", **about, **version)
        try:
            run = await self._begin()
            async with aclosing(self._told(run)) as told:
                async for event in told:
                    yield event
            result = await run.result()
            if self._behind or result.waiting is not None:
                yield self._snapshot()
            outcome: dict[str, Any] = {"type": "success"}
            if result.waiting is not None:
                asked = result.waiting.questions
                outcome = {"type": "interrupt", "interrupts": list(self._interrupts(run.turn, asked))}
            yield _sent("RUN_FINISHED", **about, outcome=outcome)
        except _Cancelled:
            yield _sent("RUN_FINISHED", **about, outcome={"type": "cancelled"})
        except (MidturnError, Forbidden) as error:
            yield _sent("RUN_ERROR", message=problem_of(error)["detail"], code=type(error).__name__)
        except Exception:  # noqa: BLE001 - the client would wait for an end
            _log.exception("a run of session %r failed", given.thread_id)
            yield _sent("RUN_ERROR", message="the server failed; its log has the error", code="ServerError")

    async def _begin(self) -> Run[Any, Any]:
        """Return the run that the client asks for, when its input is durable."""
        given, case = self._given, self._case
        for name, what in ("tools", "tools of a front end"), ("context", "context of a front end"):
            if getattr(given, name):
                raise InvalidArgument(f"this server does not pass {what} on to agents", path=name)
        if given.resume:
            return await self._resume(given.resume)
        known = await self._turn(key=given.run_id)
        users = self._of_user()
        if known is not None and known.task is not None:
            if not users:  # the client has got a part of the answer
                return await followed(case, known.number)
            return await case.start(_task(users[-len(known.task) :]), key=given.run_id)
        latest, said = await self._turn(), bool(users)
        if latest is not None:
            seen = {each.get("id") for each in latest.task or () if is_object(each)}
            last = max((index for index, (_, each) in enumerate(users) if _id(each) in seen), default=-1)
            users = users[last + 1 :]
        if users:
            return await case.start(_task(users), key=given.run_id)
        if latest is None:
            raise InvalidArgument("has no message of a user, and the thread is new", path="messages")
        await self._show_history(latest.number)
        return await followed(case, latest.number) if said else await case.follow(latest.number)

    def _of_user(self) -> list[tuple[int, dict[str, Any]]]:
        """Return the messages at the end that are a user's, each with its index."""
        found: list[tuple[int, dict[str, Any]]] = []
        for index, message in reversed([*enumerate(self._given.messages)]):
            if message.get("role") != "user":
                break
            found.insert(0, (index, message))
        return found

    async def _turn(self, key: str | None = None) -> StoredTurn | None:
        """Return the turn with a key, or the latest one; ``None`` if there is none."""
        try:
            run = await self._case.follow(key=key)
            return await (await self._cases.reader(self._case.id)).turn(run.turn)
        except NotFound:
            return None

    async def _resume(self, entries: list[ResumeEntry]) -> Run[Any, Any]:
        case, turns = self._case, set[int]()
        answers: dict[str, ResumeEntry] = {}
        for index, entry in enumerate(entries):
            number, _, question = entry.interrupt_id.partition(".")
            if not (question and is_number(number)):
                raise InvalidArgument("is not the id of an interrupt", path=f"resume[{index}].interruptId")
            if question in answers:
                raise InvalidArgument("answers an interrupt twice", path=f"resume[{index}].interruptId")
            turns.add(int(number))
            answers[question] = entry
        if len(turns) != 1:
            raise InvalidArgument("answers interrupts of several runs", path="resume")
        [turn] = turns
        if all(entry.status == "cancelled" for entry in entries):
            await self._cancel(turn, answers)
        opened = await case.waiting()
        asked = {each.id: each for each in opened.questions} if opened is not None else {}
        given = {id_: _answer(asked.get(id_), entry, id_) for id_, entry in answers.items()}
        return await answer_all(self._cases, case, turn, given)

    async def _cancel(self, turn: int, cancelled: Iterable[str]) -> None:
        """Give up a turn whose interrupts nobody will answer."""
        session = self._case.id
        await self._cases.info(session, "discard")
        reader = await self._cases.reader(session)
        opened = await reader.open_turn()
        if opened is None or opened.number != turn:
            opened = await reader.turn(turn)
        if {each.id for each in opened.questions} == set(cancelled):
            await self._case.discard(by=self._cases.principal.name)
        elif not any(each.kind == "discard" for each in opened.decisions):
            raise Conflict(f"these are not all open interrupts of session {session!r}", session=session)
        raise _Cancelled

    async def _told(self, run: Run[Any, Any]) -> AsyncGenerator[str, None]:
        """Yield what the client does not have yet."""
        stored_turn = await (await self._cases.reader(self._case.id)).turn(run.turn)
        task = [each for each in stored_turn.task or () if is_object(each)]
        reading = Reading(run.turn, {str(each.get("id")) for each in task})
        self._reading = reading
        told = False
        try:
            async with aclosing(run.events()) as events:
                async for item in events:
                    known = bool(self._given.resume) and replayed(item.event)
                    for piece in reading.read(item.number, item.event.dump()):
                        for event in self._tell(piece, known=known):
                            yield event
                    told = True
        except (NotFound, ReplayDiverged, Drifted):  # the record may have a result nevertheless
            result = await run.result()
            for number, message in enumerate(() if told else result.messages, 1):
                for piece in reading.read(number, message.dump()):
                    for event in self._tell(piece, known=False):
                        yield event
        for piece in reading.end():
            for event in self._tell(piece, known=False):
                yield event

    def _tell(self, piece: Piece, *, known: bool) -> Generator[str, None, None]:
        """Yield the events of a piece, unless the client has it, or had it in a run before."""
        match piece:
            case Chunk() if known or piece.id in self._has:
                pass
            case Chunk():
                yield from self._begin_text(piece.id, piece.source, "assistant")
                yield from _content(piece.id, piece.text)
            case Words():
                yield from self._tell_words(piece, known=known or piece.task)
            case Calls():
                yield from self._tell_calls(piece, known=known)
            case Result():
                message = {"id": piece.id, "role": "tool", "content": piece.text, "toolCallId": piece.call.id}
                if self._keep(message | ({"error": piece.text} if piece.failed else {}), known=known):
                    facts = {"messageId": piece.id, "toolCallId": piece.call.id, "content": piece.text}
                    yield _sent("TOOL_CALL_RESULT", **facts, role="tool")

    def _tell_words(self, words: Words, *, known: bool) -> Generator[str, None, None]:
        role = "user" if words.human or words.task else "assistant"
        name = {} if words.task else {"name": words.source}
        if not self._keep({"id": words.id, "role": role, **name, "content": words.text}, known=known):
            return
        yield from self._begin_text(words.id, words.source, role)
        if words.text.startswith(streamed := words.streamed or ""):
            yield from _content(words.id, words.text.removeprefix(streamed))
        else:
            self._behind = True
        self._open.discard(words.id)
        yield _sent("TEXT_MESSAGE_END", messageId=words.id)

    def _tell_calls(self, calls: Calls, *, known: bool) -> Generator[str, None, None]:
        found: list[Any] = [_call(each) for each in calls.calls]
        message = {"id": calls.id, "role": "assistant", "name": calls.source, "toolCalls": found}
        if not self._keep(message, known=known):
            return
        for call in calls.calls:
            yield _sent("TOOL_CALL_START", toolCallId=call.id, toolCallName=call.name, parentMessageId=calls.id)
            if call.arguments:
                yield _sent("TOOL_CALL_ARGS", toolCallId=call.id, delta=call.arguments)
            yield _sent("TOOL_CALL_END", toolCallId=call.id)

    def _keep(self, message: dict[str, Any], *, known: bool) -> bool:
        """Keep a message for the snapshot; return whether it has to be sent."""
        has = self._has.get(message["id"])
        self._messages[message["id"]] = message
        if has is None and not known:
            return True
        mine = (message.get("content", ""), message.get("toolCalls", []))
        if message["role"] == "user" and has is not None:
            self._messages[message["id"]] = has  # as the client sent it
        elif has is None or (has.get("content") or "", has.get("toolCalls") or []) != mine:
            self._behind = True
        return False

    def _begin_text(self, id_: str, source: str, role: str) -> Generator[str, None, None]:
        if id_ not in self._open:
            self._open.add(id_)
            yield _sent("TEXT_MESSAGE_START", messageId=id_, role=role, name=source)

    async def _show_history(self, latest: int) -> None:
        """Fill the snapshot with the turns before the latest one, for a client that asks what its thread has."""
        self._messages, self._has, self._behind = {}, {}, True
        reader = await self._cases.reader(self._case.id)
        async for turn in reader.history(last=SHOWN):
            if turn.number >= latest:
                break
            task = [each for each in turn.task or () if is_object(each)]
            reading = Reading(turn.number, {str(each.get("id")) for each in task})
            for number, message in enumerate([*turn.messages] or task, 1):
                for piece in reading.read(f"m{number}", message):
                    for _ in self._tell(piece, known=True):
                        raise AssertionError("what is known is not sent")

    def _snapshot(self) -> str:
        messages = [each for each in self._messages.values() if each.get("role") != "activity"]
        return _sent("MESSAGES_SNAPSHOT", messages=messages)

    def _interrupts(self, turn: int, questions: Iterable[Question]) -> Generator[dict[str, Any], None, None]:
        unbound = list(self._reading.waiting.values())
        for asked in questions:
            call = next((each for each in unbound if _is_about(asked, each)), None)
            facts: dict[str, Any] = {
                "id": f"{turn}.{asked.id}",
                "reason": REASONS[asked.kind],
                "message": asked.question,
                "responseSchema": _schema(asked),
                "metadata": {
                    "midturn": stored(
                        {
                            "question": asked.id,
                            "kind": asked.kind,
                            "agent": asked.agent,
                            "tool": asked.tool,
                            "arguments": asked.arguments,
                        },
                        "$",
                    )
                },
            }
            if call is not None:
                unbound.remove(call)
                facts["toolCallId"] = call.id
            elif asked.kind == "approval":
                facts["reason"] = "confirmation"  # "tool_call" promises a call that the client has seen
            yield facts


def _sent(kind: str, **facts: Any) -> str:
    """Return an event as it is sent."""
    return f"data: {json.dumps({'type': kind, **facts}, ensure_ascii=True)}\n\n"


def _content(id_: str, text: str) -> Generator[str, None, None]:
    if text:
        yield _sent("TEXT_MESSAGE_CONTENT", messageId=id_, delta=text)


def _call(call: ToolCall) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def _is_about(asked: Question, call: ToolCall) -> bool:
    """Return whether a question is about a call that was shown."""
    if asked.tool != call.name:
        return False
    try:
        arguments = json.loads(call.arguments or "{}")
    except ValueError:
        return False
    return bool(arguments == asked.arguments)


def _schema(asked: Question) -> dict[str, Any]:
    """Return the JSON schema of the answers to a question."""
    if asked.kind == "human":
        return WORDS_SCHEMA
    if asked.kind == "doubt":
        return DOUBT_SCHEMA
    edited = {"type": "object", **dict(asked.schema or {}), "description": "All arguments of the call, not only some."}
    return {
        "type": "object",
        "properties": {
            "approved": {"type": "boolean"},
            "editedArgs": stored(edited, "$"),
            "reason": {"type": "string"},
        },
        "required": ["approved"],
    }


def _answer(asked: Question | None, entry: ResumeEntry, question: str) -> Given:
    """Return the answer that an entry gives. Of a question that is not open any more, only the answer is known."""
    if entry.status == "cancelled":
        raise InvalidArgument("cancel all interrupts of a run, or none", path="resume")
    match entry.payload:
        case str(text) if asked is None or asked.kind == "human":
            return Given(answer=text)
        case {"approved": True, "editedArgs": edited} if is_object(edited) and (
            asked is None or asked.kind == "approval"
        ):
            return Given(answer="approve", arguments=edited if asked is None else _whole(asked, edited))
        case {"approved": True, **more} if (asked is None or asked.kind == "approval") and not more.get("editedArgs"):
            return Given(answer="approve")
        case {"approved": False, **more} if asked is None or asked.kind == "approval":
            reason = more.get("reason")
            return Given(answer=f"deny: {reason}" if isinstance(reason, str) and reason.strip() else "deny")
        case {"outcome": "done", "result": str(result)} if asked is None or asked.kind == "doubt":
            return Given(answer=f"done: {result}")
        case {"outcome": "retry" | "fail" as outcome} if asked is None or asked.kind == "doubt":
            return Given(answer=outcome)
        case _:
            raise InvalidArgument(
                f"the answer to interrupt {question!r} does not fit its responseSchema", path="resume.payload"
            )


def _whole(asked: Question, edited: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments that replace all those of a call. What they leave out gets its default.

    Raises:
        InvalidArgument: an argument is left out that has no default.
    """
    declared = (asked.schema or {}).get("properties")
    known = declared if is_object(declared) else {}
    whole = dict(edited)
    for name in asked.arguments or ():
        if name in whole:
            continue
        about = known.get(name)
        if not is_object(about) or "default" not in about:
            raise InvalidArgument(f"replaces all arguments, and leaves out {name!r}", path="editedArgs")
        whole[name] = about["default"]
    return whole


def _task(messages: list[tuple[int, dict[str, Any]]]) -> list[Any]:
    """Return messages of a user as a task.

    Raises:
        InvalidArgument: a message has something that agents do not get.
    """
    return [of_user(list(_parts(each, f"messages[{index}]")), _id(each)) for index, each in messages]


def _id(message: dict[str, Any]) -> str | None:
    found = message.get("id")
    return found if isinstance(found, str) and 0 < len(found) <= MAX_ID else None


def _parts(message: dict[str, Any], path: str) -> Generator[str | bytes, None, None]:
    content = message.get("content")
    if isinstance(content, str):
        yield content
        return
    if not is_array(content) or not content:
        raise InvalidArgument("must be a text or a list of parts", path=f"{path}.content")
    for index, part in enumerate(content):
        match part:
            case {"type": "text", "text": str(text)}:
                yield text
            case {"type": "image", "source": {"type": "data", "value": str(data)}}:
                try:
                    yield b64decode(data, validate=True)
                except binascii.Error as error:
                    raise InvalidArgument(f"is not base64: {error}", path=f"{path}.content[{index}]") from error
            case _:
                raise InvalidArgument("must be a text, or an image with its data", path=f"{path}.content[{index}]")
