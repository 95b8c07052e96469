"""Every private name of AutoGen that midturn uses is there, and it is used in one place only."""

import ast
import importlib.util
from pathlib import Path

import pytest
from autogen_agentchat import base, conditions
from autogen_agentchat.agents import (
    CodeExecutorAgent,
    MessageFilterAgent,
    MessageFilterConfig,
    SocietyOfMindAgent,
    UserProxyAgent,
)
from autogen_agentchat.teams import (
    BaseGroupChat,
    GraphFlow,
    MagenticOneGroupChat,
    RoundRobinGroupChat,
    SelectorGroupChat,
    Swarm,
)
from autogen_core import AgentId, SingleThreadedAgentRuntime
from autogen_core.tools import FunctionTool, StaticWorkbench
from autogen_ext.memory.canvas import TextCanvas
from kinds import assistant, graph_flow, nested, round_robin, selector, swarm
from scripted import Scripted

import midturn
from midturn.autogen import private
from midturn.autogen.parts.kinds import KNOWN_CONTEXTS

SOURCE = Path(private.__file__)
PACKAGE = Path(midturn.__file__).parent


def is_private(name):
    return name.startswith("_") and not name.startswith("__")


def used_attributes():
    """Return what the module reads and writes: pairs of an expression and a private name of its value."""
    return sorted(
        {
            (ast.unparse(node.value), node.attr)
            for node in ast.walk(ast.parse(SOURCE.read_text()))
            if isinstance(node, ast.Attribute) and is_private(node.attr)
        }
    )


def used_strings():
    """The private names that the module has as strings, by the names of their constants."""
    return {
        ast.unparse(node.targets[0]): node.value.value
        for node in ast.parse(SOURCE.read_text()).body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and is_private(str(node.value.value))
    }


def orchestrated():
    return MagenticOneGroupChat([assistant("ann")], Scripted())


def teams():
    """One team of every kind that AutoGen has, freshly built."""
    return [round_robin(), selector(), swarm(), graph_flow(), nested(), orchestrated()]


def contexts():
    options = {
        "BufferedChatCompletionContext": {"buffer_size": 2},
        "HeadAndTailChatCompletionContext": {"head_size": 1, "tail_size": 1},
        "TokenLimitedChatCompletionContext": {"model_client": Scripted(), "token_limit": 10},
    }
    return [cls(**options.get(cls.__name__, {})) for cls in KNOWN_CONTEXTS]


async def around():
    """The containers and the managers of the teams, after AutoGen built them."""
    containers, managers = [], []
    for team in teams():
        await team.save_state()  # builds them
        for name in [*team._participant_names, team._group_chat_manager_name]:
            kind = (
                team._group_chat_manager_topic_type
                if name == team._group_chat_manager_name
                else team._participant_topic_types[team._participant_names.index(name)]
            )
            found = await team._runtime.try_get_underlying_agent_instance(AgentId(type=kind, key=team._team_id))
            (managers if name == team._group_chat_manager_name else containers).append(found)
    return containers, managers


def lacking(objects, name):
    """Return the message about objects that lack a private name."""
    return [
        f"AutoGen's {type(thing).__name__} has no {name} any more; midturn.autogen.private uses it"
        for thing in objects
        if not hasattr(thing, name)
    ]


@pytest.fixture
async def runtime():
    runtime = SingleThreadedAgentRuntime()
    runtime.start()
    yield runtime
    await runtime.stop()


async def objects_of(expression, name, runtime):
    """The real objects that an expression in private.py stands for."""
    if (expression, name) == ("team", "_graph"):
        return [graph_flow()]
    if (expression, name) == ("team", "_model_context"):
        return [team for team in teams() if isinstance(team, SelectorGroupChat)]
    if expression in MANAGED:
        return await managers_of(*MANAGED[expression])
    if expression == "manager(team)":
        kinds = [GraphFlow] if "activation" in name else [RoundRobinGroupChat]
        return await managers_of(*kinds)
    return {
        "team": teams,
        "agent": lambda: [assistant()],
        "runtime": lambda: [runtime],
        "team._runtime": lambda: [team._runtime for team in teams()],
        "runtime._run_context": lambda: [runtime._run_context],
        "factory": lambda: [team._message_factory for team in teams()],
        "canvas": lambda: [TextCanvas()],
        "cls": lambda: [type(assistant())],
        "condition": lambda: [conditions.TimeoutTermination(1)],
        "tool": lambda: [FunctionTool(surfer, description="")],
        "workbench": lambda: [StaticWorkbench([])],
    }[expression]()


MANAGED = {
    "graph": [GraphFlow],
    "orchestrator": [MagenticOneGroupChat],
    "selector": [SelectorGroupChat],
    "swarm": [Swarm],
}
"""Names in private.py for the managers of teams."""


async def managers_of(*kinds):
    found = []
    for team in teams():
        if isinstance(team, kinds):
            await private.initialize(team)
            found.append(private.manager(team))
    return found


@pytest.mark.parametrize(("expression", "name"), used_attributes())
async def test_a_private_attribute_is_there(expression, name, runtime):
    objects = await objects_of(expression, name, runtime)
    assert objects
    assert lacking(objects, name) == []


def coder():
    return CodeExecutorAgent("coder", None, approval_func=lambda request: None)


OWNERS = {
    "APPROVAL": lambda containers, managers: [coder()],
    "APPROVAL_IS_ASYNC": lambda containers, managers: [coder()],
    "INPUT_IS_ASYNC": lambda containers, managers: [UserProxyAgent("user")],
    "TOOL_FUNCTION": lambda containers, managers: [FunctionTool(surfer, description="")],
    "AGENT_CONTEXT": lambda containers, managers: [assistant()],
    "CONTEXT_MESSAGES": lambda containers, managers: contexts(),
    "EXECUTE_TOOL_CALL": lambda containers, managers: [assistant()],
    "PROCESS_MODEL_RESULT": lambda containers, managers: [assistant()],
    "CONTAINER_BUFFER": lambda containers, managers: containers,
    "MANAGER_THREAD": lambda containers, managers: managers,
    "GRAPH_PARTICIPANTS": lambda containers, managers: [graph_flow()],
    "SOCIETY_TEAM": lambda containers, managers: [SocietyOfMindAgent("society", round_robin(), Scripted())],
    "SURFER_HISTORY": lambda containers, managers: [surfer("file_surfer"), surfer("web_surfer")],
    "TEAM_PARTICIPANTS": lambda containers, managers: teams(),
    # how they were configured
    "API_TOOLS": lambda containers, managers: [extension("openai/_openai_assistant_agent.py")],
    "CODE_EXECUTOR": lambda containers, managers: [coder()],
    "CONDITIONS": lambda containers, managers: [base.AndTerminationCondition(), base.OrTerminationCondition()],
    "CREATE_ARGS": lambda containers, managers: clients(),
    "DEPLOYMENT": lambda containers, managers: [extension("azure/_azure_ai_agent.py")],
    "FILTER": lambda containers, managers: [MessageFilterAgent("f", assistant(), MessageFilterConfig(per_source=[]))],
    "FINAL_ANSWER_PROMPT": lambda containers, managers: [orchestrated()],
    "GRAPH": lambda containers, managers: [graph_flow()],
    "HANDOFFS": lambda containers, managers: [assistant()],
    "INSTRUCTION": lambda containers, managers: [SocietyOfMindAgent("society", round_robin(), Scripted())],
    "INSTRUCTIONS": lambda containers, managers: services(),
    "MEMORY": lambda containers, managers: [assistant()],
    "MODEL_CLIENT": lambda containers, managers: [assistant(), coder(), selector(), orchestrated()],
    "ORIGINAL_TOOLS": lambda containers, managers: [extension("openai/_openai_assistant_agent.py")],
    "OUTPUT_TYPE": lambda containers, managers: [assistant()],
    "RAW_CONFIG": lambda containers, managers: clients(),
    "RESPONSE_PROMPT": lambda containers, managers: [SocietyOfMindAgent("society", round_robin(), Scripted())],
    "SELECTOR_PROMPT": lambda containers, managers: [selector()],
    "SERVICE_CLIENT": lambda containers, managers: services(),
    "SERVICE_MODEL": lambda containers, managers: services(),
    "SYSTEM_MESSAGES": lambda containers, managers: [assistant(), coder()],
    "TERMINATION": lambda containers, managers: teams(),
    "TOOLS": lambda containers, managers: [assistant(), extension("openai/_openai_agent.py")],
    "WORKBENCH": lambda containers, managers: [assistant()],
}


def services():
    return [extension("openai/_openai_agent.py"), extension("openai/_openai_assistant_agent.py")]


def clients():
    """The attributes that the clients of models give themselves."""
    return [
        extension("openai/_openai_client.py", "models"),
        extension("ollama/_ollama_client.py", "models"),
        extension("anthropic/_anthropic_client.py", "models"),
    ]


def extension(path, package="agents"):
    """The attributes that objects of an extension give themselves, told by its source: it needs other packages."""
    [folder] = importlib.util.find_spec(f"autogen_ext.{package}").submodule_search_locations
    assigned = [
        target
        for node in ast.walk(ast.parse((Path(folder) / path).read_text()))
        if isinstance(node, ast.Assign | ast.AnnAssign)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
    ]
    names = {target.attr: None for target in assigned if isinstance(target, ast.Attribute)}
    return type(path, (), names)()


CONFIGURED = {
    "AssistantAgent": assistant,
    "BaseGroupChat": round_robin,
    "CodeExecutorAgent": coder,
    "MagenticOneGroupChat": orchestrated,
    "OpenAIAgent": lambda: extension("openai/_openai_agent.py"),
    "OpenAIAssistantAgent": lambda: extension("openai/_openai_assistant_agent.py"),
    "SelectorGroupChat": selector,
    "UserProxyAgent": lambda: UserProxyAgent("user"),
}
"""An object of each class of which settings are read."""


@pytest.mark.parametrize(
    ("cls", "name"),
    [
        (cls, name)
        for table in (private.AGENT_SETTINGS, private.TEAM_SETTINGS)
        for cls, names in table.items()
        for name in names
    ],
)
def test_a_setting_is_there(cls, name):
    assert lacking([CONFIGURED[cls]()], name) == []


def test_the_size_of_every_context_is_there():
    fields = {name for context in contexts() for name in vars(context)}
    assert set(private.CONTEXT_SIZES) <= fields
    assert all(not name.endswith(("_size", "_limit")) for name in fields - set(private.CONTEXT_SIZES))


def surfer(package: str):
    """The attributes that an agent of the extensions gives itself; it needs packages that are not here."""
    [folder] = importlib.util.find_spec("autogen_ext.agents").submodule_search_locations
    [source] = [path.read_text() for path in (Path(folder) / package).glob("_*surfer.py")]
    names = {
        node.target.attr: None
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Attribute)
    }
    return type(package, (), names)()


@pytest.mark.parametrize(
    ("condition", "name"), [(cls, name) for cls, names in private.CONDITION_FIELDS.items() for name in names]
)
def test_what_a_condition_counts_is_there_and_rests_at_nothing(condition, name):
    fresh = made(condition)
    assert lacking([fresh], name) == []
    assert not getattr(fresh, name)


def made(condition):
    options = {
        "AndTerminationCondition": [],
        "FunctionCallTermination": ["tool"],
        "FunctionalTermination": [bool],
        "HandoffTermination": ["user"],
        "MaxMessageTermination": [3],
        "SourceMatchTermination": [["ann"]],
        "TextMentionTermination": ["stop"],
        "TimeoutTermination": [1.0],
        "TokenUsageTermination": [100],
    }
    return condition(*options.get(condition.__name__, []))


@pytest.mark.parametrize("condition", private.CONDITION_FIELDS)
def test_what_a_condition_has_is_counted_or_is_its_limit(condition):
    limits, counted = private.CONDITION_LIMITS[condition], private.CONDITION_FIELDS[condition]
    elsewhere = {"_start_time", private.CONDITIONS}
    assert set(vars(made(condition))) - elsewhere == {*limits, *counted}


def test_every_condition_of_autogen_is_known():
    shipped = {value for module in (conditions, base) for value in vars(module).values() if isinstance(value, type)}
    shipped = {cls for cls in shipped if issubclass(cls, base.TerminationCondition)} - {base.TerminationCondition}
    assert shipped == set(private.CONDITION_FIELDS)


@pytest.mark.parametrize(("constant", "name"), used_strings().items())
async def test_a_private_attribute_named_by_a_string_is_there(constant, name):
    objects = OWNERS[constant](*await around())
    assert objects
    assert lacking(objects, name) == []


@pytest.mark.parametrize("constant", ["CONTEXT_MESSAGES", "CONTAINER_BUFFER", "MANAGER_THREAD"])
async def test_what_is_taken_for_a_growing_list_is_a_list(constant):
    objects = OWNERS[constant](*await around())
    assert {type(getattr(thing, used_strings()[constant])) for thing in objects} == {list}


def test_the_names_were_found():
    assert ("team", "_participants") in used_attributes()
    assert ("runtime._run_context", "_run_task") in used_attributes()
    assert set(used_strings()) == set(OWNERS)


def test_a_name_that_is_gone_is_named():
    [said] = lacking([round_robin()], "_gone")
    assert "RoundRobinGroupChat" in said
    assert "_gone" in said


def test_every_team_of_autogen_is_looked_at():
    from autogen_agentchat import teams as module

    classes = {value for value in vars(module).values() if isinstance(value, type) and issubclass(value, BaseGroupChat)}
    assert classes - {BaseGroupChat} <= {type(team) for team in teams()}


OUR_OWN = {"self", "cls", "super()"}
STANDARD = {"os._exit", "sys._current_frames", "getattr(asyncio.get_running_loop(), '_ready', (None,))"}
"""Documented, whatever its name; and what asyncio has to do next, without which one can only wait long enough."""


def own_objects(function):
    """The names that a function gives to new objects of its own class, which ``_other()`` returns, too."""
    return {
        target.id
        for node in ast.walk(function)
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Call)
        and ast.unparse(node.value.func) in ("cls", "self._other")
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def private_uses(source):
    """Return the places, as text, where a module touches private names that are not its own."""
    tree, found = ast.parse(source), []
    own = {
        id(node): names
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for names in [own_objects(function)]
        for node in ast.walk(function)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and is_private(node.attr):
            owner = ast.unparse(node.value)
            if owner not in OUR_OWN | own.get(id(node), set()) and ast.unparse(node) not in STANDARD:
                found.append(f"line {node.lineno}: {ast.unparse(node)}")
        elif isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in ACCESSORS:
            found += [
                f"line {node.lineno}: {ast.unparse(node)}"
                for argument in node.args
                if isinstance(argument, ast.Constant) and is_private(str(argument.value))
                if ast.unparse(node) not in STANDARD
            ]
        elif isinstance(node, ast.ImportFrom | ast.Import):
            names = [alias.name for alias in node.names] + [getattr(node, "module", None) or ""]
            found += [
                f"line {node.lineno}: {ast.unparse(node)}"
                for name in names
                if any(is_private(part) for part in name.split("."))
            ]
    return found


ACCESSORS = {"getattr", "setattr", "hasattr", "delattr", "attrgetter", "methodcaller", "__getattribute__"}
OTHERS = sorted(path for path in PACKAGE.rglob("*.py") if path != SOURCE)


@pytest.mark.parametrize("path", OTHERS, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_no_other_module_touches_a_private_name_of_something_else(path):
    assert private_uses(path.read_text()) == []


@pytest.mark.parametrize(
    "source",
    [
        "team._runtime",
        "team._runtime = 1",
        "self.team._runtime",
        "self._team._runtime",
        "teams()[0]._runtime",
        "getattr(team, '_runtime')",
        "setattr(team, '_runtime', None)",
        "operator.attrgetter('_runtime')(team)",
        "from autogen_agentchat.teams._group_chat import x",
        "from autogen_agentchat.teams import _x",
        "import autogen_core._single",
        "def f(team):\n    team._runtime",
        "def f(cls, team):\n    other = cls()\n    team._runtime",
    ],
)
def test_the_scan_finds_a_private_name(source):
    assert len(private_uses(source)) == 1


@pytest.mark.parametrize(
    "source",
    [
        "self._x",
        "cls._x",
        "def f(cls):\n    new = cls()\n    new._x",
        "os._exit(1)",
        "error.__notes__",
        "getattr(error, '__notes__', [])",
        "getattr(place, private.CONTEXT_MESSAGES)",
        "from __future__ import annotations",
    ],
)
def test_the_scan_lets_ones_own_names_pass(source):
    assert private_uses(source) == []
