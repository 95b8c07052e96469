"""Termination conditions: AutoGen's save_state() knows none of them, midturn keeps what they have over runs."""

from types import SimpleNamespace

import pytest
from autogen_agentchat import conditions
from autogen_agentchat.base import TerminationCondition
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
from autogen_agentchat.messages import StopMessage
from autogen_agentchat.teams import RoundRobinGroupChat
from gaps import RESTART, Custom, handles, kept, reloaded, saved, uninterrupted
from kinds import assistant, lookup, transcript
from scripted import calls, remembered

import midturn

REQUESTED = "External termination requested"


def team(condition=None, external=None, **options):
    found = RoundRobinGroupChat([assistant("ann"), assistant("bob")], termination_condition=condition, **options)
    handles[found] = external
    return found


def stoppable():
    external = ExternalTermination()
    return team(external, external, max_turns=3)


def stoppable_or_long():
    external = ExternalTermination()
    return team(external | MaxMessageTermination(4), external)


def stoppable_and_long():
    external = ExternalTermination()
    return team((MaxMessageTermination(3) & external) | MaxMessageTermination(5), external)


def stoppable_inside():
    """The lead speaks in the first turn, the inner team in the second."""
    external = ExternalTermination()
    inner = team(MaxMessageTermination(9) | external, max_turns=3, name="inner")
    found = RoundRobinGroupChat([assistant("lead"), inner], max_turns=1, name="outer")
    handles[found] = external
    return found


def stoppable_deep_inside():
    found = stoppable_inside()
    outer = RoundRobinGroupChat([found], max_turns=1, name="outermost")
    handles[outer] = handles[found]
    return outer


async def stop(external):
    external.set()


STOPPABLE = [stoppable, stoppable_or_long, stoppable_and_long, stoppable_inside, stoppable_deep_inside]
STOPPED = ["Hello.", stop, RESTART, "And now?", "And then?"]


@pytest.mark.parametrize("build", STOPPABLE)
async def test_plain_autogen_loses_that_it_was_told_to_stop_between_two_runs(build):
    live, restarted = await uninterrupted(build, *STOPPED), await reloaded(build, *STOPPED)
    assert restarted[0] == live[0]
    assert len(restarted[1]["messages"]) > len(live[1]["messages"])


@pytest.mark.parametrize("build", STOPPABLE)
async def test_midturn_keeps_that_it_was_told_to_stop_between_two_runs(build):
    assert await saved(build, *STOPPED) == await uninterrupted(build, *STOPPED)


@pytest.mark.parametrize("build", STOPPABLE[:2])
async def test_plain_autogen_loses_the_reason_to_stop(build):
    assert REQUESTED in (await uninterrupted(build, *STOPPED))[1]["stop_reason"]
    assert REQUESTED not in (await reloaded(build, *STOPPED))[1]["stop_reason"]


class Telling(Custom):
    """Tells an inner team to stop before its turn has come."""

    def __init__(self, external):
        super().__init__("telling")
        self.external = external

    async def reply(self, texts):
        self.external.set()
        return "stop"


def told_inside():
    external = ExternalTermination()
    inner = team(external, max_turns=3, name="inner")
    return RoundRobinGroupChat([Telling(external), inner], max_turns=1, name="outer")


TOLD = ["Hello.", RESTART, "And now?", RESTART, "And then?", RESTART, "And now?"]


async def test_plain_autogen_loses_that_an_inner_team_was_told_to_stop_in_a_turn_of_another():
    live, restarted = await uninterrupted(told_inside, *TOLD), await reloaded(told_inside, *TOLD)
    assert len(restarted[1]["messages"]) > len(live[1]["messages"])


async def test_midturn_keeps_that_an_inner_team_was_told_to_stop_in_a_turn_of_another():
    assert await kept(told_inside, *TOLD) == await uninterrupted(told_inside, *TOLD)


class UntoldBudget(TerminationCondition):
    """Stops every run when so many messages were seen over all runs; a reset takes nothing back."""

    def __init__(self, messages=5):
        self.messages = messages
        self.spent = 0

    @property
    def terminated(self):
        return False

    async def __call__(self, messages):
        self.spent += len(messages)
        if self.spent < self.messages:
            return None
        return StopMessage(content=f"{self.spent} of {self.messages} messages spent", source="budget")

    async def reset(self):
        pass


class Budget(UntoldBudget):
    async def save_state(self):
        return {"spent": self.spent}

    async def load_state(self, state):
        self.spent = state["spent"]


class UntoldCounter:
    """Called by FunctionalTermination: true for every fifth message, over all runs."""

    def __init__(self):
        self.seen = 0

    def __call__(self, messages):
        before, self.seen = self.seen // 5, self.seen + len(messages)
        return self.seen // 5 > before


class Counter(UntoldCounter):
    async def save_state(self):
        return {"seen": self.seen}

    async def load_state(self, state):
        self.seen = state["seen"]


OVER_RUNS = {
    "own": lambda: team(Budget(), max_turns=3),
    "own_in_or": lambda: team(MaxMessageTermination(4) | Budget()),
    "own_in_and": lambda: team(MaxMessageTermination(2) & (Budget() | TextMentionTermination("STOP")), max_turns=3),
    "own_in_a_nested_team": lambda: RoundRobinGroupChat([team(Budget(), max_turns=3)], max_turns=1, name="outer"),
    "function": lambda: team(FunctionalTermination(Counter()), max_turns=3),
    "function_in_or": lambda: team(FunctionalTermination(Counter()) | MaxMessageTermination(4)),
}
TURNS = ["Hello.", RESTART, "And now?", RESTART, "And then?"]


@pytest.mark.parametrize("build", OVER_RUNS)
async def test_plain_autogen_loses_what_a_condition_of_ones_own_counts_over_runs(build):
    live, restarted = await uninterrupted(OVER_RUNS[build], *TURNS), await reloaded(OVER_RUNS[build], *TURNS)
    assert restarted[0] == live[0]
    assert restarted[1:] != live[1:]


@pytest.mark.parametrize("build", OVER_RUNS)
async def test_midturn_keeps_what_a_condition_of_ones_own_counts_over_runs(build):
    assert await kept(OVER_RUNS[build], *TURNS) == await uninterrupted(OVER_RUNS[build], *TURNS)


async def test_midturn_warns_once_of_a_condition_that_changed_and_cannot_be_kept():
    class Purse(UntoldBudget):
        pass

    with pytest.warns(midturn.NotKept) as caught:
        await kept(lambda: team(MaxMessageTermination(4) | Purse()), *TURNS)
    [message] = [str(warning.message) for warning in caught]
    assert "Purse" in message
    assert "spent" in message


async def test_midturn_warns_once_of_a_called_object_that_changed_and_cannot_be_kept():
    class Clicker(UntoldCounter):
        pass

    with pytest.warns(midturn.NotKept) as caught:
        await kept(lambda: team(FunctionalTermination(Clicker()), max_turns=3), *TURNS)
    [message] = [str(warning.message) for warning in caught]
    assert "Clicker" in message
    assert "seen" in message


class Clock:
    """The time of TimeoutTermination."""

    now = 1000.0

    def monotonic(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    namespace = SimpleNamespace(monotonic=clock.monotonic)
    monkeypatch.setitem(TimeoutTermination.__init__.__globals__, "time", namespace)
    return clock


def hurried():
    return team(TimeoutTermination(60) | MaxMessageTermination(4))


async def test_plain_autogen_counts_the_time_between_two_runs_and_loses_it_with_a_restart(clock):
    live = hurried()
    await live.run(task="Hello.")
    clock.now += 100
    restarted = hurried()
    await restarted.load_state(await live.save_state())
    assert "Timeout" in (await live.run(task="And now?")).stop_reason
    assert "Timeout" not in (await restarted.run(task="And now?")).stop_reason


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("given", [False, True])
async def test_midturn_starts_the_clock_anew_with_each_turn(clock, restart, given):
    async with midturn.open("memory://") as store:
        case = store.session("case", hurried() if given else hurried)
        for task in ("Hello.", "And now?", "And then?"):
            clock.now += 100
            result = await case.run(task=task)
            assert "Timeout" not in result.stop_reason
            assert len(result.messages) == 4
            if restart:
                case = store.session("case", hurried() if given else hurried)


async def test_midturn_starts_the_clock_of_an_inner_team_anew_with_each_turn(clock):
    async def passing():
        async with midturn.open("memory://") as store:
            case = store.session("case", outer)
            yield await case.run(task="Hello.")
            clock.now += 100
            yield await case.run(task="And now?")
            clock.now += 100
            yield await store.session("case", outer).run(task="And then?")

    def outer():
        return RoundRobinGroupChat([hurried()], max_turns=1, name="outer")

    assert [len(result.messages) async for result in passing()] == [4, 4, 4]


async def test_midturn_lets_the_time_run_out_within_a_turn_live_and_restored_alike(clock):
    def slow(messages):
        clock.now += 40
        return remembered(messages)

    def build():
        return RoundRobinGroupChat(
            [assistant("ann", slow), assistant("bob", slow)],
            termination_condition=TimeoutTermination(60) | MaxMessageTermination(9),
        )

    said = []
    for restart in (False, True):
        async with midturn.open("memory://") as store:
            case = store.session("case", build)
            said.append([transcript(await case.run(task="Hello."))])
            case = store.session("case", build) if restart else case
            said[-1].append(transcript(await case.run(task="And now?")))
    assert said[0] == said[1]
    assert [(len(turn["messages"]), "Timeout" in turn["stop_reason"]) for turn in said[0]] == [(3, True), (3, True)]


class Stopping(Custom):
    """Says that all is over."""

    @property
    def produced_message_types(self):
        return (StopMessage,)

    async def on_messages(self, messages, cancellation_token):
        response = await super().on_messages(messages, cancellation_token)
        response.chat_message = StopMessage(content=response.chat_message.content, source=self.name)
        return response


def _look_up(messages):
    return calls(("lookup", f'{{"order": "{remembered(messages)}"}}'))


def _hand_over(messages):
    return calls(("transfer_to_user", "{}"))


def everybody(condition):
    """Members that between them say all that a condition can wait for."""
    members = [
        assistant("ann"),
        assistant("tom", _look_up, tools=[lookup]),
        assistant("hal", _hand_over, handoffs=["user"]),
        Stopping("sue"),
        assistant("bob", lambda messages: f"STOP after {remembered(messages)}"),
    ]
    return RoundRobinGroupChat(members, termination_condition=condition, max_turns=6)


SHIPPED = {
    "MaxMessageTermination": lambda: MaxMessageTermination(4),
    "TextMentionTermination": lambda: TextMentionTermination("STOP"),
    "StopMessageTermination": StopMessageTermination,
    "TokenUsageTermination": lambda: TokenUsageTermination(max_total_token=20),
    "HandoffTermination": lambda: HandoffTermination("user"),
    "TimeoutTermination": lambda: TimeoutTermination(10_000),
    "ExternalTermination": ExternalTermination,
    "SourceMatchTermination": lambda: SourceMatchTermination(["sue"]),
    "TextMessageTermination": lambda: TextMessageTermination("bob"),
    "FunctionCallTermination": lambda: FunctionCallTermination("lookup"),
    "FunctionalTermination": lambda: FunctionalTermination(lambda messages: len(messages) > 2),
}
COMBINED = {
    "or": lambda: HandoffTermination("user") | MaxMessageTermination(5),
    "and": lambda: HandoffTermination("user") & TextMentionTermination("STOP"),
    "never_both": lambda: TextMentionTermination("STOP") & ExternalTermination(),
}
ALL = SHIPPED | COMBINED
NEVER = {"TimeoutTermination", "ExternalTermination", "never_both"}


def test_every_condition_of_autogen_is_tried():
    assert set(SHIPPED) == set(conditions.__all__)


@pytest.mark.parametrize("name", ALL)
async def test_after_a_clean_stop_live_and_restored_agree(name):
    def build():
        return everybody(ALL[name]())

    live = await uninterrupted(build, *TURNS)
    assert {"Maximum number of turns" in turn["stop_reason"] for turn in live} == {name in NEVER}
    assert await reloaded(build, *TURNS) == live
    assert await kept(build, *TURNS) == live
