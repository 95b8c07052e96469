"""Memories and stateful tools: AutoGen's save_state() drops them, midturn keeps them."""

import pytest
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_agentchat.tools import AgentTool, TeamTool
from autogen_core.memory import ListMemory
from autogen_core.tools import FunctionTool, StaticWorkbench
from gap_parts import (
    Cart,
    JsonCart,
    KeptSketchbook,
    MethodsCart,
    Shop,
    Sketchbook,
    TypedCart,
    Untold,
    UntoldCart,
    content,
    noting,
    with_tools,
)
from gaps import (
    RESTART,
    alone_and_in_a_team,
    handles,
    in_team,
    kept,
    last,
    on_request,
    reloaded,
    saved,
    types,
    uninterrupted,
)
from kinds import assistant

import midturn


def prepared():
    return noting(notes=ListMemory(memory_contents=[content("the customer prefers email")]))


def with_two_memories():
    found = noting()
    return assistant(answer=on_request("noting"), tools=[AgentTool(found)], memory=[ListMemory(), handles[found]])


def sketching():
    return noting(notes=KeptSketchbook())


MEMORIES = alone_and_in_a_team(
    {build.__name__: build for build in (noting, prepared, with_two_memories, sketching)},
)
NOTES = ["note the order is late", "And now?", RESTART, "What do you know?", "note it was sent", RESTART, "And now?"]
NOTES_OF_ANOTHER = [step if step is RESTART else f"noting {step}" for step in NOTES]


def notes_for(build):
    return NOTES_OF_ANOTHER if "two_memories" in build else NOTES


@pytest.mark.parametrize("build", MEMORIES)
async def test_plain_autogen_loses_what_was_added_to_a_memory_in_a_turn(build):
    steps = notes_for(build)
    live, restarted = await uninterrupted(MEMORIES[build], *steps), await reloaded(MEMORIES[build], *steps)
    assert restarted[:2] == live[:2]
    assert restarted[2] != live[2]
    assert restarted[4] != live[4]


@pytest.mark.parametrize("build", MEMORIES)
async def test_midturn_keeps_what_was_added_to_a_memory_in_a_turn(build):
    steps = notes_for(build)
    assert await kept(MEMORIES[build], *steps) == await uninterrupted(MEMORIES[build], *steps)


async def test_plain_autogen_loses_the_memory_so_that_the_model_is_not_shown_it():
    assert "MemoryQueryEvent" in types(await uninterrupted(noting, *NOTES[:4]))
    assert "MemoryQueryEvent" not in types(await reloaded(noting, *NOTES[:4]))


FORGETTING = ["What do you know?", "forget all", RESTART, "What do you know?"]


async def test_plain_autogen_loses_that_a_prepared_memory_was_cleared():
    assert "MemoryQueryEvent" not in types(await uninterrupted(prepared, *FORGETTING))
    assert "MemoryQueryEvent" in types(await reloaded(prepared, *FORGETTING))


async def test_midturn_keeps_that_a_prepared_memory_was_cleared():
    assert await kept(prepared, *FORGETTING) == await uninterrupted(prepared, *FORGETTING)


async def add_by_hand(notes):
    await notes.add(content("the parcel weighs 2 kg"))


BETWEEN = ["Hello.", add_by_hand, "And now?", RESTART, "What do you know?"]
AFTER = ["Hello.", add_by_hand, RESTART, "What do you know?"]


@pytest.mark.parametrize("steps", [BETWEEN, AFTER], ids=["between", "after"])
@pytest.mark.parametrize("build", [noting, prepared, in_team(noting)], ids=["empty", "prepared", "in_a_team"])
async def test_plain_autogen_loses_what_was_added_to_a_memory_by_hand(build, steps):
    assert (await reloaded(build, *steps))[-1] != (await uninterrupted(build, *steps))[-1]


@pytest.mark.parametrize("build", [noting, prepared, in_team(noting)], ids=["empty", "prepared", "in_a_team"])
async def test_midturn_keeps_what_was_added_to_a_memory_between_two_turns(build):
    assert await kept(build, *BETWEEN) == await uninterrupted(build, *BETWEEN)


@pytest.mark.parametrize("steps", [BETWEEN, AFTER], ids=["between", "after"])
@pytest.mark.parametrize("build", [noting, prepared, in_team(noting)], ids=["empty", "prepared", "in_a_team"])
async def test_midturn_keeps_what_was_added_to_a_memory_by_hand_and_saved_by_hand(build, steps):
    assert await saved(build, *steps) == await uninterrupted(build, *steps)


def sharing():
    notes = ListMemory()
    return RoundRobinGroupChat([noting("ann", notes), noting("bob", notes)], max_turns=1)


def sharing_with_a_helper():
    """The assistant and the agent behind one of its tools have the same memory."""
    notes = ListMemory()
    helper = noting("helper", notes)
    return assistant(answer=on_request("helper"), tools=[AgentTool(helper)], memory=[notes])


SHARED = {
    "in_a_team": (sharing, ["note a", RESTART, "note b", RESTART, "Hello.", "note c", RESTART, "And now?", "And you?"]),
    "with_a_helper": (
        sharing_with_a_helper,
        ["helper note a", RESTART, "And now?", "helper note b", RESTART, "And now?", "helper tell me"],
    ),
}


@pytest.mark.parametrize("case", SHARED)
async def test_plain_autogen_loses_a_memory_that_two_agents_share(case):
    build, steps = SHARED[case]
    assert (await reloaded(build, *steps))[1:] != (await uninterrupted(build, *steps))[1:]


@pytest.mark.parametrize("case", SHARED)
async def test_midturn_keeps_a_memory_that_two_agents_share_and_that_they_share_it(case):
    build, steps = SHARED[case]
    assert await kept(build, *steps) == await uninterrupted(build, *steps)


def two_methods_of_one_cart():
    cart = Cart()
    return with_tools(tools=[cart.add, cart.drop])


def helped(*tools):
    return AgentTool(with_tools("helper", tools=list(tools)))


def grouped(*members):
    return TeamTool(RoundRobinGroupChat(list(members), max_turns=len(members)), "group", "A group.")


def shared_tool():
    tool = TypedCart()
    return RoundRobinGroupChat([with_tools("ann", tools=[tool]), with_tools("bob", tools=[tool])], max_turns=1)


def nested_team():
    return RoundRobinGroupChat([in_team(lambda: with_tools(tools=[JsonCart()]))()], max_turns=1, name="outer")


TOOLS = alone_and_in_a_team(
    {
        "typed_state": lambda: with_tools(tools=[TypedCart()]),
        "json_state": lambda: with_tools(tools=[JsonCart()]),
        "two_methods": lambda: with_tools(tools=[MethodsCart()]),
        "bound_method": lambda: with_tools(tools=[Cart().add]),
        "two_bound_methods": two_methods_of_one_cart,
        "function_tool_of_a_bound_method": lambda: with_tools(tools=[FunctionTool(Cart().add, "Add to the cart.")]),
        "static_workbench": lambda: with_tools(workbench=StaticWorkbench([JsonCart()])),
        "own_workbench": lambda: with_tools(workbench=Shop()),
        "two_workbenches": lambda: with_tools(workbench=[Shop("other"), Shop()]),
    }
) | {"shared_by_two_agents": shared_tool, "in_a_nested_team": nested_team}
ADDING = ["add apples", "add pears", RESTART, "add plums", "Hello.", RESTART, "add nuts"]


@pytest.mark.parametrize("build", TOOLS)
async def test_plain_autogen_loses_the_state_of_a_tool(build):
    live, restarted = await uninterrupted(TOOLS[build], *ADDING), await reloaded(TOOLS[build], *ADDING)
    assert restarted[:2] == live[:2]
    assert restarted[2] != live[2]


@pytest.mark.parametrize("build", TOOLS)
async def test_midturn_keeps_the_state_of_a_tool(build):
    assert await kept(TOOLS[build], *ADDING) == await uninterrupted(TOOLS[build], *ADDING)


async def test_plain_autogen_loses_what_is_in_the_cart():
    assert last(await uninterrupted(TOOLS["typed_state"], *ADDING[:4])).startswith("3 in the cart")
    assert last(await reloaded(TOOLS["typed_state"], *ADDING[:4])).startswith("1 in the cart")


TAKING = ["add apples", "add pears", RESTART, "drop apples", RESTART, "add nuts"]


async def test_plain_autogen_loses_what_two_methods_of_one_object_work_on():
    assert "not in list" in last(await reloaded(two_methods_of_one_cart, *TAKING[:4]))


async def test_midturn_keeps_two_methods_of_one_object_on_the_same_object():
    said = await kept(two_methods_of_one_cart, *TAKING)
    assert said == await uninterrupted(two_methods_of_one_cart, *TAKING)
    assert last(said) == "2 in the cart: ['pears', 'nuts']"


RUNNERS = alone_and_in_a_team(
    {
        "agent": lambda: with_tools(tools=[AgentTool(assistant("helper"))]),
        "agent_with_a_tool": lambda: with_tools(tools=[helped(JsonCart())]),
        "agent_with_a_bound_method": lambda: with_tools(tools=[helped(Cart().add)]),
        "agent_with_a_memory": lambda: with_tools(tools=[AgentTool(noting("helper"))]),
        "agent_in_an_agent": lambda: with_tools(tools=[helped(helped(TypedCart()))]),
        "team": lambda: with_tools(tools=[grouped(assistant("ann"), assistant("bob"))]),
        "team_with_a_tool": lambda: with_tools(tools=[grouped(with_tools("ann", tools=[JsonCart()]))]),
        "team_with_a_memory": lambda: with_tools(tools=[grouped(noting("ann"), assistant("bob"))]),
    }
)


def asking(build):
    who = "group" if build.startswith("team") else "helper"
    who = "helper helper" if "in_an_agent" in build else who
    what = "note" if "memory" in build else "add"
    return [step if step is RESTART else f"{who} {what} {step}" for step in ["a", "b", RESTART, "c", RESTART, "d"]]


@pytest.mark.parametrize("build", RUNNERS)
async def test_plain_autogen_loses_what_is_inside_a_tool_that_runs_an_agent_or_a_team(build):
    steps = asking(build)
    live, restarted = await uninterrupted(RUNNERS[build], *steps), await reloaded(RUNNERS[build], *steps)
    assert restarted[:2] == live[:2]
    assert restarted[2] != live[2]


@pytest.mark.parametrize("build", RUNNERS)
async def test_midturn_keeps_what_is_inside_a_tool_that_runs_an_agent_or_a_team(build):
    steps = asking(build)
    assert await kept(RUNNERS[build], *steps) == await uninterrupted(RUNNERS[build], *steps)


async def warned(build, *steps):
    with pytest.warns(midturn.NotKept) as caught:
        await kept(build, *steps)
    return [str(warning.message) for warning in caught]


async def test_midturn_warns_once_of_a_memory_that_changed_and_cannot_be_kept():
    class Diary(Sketchbook):
        pass

    [said] = await warned(lambda: noting(notes=Diary()), *NOTES)
    assert "Diary" in said
    assert "entries" in said


async def test_midturn_warns_once_of_a_tool_that_changed_and_cannot_be_kept():
    class Basket(Untold):
        pass

    [said] = await warned(lambda: with_tools(tools=[Basket()]), *ADDING)
    assert "Basket" in said
    assert "items" in said


async def test_midturn_warns_once_of_an_object_that_a_bound_method_changed_and_that_cannot_be_kept():
    class Trolley(UntoldCart):
        pass

    [said] = await warned(lambda: with_tools(tools=[Trolley().add]), *ADDING)
    assert "Trolley" in said
    assert "items" in said


async def test_midturn_does_not_warn_of_what_did_not_change():
    def build():
        return with_tools(tools=[UntoldCart().add, helped(Untold())], memory=[Sketchbook()])

    assert await kept(build, "Hello.", RESTART, "And now?") == await uninterrupted(build, "Hello.", "And now?")
