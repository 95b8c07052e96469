"""AutoGen's Chainlit sample, made durable. Run it with ``chainlit run chainlit_chat.py``.

A tool acts only if the user approves. The question stays open when the user leaves. With the next message of
the same thread, any server asks it again.
"""

from typing import Any

import chainlit as cl  # pyright: ignore[reportMissingImports] - needs another protobuf than AutoGen
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.messages import ModelClientStreamingChunkEvent

import midturn
from midturn.testing import ScriptedModel, ToolCall


@midturn.tool(effect="idempotent", approval=True)
async def refund(order: str) -> str:
    """Give the money back."""
    return f"refunded {order}"


def build() -> AssistantAgent:
    # A scripted model, which needs no key; put your own here.
    script = {"refunded": "A1 is refunded.", "not allowed": "Then not.", "refund": ToolCall("refund", {"order": "A1"})}
    model = ScriptedModel({**script, "": "What can I do for you?"})
    return AssistantAgent("assistant", model, tools=[refund], reflect_on_tool_use=True, model_client_stream=True)


@cl.on_message
async def on_message(message: Any) -> None:
    async with midturn.open() as store:
        case = store.session(cl.context.session.thread_id, build)
        waiting = await case.waiting()  # what the user left open
        if waiting is None:
            waiting = await show(case.say_stream(message.content, key=message.id))
        while waiting is not None:
            answer = await ask(waiting)
            if answer is None:
                return  # the turn waits, for days if need be
            waiting = await show(case.answer_stream(answer, question=waiting.id, by=cl.context.session.id))


async def show(stream: Any) -> midturn.Waiting | None:
    """Show the answer word by word; return what the turn asks, if it asks something."""
    reply, waiting = cl.Message(content=""), None
    async for item in stream:
        if isinstance(item, ModelClientStreamingChunkEvent) and not midturn.replayed(item):
            await reply.stream_token(item.content)
        elif isinstance(item, midturn.TurnResult):
            waiting = item.waiting
    if waiting is None:
        await reply.send()
    return waiting


async def ask(waiting: midturn.Waiting) -> str | None:
    actions = [cl.Action(name=name, payload={"answer": name}, label=name) for name in ("approve", "deny")]
    pressed = await cl.AskActionMessage(content=waiting.question, actions=actions).send()
    return pressed and pressed["payload"]["answer"]
