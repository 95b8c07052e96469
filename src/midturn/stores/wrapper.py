"""A store around a store: the place for sealing, compression and telemetry.

Subclass :class:`StoreWrapper` and override what you change; :func:`wrap` puts it around a store::

    class Counting(StoreWrapper):
        writes = 0

        async def write(self, write: Write) -> Head:
            self.writes += 1
            return await super().write(write)

    midturn.open(store=wrap(Counting, await open_store("sqlite:///support.db")))
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, cast

from midturn.record.head import NO_LABELS
from midturn.store import Transactional

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from contextlib import AbstractAsyncContextManager

    from midturn.record.head import Head, Kind, Row, Status, Write
    from midturn.store import ListOrder, Profile, Store, Transaction

Wrapper = TypeVar("Wrapper", bound="StoreWrapper")


class StoreWrapper:
    """A store that forwards every call of the contract to the store ``inner``.

    Writes of a transaction do not go through :meth:`write`. A wrapper that changes writes also overrides
    :meth:`wrap_transaction`.
    """

    def __init__(self, inner: Store) -> None:
        self.inner = inner
        self.profile: Profile = inner.profile

    @property
    def sealed(self) -> bool:
        """Return whether nobody can change or remove a record unnoticed."""
        return getattr(self.inner, "sealed", False)

    async def head(self, session: str) -> Head | None:
        return await self.inner.head(session)

    async def heads(
        self,
        *,
        after: str = "",
        limit: int = 100,
        prefix: str = "",
        status: Status | None = None,
        labels: Mapping[str, str] = NO_LABELS,
        order: ListOrder = "id",
        reverse: bool = False,
    ) -> Sequence[Head]:
        return await self.inner.heads(
            after=after, limit=limit, prefix=prefix, status=status, labels=labels, order=order, reverse=reverse
        )

    async def counts(self) -> Mapping[Status, int]:
        return await self.inner.counts()

    async def write(self, write: Write) -> Head:
        return await self.inner.write(write)

    async def rows(self, session: str, kind: Kind, *, start: int = 0, stop: int | None = None) -> Sequence[Row]:
        return await self.inner.rows(session, kind, start=start, stop=stop)

    async def delete(self, session: str, *, data: bytes = b"") -> bool:
        return await self.inner.delete(session, data=data)

    async def forget(self, session: str) -> bool:
        return await self.inner.forget(session)

    async def close(self) -> None:
        await self.inner.close()

    def wrap_transaction(
        self, transaction: AbstractAsyncContextManager[Transaction]
    ) -> AbstractAsyncContextManager[Transaction]:
        """Return the transaction that a caller gets for one of the inner store.

        It is called only if the inner store has transactions.
        """
        return transaction


def wrap(wrapper: type[Wrapper], inner: Store, **options: Any) -> Wrapper:
    """Return ``wrapper(inner, **options)``, which is :class:`~midturn.store.Transactional` only if ``inner`` is."""
    cls = _with_transactions(wrapper) if isinstance(inner, Transactional) else wrapper
    return cast("Wrapper", cls(inner, **options))


def innermost(store: Store) -> Store:
    """Return the store inside all wrappers, which alone knows its address."""
    while isinstance(store, StoreWrapper):
        store = store.inner
    return store


def _with_transactions(wrapper: type[StoreWrapper]) -> type[StoreWrapper]:
    """Return a subclass with the method ``transaction``, whose presence makes a store ``Transactional``."""

    def transaction(self: StoreWrapper) -> AbstractAsyncContextManager[Transaction]:
        return self.wrap_transaction(cast("Transactional", self.inner).transaction())

    return type(wrapper.__name__, (wrapper,), {"transaction": transaction, "__module__": wrapper.__module__})
