"""Repair an agent or a team before its next turn, if AutoGen could not continue from its last state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from autogen_agentchat.conditions import TimeoutTermination
from autogen_agentchat.teams import BaseGroupChat, MagenticOneGroupChat, Swarm
from autogen_core.model_context import ChatCompletionContext
from autogen_core.models import AssistantMessage, FunctionExecutionResult, FunctionExecutionResultMessage

from midturn.autogen import private
from midturn.record.codec import is_array

if TYPE_CHECKING:
    from collections.abc import Sequence

    from autogen_core import FunctionCall

    from midturn.autogen.parts.walk import Part

INTERRUPTED = (
    "This call was interrupted and its result was lost. It may or may not have taken effect: "
    "find out before you call it again."
)
"""The result that a model gets for a call that was never answered."""


_ANSWERED: WeakKeyDictionary[ChatCompletionContext, tuple[int, Any]] = WeakKeyDictionary()
"""The number of messages of each context that were checked, and the last of them. All their calls have results."""


async def prepare(parts: Sequence[Part]) -> list[str]:
    """Make the agent or team with these parts ready for a turn; return a sentence for each repair."""
    repairs: list[str] = []
    for part in parts:
        if isinstance(part.live, BaseGroupChat):
            _prepare_team(part.live)
        elif isinstance(part.live, TimeoutTermination):
            await part.live.reset()  # its clock would run on between turns, but only while the process lives
        elif isinstance(part.live, ChatCompletionContext):
            repairs += [f"{part.path}: {what}" for what in _answer_calls(part.live)]
    return repairs


def _prepare_team(team: BaseGroupChat) -> None:
    if isinstance(team, Swarm):
        private.let_swarm_continue(team)
    elif isinstance(team, MagenticOneGroupChat):
        private.let_plan_continue(team)
    for participant in private.participants(team):
        if isinstance(participant, BaseGroupChat):
            private.let_speak_without_news(participant)


def _answer_calls(context: ChatCompletionContext) -> list[str]:
    """Answer the calls in a conversation that were never answered: otherwise, model providers reject it."""
    messages: Any = getattr(context, private.CONTEXT_MESSAGES, None)
    length, last = _ANSWERED.get(context, (0, None))
    if not is_array(messages) or not messages or messages[-1] is last:
        return []  # a context of a user's own may keep its messages elsewhere
    if not (0 < length <= len(messages) and messages[length - 1] is last):
        length = 0
    repaired: list[Any] = []
    """The messages after those that were checked before."""
    repairs: list[str] = []
    lost: list[FunctionCall] = []
    for message in [*messages[length:], None]:
        if isinstance(message, FunctionExecutionResultMessage):
            answered = {result.call_id for result in message.content}
            lost = [call for call in lost if call.id not in answered]
        elif lost:
            repairs += [
                f"the call {call.id!r} of {call.name!r} was never answered; it is answered with an error now"
                for call in lost
            ]
            results = [
                FunctionExecutionResult(content=INTERRUPTED, name=call.name, call_id=call.id, is_error=True)
                for call in lost
            ]
            if isinstance(before := repaired[-1], FunctionExecutionResultMessage):
                repaired[-1] = before.model_copy(update={"content": [*before.content, *results]})
            else:
                repaired.append(FunctionExecutionResultMessage(content=results))
            lost = []
        if isinstance(message, AssistantMessage) and not isinstance(message.content, str):
            lost = list(message.content)
        repaired.append(message)
    repaired.pop()
    if repairs:
        setattr(context, private.CONTEXT_MESSAGES, messages[:length] + repaired)
    _ANSWERED[context] = length + len(repaired), repaired[-1]
    return repairs
