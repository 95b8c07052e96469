"""Texts that agents say or keep by themselves, and states that people make, are redacted before they are stored."""

import json

import pytest
from autogen_agentchat.conditions import MaxMessageTermination
from autogen_agentchat.messages import TextMessage
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core.memory import ListMemory, MemoryContent
from desks import HIDDEN, Talker, Watching, blueprint, build, card, redact, with_memory
from stored_text import everything

import midturn
from midturn.testing import ToolCall


async def test_what_an_agent_says_without_any_call_is_redacted_in_events_result_and_state(store):
    case = store.session("case", blueprint(Talker))
    items = [item async for item in case.run_stream("hello")]
    said = [item.content for item in items if isinstance(item, TextMessage)]
    assert said == ["hello", f"My own {HIDDEN}, and 1 things."]
    assert [message.content for message in items[-1].messages] == said
    assert await case.at(1).state() == {"heard": [f"0: {HIDDEN}"], "cards": {HIDDEN: 1}}
    assert card(0)[:4] not in await everything(store, "case")


async def test_a_live_agent_has_the_state_that_was_stored(store):
    case = store.session("case", blueprint(Talker))
    await case.run("hello")
    assert await case.live.save_state() == await case.at(1).state()
    result = await case.run("again")
    assert result.messages[-1].content == f"My own {HIDDEN}, and 2 things."


async def test_equal_texts_of_agents_become_equal_texts(store):
    """The function numbers the cards. The event, the result and the thread of the team have the same number."""
    calls = []

    def function(text, where):
        calls.append(text)
        return text.replace(card(8), f"[card {len(calls)}]")

    def factory():
        return RoundRobinGroupChat([Talker()], termination_condition=MaxMessageTermination(2))

    case = store.session("case", blueprint(factory, function))
    items = [item async for item in case.run_stream("hello")]
    said = items[-1].messages[-1].content
    assert said.startswith("My own [card ")
    assert items[-2].content == said
    assert said in json.dumps(await case.at(1).state())


async def test_the_texts_of_a_state_are_given_once(store):
    function = Watching()
    case = store.session("case", blueprint(with_memory, function))
    await case.run("hello")
    function.given.clear()
    await case.run("again")
    assert [text for text, _ in function.given] == ["again", f"I know {card(5)}."]


async def test_a_memory_that_a_tool_fills_is_redacted(store):
    memory = []

    def factory():
        memory.append(ListMemory())

        async def note(text: str) -> str:
            await memory[-1].add(MemoryContent(content=f"knows {card(1)}", mime_type="text/plain"))
            return "noted"

        script = {"My order": ToolCall("note", {"text": "x"}), "": "Done."}
        return build(script, [note], memory=[memory[-1]])

    desk = blueprint(factory, effects={"note": "read"})
    case = store.session("case", desk)
    await case.run("My order")
    assert memory[-1].content[0].content == f"knows {HIDDEN}"
    result = await store.session("case", desk).run("and now?")
    assert f"knows {HIDDEN}" in str(result.messages)
    assert card(0)[:4] not in await everything(store, "case")


async def test_a_memory_that_is_asked_for_each_call_is_a_door(store):
    class Remote(ListMemory):
        """A memory whose calls are recorded: its contents are elsewhere."""

    def factory():
        contents = [MemoryContent(content=f"pays with {card(12)}", mime_type="text/plain")]
        return build({"": "Done."}, [], memory=[Remote(memory_contents=contents)])

    function = Watching()
    case = store.session("case", blueprint(factory, function))
    await case.run("hello")
    context = (await case.at(1).state())["llm_context"]["messages"]
    assert [HIDDEN in str(message) for message in context] == [False, True, False]
    assert function.where("pays with") >= {("memory", "clerk", "update_context")}
    assert (await case.replay(1)).same
    live = await case.live.save_state()
    assert live == await case.at(1).state()


async def test_a_state_that_a_person_corrects_is_redacted(store):
    case = store.session("case", blueprint())
    await case.run("hello")
    await case.edit(lambda state: state.correct("hello", f"hello {card(1)}"), by="ann")
    assert f"hello {HIDDEN}" in json.dumps(await case.at(2).state())
    assert card(0)[:4] not in await everything(store, "case")
    with pytest.raises(midturn.InvalidArgument, match="redact: is missing"):
        await store.session("case").edit(lambda state: state.correct("hello", card(1)))


async def test_a_migrated_state_is_redacted(store):
    def made():
        desk = blueprint(version=2)

        @desk.migration(1, 2)
        def seed(state):
            return state.correct("hello", f"hello {card(1)}")

        return desk

    await store.session("case", blueprint()).run("hello")
    await store.session("case", made()).run("again")
    assert f"hello {HIDDEN}" in json.dumps(await store.session("case").at(2).state())
    assert card(0)[:4] not in await everything(store, "case")


async def test_many_migrated_states_are_redacted(store):
    from midturn.autogen.adapter import AutoGen
    from midturn.maintenance.migrating import MigrationRun

    desk = blueprint(version=2)

    @desk.migration(1, 2)
    def seed(state):
        return state.correct("hello", f"hello {card(1)}")

    await store.session("case", blueprint()).run("hello")
    result = await MigrationRun(store.store, desk, AutoGen(), run="r")("case")
    assert result.became == "changed"
    assert f"hello {HIDDEN}" in json.dumps(await store.session("case").at(2).state())
    assert card(0)[:4] not in await everything(store, "case")


async def test_an_imported_state_and_a_new_beginning_are_redacted(store):
    agent = build()
    await agent.model_context.add_message(midturn_message(f"I pay with {card(1)}"))
    case = store.session("case", blueprint(with_memory))
    await case.save({"state": dict(await agent.save_state())}, origin="import")
    assert f"I pay with {HIDDEN}" in json.dumps(await case.at(1).state())
    await case.reset()
    assert f"pays with {HIDDEN}" in json.dumps(await case.at(2).beside())
    assert card(0)[:4] not in await everything(store, "case")


def midturn_message(text):
    from autogen_core.models import UserMessage

    return UserMessage(content=text, source="user")


async def test_a_state_that_does_not_fit_any_more_fails_the_turn_and_nothing_is_stored(store):
    class Checked(Talker):
        async def load_state(self, state):
            if HIDDEN in str(state):
                raise ValueError("a card is missing")
            await super().load_state(state)

    case = store.session("case", blueprint(Checked))
    with pytest.raises(midturn.StateInvalid, match="a card is missing"):
        await case.run("hello")
    assert (await store.info("case")).checkpoint == 0
    assert card(0)[:4] not in await everything(store, "case")


async def test_names_of_agents_ids_and_types_are_not_given_to_the_function(store):
    function = Watching()

    def factory():
        members = [build(name="Ann4929"), build({"": "Done."}, [], name="Bob")]
        return RoundRobinGroupChat(members, termination_condition=MaxMessageTermination(3))

    def loud(text, where):
        function(text, where)
        return text.upper()

    result = await store.session("case", blueprint(factory, loud)).run("hello")
    assert [message.content for message in result.messages] == ["HELLO", f"I KNOW {card(5)}.", "DONE."]
    given = {text for text, _ in function.given}
    assert not given & {"Ann4929", "Bob", "TextMessage", "TeamState", "1.0.0", "RoundRobinGroupChatManager"}
    await store.session("case", blueprint(factory, redact)).run("again")


async def test_arguments_that_an_agent_makes_itself_are_redacted_before_the_tool_gets_them(store):
    from autogen_core.tools import FunctionTool, StaticWorkbench

    given = []

    async def look(order: str) -> str:
        given.append(order)
        return "fine"

    class Caller(Talker):
        def __init__(self):
            super().__init__()
            self.workbench = StaticWorkbench([FunctionTool(look, description="look")])

        async def on_messages(self, messages, cancellation_token):
            await self.workbench.call_tool("look", {"order": card(1)})
            return await super().on_messages(messages, cancellation_token)

    case = store.session("case", blueprint(Caller, effects={"look": "read"}))
    await case.run("hello")
    assert given == [HIDDEN]
    assert (await case.replay(1)).same
    assert card(0)[:4] not in await everything(store, "case")
