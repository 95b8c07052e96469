"""Beginning anew, and reaching the live agent or team behind a factory while it runs."""

import asyncio

import pytest
from autogen_agentchat.agents import AssistantAgent, BaseChatAgent
from autogen_agentchat.base import Response
from autogen_agentchat.conditions import ExternalTermination, MaxMessageTermination
from autogen_agentchat.messages import TextMessage
from autogen_agentchat.teams import RoundRobinGroupChat
from cast import agents, crash, expected, panel, said
from kinds import assistant

import midturn


@pytest.mark.parametrize("live", [False, True], ids=["a factory", "a live agent"])
async def test_a_session_that_is_reset_begins_a_new_conversation(store, live):
    case = store.session("case", assistant() if live else assistant)
    await case.run(task="one")
    before = await case.at(1).state()
    assert await case.reset() == 2
    assert said(await case.run(task="two")) == await expected("two")
    assert [(turn.number, turn.origin) async for turn in case.history()] == [(1, "run"), (2, "reset"), (3, "run")]
    assert await case.at(1).state() == before
    assert await case.at(2).state() == await assistant().save_state()
    other = store.session("case", assistant)
    assert said(await other.run(task="three")) == await expected("two", "three")


async def test_a_live_agent_that_is_given_has_forgotten_after_a_reset(memory):
    agent = assistant()
    new = await agent.save_state()
    case = memory.session("case", agent)
    await case.run(task="one")
    await case.reset()
    assert await agent.save_state() == new
    again = assistant()
    assert await memory.session("case", again).reset() == 3
    assert await again.save_state() == new


async def test_a_new_session_can_be_reset(memory):
    case = memory.session("case", assistant)
    assert await case.reset() == 1
    assert said(await case.run(task="one")) == await expected("one")


async def test_a_state_that_does_not_fit_any_more_can_be_reset(memory):
    await memory.session("case", panel).run(task="write")
    await memory.session("case").discard()
    await memory.save("other", panel())
    case = memory.session("other", assistant)
    with pytest.raises(midturn.StateInvalid):
        await case.run(task="one")
    await case.reset()
    assert said(await case.run(task="one")) == await expected("one")


async def test_an_unfinished_turn_is_not_reset(memory):
    await crash(memory, agents()[0], task="one")
    with pytest.raises(midturn.TurnFailed, match="is not finished"):
        await memory.session("case", agents()[0]).reset()
    with pytest.raises(midturn.InvalidArgument, match="a factory to reset it"):
        await memory.session("case").reset()


HEARD = []


class Walker(BaseChatAgent):
    """Says something every moment, unless it is paused."""

    produced_message_types = (TextMessage,)

    def __init__(self):
        super().__init__("walker", "walks")
        self.going = asyncio.Event()
        self.going.set()

    async def on_messages(self, messages, cancellation_token):
        await asyncio.sleep(0.001)
        await self.going.wait()
        return Response(chat_message=TextMessage(content="step", source=self.name))

    async def on_pause(self, cancellation_token):
        HEARD.append("pause")
        self.going.clear()

    async def on_resume(self, cancellation_token):
        HEARD.append("resume")
        self.going.set()

    async def on_reset(self, cancellation_token):
        pass


class Walk(RoundRobinGroupChat):
    """A team with an external termination that can be reached."""

    def __init__(self):
        self.stop = ExternalTermination()
        super().__init__([Walker()], termination_condition=self.stop | MaxMessageTermination(500))


async def test_the_team_behind_a_factory_is_paused_resumed_and_ended(memory):
    case = memory.session("case", Walk)
    assert case.live is None
    run = await case.start("walk")
    other = memory.session("case", Walk)  # as another request of a web server has it
    await anext(run.events(after=3))
    team = other.live
    assert team is case.live
    await team.pause()
    await team.resume()
    assert HEARD == ["pause", "resume"]
    assert not run.done
    team.stop.set()
    result = await run.result()
    assert result.stop_reason == "External termination requested"
    assert len(result.messages) < 500
    assert (await memory.info("case")).status == "idle"
    assert said(await memory.session("case", Walk).run(task=[TextMessage(content="again", source="user")])) == "step"


async def test_a_session_in_another_process_has_no_live_team(memory, tmp_path):
    await memory.session("case", assistant).run(task="one")
    assert isinstance(memory.session("case").live, AssistantAgent | type(None))
    async with midturn.open(store=memory.store) as other:
        assert other.session("case", assistant).live is None
