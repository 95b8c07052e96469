"""A redelivered key brings back the recorded result, also of messages whose type a later version has no more."""

import json
from typing import Literal

import pytest
from autogen_agentchat.agents import BaseChatAgent
from autogen_agentchat.base import Response
from autogen_agentchat.messages import BaseChatMessage, StructuredMessage, TextMessage
from autogen_agentchat.teams import RoundRobinGroupChat
from moving import FACT, World
from pydantic import BaseModel, create_model

import midturn


class Order(BaseModel):
    number: int
    note: str = "für Ann"


class Bestellung(BaseModel):
    number: int
    note: str


OrderOfALand = create_model("Order", number=(int, ...), note=(str, ...), land=(str, ...))


@pytest.fixture
def world():
    return World()


def agent(world, model, **values):
    answer = model(number=7, **values).model_dump_json()
    return world.agent("ann", lambda messages: answer, output_content_type=model)


def team(world, model, **values):
    return RoundRobinGroupChat([agent(world, model, **values), world.agent("bob")], max_turns=2)


def blueprints(first, second, migration):
    v1 = midturn.Blueprint("orders", first)
    v2 = midturn.Blueprint("orders", second, version=2)
    v2.migration(1, 2)(migration)
    return v1, v2


def renamed(state):
    return state.rename_message_type("Order", "Bestellung")


def base(message):
    return message.source, message.id, message.metadata, message.created_at, message.models_usage


@pytest.mark.parametrize("build", [agent, team])
@pytest.mark.parametrize("first", ["the key", "another task"])
async def test_a_recorded_result_comes_back_after_its_message_type_was_renamed(store, world, build, first):
    v1, v2 = blueprints(lambda: build(world, Order), lambda: build(world, Bestellung, note="x"), renamed)
    before = await store.session("case", v1).run(task=FACT, key="k1")
    assert isinstance(before.messages[1], StructuredMessage)
    case = store.session("case", v2)
    if first == "another task":  # what runs is there already when the key comes
        await case.run(task="And now?", key="k2")
    asked = len(world.asked)
    again = await case.run(task=FACT, key="k1")
    assert len(world.asked) == asked
    assert (again.turn, again.checkpoint, again.usage) == (before.turn, before.checkpoint, before.usage)
    assert again.stop_reason == before.stop_reason
    assert [*map(base, again.messages)] == [*map(base, before.messages)]
    told = again.messages[1]
    assert type(told) is TextMessage
    assert json.loads(told.content) == {"number": 7, "note": "für Ann"}
    assert "für" in told.content
    others = [message for message in before.messages if message.id != told.id]
    assert [message for message in again.messages if message.id != told.id] == others


async def test_a_type_that_is_still_known_comes_back_as_it_was(store, world):
    v1, v2 = blueprints(lambda: team(world, Order), lambda: team(world, Order), lambda state: state)
    before = await store.session("case", v1).run(task=FACT, key="k1")
    again = await store.session("case", v2).run(task=FACT, key="k1")
    assert again.messages == before.messages
    assert again.messages[1].content == Order(number=7)


async def test_a_type_that_has_changed_since_is_told_as_it_was(store, world):
    v1, v2 = blueprints(
        lambda: team(world, Order),
        lambda: team(world, OrderOfALand, note="x", land="DE"),
        lambda state: state.add_field("Order", "land", "FR"),
    )
    before = await store.session("case", v1).run(task=FACT, key="k1")
    again = await store.session("case", v2).run(task=FACT, key="k1")
    assert [*map(base, again.messages)] == [*map(base, before.messages)]
    assert json.loads(again.messages[1].content) == {"number": 7, "note": "für Ann"}


class Offer(BaseChatMessage):
    """A message without a content."""

    price: int
    type: Literal["Offer"] = "Offer"

    def to_text(self):
        return ""

    to_model_text = to_model_message = to_text


class Bid(BaseChatMessage):
    """The same with another name."""

    price: int
    type: Literal["Bid"] = "Bid"

    to_text = to_model_text = to_model_message = Offer.to_text


class Seller(BaseChatAgent):
    def __init__(self, message):
        super().__init__("seller", "sells")
        self._message = message

    @property
    def produced_message_types(self):
        return (type(self._message),)

    async def on_messages(self, messages, cancellation_token):
        return Response(chat_message=self._message)

    async def on_reset(self, cancellation_token):
        pass


async def test_a_message_of_a_users_own_type_is_told_by_its_fields(store):
    offer = Offer(price=3, source="seller", metadata={"a": "b"})
    v1, v2 = blueprints(
        lambda: RoundRobinGroupChat([Seller(offer)], max_turns=1, custom_message_types=[Offer]),
        lambda: RoundRobinGroupChat([Seller(Bid(price=4, source="seller"))], max_turns=1, custom_message_types=[Bid]),
        lambda state: state.rename_message_type("Offer", "Bid"),
    )
    before = await store.session("case", v1).run(task=FACT, key="k1")
    assert before.messages[1] == offer
    again = await store.session("case", v2).run(task=FACT, key="k1")
    assert again.messages[1].content == '{"price": 3}'
    assert base(again.messages[1]) == base(offer)
