"""Objects of one's own with the two methods, wherever they sit in agents and teams."""

import warnings

import pytest
from autogen_agentchat.agents import ApprovalResponse, AssistantAgent, CodeExecutorAgent, UserProxyAgent
from autogen_agentchat.conditions import FunctionalTermination
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core.code_executor import CodeExecutor, CodeResult
from autogen_core.memory import ListMemory, Memory, MemoryQueryResult, UpdateContextResult
from autogen_core.model_context import UnboundedChatCompletionContext
from autogen_core.models import UserMessage
from gap_parts import Cart, content, noting
from gaps import RESTART, Custom, alone_and_in_a_team, kept, reloaded, uninterrupted
from kinds import assistant
from scripted import Scripted, digest, remembered

import midturn

STEPS = ["The customer prefers email.", "Also SMS.", RESTART, "And now?", "Sum it up.", RESTART, "Thank you."]


class UntoldCounter:
    """Counts how often any of its methods is called."""

    def __init__(self):
        self.count = 0

    def _next(self):
        self.count += 1
        return self.count

    async def answer(self, prompt, cancellation_token):
        return f"answer {self._next()}"

    async def approve(self, request):
        return ApprovalResponse(approved=self._next() % 2 == 0, reason=f"request {self.count}")

    def every_seventh(self, messages):
        return self._next() % 7 == 0


class Counter(UntoldCounter):
    async def save_state(self):
        return {"count": self.count}

    async def load_state(self, state):
        self.count = state["count"]


class UntoldShell(CodeExecutor):
    """Executes nothing and says how often it was asked to."""

    def __init__(self):
        self.runs = 0

    async def execute_code_blocks(self, code_blocks, cancellation_token):
        self.runs += 1
        return CodeResult(exit_code=0, output=f"run {self.runs}")

    async def start(self):
        pass

    async def stop(self):
        pass

    async def restart(self):
        self.runs = 0


class Shell(UntoldShell):
    async def save_state(self):
        return {"runs": self.runs}

    async def load_state(self, state):
        self.runs = state["runs"]


def _code(messages):
    if messages[-1].source == "coder":
        return remembered(messages)
    return f"```python\nprint('{digest(messages)}')\n```"


def coder(shell, approve=None):
    def always(request):
        return ApprovalResponse(approved=True, reason="harmless")

    return CodeExecutorAgent("coder", shell, model_client=Scripted(_code), approval_func=approve or always)


class Shopping(Custom):
    """Holds an object of its user's own."""

    def __init__(self):
        super().__init__("shopping")
        self.cart = Cart()

    async def reply(self, texts):
        return await self.cart.add(texts[-1])


class Holding(Custom):
    """Holds parts in lists and dicts."""

    def __init__(self):
        super().__init__("holding")
        self.carts = [Cart(), Cart()]
        self.known = {"notes": ListMemory(), "context": UnboundedChatCompletionContext()}
        self.helpers = (assistant("ann"), assistant("bob"))

    async def reply(self, texts):
        await self.known["notes"].add(content(texts[-1]))
        await self.known["context"].add_message(UserMessage(content=texts[-1], source="somebody"))
        answers = [await cart.add(text) for cart, text in zip(self.carts, texts, strict=False)]
        answers += [(await helper.run(task=texts[-1])).messages[-1].content for helper in self.helpers]
        notes = [note.content for note in self.known["notes"].content]
        return f"{answers} {notes} {remembered(await self.known['context'].get_messages())}"


OWN = alone_and_in_a_team(
    {
        "method_for_input": lambda: UserProxyAgent("human", input_func=Counter().answer),
        "method_for_approval": lambda: coder(Shell(), Counter().approve),
        "code_executor": lambda: coder(Shell()),
        "attribute": Shopping,
        "lists_and_dicts": Holding,
    }
) | {
    "method_for_termination": lambda: RoundRobinGroupChat(
        [assistant("ann"), assistant("bob")],
        termination_condition=FunctionalTermination(Counter().every_seventh),
        max_turns=2,
    )
}


@pytest.mark.parametrize("build", OWN)
async def test_plain_autogen_loses_the_state_of_an_object_of_ones_own(build):
    live, restarted = await uninterrupted(OWN[build], *STEPS), await reloaded(OWN[build], *STEPS)
    assert restarted[:2] == live[:2]
    assert restarted[2:] != live[2:]


@pytest.mark.parametrize("build", OWN)
async def test_midturn_keeps_the_state_of_an_object_of_ones_own(build):
    assert await kept(OWN[build], *STEPS) == await uninterrupted(OWN[build], *STEPS)


async def warned(build):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        await kept(build, *STEPS)
    assert {warning.category for warning in caught} <= {midturn.NotKept}
    return [str(warning.message) for warning in caught]


async def test_midturn_warns_of_a_code_executor_that_changed_and_cannot_be_kept():
    class Terminal(UntoldShell):
        pass

    [message] = await warned(lambda: coder(Terminal()))
    assert "Terminal" in message
    assert "runs" in message


async def test_midturn_warns_of_an_object_whose_method_is_asked_for_input_and_that_cannot_be_kept():
    class Abacus(UntoldCounter):
        pass

    [message] = await warned(lambda: UserProxyAgent("human", input_func=Abacus().answer))
    assert "Abacus" in message
    assert "count" in message


def sharing(*names):
    def build():
        notes = ListMemory()
        return RoundRobinGroupChat([noting(name, notes) for name in names], max_turns=1)

    return build


async def test_midturn_keeps_a_shared_memory_when_those_who_share_it_are_reordered():
    async with midturn.open("memory://") as store:
        await store.session("case", sharing("ann", "bob")).run(task="note the order is late")
        result = await store.session("case", sharing("bob", "ann")).run(task="What do you know?")
    assert [message.source for message in result.messages] == ["user", "bob", "bob"]
    assert [message.type for message in result.messages][1] == "MemoryQueryEvent"


class Noting(Memory):
    """A memory of a user's own that says only later what to keep of it."""

    def __init__(self):
        self.noted = 0

    async def update_context(self, model_context):
        self.noted += 1
        return UpdateContextResult(memories=MemoryQueryResult(results=[]))

    async def query(self, *_, **__):
        return MemoryQueryResult(results=[])

    async def add(self, *_, **__): ...

    async def clear(self): ...

    async def close(self): ...


async def test_a_class_that_gets_its_methods_later_is_kept_from_then_on():
    def build():
        return AssistantAgent("ann", Scripted(lambda _: "yes"), memory=[Noting()])

    async def save_state(self):
        return {"noted": self.noted}

    async def load_state(self, state):
        self.noted = state["noted"]

    async with midturn.open("memory://") as store:
        case = store.session("case", build)
        with pytest.warns(midturn.NotKept):
            await case.run(task="one")
        Noting.save_state, Noting.load_state = save_state, load_state
        await case.run(task="two")
        assert await case.at(2).beside() == {"memory/Noting": {"noted": 2}}
