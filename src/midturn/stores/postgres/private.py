"""All private names of psycopg that midturn overrides.

``tests/stores/test_private.py`` tests each of them. The extra ``postgres`` has an upper bound on the version.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg

if TYPE_CHECKING:
    from psycopg.abc import PQGen


class PreparingConnection(psycopg.AsyncConnection[tuple[Any, ...]]):
    """A connection that reports when its prepared statements are gone."""

    def forget_prepared(self) -> None:
        """Forget the prepared statements; psycopg has just dropped all of them, for example after a ROLLBACK."""

    def _deallocate(self, name: bytes | None) -> PQGen[None]:
        if name is None:
            self.forget_prepared()
        return super()._deallocate(name)


class OneStatement(psycopg.AsyncCursor[tuple[Any, ...]]):
    """A cursor whose protocol allows only one statement at a time, because a second one might be a COMMIT."""

    def _execute_send(self, *query: Any, **options: Any) -> None:
        super()._execute_send(*query, **(options | {"force_extended": True}))
