"""Agents and teams of every kind whose calls are counted outside of them, for workers that are killed in a turn.

Each of them, told of errands, looks something up (``look``, which is ``read``), notes it (``note``, ``idempotent``) and
pays for it (``pay``, ``unsafe``). All answers are a function of what was asked, so that a lost or repeated message
changes all that follows.
"""

import asyncio
import hashlib
import json
import os
import random
import sys
from pathlib import Path

from accounts import CODE, approval
from autogen_agentchat.agents import (
    ApprovalResponse,
    AssistantAgent,
    CodeExecutorAgent,
    SocietyOfMindAgent,
    UserProxyAgent,
)
from autogen_agentchat.conditions import TextMessageTermination
from autogen_agentchat.teams import (
    DiGraphBuilder,
    GraphFlow,
    MagenticOneGroupChat,
    RoundRobinGroupChat,
    SelectorGroupChat,
    Swarm,
)
from autogen_agentchat.tools import AgentTool, TeamTool
from autogen_core.code_executor import CodeExecutor, CodeResult
from autogen_core.memory import Memory, MemoryContent, MemoryQueryResult, UpdateContextResult
from autogen_core.model_context import BufferedChatCompletionContext
from autogen_core.models import AssistantMessage, FunctionExecutionResultMessage, RequestUsage, UserMessage
from autogen_core.tools import FunctionTool, TextResultContent, ToolResult, Workbench
from pydantic import BaseModel

import midturn

sys.path.append(str(Path(__file__).parents[1] / "autogen"))

from scripted import Scripted, calls

real_write = os.write
"""Without the faults of the stores' files."""
EFFECTS = {"look": "read", "note": "idempotent", "pay": "unsafe"}
ERRANDS = "errands"
"""The word that has everybody do what there is to do."""


class World:
    """The world outside of the worker: a ledger of all that was really done."""

    def __init__(self, spec, faults):
        self._ledger = spec["ledger"]
        self._delay = spec.get("delay", 0.0)
        self.pass_by = faults.pass_by

    async def take_time(self):
        """Let what runs beside it have its time."""
        await asyncio.sleep(random.random() * self._delay)

    def write(self, what, id_, **more):
        """Write down that something was done."""
        line = json.dumps({"what": what, "id": id_, "pid": os.getpid(), **more})
        file = os.open(self._ledger, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        real_write(file, f"{line}\n".encode())
        os.close(file)

    async def act(self, name, what, *, point=None):
        """Have an effect; its result."""
        point = point or name
        self.pass_by(f"{point}.before")
        await self.take_time()
        result = f"{name} {what}: all right"
        self.write("tool", f"{name} {what}", effect=EFFECTS[point], key=midturn.call_key(), result=result)
        self.pass_by(f"{point}.after")
        await self.take_time()
        return result


def digest(name, messages):
    """A number that differs when whoever is asked, or what is shown, differs."""
    shown = "\n".join([name, *(message.model_dump_json() for message in messages)])
    return int.from_bytes(hashlib.blake2b(shown.encode(), digest_size=4).digest(), "big")


class Model(Scripted):
    """A model whose answers are known by the tokens that they are said to have cost."""

    def __init__(self, world, name, answer, *, slow=0.0, shown=list):
        super().__init__(answer)
        self._world, self._name, self._slow, self._shown = world, name, slow, shown

    async def create(self, messages, **options):
        self._world.pass_by("model.before")
        return await self._finish(messages, options)

    async def create_stream(self, messages, **options):
        self._world.pass_by("model.before")
        if not isinstance(self._answer(self._shown(messages)), str):
            yield await self._finish(messages, options)
            return
        yield "Well: "  # more than the answer has: what is streamed is kept too
        result = await self._finish(messages, options)
        for word in result.content.split():
            yield word
        yield result

    async def _finish(self, messages, options):
        await asyncio.sleep(self._slow)
        await self._world.take_time()
        messages = self._shown(messages)
        id_ = digest(self._name, messages)
        result = await super().create(messages, **options)
        self._world.write("model", id_)
        self._world.pass_by("model.after")
        return result.model_copy(update={"usage": RequestUsage(prompt_tokens=id_, completion_tokens=1)})


def remembered(name):
    """The answer of somebody who has nothing to do."""
    return lambda messages: f"{name} knows {len(messages)} messages, {digest(name, messages):x}"


def errands(name, *rounds, then=None):
    """Answers that call tools, those of each round at once, and in the end say something."""
    then = then or remembered(name)

    def answer(messages):
        done, asked = 0, len(messages)
        while isinstance(messages[asked - 1], FunctionExecutionResultMessage | AssistantMessage):
            asked -= 1
            done += isinstance(messages[asked], FunctionExecutionResultMessage)
        if done >= len(rounds) or not told_of(messages):
            return then(messages)
        what = f"for {name} {digest(name, messages):x}"
        arguments = json.dumps({"what": what, "task": f"{ERRANDS} {what}"})
        return calls(*((tool, arguments) for tool in rounds[done]))

    return answer


def told_of(messages):
    return any(isinstance(message, UserMessage) and ERRANDS in str(message.content) for message in messages)


def functions(world):
    """The three tools."""

    @midturn.tool(effect="read")
    async def look(what: str) -> str:
        """Look something up."""
        return await world.act("look", what)

    @midturn.tool(effect="idempotent")
    async def note(what: str) -> str:
        """Note something."""
        return await world.act("note", what)

    async def pay(what: str) -> str:
        """Pay for something; nobody says what that does to the world."""
        return await world.act("pay", what)

    return [look, note, pay]


STEPS = (("look",), ("note", "pay"))


def clerk(world, name="ann", *rounds, then=None, slow=0.0, shown=list, **options):
    """Somebody who does errands."""
    rounds = rounds or STEPS
    options = {"max_tool_iterations": len(rounds) + 1} | options
    if "workbench" not in options:
        options = {"tools": functions(world)} | options
    model = Model(world, name, errands(name, *rounds, then=then), slow=slow, shown=shown)
    return AssistantAgent(name, model, description=f"{name} does errands", **options)


def talker(world, name="bob", *, shown=list):
    """Somebody who only talks."""
    return AssistantAgent(name, Model(world, name, remembered(name), shown=shown), description=f"{name} talks")


def pair(world, **options):
    return RoundRobinGroupChat([clerk(world), talker(world)], **{"max_turns": 2} | options)


# --- agents


def iterations(world):
    return clerk(world, "ann", ("look",), ("note",), ("pay",))


def parallel(world):
    return clerk(world, "ann", ("look", "note", "pay"))


def streaming(world):
    return clerk(world, "ann", ("pay", "note"), ("look",), model_client_stream=True)


def reflection(world):
    return clerk(world, "ann", ("look", "note", "pay"), max_tool_iterations=1, reflect_on_tool_use=True)


class Report(BaseModel):
    text: str
    sure: bool


def structured(world):
    def report(messages):
        return json.dumps({"text": remembered("ann")(messages), "sure": True})

    options = {"reflect_on_tool_use": True, "max_tool_iterations": 1, "output_content_type": Report}
    return clerk(world, "ann", ("note", "look", "pay"), then=report, **options)


def agent_tool(world):
    helper = AgentTool(clerk(world, "helper"))
    return clerk(world, "lead", ("helper",), tools=[helper])


def team_tool(world):
    return clerk(world, "lead", ("group",), tools=[TeamTool(pair(world), "group", "A group.")])


class Remote(Workbench):
    """A workbench as of an MCP server: it has its tools elsewhere, and nothing of its own to keep."""

    def __init__(self, world):
        self._tools = {each.__name__: FunctionTool(each, each.__doc__) for each in functions(world)}

    async def list_tools(self):
        return [tool.schema for tool in self._tools.values()]

    async def call_tool(self, name, arguments=None, cancellation_token=None, call_id=None):
        result = await self._tools[name].run_json({"what": arguments["what"]}, cancellation_token)
        return ToolResult(name=name, result=[TextResultContent(content=result)])

    async def start(self):
        pass

    async def stop(self):
        pass

    async def reset(self):
        pass

    async def save_state(self):
        return {}

    async def load_state(self, state):
        pass


def workbench(world):
    return clerk(world, workbench=[Remote(world)])


class Archive(Memory):
    """A memory that is elsewhere."""

    def __init__(self, world):
        self._world = world

    async def update_context(self, model_context):
        messages = await model_context.get_messages()
        id_ = digest("archive", messages)
        text = f"on file since {id_:x}"
        self._world.write("memory", text)
        await model_context.add_message(UserMessage(content=text, source="archive"))
        return UpdateContextResult(
            memories=MemoryQueryResult(results=[MemoryContent(content=text, mime_type="text/plain")])
        )

    async def query(self, query, cancellation_token=None, **options):
        raise NotImplementedError

    async def add(self, content, cancellation_token=None):
        raise NotImplementedError

    async def clear(self):
        raise NotImplementedError

    async def close(self):
        pass

    async def save_state(self):
        return {}

    async def load_state(self, state):
        pass


def memory(world):
    return clerk(world, memory=[Archive(world)])


# --- teams


def round_robin(world):
    return pair(world)


def selector(world):
    def choose(messages):
        return ["ann", "bob"][digest("chooser", messages) % 2]

    agents = [clerk(world, "ann"), clerk(world, "bob", ("look", "pay"), ("note",))]
    return SelectorGroupChat(agents, Model(world, "chooser", choose), max_turns=2, allow_repeated_speaker=True)


def swarm(world):
    def member(name, other):
        """Does the errands and hands over; whoever was handed something says the last word."""

        def then(messages):
            last = [message.content for message in messages if isinstance(message, UserMessage)][-1]
            return remembered(name)(messages) if last.startswith("Transferred") else hand_over(messages)

        def hand_over(messages):
            return calls((f"transfer_to_{other}", json.dumps({"what": f"{digest(name, messages):x}"})))

        def answer(messages):
            last = [message.content for message in messages if isinstance(message, UserMessage)][-1]
            return then(messages) if last.startswith("Transferred") else working(messages)

        working = errands(name, *STEPS, then=then)
        model = Model(world, name, answer)
        return AssistantAgent(name, model, tools=functions(world), handoffs=[other], max_tool_iterations=4)

    both = [member("ann", "bob"), member("bob", "ann")]
    return Swarm(both, termination_condition=TextMessageTermination("ann") | TextMessageTermination("bob"))


def magentic(world):
    def lead(messages):
        shown = str(messages[-1].content)
        if "next_speaker" not in shown:
            return f"planned or answered: {remembered('lead')(messages)}"
        spoken = {message.source for message in messages if isinstance(message, UserMessage)} & {"ann", "bob"}
        entries = {
            "is_request_satisfied": len(spoken) == 2,
            "is_in_loop": False,
            "is_progress_being_made": True,
            "next_speaker": "bob" if spoken else "ann",
            "instruction_or_question": f"{ERRANDS if ERRANDS in shown else 'nothing'} {digest('lead', messages):x}",
        }
        return json.dumps({name: {"answer": answer, "reason": "so it is"} for name, answer in entries.items()})

    return MagenticOneGroupChat([clerk(world), talker(world)], Model(world, "lead", lead), max_turns=4)


def sorted_by_content(messages):
    """Return what the agents after two parallel ones see: the same, whoever was quicker."""
    return sorted(messages, key=lambda message: message.model_dump_json())


def graph(world):
    """The left branch is slower in the end, so that it is not the order of the branches that decides."""
    first, last = talker(world, "first"), talker(world, "last", shown=sorted_by_content)
    left = clerk(world, "left", slow=0.01)
    right = clerk(world, "right", ("pay", "note", "look"))
    builder = DiGraphBuilder()
    for node in (first, left, right, last):
        builder.add_node(node)
    builder.add_edge(first, left).add_edge(first, right).add_edge(left, last).add_edge(right, last)
    return GraphFlow(builder.get_participants(), builder.build())


def nested(world):
    inner = pair(world, name="inner")
    return RoundRobinGroupChat([talker(world, "lead"), inner], max_turns=2, name="outer")


def society(world):
    return SocietyOfMindAgent("society", pair(world, name="inner"), Model(world, "society", remembered("society")))


class Machine(CodeExecutor):
    """Executes code somewhere."""

    def __init__(self, world):
        self._world = world

    async def execute_code_blocks(self, code_blocks, cancellation_token):
        output = await self._world.act(CODE, "".join(block.code for block in code_blocks), point="pay")
        return CodeResult(exit_code=0, output=output)

    async def start(self):
        pass

    async def stop(self):
        pass

    async def restart(self):
        pass


def code(world):
    def program(messages):
        executed = messages[-1].source == "coder"
        return remembered("coder")(messages) if executed else f"```python\n{digest('coder', messages):x}\n```"

    def approve(request):
        world.write("human", approval(request.code))
        return ApprovalResponse(approved=True, reason="harmless")

    coder = CodeExecutorAgent(
        "coder", Machine(world), model_client=Model(world, "coder", program), approval_func=approve
    )
    return RoundRobinGroupChat([clerk(world, "ann", ("look",), ("note",)), coder], max_turns=2)


def human(world):
    """A human is asked before something is paid for, and has the last word."""
    return RoundRobinGroupChat([clerk(world), UserProxyAgent("user", input_func=midturn.human)], max_turns=2)


def solo(world):
    """Does as many errands as the task names, and remembers only the last few."""
    window = BufferedChatCompletionContext(buffer_size=10)
    return clerk(world, "ann", ("look", "note", "pay"), model_context=window)


def desk(world):
    """A team of such a one and somebody who talks."""
    window = BufferedChatCompletionContext(buffer_size=10)
    bob = AssistantAgent("bob", Model(world, "bob", remembered("bob")), model_context=window)
    return RoundRobinGroupChat([solo(world), bob], max_turns=2)


APPROVED = midturn.tool(effect="unsafe", approval=True)

CAST = {
    build.__name__: (build, effects)
    for build, effects in (
        (iterations, {}),
        (parallel, {}),
        (streaming, {}),
        (reflection, {}),
        (structured, {}),
        (agent_tool, {}),
        (team_tool, {}),
        (workbench, EFFECTS),
        (memory, {}),
        (round_robin, {}),
        (selector, {}),
        (swarm, {}),
        (magentic, {}),
        (graph, {}),
        (nested, {}),
        (society, {}),
        (code, {}),
        (human, {"pay": APPROVED}),
    )
}
"""The function that builds each kind, and the effects that its blueprint declares."""
DURABLE = CAST | {"solo": (solo, {}), "desk": (desk, {})}


def blueprint(spec, faults):
    """Return what a session with one of these kinds runs."""
    build, effects = DURABLE[spec["agent"]]
    world = World(spec, faults)
    return midturn.Blueprint(spec["agent"], lambda: build(world), effects=effects)
