"""A session with one build, its state changed by verbs, and the next turn with another build."""

import json

from autogen_agentchat.agents import AssistantAgent, SocietyOfMindAgent
from autogen_agentchat.conditions import MaxMessageTermination
from autogen_agentchat.teams import (
    DiGraphBuilder,
    GraphFlow,
    MagenticOneGroupChat,
    RoundRobinGroupChat,
    SelectorGroupChat,
    Swarm,
)
from autogen_agentchat.tools import AgentTool, TeamTool
from autogen_core import FunctionCall
from autogen_core.models import AssistantMessage, CreateResult, FunctionExecutionResultMessage, RequestUsage
from scripted import Scripted

from midturn.autogen.edits import State, fill

FACT = "The customer prefers email."


class World:
    """Builds agents whose models keep what they were asked, by the names of the agents."""

    def __init__(self):
        self.asked = []
        self.numbers = 0

    def model(self, name, answer=None):
        def reply(messages):
            self.asked.append((name, list(messages)))
            return answer(messages) if answer else f"{name} has heard {len(messages)}"

        return Scripted(reply)

    def agent(self, name, answer=None, **options):
        return AssistantAgent(name, self.model(name, answer), **options)

    def calls(self, *wanted):
        """An answer that calls tools, with ids that are never used twice."""
        self.numbers += 1
        content = [
            FunctionCall(id=f"call-{self.numbers}-{i}", name=name, arguments=json.dumps(arguments))
            for i, (name, arguments) in enumerate(wanted)
        ]
        usage = RequestUsage(prompt_tokens=7, completion_tokens=3)
        return CreateResult(finish_reason="function_calls", content=content, usage=usage, cached=False)

    def using(self, *wanted):
        """A model that calls tools once for each task, and then answers."""

        def answer(messages):
            if isinstance(messages[-1], FunctionExecutionResultMessage):
                return "that is done"
            return self.calls(*wanted)

        return answer


def acceptable(messages):
    """Return whether a provider accepts a request: each call has its result right after it, and nothing is empty."""
    waiting = set()
    for message in messages:
        if isinstance(message, FunctionExecutionResultMessage):
            found = {result.call_id for result in message.content}
            assert found == waiting, f"{found} answers {waiting}"
            waiting = set()
            continue
        assert not waiting, f"{waiting} is never answered"
        assert message.content, f"{message} is empty"
        if isinstance(message, AssistantMessage) and not isinstance(message.content, str):
            waiting = {call.id for call in message.content}
    assert not waiting, f"{waiting} is never answered"
    return True


async def ran(store, build, *tasks, session="before"):
    """The state after some turns."""
    case = store.session(session, build)
    number = 0
    for task in tasks or (FACT,):
        number = (await case.run(task=task)).checkpoint
    return State(await case.at(number).tree())


async def go_on(store, state, build, world, task="And now?", *, session="after"):
    """The requests of the next turn, with the state of another build: (agent, messages)."""
    state.check()
    tree = await fill(build(), state.tree)
    State(tree).check()
    await store.session(session, None).save(tree)
    world.asked.clear()
    result = await store.session(session, build).run(task=task)
    assert world.asked
    assert all(acceptable(messages) for _, messages in world.asked)
    return list(world.asked), result


def text(messages):
    """All of a request as one text."""
    return "\n".join(message.model_dump_json() for message in messages)


def sources(result):
    return [message.source for message in result.messages]


def round_robin(world, names="ann bob cid", turns=1, **options):
    return lambda: RoundRobinGroupChat([world.agent(name) for name in names.split()], max_turns=turns, **options)


def selector(world, names="ann bob cid", turns=1, **options):
    """Each speaks in turn, as the thread tells."""

    def build():
        def pick(thread):
            order = names.split()
            last = next((message.source for message in reversed(thread) if message.source in order), order[-1])
            return order[(order.index(last) + 1) % len(order)]

        agents = [world.agent(name) for name in order] if (order := names.split()) else []
        return SelectorGroupChat(agents, world.model("selector"), max_turns=turns, selector_func=pick, **options)

    return build


def asking_selector(world, names="ann bob cid", choice="bob", turns=1, **options):
    """A selector whose model is asked."""

    def build():
        agents = [world.agent(name) for name in names.split()]
        model = world.model("selector", lambda messages: choice)
        return SelectorGroupChat(agents, model, max_turns=turns, allow_repeated_speaker=True, **options)

    return build


def swarm(world, names="ann bob", hands=(), limit=4):
    """``hands`` has pairs: who hands over to whom, once for each time it is asked without having done it."""

    def build():
        agents = []
        for name in names.split():
            targets = [target for source, target in hands if source == name]

            def answer(messages, name=name, targets=targets):
                done = any(isinstance(message, FunctionExecutionResultMessage) for message in messages)
                if targets and not done:
                    return world.calls((f"transfer_to_{targets[0]}".lower(), {}))
                return f"{name} has heard {len(messages)}"

            agents.append(world.agent(name, answer, handoffs=targets or None))
        return Swarm(agents, termination_condition=MaxMessageTermination(limit))

    return build


def magentic(world, names="ann bob", speaker="ann", turns=1):
    def build():
        def orchestrate(messages):
            if "is_request_satisfied" not in str(messages[-1].content):
                return "a plan"
            yes, no = {"reason": "so", "answer": True}, {"reason": "so", "answer": False}
            return json.dumps(
                {
                    "is_request_satisfied": no,
                    "is_progress_being_made": yes,
                    "is_in_loop": no,
                    "instruction_or_question": {"reason": "so", "answer": "go on"},
                    "next_speaker": {"reason": "so", "answer": speaker},
                }
            )

        agents = [world.agent(name) for name in names.split()]
        return MagenticOneGroupChat(agents, world.model("orchestrator", orchestrate), max_turns=turns)

    return build


def graph(world, edges, entry=None, **options):
    """``edges`` like ``"a>b a>c b>d c>d"``; ``b>a?`` goes only if the text has "again", ``b>c!`` only if not."""

    def build():
        builder, agents = DiGraphBuilder(), {}
        for edge in edges.split():
            for name in edge.strip("?!").split(">"):
                if name not in agents:
                    agents[name] = world.agent(name, options.get("answers", {}).get(name))
                    builder.add_node(agents[name])
        for number, edge in enumerate(edges.split()):
            source, target = edge.strip("?!").split(">")
            condition = None
            if edge.endswith("?"):
                condition = lambda message: "again" in message.to_model_text()  # noqa: E731 - one of two
            elif edge.endswith("!"):
                condition = lambda message: "again" not in message.to_model_text()  # noqa: E731 - one of two
            group = {"activation_group": f"group{number}"} if options.get("groups") else {}
            builder.add_edge(agents[source], agents[target], condition, **group)
        if entry:
            builder.set_entry_point(agents[entry])
        return GraphFlow(builder.get_participants(), builder.build(), max_turns=options.get("turns"))

    return build


def nested(world, inner="ann bob", outer="lead", name="crew", turns=2):
    def build():
        team = RoundRobinGroupChat([world.agent(each) for each in inner.split()], max_turns=1, name=name)
        leads = [world.agent(each) for each in outer.split()]
        return RoundRobinGroupChat([*leads, team], max_turns=turns, name="all")

    return build


def society(world, inner="ann bob", name="mind", others="lead", turns=2):
    def build():
        team = RoundRobinGroupChat([world.agent(each) for each in inner.split()], max_turns=2, name="inner")
        mind = SocietyOfMindAgent(name, team, world.model(name))
        if not others:
            return mind
        return RoundRobinGroupChat([mind, *(world.agent(each) for each in others.split())], max_turns=turns)

    return build


def agent_tool(world, name="helper", **options):
    def build():
        inner = world.agent(name)
        answer = world.using((name, {"task": "look it up"}))
        return world.agent("boss", answer, tools=[AgentTool(inner)], max_tool_iterations=2, **options)

    return build


def team_tool(world, name="crew", inner="ann bob"):
    def build():
        team = RoundRobinGroupChat([world.agent(each) for each in inner.split()], max_turns=1, name="inner")
        answer = world.using((name, {"task": "look it up"}))
        return world.agent("boss", answer, tools=[TeamTool(team, name=name, description="x")], max_tool_iterations=2)

    return build
