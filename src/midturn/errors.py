"""Every error that midturn raises.

    MidturnError
    ├── SessionBusy         another worker holds the session
    ├── LeaseLost           this worker held the session and another has taken it over
    ├── Conflict            the session changed between reading and writing it
    ├── NotFound            there is no such session, turn, checkpoint or store (also a ``LookupError``)
    ├── SessionDeleted      the session was deleted; it stays deleted
    ├── TurnFailed          a turn ended without a result; the state is as it was before it
    ├── InDoubt             a crash left a tool's call in doubt, and a human has to say what became of it
    ├── ReplayDiverged      an interrupted turn cannot be finished: the code has changed, and what was done does not fit
    ├── StateInvalid        a value or record cannot be stored or restored (``path`` says which)
    │   └── Drifted         a state fits another agent or team than the one that was built
    ├── UnknownVersion      a record was written by a newer midturn, or a state by a newer version of the blueprint
    ├── MissingMigration    a state was written by an older version of the blueprint, and no migration leads from it
    ├── MigrationFailed     a migration raised, or did what a migration must not do; the session is as it was
    ├── StoreFull           no space is left for the write
    ├── StoreUnavailable    the store cannot be opened, reached or used
    │   └── OutcomeUnknown  a write was cut off and nobody can tell whether it happened
    └── MissingExtra        an optional package is needed (``str(error)`` has the pip line)

``NotKept`` is a warning, not an error.

Messages say what happened, to which session, and what to do next.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_DIFFERENCES = 20
"""How many differences a message lists after the first."""

EXTRAS = {
    "openai": "autogen-ext[openai]>=0.7.4,<0.8",
    "postgres": "psycopg[binary]>=3.2,<3.4",
    "redis": "redis>=6.2,<9",
}
"""What each optional extra of midturn stands for."""


class MidturnError(Exception):
    """Base of all midturn errors; ``session`` is the id of the session concerned, if there is one.

    ``hint`` names the Python calls that help. It is the end of ``str(error)``. The command line prints commands in its
    place.
    """

    def __init__(self, message: str, *, session: str | None = None, hint: str = "") -> None:
        super().__init__(f"{message}\n{hint}" if hint else message)
        self.session = session
        self.hint = hint


class SessionBusy(MidturnError):
    """Another worker holds the session, or its open turn waits for a human; ``owner`` says who."""

    def __init__(self, message: str, *, session: str, owner: str, hint: str = "") -> None:
        super().__init__(message, session=session, hint=hint)
        self.owner = owner


class LeaseLost(MidturnError):
    """Another worker took the session over; nothing of this worker's was written since."""


class Conflict(MidturnError):
    """The session changed between reading and writing it, a key was used for two tasks, or a question is not open."""

    @classmethod
    def of(cls, session: str) -> Conflict:
        """For a write that named another seq than the session's."""
        return cls(f"session {session!r} was changed by another writer; read it again", session=session)


class NotFound(MidturnError, LookupError):
    """There is no such session, turn, checkpoint or store."""

    @classmethod
    def of(cls, session: str) -> NotFound:
        """Make the error for a session that is not there."""
        hint = "store.sessions() lists the existing ones."
        return cls(f"there is no session {session!r}", session=session, hint=hint)


class SessionDeleted(MidturnError):
    """The session was deleted, and a deleted id stays deleted."""

    @classmethod
    def of(cls, session: str) -> SessionDeleted:
        """For any use of a deleted session."""
        return cls(f"session {session!r} was deleted and stays deleted; choose another id", session=session)


class TurnFailed(MidturnError):
    """A turn ended without a result; ``turn`` is its number and the state is as it was before it."""

    def __init__(self, message: str, *, session: str, turn: int, hint: str = "") -> None:
        super().__init__(message, session=session, hint=hint)
        self.turn = turn


class InDoubt(MidturnError):
    """A crash left a call of an ``unsafe`` tool in doubt; ``answer()`` says what became of it.

    ``question`` is the id of the question, ``tool`` and ``arguments`` are those of the call.
    """

    def __init__(
        self, message: str, *, session: str, question: str, tool: str, arguments: object, hint: str = ""
    ) -> None:
        super().__init__(message, session=session, hint=hint)
        self.question = question
        self.tool = tool
        self.arguments = arguments


class ReplayDiverged(MidturnError):
    """What an interrupted turn had done does not fit what the code does now.

    ``recorded`` names the calls that were completed and are not made any more, ``now`` the call made in their place,
    if there is one.
    """

    def __init__(
        self, message: str, *, session: str, turn: int, recorded: Sequence[str], now: str | None, hint: str = ""
    ) -> None:
        super().__init__(message, session=session, hint=hint)
        self.turn = turn
        self.recorded = tuple(recorded)
        self.now = now


class StateInvalid(MidturnError):
    """A value cannot be stored or a stored one cannot be used; ``path`` names it.

    ``differences`` has a path and a message for each thing that is wrong.
    """

    def __init__(self, message: str, *, path: str, session: str | None = None, hint: str = "") -> None:
        super().__init__(f"{path}: {message}", session=session, hint=hint)
        self.path = path
        self.differences: tuple[tuple[str, str], ...] = ((path, message),)

    @staticmethod
    def together(errors: Sequence[StateInvalid]) -> StateInvalid:
        """One error for all of them."""
        differences = tuple(difference for error in errors for difference in error.differences)
        (path, message), *others = differences
        lines = [f"{path}: {message}" for path, message in others[:MAX_DIFFERENCES]]
        if len(others) > MAX_DIFFERENCES:
            lines.append(f"and {len(others) - MAX_DIFFERENCES} more")
        cls = Drifted if all(isinstance(error, Drifted) for error in errors) else StateInvalid
        error = cls("\n".join([message, *lines]), path=path)
        error.differences = differences
        return error


class Drifted(StateInvalid):
    """A state is sound, but it is that of another agent or team than the one that was built.

    ``drift`` is the report of what has changed, if the checkpoint says how its agents were built.
    """

    drift: object = None

    @classmethod
    def of(cls, error: StateInvalid) -> Drifted:
        """The same as another error about a state, which is sound."""
        if isinstance(error, Drifted):
            return error
        (path, message), *_ = error.differences
        found = cls(message, path=path, session=error.session, hint=error.hint)
        found.args, found.differences = error.args, error.differences
        for note in getattr(error, "__notes__", ()):
            found.add_note(note)
        return found


class NotKept(UserWarning):
    """Something of a user's own has changed in a turn, and has no methods that say what to keep of it."""


class UnknownVersion(MidturnError):
    """A record was written by a newer midturn, or a state by a newer version of the blueprint."""


class MissingMigration(MidturnError):
    """A state was written by an older version of the blueprint, and no migration leads from that to this one."""


class MigrationFailed(MidturnError):
    """A migration raised, or did what a migration must not do; the session is as it was.

    ``versions`` are the two between which it leads.
    """

    def __init__(self, message: str, *, session: str | None, versions: tuple[int, int], hint: str = "") -> None:
        super().__init__(message, session=session, hint=hint)
        self.versions = versions


class StoreUnavailable(MidturnError):
    """The store cannot be opened, reached or used."""

    @classmethod
    def closed(cls) -> StoreUnavailable:
        """For a call after ``close()``."""
        return cls("the store is closed", hint="Use it inside `async with midturn.open(...)`.")


class OutcomeUnknown(StoreUnavailable):
    """A write was cut off and it is not known whether it took effect; reading the session again tells."""


class StoreFull(MidturnError):
    """No space is left for the write; nothing of it was kept."""


class MissingExtra(MidturnError):
    """An optional package is needed; the message has the line that installs it."""

    def __init__(self, extra: str, why: str) -> None:
        super().__init__(f'{why}: pip install "{EXTRAS[extra]}"')
        self.extra = extra
