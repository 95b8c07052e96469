"""Users' own classes, in all the ways in which they are written."""

import asyncio
import functools
import time

import pytest
from autogen_agentchat.agents import UserProxyAgent
from autogen_agentchat.conditions import ExternalTermination
from autogen_agentchat.teams import DiGraphBuilder, GraphFlow, RoundRobinGroupChat
from autogen_core.memory import ListMemory, MemoryContent, MemoryMimeType
from autogen_core.model_context import UnboundedChatCompletionContext
from autogen_core.models import FunctionExecutionResultMessage, UserMessage
from gap_parts import Cart
from gaps import RESTART, Custom, kept, on_request, reloaded, uninterrupted
from kinds import assistant
from scripted import Scripted, remembered

import midturn


@pytest.fixture
async def store():
    async with midturn.open("memory://") as found:
        yield found


class App:
    """An application that has the teams of all its users, and whose methods are called by them."""

    def __init__(self):
        self.teams = {}

    def ask(self, prompt):
        return "yes"

    def team(self, who):
        members = [assistant("ann"), UserProxyAgent("user", input_func=self.ask)]
        self.teams[who] = RoundRobinGroupChat(members, max_turns=2)
        return self.teams[who]


async def test_an_application_whose_method_is_called_is_not_looked_through(store):
    app = App()
    sessions = {who: store.session(who, lambda who=who: app.team(who)) for who in ("ann", "bob")}
    for task in ("one", "two"):
        await asyncio.gather(*(session.run(task) for session in sessions.values()))
    assert set(await sessions["bob"].at(2).beside()) == {"manager"}
    for who in ("ann", "bob"):
        assert (await store.session(who, lambda who=who: App().team(who)).run("three")).turn == 3


class Unsteady(Custom):
    """Saves what is never the same twice."""

    def __init__(self, **more):
        super().__init__("unsteady")
        self.tags, self.more = [], more

    async def reply(self, texts):
        self.tags += texts
        return " ".join(sorted(self.tags))

    async def save_state(self):
        return {"tags": list(reversed(self.tags)), "saved_at": time.time(), **self.more}

    async def load_state(self, state):
        self.tags = list(state["tags"])


async def test_what_is_saved_need_not_be_the_same_twice(store):
    await store.session("case", Unsteady).run("email")
    await store.session("case", Unsteady).run("SMS")
    result = await store.session("case", lambda: Unsteady(total=0)).run("post")
    assert result.messages[-1].content == "SMS email post"


class Forgetful(Unsteady):
    async def load_state(self, state):
        self.tags = []


async def test_what_is_lost_when_it_is_loaded_is_noticed(store):
    await store.session("case", Forgetful).run("email")
    with pytest.raises(midturn.StateInvalid, match=r"\$\.state\.tags: .* changes when it is loaded"):
        await store.session("case", Forgetful).run("SMS")


class Replacing(Custom):
    """Makes its context anew when it is loaded."""

    def __init__(self):
        super().__init__("replacing")
        self.context = UnboundedChatCompletionContext()

    async def reply(self, texts):
        await self.context.add_message(UserMessage(content=texts[-1], source="user"))
        return remembered(await self.context.get_messages())

    async def save_state(self):
        return {"context": await self.context.save_state()}

    async def load_state(self, state):
        self.context = UnboundedChatCompletionContext()
        await self.context.load_state(state["context"])


async def test_a_part_may_be_made_anew_when_its_holder_is_loaded():
    steps = ["email", RESTART, "SMS", RESTART, "post"]
    assert await kept(Replacing, *steps) == await uninterrupted(Replacing, *steps)


class Lazy(Replacing):
    """Has nothing to save before it has run."""

    def __init__(self):
        super().__init__()
        self.thread = None

    async def reply(self, texts):
        self.thread = self.thread or {"id": "t-1"}
        return await super().reply(texts)

    async def save_state(self):
        return {**await super().save_state(), "thread": self.thread["id"]}

    async def load_state(self, state):
        await super().load_state(state)
        self.thread = {"id": state["thread"]}


@pytest.mark.parametrize("build", [Lazy, lambda: RoundRobinGroupChat([Lazy(), assistant("ann")], max_turns=2)])
async def test_what_has_no_state_before_it_has_run_is_restored(build):
    steps = ["email", RESTART, "SMS"]
    assert await kept(build, *steps) == await uninterrupted(build, *steps)


@pytest.mark.parametrize("returned", [["email"], "email", None, 7])
async def test_a_state_that_is_no_dict_is_refused_before_it_is_stored(store, returned):
    class Wrong(Unsteady):
        async def save_state(self):
            return returned

    with pytest.raises(midturn.StateInvalid, match="not a dict"):
        await store.session("case", Wrong).run("email")
    with pytest.raises(midturn.StateInvalid, match="not a dict"):
        await store.save("case", Wrong())


class Limit:
    """A condition of an edge that holds a number of times."""

    def __init__(self):
        self.left = 3

    def __call__(self, message):
        self.left -= 1
        return self.left > 0

    async def save_state(self):
        return {"left": self.left}

    async def load_state(self, state):
        self.left = state["left"]


def graph_with_a_limit():
    ann, bob, end = assistant("ann"), assistant("bob"), assistant("end")
    builder = DiGraphBuilder().add_node(ann).add_node(bob).add_node(end).set_entry_point(ann)
    builder.add_edge(ann, bob).add_edge(bob, ann, condition=Limit()).add_edge(bob, end, condition="never said")
    return GraphFlow(builder.get_participants(), builder.build(), max_turns=1)


async def test_what_the_edge_of_a_graph_counts_is_kept():
    steps = ["email", RESTART, "SMS", RESTART, "post", RESTART, "fax", RESTART, "pigeon", RESTART, "smoke"]
    assert await kept(graph_with_a_limit, *steps) == await uninterrupted(graph_with_a_limit, *steps)
    assert await reloaded(graph_with_a_limit, *steps) != await uninterrupted(graph_with_a_limit, *steps)


def logged(function):
    @functools.wraps(function)
    async def call(what: str) -> str:
        return await function(what)

    return call


def decorated():
    return assistant(answer=on_request("add"), tools=[logged(logged(Cart().add))])


async def test_what_is_behind_a_decorator_is_kept():
    steps = ["add tea", RESTART, "add cups"]
    assert await kept(decorated, *steps) == await uninterrupted(decorated, *steps)
    assert await reloaded(decorated, *steps) != await uninterrupted(decorated, *steps)


class Failing(Scripted):
    def __init__(self):
        super().__init__(self.reply)
        self.fails = False

    def reply(self, messages):
        if self.fails:
            raise RuntimeError("out of order")
        return remembered(messages)


def note(text, **options):
    return MemoryContent(content=text, mime_type=MemoryMimeType.TEXT, **options)


async def test_what_the_owner_of_a_live_agent_changes_around_a_turn_that_fails_stays(store):
    memory, model, stop = ListMemory("notes"), Failing(), ExternalTermination()
    team = RoundRobinGroupChat([assistant("ann", memory=[memory])], termination_condition=stop, max_turns=1)
    team._participants[0]._model_client = model
    case = store.session("case", team)
    await case.run("one")
    await memory.add(note("before"))
    model.fails = True
    for _ in range(2):
        with pytest.raises(midturn.TurnFailed):
            await case.run("two")
    await memory.add(note("after"))
    stop.set()
    model.fails = False
    assert (await case.run("three")).stop_reason == "External termination requested"
    assert [content.content for content in memory.content] == ["before", "after"]


async def test_what_a_turn_that_fails_has_changed_in_place_is_undone_each_time(store):
    memory = ListMemory("notes", [note("email", metadata={"hits": 0})])

    async def count(what: str) -> str:
        """Count."""
        memory.content[0].metadata["hits"] += 1
        return "counted"

    def answer(messages):
        if isinstance(messages[-1], FunctionExecutionResultMessage):
            raise ConnectionError("out of order")
        return on_request("count")(messages)

    agent = assistant(answer=answer, tools=[count], memory=[memory], reflect_on_tool_use=True)
    case = store.session("case", agent)
    for _ in range(3):
        with pytest.raises(midturn.TurnFailed):
            await case.run("count it")
        assert memory.content[0].metadata == {"hits": 0}


class Late(Custom):
    """Says what to keep since a later version."""

    def __init__(self):
        super().__init__("late")
        self.seen = 0

    async def reply(self, texts):
        self.seen += 1
        return str(self.seen)


class LateKept(Late):
    async def save_state(self):
        return {"seen": self.seen}

    async def load_state(self, state):
        self.seen = state.get("seen", 0)


@pytest.mark.parametrize("wrap", [lambda agent: agent, lambda agent: RoundRobinGroupChat([agent], max_turns=1)])
async def test_an_agent_that_says_only_later_what_to_keep_goes_on(store, wrap):
    class Early(Late):
        pass

    with pytest.warns(midturn.NotKept):
        await store.session("case", lambda: wrap(Early())).run("one")
    for expected in ("1", "2"):
        result = await store.session("case", lambda: wrap(LateKept())).run("two")
        assert result.messages[-1].content == expected


async def test_what_has_no_state_cannot_be_saved_by_hand(store):
    with pytest.raises(midturn.InvalidArgument, match=r"async save_state\(\) and load_state\(state\), not a object"):
        await store.save("case", object())


async def test_a_factory_that_forgets_to_return_is_told(store):
    with pytest.raises(midturn.InvalidArgument, match="factory: returned None"):
        await store.session("case", lambda: None).run("one")


async def test_what_cannot_be_stored_is_told_with_its_session(store):
    class Odd(Unsteady):
        async def save_state(self):
            return {"tags": object()}

    with pytest.raises(midturn.StateInvalid) as raised:
        await store.session("case", Odd).run("one")
    assert (raised.value.session, raised.value.path) == ("case", "$.state.tags")
