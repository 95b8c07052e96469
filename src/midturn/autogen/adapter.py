"""Connect AutoGen to midturn: the adapter that implements :class:`midturn.framework.Framework`.

Start here. Each method hands over to one folder: ``parts`` finds what an agent or team is made of, ``state`` captures
and loads it, ``calls`` sends its calls through the journal, ``messages`` converts its messages, ``fingerprint``
describes how it was configured, ``edits`` changes a stored state in migrations, and ``export`` writes its
conversations for other libraries.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias
from weakref import WeakValueDictionary

from autogen_agentchat.messages import BaseAgentEvent, BaseChatMessage

from midturn.autogen import edits, export, private
from midturn.autogen.calls import run_stream
from midturn.autogen.calls.interception import InterceptedRun
from midturn.autogen.edits import State
from midturn.autogen.fingerprint import fingerprint
from midturn.autogen.messages import conversion, texts
from midturn.autogen.messages.conversion import AUTOGENS, Turn, TurnResult, replayed
from midturn.autogen.messages.own_types import name_of
from midturn.autogen.parts import kinds
from midturn.autogen.parts.walk import settle, teams, walk
from midturn.autogen.state import not_kept, repairs, snapshot
from midturn.errors import InvalidArgument, StateInvalid
from midturn.redaction import Where

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping, Sequence

    from midturn.autogen.calls.request_keys import Digests
    from midturn.autogen.parts.walk import Part
    from midturn.framework import Calls, Destination, Exported, Input, Loaded, Outcome, Outline
    from midturn.history.turns import StoredTurn
    from midturn.questions import Waiting
    from midturn.record.codec import Json
    from midturn.redaction import Clean, Redaction
    from midturn.stopping import Stop
    from midturn.tools import Declaration

Event: TypeAlias = BaseAgentEvent | BaseChatMessage

NOTHING_CHECKED: tuple[Sequence[Json] | None, list[Any] | None] = None, None

__all__ = ["AutoGen", "Event", "State", "Turn", "TurnResult", "replayed"]


class AutoGen:
    """Run, capture and load agents and teams of AutoGen 0.7."""

    result_type = TurnResult

    def __init__(self) -> None:
        self._live: Any = None
        self._built: frozenset[str] = frozenset()
        """The paths of the parts that the live instance had when it was new."""
        self._parts: Sequence[Part] = ()
        """All parts of the live instance, found for the next turn; empty if they may have changed since."""
        self._before: not_kept.Seen = {}
        """The attributes before the turn of the objects whose state midturn cannot keep."""
        self._digests: dict[str, Digests] = {}
        """Digests of the requests to models, by the paths of the attributes that hold the clients."""
        self._stand_ins = WeakValueDictionary[str, Any]()
        """Stand-ins of earlier runs that are still referenced, by the paths of the attributes that held them."""
        self._types = WeakValueDictionary[str, type[BaseChatMessage]]()
        """Types of the messages that were given as tasks, by their names."""
        self._texts = texts.StateTexts()
        self._checked = NOTHING_CHECKED
        """The task that was checked last, and its messages, which the next run takes."""

    def another(self) -> AutoGen:
        return AutoGen()

    def is_live(self, what: object) -> bool:
        return kinds.traits_of(what).is_agent_or_team or kinds.is_stateful(what)

    async def renew(self, live: Any) -> None:
        for team in teams(walk(live)):
            await private.renew(team)

    async def prepare(self, live: Any) -> list[str]:
        found = await settle(live)
        self._meet(found)
        repaired = await repairs.prepare(found)
        self._parts = found
        self._before = not_kept.look(found, self._built)
        return repaired

    async def capture(self, live: Any) -> Any:
        found = await settle(live)
        self._meet(found)
        tree = await snapshot.capture([part for part in found if part.path in self._built])
        self._parts = ()  # a user's own save_state() may have created other parts
        not_kept.warn(found, self._built, self._before)
        return tree

    async def fit(self, live: Any, tree: Any) -> snapshot.Plan:
        plan = await snapshot.fit(live, tree)
        self._meet(plan.parts)
        return plan

    async def load(self, live: Any, plan: snapshot.Plan) -> Loaded:
        return await snapshot.load(live, plan)

    async def fingerprint(self, live: Any) -> dict[str, Json]:
        return await fingerprint.fingerprint(walk(live))

    def view(self, tree: Json) -> State:
        return State(tree)

    async def fill(self, live: Any, tree: Json) -> Json:
        filled: Json = await edits.fill(live, tree)
        return filled

    def outline(self, tree: Json) -> Outline:
        return edits.outline(tree)

    def mentions(self, tree: Json, tool: str) -> int:
        return edits.mentions(tree, tool)

    def export(self, tree: Json, *, to: Destination, session: str) -> Exported:
        return export.export(tree, to=to, session=session)

    def _meet(self, found: Sequence[Part]) -> None:
        """Remember the parts of a new instance: only the state of those can be loaded again."""
        live = found[0].live
        if self._live is not live or kinds.traits_of(live).is_runtime:
            if self._live is not live:
                self._digests, self._texts = {}, texts.StateTexts()
                self._stand_ins.clear()
            self._live = live
            self._built = frozenset(part.path for part in found)
            self._before = not_kept.look(found, self._built)

    def accept(self, task: Any) -> list[Json] | None:
        messages = conversion.accept(task)
        if messages is None:
            return None
        self._types.update((name_of(cls), cls) for cls in map(type, messages) if cls.__name__ not in AUTOGENS)
        return [conversion.dump(message) for message in messages]

    def check(self, live: Any, task: Sequence[Json]) -> None:
        try:
            self._checked = task, conversion.load(live, task, "task", types=self._types)
        except StateInvalid as error:
            raise InvalidArgument.of(error) from error.__cause__

    def texts(self, message: Json, clean: Clean) -> Json:
        found: Json = texts.message(message, clean)
        return found

    async def redact(self, tree: Any, redaction: Redaction) -> Any:
        found = await redaction.own(lambda clean: self._texts.walk(tree, clean), Where(kind="agent"))
        self._texts.keep()
        return found

    def identity(self, message: Json) -> Json:
        return conversion.identity(message)

    def stream(
        self,
        live: Any,
        given: Input,
        calls: Calls,
        effects: Mapping[str, Declaration],
        stops: Sequence[Stop],
    ) -> AsyncGenerator[Event | Outcome, None]:
        parts, self._parts = self._parts or walk(live), ()
        (checked, messages), self._checked = self._checked, NOTHING_CHECKED
        if given.task is not checked:
            messages = None if given.task is None else conversion.load(live, given.task, "task", types=self._types)
        run = InterceptedRun(parts, calls, effects, self._digests, self._stand_ins)
        return run_stream.stream(run, given, messages, stops)

    def again(self, event: Any) -> Any:
        return conversion.mark(event)

    def turn(
        self, live: Any, stored: StoredTurn, *, said: Sequence[Event] | None = None, as_text: bool = False
    ) -> Turn:
        return conversion.turn(live, stored, said, as_text=as_text)

    def result(
        self,
        live: Any,
        *,
        turn: int,
        checkpoint: int,
        outcome: Outcome,
        waiting: Waiting | None = None,
        notes: Sequence[str] = (),
    ) -> TurnResult:
        return conversion.result(live, outcome, turn=turn, checkpoint=checkpoint, waiting=waiting, notes=notes)
