"""Agents and teams from a small spec in JSON, always the same ones from the same spec.

Members of a team are named by where they stand, so a spec refers to them by number. What a model answers is a function
of all that it is shown: a message or a memory that is lost or doubled changes everything after it.
"""

from functools import reduce
from operator import and_, or_

from autogen_agentchat.agents import (
    AssistantAgent,
    CodeExecutorAgent,
    MessageFilterAgent,
    MessageFilterConfig,
    PerSourceFilter,
    SocietyOfMindAgent,
    UserProxyAgent,
)
from autogen_agentchat.conditions import (
    ExternalTermination,
    FunctionalTermination,
    FunctionCallTermination,
    HandoffTermination,
    MaxMessageTermination,
    SourceMatchTermination,
    TextMentionTermination,
    TextMessageTermination,
    TokenUsageTermination,
)
from autogen_agentchat.messages import HandoffMessage, StructuredMessage, TextMessage
from autogen_agentchat.teams import (
    DiGraphBuilder,
    GraphFlow,
    MagenticOneGroupChat,
    RoundRobinGroupChat,
    SelectorGroupChat,
    Swarm,
)
from autogen_agentchat.tools import AgentTool, TeamTool
from autogen_core.memory import ListMemory, MemoryContent
from autogen_core.model_context import (
    BufferedChatCompletionContext,
    HeadAndTailChatCompletionContext,
    TokenLimitedChatCompletionContext,
    UnboundedChatCompletionContext,
)
from autogen_core.models import UserMessage
from autogen_core.tools import FunctionTool, StaticStreamWorkbench
from generated_parts import (
    Answer,
    Cart,
    Counter,
    Executor,
    Model,
    Patience,
    Quota,
    Tally,
    Typist,
    approve,
    look,
    type_the_same,
)

TEAMS = ("round_robin", "selector", "swarm", "graph", "magentic")


def task_of(task, spec):
    """A task from its spec: none, a text, several texts, or a handoff to the member with that number."""
    if isinstance(task, list):
        return [TextMessage(content=text, source="user") for text in task]
    if isinstance(task, int):
        target = _names("n", spec["members"])[task % len(spec["members"])]
        return HandoffMessage(content=f"over to {target}", source="user", target=target)
    return task


def _names(name, members):
    return [f"{name}{i}" if name == "n" else f"{name}_{i}" for i in range(len(members))]


class Built:
    """The agent or team ``live`` that a spec describes, with its surroundings."""

    def __init__(self, spec):
        self._externals = []
        self.live = self._any(spec, "n", ())

    def set_external(self, number):
        """Set one of the external terminations, as if somebody had pressed a button."""
        if self._externals:
            self._externals[number % len(self._externals)].set()

    def _any(self, spec, name, siblings):
        return self._team(spec, name) if spec["is"] in TEAMS else getattr(self, "_" + spec["is"])(spec, name, siblings)

    # --- agents

    def _assistant(self, spec, name, siblings):
        memory = ListMemory(memory_contents=[_remembered(f"fact {i}") for i in range(spec.get("memory", 0))])
        tools = [self._tool(tool, f"{name}_t{i}", memory) for i, tool in enumerate(spec.get("tools", ()))]
        handoffs = [sibling for sibling in siblings if sibling != name] if "handoffs" in spec else []
        if spec.get("handoffs") == "anybody":
            handoffs.append("user")
        model = Model(name, fragile=spec.get("fragile", False))
        return AssistantAgent(
            name,
            model,
            **({"workbench": StaticStreamWorkbench(tools)} if spec.get("workbench") else {"tools": tools}),
            handoffs=handoffs,
            memory=[memory] if "memory" in spec else None,
            model_context=_context(spec.get("context"), model),
            model_client_stream=spec.get("stream", False),
            reflect_on_tool_use=spec.get("reflect"),
            max_tool_iterations=spec.get("iterations", 1),
            output_content_type=Answer if spec.get("structured") else None,
        )

    def _filter(self, spec, name, siblings):
        sources = ["user", *siblings]
        kept = [
            PerSourceFilter(source=sources[source % len(sources)], position=position, count=count)
            for source, position, count in spec["keep"]
        ]
        wrapped = self._any(spec["agent"], name, siblings)  # of the same name, so that a graph knows who spoke
        return MessageFilterAgent(name, wrapped, MessageFilterConfig(per_source=kept))

    def _society(self, spec, name, siblings):
        model = Model(name)
        context = _context(spec.get("context"), model)
        return SocietyOfMindAgent(name, self._team(spec["team"], f"{name}_s"), model, model_context=context)

    def _coder(self, spec, name, siblings):
        model = Model(name)
        return CodeExecutorAgent(
            name,
            Executor(),
            model_client=model if spec["model"] else None,
            model_context=_context(spec.get("context"), model),
            max_retries_on_error=spec.get("retries", 0) if spec["model"] else 0,
            approval_func=approve,
        )

    def _human(self, spec, name, siblings):
        return UserProxyAgent(name, input_func=Typist() if spec["counting"] else type_the_same)

    def _tally(self, spec, name, siblings):
        return Tally(name)

    def _tool(self, spec, name, memory):
        async def remember(thing: str) -> str:
            await memory.add(_remembered(thing))
            return f"{thing} is remembered"

        async def press(thing: str) -> str:
            for external in self._externals:
                external.set()
            return f"pressed for {thing}"

        match spec["is"]:
            case "agent":
                return AgentTool(self._any(spec["agent"], name, ()), spec.get("last", False))
            case "team":
                return TeamTool(self._team(spec["team"], name), name, "Ask a team.", spec.get("last", False))
            case "counter":
                return Counter(name)
        function = {"look": look, "cart": Cart().put, "remember": remember, "press": press}[spec["is"]]
        return FunctionTool(function, "Do something with a thing.", name=name)

    # --- teams

    def _team(self, spec, name):
        names = _names(name, spec["members"])
        members = [self._any(member, itself, names) for member, itself in zip(spec["members"], names, strict=True)]
        options = {
            "name": name,
            "max_turns": spec.get("max_turns"),
            "termination_condition": self._condition(spec["stop"], names) if "stop" in spec else None,
            "custom_message_types": [StructuredMessage[Answer]],
        }
        if spec["is"] != "graph":
            options["emit_team_events"] = spec.get("events", False)
        match spec["is"]:
            case "round_robin":
                return RoundRobinGroupChat(members, **options)
            case "selector":
                model = Model(name, names, chooses=True)
                return SelectorGroupChat(
                    members,
                    model,
                    **options,
                    allow_repeated_speaker=spec.get("repeat", False),
                    max_selector_attempts=spec.get("attempts", 2),
                    model_context=_context(spec.get("context"), model),
                )
            case "swarm":
                return Swarm(members, **options)
            case "magentic":
                return MagenticOneGroupChat(members, Model(name, names), **options, max_stalls=spec.get("stalls", 2))
            case "graph":
                return GraphFlow(members, _graph(spec, members), **options)
        raise ValueError(spec)

    def _condition(self, spec, names):
        kind, *rest = spec
        if kind in ("or", "and"):
            return reduce({"or": or_, "and": and_}[kind], [self._condition(part, names) for part in rest])
        condition = {
            "max": MaxMessageTermination,
            "mention": TextMentionTermination,
            "tokens": TokenUsageTermination,
            "handoff": HandoffTermination,
            "quota": Quota,
            "external": ExternalTermination,
            "patience": lambda limit: FunctionalTermination(Patience(limit)),
            "source": lambda number: SourceMatchTermination([names[number % len(names)]]),
            "text": lambda number: TextMessageTermination(names[number % len(names)]),
            "called": lambda number: FunctionCallTermination(f"{names[number % len(names)]}_t0"),
        }[kind](*rest)
        if kind == "external":
            self._externals.append(condition)
        return condition


def _remembered(text):
    return MemoryContent(content=text, mime_type="text/plain")


def _context(spec, model):
    if spec is None:
        return None
    kind, *sizes = spec
    first = [UserMessage(content="before all else", source="user")]
    match kind:
        case "unbounded":
            return UnboundedChatCompletionContext(first)
        case "buffered":
            return BufferedChatCompletionContext(*sizes)
        case "head_and_tail":
            return HeadAndTailChatCompletionContext(*sizes)
        case "tokens":
            return TokenLimitedChatCompletionContext(model, token_limit=sizes[0])
    raise ValueError(spec)


def _graph(spec, members):
    """Edges forward from the parents of each node but the first, and back.

    A node with an edge back decides by "yes" and "no" whether to go on; one in ``forks`` decides where to.
    """
    builder = DiGraphBuilder()
    for member in members:
        builder.add_node(member)
    edges = [(parent % (i + 1), i + 1, "yes") for i, parents in enumerate(spec["parents"]) for parent in parents]
    edges += [(source, target, "no") for source, target in spec.get("back", ())]
    deciding = {source for source, _ in spec.get("back", ())}
    forking = set(spec.get("forks", ())) - deciding
    taken = dict.fromkeys(range(len(members)), 0)
    for source, target, word in dict.fromkeys(edges):
        condition = word if source in deciding else ("yes", "no")[taken[source] % 2] if source in forking else None
        taken[source] += 1
        builder.add_edge(
            members[source],
            members[target],
            condition=condition,
            activation_group=f"from {source}" if target in spec.get("split", ()) else "",
            activation_condition="any" if target in spec.get("any", ()) else "all",
        )
    builder.set_entry_point(members[0])
    return builder.build()
