"""Model contexts: all their messages come back; their sizes and first messages are those of the built agents."""

import pytest
from autogen_core.model_context import (
    BufferedChatCompletionContext,
    HeadAndTailChatCompletionContext,
    TokenLimitedChatCompletionContext,
    UnboundedChatCompletionContext,
)
from autogen_core.models import AssistantMessage, UserMessage
from gaps import RESTART, exact, in_team, kept, uninterrupted
from kinds import assistant
from scripted import Scripted

import midturn

STEPS = ["The customer prefers email.", "Also SMS.", RESTART, "And now?", "Sum it up.", RESTART, "Thank you."]
GIVEN = [
    UserMessage(content="from before", source="user"),
    AssistantMessage(content="yes", source="assistant", thought="hm"),
]
CONTEXTS = {
    "unbounded": lambda size=2: UnboundedChatCompletionContext(list(GIVEN)),
    "buffered": lambda size=2: BufferedChatCompletionContext(size, list(GIVEN)),
    "head_and_tail": lambda size=2: HeadAndTailChatCompletionContext(1, size, list(GIVEN)),
    "token_limited": lambda size=2: TokenLimitedChatCompletionContext(
        Scripted(), token_limit=size, initial_messages=list(GIVEN)
    ),
}


@pytest.fixture(params=CONTEXTS)
def context(request):
    return CONTEXTS[request.param]


async def test_a_context_saved_by_hand_comes_back_with_the_same_messages(context):
    live, fresh = context(), context()
    for n in range(5):
        await live.add_message(UserMessage(content=f"message {n}", source="user"))
    async with midturn.open("memory://") as store:
        await store.save("context", live)
        assert await store.load("context", fresh) == 1
    assert exact(await fresh.get_messages()) == exact(await live.get_messages())
    assert await fresh.save_state() == await live.save_state()


async def test_a_context_continues_from_what_was_saved_by_hand_and_not_from_its_first_messages(context):
    live, fresh = context(), context()
    await live.clear()
    async with midturn.open("memory://") as store:
        await store.save("context", live)
        await store.load("context", fresh)
    assert await fresh.get_messages() == []


async def test_the_size_of_a_context_is_that_of_what_was_built(context):
    live, wider = context(), context(4)
    for n in range(5):
        message = UserMessage(content=f"message {n}", source="user")
        await live.add_message(message)
    async with midturn.open("memory://") as store:
        await store.save("context", live)
        await store.load("context", wider)
    expected = context(4)
    await expected.load_state(await live.save_state())
    assert await wider.get_messages() == await expected.get_messages()


@pytest.mark.parametrize("in_a_team", [False, True])
async def test_midturn_keeps_the_context_of_an_assistant(context, in_a_team):
    def build():
        return assistant(model_context=context(3))

    build = in_team(build) if in_a_team else build
    assert await kept(build, *STEPS) == await uninterrupted(build, *STEPS)
