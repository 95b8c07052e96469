"""Every error that midturn raises.

    MidturnError
    ├── SessionBusy         another worker holds the session
    ├── LeaseLost           this worker held the session and another has taken it over
    ├── Conflict            the session changed between reading and writing it
    ├── InvalidArgument     an argument is wrong (``path`` says which; also a ``ValueError``)
    ├── NotFound            there is no such session, turn, checkpoint or store (also a ``LookupError``)
    ├── SessionDeleted      the session was deleted; it stays deleted
    ├── HistoryLost         the store no longer has what it had acknowledged
    ├── TurnFailed          a turn ended without a result; the state is as it was before the turn
    ├── TurnTimeout         a turn took longer than its timeout; ``resume()`` continues it
    ├── RedactionFailed     the function of ``Blueprint(redact=...)`` failed; nothing of the text was stored
    ├── InDoubt             a crash interrupted a tool's call; a human has to say whether the call took effect
    ├── ReplayDiverged      an interrupted turn cannot continue: its recorded calls do not fit the changed code
    ├── StateInvalid        a state or record cannot be stored or restored (``path`` says which)
    │   ├── Drifted         a state belongs to another agent or team than the one that was built
    │   ├── Tampered        a record in a sealed store was changed, moved or removed, or is not sealed
    │   └── WrongKey        a session is sealed with a key that is not at hand
    ├── UnknownVersion      a record was written by a newer midturn, or a state by a newer version of the blueprint
    ├── MissingMigration    an older version of the blueprint wrote the state, and no migration leads to this version
    ├── MigrationFailed     a migration raised, or did what a migration must not do; the session is unchanged
    ├── StoreFull           no space is left for the write
    ├── StoreUnavailable    the store cannot be opened, reached or used
    │   └── OutcomeUnknown  a write was interrupted, and nobody knows yet whether it took effect
    └── MissingExtra        an optional package is needed (``str(error)`` has the pip line)

``NotKept`` and ``NotRecorded`` are warnings, not errors.

Messages say what happened, to which session, and what to do next.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self

MAX_DIFFERENCES = 20
"""Largest number of differences that a message lists after the first."""

EXTRAS = {
    "openai": "autogen-ext[openai]>=0.7.4,<0.8",
    "postgres": "psycopg[binary]>=3.2,<3.4",
    "redis": "redis>=6.2,<9",
    "sealed": "cryptography>=43",
    "serve": "midturn[serve]",
}
"""The package that each optional extra of midturn installs."""


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

    A_HUMAN = "a human"
    """The owner of a session whose turn waits for an answer."""

    def __init__(self, message: str, *, session: str, owner: str, hint: str = "") -> None:
        super().__init__(message, session=session, hint=hint)
        self.owner = owner


class LeaseLost(MidturnError):
    """Another worker took the session over; since then this worker has written nothing."""


class Conflict(MidturnError):
    """The session changed between reading and writing it, a key was used for two tasks, or a question is not open.

    ``key`` is the key that belongs to another task.
    """

    def __init__(self, message: str, *, session: str | None = None, hint: str = "", key: str | None = None) -> None:
        super().__init__(message, session=session, hint=hint)
        self.key = key

    @classmethod
    def of(cls, session: str) -> Conflict:
        """Return the error for a write that names another seq than the session's."""
        return cls(f"another writer changed session {session!r}; read it again", session=session)


class NotFound(MidturnError, LookupError):
    """There is no such session, turn, checkpoint or store."""

    @classmethod
    def of(cls, session: str) -> NotFound:
        """Return the error for a session that does not exist."""
        hint = "store.sessions() lists the existing ones."
        return cls(f"there is no session {session!r}", session=session, hint=hint)


class SessionDeleted(MidturnError):
    """The session was deleted, and a deleted id stays deleted."""

    @classmethod
    def of(cls, session: str) -> SessionDeleted:
        """Return the error for any use of a deleted session."""
        return cls(f"session {session!r} was deleted and stays deleted; choose another id", session=session)

    @classmethod
    def soon(cls, session: str) -> SessionDeleted:
        """Return the error for a session whose deletion was decided, and has begun or was interrupted."""
        finish = f"midturn rm {shlex.quote(session)}"
        return cls(
            f"session {session!r} is being deleted; if that was interrupted, finish it: {finish}", session=session
        )


class HistoryLost(MidturnError):
    """The store no longer has what it had acknowledged: it was emptied, replaced, truncated, or set back.

    This worker has written nothing since. A worker that has seen the lost history raises this error until the store
    has that history again, or until it opens the store again.
    """

    @classmethod
    def of(cls, session: str, what: str) -> HistoryLost:
        """Return the error for a session of which the store has lost a part; ``what`` names that part."""
        hint = "Restore the store. Or accept what it has now: close the store and open it again."
        return cls(f"history of session {session!r} is lost: {what}", session=session, hint=hint)


class TurnFailed(MidturnError):
    """A turn ended without a result; ``turn`` is its number. The state is as it was before the turn."""

    def __init__(self, message: str, *, session: str, turn: int, hint: str = "") -> None:
        super().__init__(message, session=session, hint=hint)
        self.turn = turn


class TurnTimeout(MidturnError):
    """A turn took longer than its ``timeout`` of seconds, and was stopped; ``turn`` is its number.

    The state is as it was before the turn. ``resume()``, or the same key, continues the turn and repeats no completed
    call.
    """

    def __init__(self, message: str, *, session: str, turn: int, timeout: float, hint: str = "") -> None:
        super().__init__(message, session=session, hint=hint)
        self.turn = turn
        self.timeout = timeout


class RedactionFailed(MidturnError):
    """The function of ``Blueprint(redact=...)`` raised, or returned no text. Nothing of the text was stored.

    The error of the function may contain the text, so it is neither the cause nor the context of this one.
    """


class InDoubt(MidturnError):
    """A crash interrupted a call of an ``unsafe`` tool; ``answer()`` takes what became of the call.

    ``question`` is the id of the question. ``tool`` and ``arguments`` are those of the call.
    """

    def __init__(
        self, message: str, *, session: str, question: str, tool: str, arguments: object, hint: str = ""
    ) -> None:
        super().__init__(message, session=session, hint=hint)
        self.question = question
        self.tool = tool
        self.arguments = arguments


class ReplayDiverged(MidturnError):
    """The recorded calls of an interrupted turn do not fit the calls that the code makes now.

    ``recorded`` names the completed calls that the code no longer makes. ``now`` names the call that it makes in their
    place, if there is one.
    """

    def __init__(
        self, message: str, *, session: str, turn: int, recorded: Sequence[str], now: str | None, hint: str = ""
    ) -> None:
        super().__init__(message, session=session, hint=hint)
        self.turn = turn
        self.recorded = tuple(recorded)
        self.now = now


class Misfit(MidturnError):
    """Something is wrong with a value; ``path`` names the value. Common base of two errors, not raised itself.

    ``differences`` has a path and a message for each problem.
    """

    def __init__(self, message: str, *, path: str, session: str | None = None, hint: str = "") -> None:
        super().__init__(f"{path}: {message}", session=session, hint=hint)
        self.path = path
        self.differences: tuple[tuple[str, str], ...] = ((path, message),)

    @classmethod
    def gathered(cls, errors: Sequence[Misfit]) -> Self:
        """Return one error that lists the differences of all errors."""
        differences = tuple(difference for error in errors for difference in error.differences)
        (path, message), *others = differences
        lines = [f"{path}: {message}" for path, message in others[:MAX_DIFFERENCES]]
        if len(others) > MAX_DIFFERENCES:
            lines.append(f"and {len(others) - MAX_DIFFERENCES} more")
        error = cls("\n".join([message, *lines]), path=path)
        error.differences = differences
        return error


class InvalidArgument(Misfit, ValueError):
    """An argument is wrong, or an option in a URL; ``path`` names it.

    ``differences`` has a path and a message for each problem.
    """

    @classmethod
    def of(cls, error: StateInvalid) -> InvalidArgument:
        """Return an error about a value that came as an argument."""
        found = cls(error.differences[0][1], path=error.path, session=error.session, hint=error.hint)
        found.args, found.differences = error.args, error.differences
        return found


class StateInvalid(Misfit):
    """A state or a record cannot be stored, or cannot be used as it is stored; ``path`` names the place.

    ``differences`` has a path and a message for each problem.
    """

    @staticmethod
    def together(errors: Sequence[StateInvalid]) -> StateInvalid:
        """Return one error that lists the differences of all errors."""
        return (Drifted if all(isinstance(error, Drifted) for error in errors) else StateInvalid).gathered(errors)


class Drifted(StateInvalid):
    """A state is sound, but belongs to another agent or team than the one that was built.

    ``drift`` reports what has changed, if the checkpoint says how its agents were built.
    """

    drift: object = None

    @classmethod
    def of(cls, error: StateInvalid) -> Drifted:
        """Return an error about a sound state as a ``Drifted`` with the same message and differences."""
        if isinstance(error, Drifted):
            return error
        (path, message), *_ = error.differences
        found = cls(message, path=path, session=error.session, hint=error.hint)
        found.args, found.differences = error.args, error.differences
        for note in getattr(error, "__notes__", ()):
            found.add_note(note)
        return found


class Tampered(StateInvalid):
    """A record in a sealed store is not as midturn sealed it for its place: changed, moved, removed or not sealed."""


class WrongKey(StateInvalid):
    """A session is sealed with a key that is not at hand; the message has the id of the key."""


class NotKept(UserWarning):
    """An object of the user's own changed in a turn, and has no methods to save and load its state."""


class NotRecorded(UserWarning):
    """An object of the user's own calls tools, and midturn does not know how to record its calls."""


class UnknownVersion(MidturnError):
    """A record was written by a newer midturn, or a state by a newer version of the blueprint."""


class MissingMigration(MidturnError):
    """An older version of the blueprint wrote the state, and no migration leads from that version to this one."""


class MigrationFailed(MidturnError):
    """A migration raised, or did what a migration must not do; the session is unchanged.

    ``versions`` are the version that the migration starts from and the one that it leads to.
    """

    def __init__(self, message: str, *, session: str | None, versions: tuple[int, int], hint: str = "") -> None:
        super().__init__(message, session=session, hint=hint)
        self.versions = versions


class StoreUnavailable(MidturnError):
    """The store cannot be opened, reached or used."""

    @classmethod
    def closed(cls) -> StoreUnavailable:
        """Return the error for a call after ``close()``."""
        return cls("the store is closed", hint="Use it inside `async with midturn.open(...)`.")


class OutcomeUnknown(StoreUnavailable):
    """A write was interrupted, and nobody knows yet whether it took effect. Read the session again to find out."""


class StoreFull(MidturnError):
    """No space is left for the write; nothing was written."""


class MissingExtra(MidturnError):
    """An optional package is needed; the message has the line that installs it."""

    def __init__(self, extra: str, why: str) -> None:
        super().__init__(f'{why}: pip install "{EXTRAS[extra]}"')
        self.extra = extra
