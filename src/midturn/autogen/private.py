"""Use the private names of AutoGen; no other module of midturn touches one.

AutoGen has no public way to reach what they name. ``tests/autogen/test_private.py`` checks each of them against the
AutoGen that is installed, and its failure names the one that is gone.
"""

# pyright: reportPrivateUsage=false

from __future__ import annotations

import asyncio
import time
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, cast

from autogen_agentchat.base import AndTerminationCondition, OrTerminationCondition
from autogen_agentchat.conditions import (
    ExternalTermination,
    FunctionalTermination,
    FunctionCallTermination,
    HandoffTermination,
    MaxMessageTermination,
    SourceMatchTermination,
    StopMessageTermination,
    TextMentionTermination,
    TextMessageTermination,
    TimeoutTermination,
    TokenUsageTermination,
)
from autogen_agentchat.messages import HandoffMessage, StructuredMessage
from autogen_agentchat.teams import SelectorGroupChat
from autogen_agentchat.tools._task_runner_tool import TaskRunnerTool
from autogen_core import AgentId, SingleThreadedAgentRuntime
from autogen_core.tools import FunctionTool, StaticWorkbench

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence

    from autogen_agentchat.agents import AssistantAgent, CodeExecutorAgent
    from autogen_agentchat.base import ChatAgent, Team, TerminationCondition
    from autogen_agentchat.messages import BaseAgentEvent, BaseChatMessage, MessageFactory
    from autogen_agentchat.teams import BaseGroupChat, GraphFlow, MagenticOneGroupChat, RoundRobinGroupChat, Swarm
    from autogen_core import MessageContext
    from autogen_core.model_context import ChatCompletionContext
    from autogen_core.tools import BaseTool, Workbench

AGENT_CONTEXT = "_model_context"
CONTEXT_MESSAGES = "_messages"
CONTAINER_BUFFER = "_message_buffer"
MANAGER_THREAD = "_message_thread"
SURFER_HISTORY = "_chat_history"
SOCIETY_TEAM = "_team"
TEAM_PARTICIPANTS = "_participants"

GRAPH_PARTICIPANTS = "_input_participants"

INPUT = "input_func"
INPUT_IS_ASYNC = "_is_async"
APPROVAL = "_approval_func"
APPROVAL_IS_ASYNC = "_approval_func_is_async"
TOOL_FUNCTION = "_func"

NOT_WALKED = (MANAGER_THREAD, SURFER_HISTORY, GRAPH_PARTICIPANTS)
"""Lists in which no parts have to be looked for: of messages, which may be many, and of participants once more."""

CONDITION_FIELDS: dict[type[TerminationCondition], tuple[str, ...]] = {
    AndTerminationCondition: ("_stop_messages",),
    ExternalTermination: ("_setted", "_terminated"),
    FunctionCallTermination: ("_terminated",),
    FunctionalTermination: ("_terminated",),
    HandoffTermination: ("_terminated",),
    MaxMessageTermination: ("_message_count",),
    OrTerminationCondition: (),
    SourceMatchTermination: ("_terminated",),
    StopMessageTermination: ("_terminated",),
    TextMentionTermination: ("_terminated",),
    TextMessageTermination: ("_terminated",),
    TimeoutTermination: ("_terminated",),
    TokenUsageTermination: ("_total_token_count", "_prompt_token_count", "_completion_token_count"),
}
"""What changes in each termination condition while a team runs; all of it is false, 0 or empty after a reset."""

# How agents and teams were configured. These names are only read, and only where an object has them.

SYSTEM_MESSAGES = "_system_messages"
INSTRUCTION = "_instruction"
INSTRUCTIONS = "_instructions"
RESPONSE_PROMPT = "_response_prompt"
SELECTOR_PROMPT = "_selector_prompt"
FINAL_ANSWER_PROMPT = "_final_answer_prompt"

MODEL_CLIENT = "_model_client"
CREATE_ARGS = "_create_args"
RAW_CONFIG = "_raw_config"
SERVICE_CLIENT = "_client"
SERVICE_MODEL = "_model"
DEPLOYMENT = "_deployment_name"

WORKBENCH = "_workbench"
TOOLS = "_tools"
ORIGINAL_TOOLS = "_original_tools"
API_TOOLS = "_api_tools"
HANDOFFS = "_handoffs"
OUTPUT_TYPE = "_output_content_type"
MEMORY = "_memory"

CODE_EXECUTOR = "_code_executor"
FILTER = "_filter"

GRAPH = "_graph"
TERMINATION = "_termination_condition"
CONDITIONS = "_conditions"

OWN_PROMPT = "system_message"
"""What users call it in agents of their own, as AutoGen calls the argument."""

PROMPTS = (SYSTEM_MESSAGES, OWN_PROMPT, INSTRUCTION, INSTRUCTIONS, RESPONSE_PROMPT)
TEAM_PROMPTS = (SELECTOR_PROMPT, FINAL_ANSWER_PROMPT)

CONTEXT_SIZES = ("_buffer_size", "_head_size", "_tail_size", "_token_limit")

AGENT_SETTINGS = {
    "AssistantAgent": (
        "_model_client_stream",
        "_reflect_on_tool_use",
        "_max_tool_iterations",
        "_tool_call_summary_format",
        "_tool_call_summary_formatter",
        "_output_content_type_format",
    ),
    "CodeExecutorAgent": (
        "_approval_func",
        "_max_retries_on_error",
        "_model_client_stream",
        "_sources",
        "_supported_languages",
    ),
    "UserProxyAgent": ("input_func",),
    "OpenAIAgent": ("_temperature", "_max_output_tokens", "_json_mode", "_store", "_truncation"),
    "OpenAIAssistantAgent": ("_temperature", "_top_p"),
}
"""What else decides how agents work, by the classes that have it; a subclass of a user's own has it too."""

TEAM_SETTINGS = {
    "BaseGroupChat": ("_max_turns", "_emit_team_events"),
    "SelectorGroupChat": (
        "_max_selector_attempts",
        "_allow_repeated_speaker",
        "_selector_func",
        "_candidate_func",
        "_model_client_streaming",
    ),
    "MagenticOneGroupChat": ("_max_stalls",),
}
"""The same for teams."""

CONDITION_LIMITS: dict[type[TerminationCondition], tuple[str, ...]] = {
    AndTerminationCondition: (),
    ExternalTermination: (),
    FunctionCallTermination: ("_function_name",),
    FunctionalTermination: ("_func",),
    HandoffTermination: ("_target",),
    MaxMessageTermination: ("_max_messages", "_include_agent_event"),
    OrTerminationCondition: (),
    SourceMatchTermination: ("_sources",),
    StopMessageTermination: (),
    TextMentionTermination: ("_termination_text", "_sources"),
    TextMessageTermination: ("_source",),
    TimeoutTermination: ("_timeout_seconds",),
    TokenUsageTermination: ("_max_total_token", "_max_prompt_token", "_max_completion_token"),
}
"""When each termination condition stops a team: what does not change while the team runs."""


def participants(team: BaseGroupChat) -> list[ChatAgent | Team]:
    """The members of a team, in order."""
    return list(team._participants)


def model_context(agent: AssistantAgent) -> ChatCompletionContext:
    """Where an agent keeps its conversation with the model."""
    context: ChatCompletionContext = getattr(agent, AGENT_CONTEXT)
    return context


def structured_type(agent: AssistantAgent) -> type[StructuredMessage[Any]] | None:
    """The type of an agent's structured answers, if it gives any."""
    content, generic = agent._output_content_type, cast("Any", StructuredMessage)
    return None if content is None else generic[content]


def message_factory(team: BaseGroupChat) -> MessageFactory:
    """What turns JSON into the message types that a team knows."""
    return team._message_factory


def message_types(factory: MessageFactory) -> list[str]:
    """The names of the message types that are known."""
    return list(factory._message_types)


def message_classes(factory: MessageFactory) -> dict[str, type[BaseAgentEvent | BaseChatMessage]]:
    """The message types that are known, by their names."""
    return dict(factory._message_types)


def manager_name(team: BaseGroupChat) -> str:
    """Under which name the team's manager stands in the team's state."""
    return team._group_chat_manager_name


async def initialize(team: BaseGroupChat) -> None:
    """Have the team's manager and containers built."""
    if not team._initialized:
        await team._init(team._runtime)
    if isinstance(team._runtime, SingleThreadedAgentRuntime):
        for id_ in _ids(team).values():
            await team._runtime.try_get_underlying_agent_instance(id_)


def _ids(team: BaseGroupChat) -> dict[str, AgentId]:
    types = dict(zip(team._participant_names, team._participant_topic_types, strict=True))
    types[team._group_chat_manager_name] = team._group_chat_manager_topic_type
    return {name: AgentId(type=kind, key=team._team_id) for name, kind in types.items()}


def containers(team: BaseGroupChat) -> dict[str, Any]:
    """The objects around each participant, and the manager, by their names in the team's state; once they are built."""
    if not isinstance(team._runtime, SingleThreadedAgentRuntime):
        return {}
    built = team._runtime._instantiated_agents
    return {name: built[id_] for name, id_ in _ids(team).items() if id_ in built}


def manager(team: BaseGroupChat) -> Any:
    """The team's manager, once it is built."""
    return containers(team).get(team._group_chat_manager_name)


def instantiated(runtime: SingleThreadedAgentRuntime) -> dict[str, Any]:
    """The agents that live in a runtime."""
    return {str(id_): agent for id_, agent in runtime._instantiated_agents.items()}


def forget_agents(runtime: SingleThreadedAgentRuntime, ids: Sequence[AgentId]) -> None:
    """Have a runtime build these agents anew when they are next needed."""
    for id_ in ids:
        del runtime._instantiated_agents[id_]


def agent_types(runtime: SingleThreadedAgentRuntime) -> set[str]:
    """The types of agents that a runtime can build."""
    return set(runtime._known_agent_names)


def is_running(team: BaseGroupChat) -> bool:
    """Whether a run of the team has not ended."""
    return team._is_running


async def renew(team: BaseGroupChat) -> None:
    """Make a team build its manager and containers anew when it is next used, as after its construction."""
    if team._termination_condition is not None:
        await team._termination_condition.reset()
    if isinstance(team, SelectorGroupChat) and team._model_context is not None:
        await team._model_context.clear()  # load_state() adds to what is there
    if team._embedded_runtime:
        team._runtime = SingleThreadedAgentRuntime(ignore_unhandled_exceptions=False)
        team._initialized = False
    team._is_running = False
    team._output_message_queue = asyncio.Queue()


def tasks(team: BaseGroupChat) -> set[asyncio.Task[Any]]:
    """What still runs in the team's own runtime."""
    runtime = team._runtime
    if not team._embedded_runtime or not isinstance(runtime, SingleThreadedAgentRuntime):
        return set()
    running = set(runtime._background_tasks)
    if runtime._run_context is not None:
        running.add(runtime._run_context._run_task)
    return running


def next_speaker(team: RoundRobinGroupChat) -> str:
    """Who speaks next."""
    index: int = manager(team)._next_speaker_index
    return team._participant_names[index]


def triggered_groups(team: GraphFlow) -> dict[str, set[str]]:
    """Which activation groups made each waiting node of a graph ready."""
    triggered: dict[str, set[str]] = manager(team)._triggered_activation_groups
    return triggered


def activation_groups(team: GraphFlow) -> dict[str, dict[str, str]]:
    """The activation groups of each node of a graph that edges lead to."""
    groups: dict[str, dict[str, str]] = manager(team)._activation
    return groups


def graph_beginning(team: GraphFlow) -> dict[str, Any]:
    """What the state of a graph's manager says of its nodes before it runs, and again when it has come to its end."""
    graph, groups = team._graph, activation_groups(team)
    return {
        "remaining": {node: dict(counts) for node, counts in graph.get_remaining_map().items()},
        "enqueued_any": {node: dict.fromkeys(conditions, False) for node, conditions in groups.items()},
        "ready": list(graph.get_start_nodes()),
    }


def edge_conditions(team: GraphFlow) -> dict[str, Any]:
    """The functions on the edges of a graph, by names of the edges."""
    return {
        f"{name}>{edge.target}#{index}": edge.condition_function
        for name, node in team._graph.nodes.items()
        for index, edge in enumerate(node.edges)
        if edge.condition_function is not None
    }


def set_triggered_groups(team: GraphFlow, triggered: Mapping[str, Sequence[str]] | None) -> None:
    """Set them; ``None`` is what the rest of the manager's state tells of them."""
    graph = manager(team)
    if triggered is None:
        triggered = {
            node: [
                group
                for group, activation in graph._activation.get(node, {}).items()
                if (graph._enqueued_any[node][group] if activation == "any" else graph._remaining[node][group] <= 0)
            ]
            for node in graph._ready
        }
    graph._triggered_activation_groups = {node: set(groups) for node, groups in triggered.items()}


async def fill_selector_context(team: SelectorGroupChat) -> None:
    """Give the selector's model the chat messages of the thread, as AutoGen does when it loads a state."""
    selector, thread = manager(team), getattr(manager(team), MANAGER_THREAD)
    await selector._model_context.clear()
    setattr(selector, MANAGER_THREAD, [])
    await selector.update_message_thread(thread)
    setattr(selector, MANAGER_THREAD, thread)


def let_swarm_go_on(team: Swarm) -> None:
    """Let the agent that handed off to somebody outside, as to a user, go on with the answer.

    AutoGen takes such an answer only as a handoff message to a participant.
    """
    swarm = manager(team)
    if "select_speaker" in vars(swarm):
        return
    validate, select = swarm.validate_group_state, swarm.select_speaker

    def handed_out(thread: Sequence[Any]) -> HandoffMessage | None:
        last = next((message for message in reversed(thread) if isinstance(message, HandoffMessage)), None)
        inside = last is None or last.target in swarm._participant_names or last.source not in swarm._participant_names
        return None if inside else last

    async def validate_group_state(messages: list[Any] | None) -> None:
        if not messages or handed_out([*swarm._message_thread, *messages]) is None:
            await validate(messages)

    async def select_speaker(thread: Sequence[Any]) -> Any:
        last = handed_out(thread)
        if last is None:
            return await select(thread)
        swarm._current_speaker = last.source
        return [last.source]

    swarm.validate_group_state, swarm.select_speaker = validate_group_state, select_speaker


def let_plan_go_on(team: MagenticOneGroupChat) -> None:
    """Let a run without a task go on with the plan; AutoGen raises."""
    orchestrator = manager(team)
    if "on_message_impl" in vars(orchestrator):
        return
    handle: Callable[[Any, MessageContext], Awaitable[Any]] = orchestrator.on_message_impl

    async def on_message_impl(message: Any, ctx: MessageContext) -> Any:
        start = orchestrator._task and getattr(message, "messages", ()) is None
        terminated = orchestrator._termination_condition is not None and orchestrator._termination_condition.terminated
        if not start or terminated:
            return await handle(message, ctx)
        orchestrator._n_rounds = 0
        return await orchestrator._orchestrate_step(ctx.cancellation_token)

    orchestrator.on_message_impl = on_message_impl


def let_speak_without_news(team: BaseGroupChat) -> None:
    """Let a team inside another be asked twice in a row: an empty task is none, and AutoGen raises."""
    patched: Any = team
    if "run_stream" in vars(team):
        return
    run_stream = team.run_stream

    async def run(task: Any = None, **options: Any) -> AsyncGenerator[Any, None]:
        async for item in run_stream(task=None if task == [] else task, **options):
            yield item

    patched.run_stream = run


def has_history(agent: ChatAgent) -> bool:
    """Whether this is one of the surfers of AutoGen's extensions, which have what was said in lists of their own."""
    for cls in type(agent).__mro__:
        if cls.__module__.startswith("autogen_ext.agents.") and "__init__" in vars(cls):
            return SURFER_HISTORY in cast("Any", cls).__init__.__code__.co_names
    return False


def is_canvas(cls: type) -> bool:
    """Whether this is AutoGen's canvas of text files; its package is optional."""
    return cls.__module__.startswith("autogen_ext.memory.canvas") and hasattr(cls, "get_revision_content")


def clear_canvas(canvas: Any) -> None:
    """Have no files on a canvas."""
    canvas._files.clear()


def find_tool(workbench: Workbench, name: str) -> BaseTool[Any, Any] | None:
    """The tool that a workbench has under a name, if its tools never change."""
    if not isinstance(workbench, StaticWorkbench):
        return None
    original = workbench._override_name_to_original.get(name, name)
    return next((tool for tool in workbench._tools if tool.name == original), None)


def tools_of(workbench: StaticWorkbench) -> list[BaseTool[Any, Any]]:
    """The tools of a workbench whose tools never change, as they are without its overrides."""
    return list(workbench._tools)


def function_of(workbench: Workbench, name: str) -> Any:
    """The function that a tool calls, or the tool itself."""
    tool = find_tool(workbench, name)
    return getattr(tool, TOOL_FUNCTION, tool)


def let_know_its_call(tool: FunctionTool, in_a_thread: Callable[[Any], Any]) -> None:
    """Let a function that is not async know the call it is in: the thread in which AutoGen runs it does not."""
    if not iscoroutinefunction(tool._func):
        tool._func = in_a_thread(tool._func)


def runs_a_task(workbench: Workbench, name: str) -> bool:
    """Whether a tool does nothing but run an agent or a team, whose own calls are recorded."""
    return isinstance(find_tool(workbench, name), TaskRunnerTool)


def asks_first(agent: CodeExecutorAgent) -> bool:
    """Whether somebody is asked before code is executed."""
    return getattr(agent, APPROVAL) is not None


def set_elapsed(condition: TimeoutTermination, seconds: float) -> None:
    """Let so much time have gone by since a condition's clock was started."""
    condition._start_time = time.monotonic() - seconds
