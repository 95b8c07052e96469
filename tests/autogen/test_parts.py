"""Parts are found wherever they are held, and what has no place in a fresh instance blocks no session."""

from functools import partial

import pytest
from autogen_agentchat.conditions import MaxMessageTermination
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core.memory import ListMemory, MemoryContent, MemoryMimeType
from autogen_core.model_context import UnboundedChatCompletionContext
from autogen_core.models import UserMessage
from autogen_ext.memory.canvas import TextCanvasMemory
from gap_parts import Cart
from gaps import RESTART, Custom, in_team, kept, last, on_request, reloaded, uninterrupted
from kinds import assistant
from scripted import Scripted, remembered

import midturn
from midturn.autogen.adapter import AutoGen
from midturn.autogen.parts.walk import walk


def with_canvas():
    memory = TextCanvasMemory()

    async def write(what: str) -> str:
        """Write a file."""
        memory.canvas.add_or_update_file("notes.md", what)
        return "written"

    return assistant(answer=on_request("write"), tools=[write], memory=[memory], reflect_on_tool_use=True)


STEPS = ["write email", "write email and SMS", RESTART, "What do the notes say?", RESTART, "write no SMS", "And now?"]


async def test_plain_autogen_loses_the_files_of_a_canvas():
    assert await reloaded(with_canvas, *STEPS) != await uninterrupted(with_canvas, *STEPS)


@pytest.mark.parametrize("build", [with_canvas, in_team(with_canvas)])
async def test_midturn_keeps_the_files_of_a_canvas_with_all_their_revisions(build):
    assert await kept(build, *STEPS) == await uninterrupted(build, *STEPS)
    async with midturn.open("memory://") as store:
        case = store.session("case", with_canvas)
        for task in ("write email", "write SMS"):
            await case.run(task)
        [files] = [value for path, value in (await case.at(2).beside()).items() if path.endswith("canvas")]
    assert files == {"notes.md": ["email", "SMS"]}


def around_a_cart():
    cart = Cart()

    async def add(what: str) -> str:
        """Put something into the cart."""
        return await cart.add(what)

    return assistant(answer=on_request("add"), tools=[add])


def around_an_expert():
    expert = assistant("expert")

    async def ask(what: str) -> str:
        """Ask the expert."""
        return (await expert.run(task=what)).messages[-1].content

    return assistant(answer=on_request("ask"), tools=[ask])


async def put(cart, what: str) -> str:
    """Put something into a cart."""
    return await cart.add(what)


class Clerk(Custom):
    """Works with a function that was given its cart."""

    def __init__(self):
        super().__init__("clerk")
        self._put = partial(put, Cart())

    async def reply(self, texts):
        return await self._put(texts[-1])


IN_FUNCTIONS = {"cart": (around_a_cart, "add"), "expert": (around_an_expert, "ask"), "clerk": (Clerk, "put")}


@pytest.mark.parametrize(("build", "name"), IN_FUNCTIONS.values(), ids=IN_FUNCTIONS)
async def test_what_a_function_was_made_around_is_kept(build, name):
    steps = [f"{name} tea", f"{name} cups", RESTART, f"{name} milk"]
    assert await reloaded(build, *steps) != await uninterrupted(build, *steps)
    assert await kept(build, *steps) == await uninterrupted(build, *steps)


class Surfer(Custom):
    """Has what it said and heard in a list, as the agents of the extensions have."""

    def __init__(self):
        Custom.__init__(self, "surfer")
        self._chat_history = []

    async def reply(self, texts):
        self._chat_history += [UserMessage(content=text, source="user") for text in texts]
        return remembered(self._chat_history)


class FileSurfer(Surfer):
    """The same, of the extensions; the real ones need packages that are not here."""

    __module__ = "autogen_ext.agents.file_surfer"
    __init__ = Surfer.__init__


async def test_what_an_agent_of_the_extensions_has_heard_is_kept():
    steps = ["Email.", RESTART, "SMS.", "Both."]
    assert await reloaded(FileSurfer, *steps) != await uninterrupted(FileSurfer, *steps)
    assert await kept(FileSurfer, *steps) == await uninterrupted(FileSurfer, *steps)


async def test_a_list_of_the_same_name_in_ones_own_agent_is_ones_own():
    with pytest.warns(midturn.NotKept, match="_chat_history"):
        await kept(Surfer, "Email.")


class OnDemand(Custom):
    """Makes a context for each customer when it first hears of one."""

    def __init__(self):
        super().__init__("on_demand")
        self.contexts = {}

    async def reply(self, texts):
        context = self.contexts.setdefault(texts[-1].partition(" ")[0], UnboundedChatCompletionContext())
        await context.add_message(UserMessage(content=texts[-1], source="user"))
        return str(len(await context.get_messages()))


async def test_a_part_that_came_into_being_in_a_turn_is_told_of_and_blocks_nothing():
    async with midturn.open("memory://") as store:
        case = store.session("case", OnDemand)
        with pytest.warns(midturn.NotKept, match="OnDemand.*contexts"):
            await case.run("ann hello")
        await case.run("bob hello")
        assert (await case.run("ann again")).messages[-1].content == "2"
        assert await case.at(3).beside() == {}
        assert (await store.session("case", OnDemand).run("ann again")).messages[-1].content == "1"


class Recalling(OnDemand):
    """Makes its contexts again when it is loaded."""

    async def save_state(self):
        return {name: await context.save_state() for name, context in self.contexts.items()}

    async def load_state(self, state):
        for name, saved in state.items():
            self.contexts[name] = UnboundedChatCompletionContext()
            await self.contexts[name].load_state(saved)


async def test_a_part_that_its_parent_makes_again_is_kept_by_its_parent():
    steps = ["ann hello", RESTART, "bob hello", "ann again", RESTART, "ann once more"]
    assert await kept(Recalling, *steps) == await uninterrupted(Recalling, *steps)
    assert last(await kept(Recalling, *steps)) == "3"


class Hoarder(Custom):
    def __init__(self, held):
        super().__init__("hoarder")
        self.held = held


PLACES = {
    "an attribute": (lambda part: part, "held"),
    "a list": (lambda part: [1, part], "held/notes"),
    "a tuple": (lambda part: (part,), "held/notes"),
    "a dict": (lambda part: {"a/b": part}, "held/a%2Fb"),
    "lists in a dict": (lambda part: {"a": [part]}, "held/a/notes"),
}


@pytest.mark.parametrize(("place", "path"), PLACES.values(), ids=PLACES)
def test_a_part_is_found_by_its_name(place, path):
    memory = ListMemory("notes")
    assert [part.path for part in walk(Hoarder(place(memory))) if part.live is memory] == [path]


def test_parts_of_one_class_without_names_are_told_apart():
    held = [MaxMessageTermination(2), UnboundedChatCompletionContext(), MaxMessageTermination(3)]
    assert [part.path for part in walk(Hoarder(held))] == [
        "",
        "held/MaxMessageTermination",
        "held/UnboundedChatCompletionContext",
        "held/MaxMessageTermination#2",
    ]


async def test_what_is_kept_has_readable_paths():
    memory = ListMemory("notes", [MemoryContent(content="email", mime_type=MemoryMimeType.TEXT)])
    team = RoundRobinGroupChat([assistant("ann", memory=[memory]), assistant("bob")], max_turns=1)
    assert set((await AutoGen().capture(team))["beside"]) == {"participants/ann/memory/notes", "manager"}


def test_what_a_holder_holds_twice_or_holds_it_is_found_once():
    hoarder = Hoarder(None)
    memory = ListMemory("notes")
    hoarder.held = [memory, memory, hoarder]
    assert [part.live for part in walk(hoarder)] == [hoarder, memory]


def test_a_model_is_no_part():
    assert len(walk(Hoarder([Scripted()]))) == 1


async def test_a_memory_that_was_changed_in_place_is_kept_as_it_is_now():
    memory = ListMemory(
        "notes", [MemoryContent(content={"channel": "email"}, mime_type="x/y", metadata={"by": ["ann"]})]
    )
    async with midturn.open("memory://") as store:
        agent = assistant(memory=[memory])
        await store.save("case", agent)
        memory.content[0].content["channel"] = "SMS"
        memory.content[0].metadata["by"].append("bob")
        await store.save("case", agent)
        fresh = ListMemory("notes")
        await store.load("case", assistant(memory=[fresh]))
    assert fresh.content == memory.content


async def test_a_part_that_never_held_anything_may_go():
    async with midturn.open("memory://") as store:
        await store.session("case", lambda: assistant(memory=[ListMemory("notes")])).run("Email.")
        assert (await store.session("case", assistant).run("SMS.")).turn == 2


async def test_a_part_that_came_with_a_new_version_is_as_it_was_built():
    async with midturn.open("memory://") as store:
        await store.session("case", assistant).run("Email.")
        memory = ListMemory("notes", [MemoryContent(content="policy", mime_type=MemoryMimeType.TEXT)])
        await store.session("case", lambda: assistant(memory=[memory])).run("SMS.")
    assert [content.content for content in memory.content] == ["policy"]


@pytest.mark.parametrize("build", [UnboundedChatCompletionContext, Cart])
async def test_what_cannot_run_is_saved_by_hand_and_not_run(build):
    async with midturn.open("memory://") as store:
        with pytest.raises(midturn.InvalidArgument, match=r"(?s)cannot run turns.*store\.save"):
            await store.session("case", build).run("Hello.")
        assert [turn async for turn in store.session("case").history()] == []
        assert await store.save("case", build()) == 1


async def test_a_workbench_is_saved_by_itself():
    from autogen_core.tools import StaticWorkbench

    async with midturn.open("memory://") as store:
        await store.save("case", StaticWorkbench([]))
        assert (await store.session("case").at(1).state())["tools"] == {}
        await store.load("case", StaticWorkbench([]))


async def complete_state(store, build):
    await store.session("case", build).run("Email.")
    saved = store.session("case").at(1)
    beside = await saved.beside()
    return {"state": await saved.state(), "beside": beside, "kept": len(beside)}


def noting_team():
    return RoundRobinGroupChat([assistant("ann", memory=[ListMemory("notes", [])]), assistant("bob")], max_turns=1)


async def test_a_part_that_got_lost_from_a_state_is_missed():
    async with midturn.open("memory://") as store:
        tree = await complete_state(store, noting_team)
        del tree["beside"]["participants/ann/memory/notes"]
        await store.session("other").save(tree)
        with pytest.raises(midturn.StateInvalid, match=r"\$\.beside: has 1 parts"):
            await store.session("other", noting_team).run("SMS.")


async def test_an_imported_position_that_nobody_has_is_refused():
    async with midturn.open("memory://") as store:
        state = (await complete_state(store, noting_team))["state"]
        state["agent_states"]["RoundRobinGroupChatManager"]["next_speaker_index"] = 2
        await store.session("other").save({"state": state}, origin="import")
        with pytest.raises(midturn.StateInvalid, match=r"next_speaker_index: there are 2 participants"):
            await store.session("other", noting_team).run("SMS.")
