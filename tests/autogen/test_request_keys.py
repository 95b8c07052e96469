"""The digest of a request to a model is that of what it says, however it was told before."""

import random

import pytest
from autogen_core.models import UserMessage

from midturn.autogen.calls.request_keys import Digests


def said(text):
    return UserMessage(content=text, source="user")


def fresh(messages):
    return Digests().of(messages, {}, stream=False)


def test_requests_that_grow_shrink_and_move_have_the_digests_of_new_ones():
    chance, digests = random.Random(1), Digests()
    messages = [said(str(number % 7)) for number in range(40)]
    for _ in range(200):
        first = chance.randint(0, 30)
        window = messages[first : chance.randint(first, 40)]
        if chance.random() < 0.3:  # the same words in other objects, which come to lie where the last ones lay
            window = [message.model_copy() for message in window]
        assert digests.of(window, {}, stream=False) == fresh(window)


class Broken:
    """Cannot be dumped, or not even compared."""

    def __init__(self, part):
        self._part = part

    def __eq__(self, other):
        if self._part == "==":
            raise ValueError("broken")
        return self is other

    __hash__ = None

    @property
    def __pydantic_serializer__(self):
        raise ValueError("broken")


@pytest.mark.parametrize("part", ["dump", "=="])
def test_a_request_that_cannot_be_told_leaves_nothing_behind(part):
    digests = Digests()
    messages = [said(text) for text in "abcd"]
    digests.of(messages[:2], {}, stream=False)
    for broken in ([*messages[:3], Broken(part)], [messages[0], Broken(part), messages[2]]):
        for _ in range(2):
            with pytest.raises(ValueError, match="broken"):
                digests.of(broken, {}, stream=False)
        for length in (3, 4, 2):
            assert digests.of(messages[:length], {}, stream=False) == fresh(messages[:length])


def test_a_list_that_its_owner_changes_afterwards_is_looked_at_again():
    digests = Digests()
    messages = [said(text) for text in "abc"]
    digests.of(messages, {}, stream=False)
    moved = messages[1:]
    digests.of(moved, {}, stream=False)
    moved[0] = said("x")
    assert digests.of(moved, {}, stream=False) == fresh(moved)
