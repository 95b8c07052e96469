"""A unit test calls a tool without a session."""

import pytest

import midturn
from midturn.testing import tool_call


@midturn.tool(effect="idempotent")
async def refund(order: str) -> str:
    return f"refunded {order} with {midturn.call_key()}"


@midturn.tool(effect="transactional")
async def book(order: str) -> str:
    await midturn.transaction().execute("INSERT INTO bookings VALUES (?)", (order,))
    return f"booked {order}"


async def test_a_tool_gets_the_key_that_the_test_gives():
    with tool_call("refund-1"):
        assert await refund("A1") == "refunded A1 with refund-1"
        with tool_call():
            assert midturn.call_key() != "refund-1"
        assert midturn.call_key() == "refund-1"
    with pytest.raises(LookupError, match=r"only inside a tool that a session calls"):
        await refund("A1")


async def test_a_transactional_tool_gets_the_transaction_that_the_test_gives(tmp_path):
    async with midturn.open(f"sqlite:///{tmp_path / 'bookings.db'}") as store:
        async with store.store.transaction() as transaction:
            await transaction.execute("CREATE TABLE bookings (id TEXT)")
            with tool_call(transaction=transaction):
                assert await book("A1") == "booked A1"
            assert await transaction.execute("SELECT id FROM bookings") == [("A1",)]
        async with store.store.transaction() as transaction:
            with pytest.raises(Exception, match="no such table"):
                await transaction.execute("SELECT id FROM bookings")


async def test_a_call_without_a_transaction_is_not_transactional():
    with tool_call(), pytest.raises(LookupError, match="only inside a tool with effect"):
        await book("A1")
