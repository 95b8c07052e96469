"""All that a store has of a session."""

from midturn.record.head import Kind


async def everything(store, session):
    """Return all records of a session as one text."""
    found = [row.data for kind in Kind for row in await store.store.rows(session, kind)]
    head = await store.store.head(session)
    return b"\n".join([*found, b"" if head is None else head.data]).decode()
