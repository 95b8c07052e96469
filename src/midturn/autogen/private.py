"""Use the private names of AutoGen; no other module of midturn uses one.

AutoGen has no public names for these things. ``tests/autogen/test_private.py`` checks each name against the installed
AutoGen, and fails with the name that is missing.
"""

# pyright: reportPrivateUsage=false

from __future__ import annotations

import asyncio
import time
from functools import lru_cache
from inspect import ismethod
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
from autogen_agentchat.teams._group_chat._events import GroupChatError
from autogen_agentchat.tools._task_runner_tool import TaskRunnerTool
from autogen_core import AgentId, SingleThreadedAgentRuntime
from autogen_core.tools import FunctionTool, StaticWorkbench, Workbench

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence

    from autogen_agentchat.agents import AssistantAgent, CodeExecutorAgent
    from autogen_agentchat.base import ChatAgent, Team, TerminationCondition
    from autogen_agentchat.messages import BaseAgentEvent, BaseChatMessage, MessageFactory
    from autogen_agentchat.teams import BaseGroupChat, GraphFlow, MagenticOneGroupChat, RoundRobinGroupChat, Swarm
    from autogen_core import MessageContext
    from autogen_core.model_context import ChatCompletionContext
    from autogen_core.tools import BaseTool

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
PROCESS_MODEL_RESULT = "_process_model_result"
EXECUTE_TOOL_CALL = "_execute_tool_call"

NOT_WALKED = (MANAGER_THREAD, SURFER_HISTORY, GRAPH_PARTICIPANTS)
"""Lists that are not searched for parts: messages, which may be many, and a second list of the participants."""

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
"""The fields of each termination condition that change while a team runs. A reset makes them false, 0 or empty."""

# The configuration of agents and teams. midturn only reads these names, and only if an object has them.

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
"""The name of the prompt in agents of users, after AutoGen's argument of that name."""

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
"""Further settings of agents, by the name of the class that has them. Subclasses of users have them, too."""

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
"""Further settings of teams, by the name of the class that has them."""

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
"""The fields of each termination condition that do not change while a team runs: its limits."""


def participants(team: BaseGroupChat) -> list[ChatAgent | Team]:
    """Return the participants of a team, in order."""
    return list(team._participants)


def model_context(agent: AssistantAgent) -> ChatCompletionContext:
    """Return the context in which an agent keeps its conversation with the model."""
    context: ChatCompletionContext = getattr(agent, AGENT_CONTEXT)
    return context


def structured_type(agent: AssistantAgent) -> type[StructuredMessage[Any]] | None:
    """Return the message type of an agent's structured answers, if it has one."""
    content, generic = agent._output_content_type, cast("Any", StructuredMessage)
    return None if content is None else generic[content]


def message_factory(team: BaseGroupChat) -> MessageFactory:
    """Return the factory that makes a team's messages from JSON."""
    return team._message_factory


def message_types(factory: MessageFactory) -> list[str]:
    """Return the names of the message types of a factory."""
    return list(factory._message_types)


def register(factory: MessageFactory, name: str, message_type: type[Any]) -> None:
    """Register a message type under a name, which may be another than that of the class."""
    factory._message_types[name] = message_type


def message_classes(factory: MessageFactory) -> dict[str, type[BaseAgentEvent | BaseChatMessage]]:
    """Return the message types of a factory, by their names."""
    return dict(factory._message_types)


def manager_name(team: BaseGroupChat) -> str:
    """Return the name of the team's manager in the team's state."""
    return team._group_chat_manager_name


async def initialize(team: BaseGroupChat) -> None:
    """Build the team's manager and containers, unless they are built."""
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
    """Return the built containers of a team's participants, and its manager, by their names in the team's state."""
    if not isinstance(team._runtime, SingleThreadedAgentRuntime):
        return {}
    built = team._runtime._instantiated_agents
    return {name: built[id_] for name, id_ in _ids(team).items() if id_ in built}


def manager(team: BaseGroupChat) -> Any:
    """Return the team's manager; ``None`` if it is not built yet."""
    return containers(team).get(team._group_chat_manager_name)


def instantiated(runtime: SingleThreadedAgentRuntime) -> dict[str, Any]:
    """Return the agents of a runtime that are built, by their ids."""
    return {str(id_): agent for id_, agent in runtime._instantiated_agents.items()}


def forget_agents(runtime: SingleThreadedAgentRuntime, ids: Sequence[AgentId]) -> None:
    """Remove these agents from a runtime, so that it builds them again when it next needs them."""
    for id_ in ids:
        del runtime._instantiated_agents[id_]


def agent_types(runtime: SingleThreadedAgentRuntime) -> set[str]:
    """Return the types of agents that a runtime can build."""
    return set(runtime._known_agent_names)


def is_running(team: BaseGroupChat) -> bool:
    """Return whether the team is running."""
    return team._is_running


async def renew(team: BaseGroupChat) -> None:
    """Reset a team, so that it builds its manager and containers again when it is next used."""
    if team._termination_condition is not None:
        await team._termination_condition.reset()
    if isinstance(team, SelectorGroupChat) and team._model_context is not None:
        await team._model_context.clear()  # load_state() only adds messages
    if team._embedded_runtime:
        team._runtime = SingleThreadedAgentRuntime(ignore_unhandled_exceptions=False)
        team._initialized = False
        team._output_message_queue = asyncio.Queue()
    elif isinstance(team._runtime, SingleThreadedAgentRuntime):
        # The runtime of a user continues, and builds the manager with the queue that the team had at first.
        forget_agents(team._runtime, [id_ for id_ in _ids(team).values() if id_ in team._runtime._instantiated_agents])
        while not team._output_message_queue.empty():
            team._output_message_queue.get_nowait()
    team._is_running = False


def tasks(team: BaseGroupChat) -> set[asyncio.Task[Any]]:
    """Return the tasks that still run in the team's own runtime."""
    runtime = team._runtime
    if not team._embedded_runtime or not isinstance(runtime, SingleThreadedAgentRuntime):
        return set()
    running = set(runtime._background_tasks)
    if runtime._run_context is not None:
        running.add(runtime._run_context._run_task)
    return running


def next_speaker(team: RoundRobinGroupChat) -> str:
    """Return the name of the participant that speaks next."""
    index: int = manager(team)._next_speaker_index
    return team._participant_names[index]


def triggered_groups(team: GraphFlow) -> dict[str, set[str]]:
    """Return the activation groups that made each waiting node of a graph ready."""
    triggered: dict[str, set[str]] = manager(team)._triggered_activation_groups
    return triggered


def activation_groups(team: GraphFlow) -> dict[str, dict[str, str]]:
    """Return the activation groups of each node that has incoming edges in a graph."""
    groups: dict[str, dict[str, str]] = manager(team)._activation
    return groups


def graph_beginning(team: GraphFlow) -> dict[str, Any]:
    """Return the state of the nodes in a graph's manager before the graph runs, which is the same after its end."""
    graph, groups = team._graph, activation_groups(team)
    return {
        "remaining": {node: dict(counts) for node, counts in graph.get_remaining_map().items()},
        "enqueued_any": {node: dict.fromkeys(conditions, False) for node, conditions in groups.items()},
        "ready": list(graph.get_start_nodes()),
    }


def edge_conditions(team: GraphFlow) -> dict[str, Any]:
    """Return the condition functions on the edges of a graph, by the names of the edges."""
    return {
        f"{name}>{edge.target}#{index}": edge.condition_function
        for name, node in team._graph.nodes.items()
        for index, edge in enumerate(node.edges)
        if edge.condition_function is not None
    }


def set_triggered_groups(team: GraphFlow, triggered: Mapping[str, Sequence[str]] | None) -> None:
    """Set the triggered activation groups; with ``None``, compute them from the rest of the manager's state."""
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


def let_swarm_continue(team: Swarm) -> None:
    """Let the agent that handed off to somebody outside the team, such as a user, continue with the answer.

    AutoGen accepts such an answer only as a handoff message to a participant.
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


def let_plan_continue(team: MagenticOneGroupChat) -> None:
    """Let a run without a task continue the plan; AutoGen raises an error."""
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
    """Let a team inside another speak twice in a row: AutoGen raises an error for its empty task."""
    patched: Any = team
    if "run_stream" in vars(team):
        return
    run_stream = team.run_stream

    async def run(task: Any = None, **options: Any) -> AsyncGenerator[Any, None]:
        async for item in run_stream(task=None if task == [] else task, **options):
            yield item

    patched.run_stream = run


def has_history(agent: ChatAgent) -> bool:
    """Return whether an agent is a surfer of AutoGen's extensions, which has a list of its own for the conversation."""
    for cls in type(agent).__mro__:
        if cls.__module__.startswith("autogen_ext.agents.") and "__init__" in vars(cls):
            return SURFER_HISTORY in cast("Any", cls).__init__.__code__.co_names
    return False


def is_canvas(cls: type) -> bool:
    """Return whether a class is AutoGen's canvas of text files, whose package is optional."""
    return cls.__module__.startswith("autogen_ext.memory.canvas") and hasattr(cls, "get_revision_content")


def clear_canvas(canvas: Any) -> None:
    """Remove all files from a canvas."""
    canvas._files.clear()


def find_tool(workbench: Any, name: str) -> BaseTool[Any, Any] | None:
    """Return the tool with this name in a workbench; ``None`` if it has no such tool, or if its tools can change.

    A wrapper that is no ``Workbench`` may hold one: the calls inside the wrapper do not pass through midturn.
    """
    if not isinstance(workbench, StaticWorkbench):
        names: dict[str, Any] = {} if isinstance(workbench, Workbench) else getattr(workbench, "__dict__", {})
        benches = [each for each in names.values() if isinstance(each, StaticWorkbench)]
        return next(filter(None, (find_tool(bench, name) for bench in benches)), None)
    original = workbench._override_name_to_original.get(name, name)
    return next((tool for tool in workbench._tools if tool.name == original), None)


def tool_names(workbench: StaticWorkbench) -> list[str]:
    """Return the names under which models call the tools of a workbench."""
    names = {original: name for name, original in workbench._override_name_to_original.items()}
    return [names.get(tool.name, tool.name) for tool in workbench._tools]


def tools_of(workbench: StaticWorkbench) -> list[BaseTool[Any, Any]]:
    """Return the tools of a workbench whose tools never change, without its overrides."""
    return list(workbench._tools)


def function_of(workbench: Workbench, name: str) -> Any:
    """Return the function that a tool calls; without a function, the tool itself."""
    tool = find_tool(workbench, name)
    return getattr(tool, TOOL_FUNCTION, tool)


def let_know_its_call(tool: FunctionTool, wrap: Callable[[Any], Any], mark: str) -> None:
    """Wrap a tool's function, unless it has the ``mark`` of one that is wrapped already."""
    if not hasattr(tool._func, mark):
        tool._func = wrap(tool._func)


class _Watching:
    """Comes before an agent's class in a subclass that midturn makes: that class must not notice the subclass."""

    def __init_subclass__(cls, **_: Any) -> None:
        """Do nothing: the agent's class may register its subclasses."""


class _Watched(list[Any]):
    """The workbenches of an agent, on their way to its tool calls together with the function that watches these."""

    watch: Callable[[Awaitable[Any], Any], Awaitable[Any]]


@lru_cache(maxsize=256)
def _watching(cls: Any) -> Any:
    """Return a subclass of an agent's class whose tool calls are watched and always end the wait for them."""

    async def execute(**options: Any) -> Any:
        call = cls._execute_tool_call(**options)
        try:
            return await options["workbench"].watch(call, options["cancellation_token"])
        except BaseException:
            options["stream"].put_nowait(None)  # AutoGen forgets this if a call raises, and waits for ever
            raise

    return type(cls)(cls.__name__, (_Watching, cls), {EXECUTE_TOOL_CALL: staticmethod(execute)})


def watch_tool_calls(agent: AssistantAgent, watch: Callable[[Awaitable[Any], Any], Awaitable[Any]]) -> None:
    """Let ``watch`` await each tool call of an agent, and let the agent raise what a call raises.

    ``watch`` gets the call and its cancellation token. AutoGen runs tool calls in a task and loses what they raise.
    """
    process: Any = getattr(type(agent), PROCESS_MODEL_RESULT)
    if not ismethod(process):  # a user's own, which is no class method any more
        return
    cls = _watching(cast("Any", type(agent)))

    def watched(*, workbench: Sequence[Workbench], **options: Any) -> AsyncGenerator[Any, None]:
        benches = _Watched(workbench)
        benches.watch = watch
        items: AsyncGenerator[Any, None] = process.__func__(cls, workbench=benches, **options)
        return items

    setattr(agent, PROCESS_MODEL_RESULT, watched)


def leave_tool_calls(agent: AssistantAgent) -> None:
    """Let an agent run its tool calls as AutoGen does."""
    vars(agent).pop(PROCESS_MODEL_RESULT, None)


def hold_errors(member: Any, wait: Callable[[Any], Awaitable[None]]) -> Callable[[], None]:
    """Let a member of a team ``wait`` before it reports an error: AutoGen then drops all that is still under way.

    ``wait`` gets the error as AutoGen shows it, and may change its texts.

    Return a function that ends this.
    """
    real = member.publish_message

    async def publish_message(message: Any, *args: Any, **options: Any) -> None:
        if isinstance(message, GroupChatError):
            await wait(message.error)
        await real(message, *args, **options)

    return replace_method(member, "publish_message", publish_message)


def replace_method(member: Any, name: str, method: Callable[..., Any]) -> Callable[[], None]:
    """Let a member of a team use another method of this name; return a function that puts its own back."""
    own: dict[str, Any] = member.__dict__
    before = own.get(name)
    own[name] = method
    return lambda: own.update({name: before}) if before is not None else own.pop(name, None)


def runs_a_task(workbench: Workbench, name: str) -> bool:
    """Return whether a tool only runs an agent or a team, whose own calls are recorded."""
    return isinstance(find_tool(workbench, name), TaskRunnerTool)


def asks_first(agent: CodeExecutorAgent) -> bool:
    """Return whether an agent asks somebody before it executes code."""
    return getattr(agent, APPROVAL) is not None


def set_elapsed(condition: TimeoutTermination, seconds: float) -> None:
    """Set the time that has passed since a condition's clock was started."""
    condition._start_time = time.monotonic() - seconds
