"""The private names of psycopg that midturn overrides; nothing else in the package has any.

``tests/stores/test_private.py`` names each of them; the extra ``postgres`` has an upper bound on the version.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg

if TYPE_CHECKING:
    from psycopg.abc import PQGen


class PreparingConnection(psycopg.AsyncConnection[tuple[Any, ...]]):
    """A connection that says when what is prepared on it is gone."""

    def forget_prepared(self) -> None:
        """Forget the statements that were prepared; called when psycopg gives up all of them, as after a ROLLBACK."""

    def _deallocate(self, name: bytes | None) -> PQGen[None]:
        if name is None:
            self.forget_prepared()
        return super()._deallocate(name)


class OneStatement(psycopg.AsyncCursor[tuple[Any, ...]]):
    """A cursor that asks in a way in which the server takes one statement only: a second one might be a COMMIT."""

    def _execute_send(self, *query: Any, **options: Any) -> None:
        super()._execute_send(*query, **(options | {"force_extended": True}))
