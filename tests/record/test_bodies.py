"""Python looks for garbage again when the messages are built, and damaged rows of bodies are refused."""

import gc

import pytest

import midturn
from midturn.record.bodies import Bodies, SomeBodies, gc_paused
from midturn.record.codec import encode
from midturn.record.head import Kind, Row


@pytest.fixture(autouse=True)
def as_before():
    enabled = gc.isenabled()
    yield
    (gc.enable if enabled else gc.disable)()


def test_nothing_is_collected_in_the_block_and_all_is_afterwards():
    gc.enable()
    with gc_paused():
        assert not gc.isenabled()
    assert gc.isenabled()


def test_blocks_may_be_inside_each_other():
    gc.enable()
    with gc_paused():
        with gc_paused():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_an_error_leaves_nothing_behind():
    gc.enable()
    with pytest.raises(KeyError), gc_paused():
        raise KeyError
    assert gc.isenabled()


def test_who_collects_nothing_at_all_goes_on_with_that():
    gc.disable()
    with gc_paused():
        assert not gc.isenabled()
    assert not gc.isenabled()


@pytest.mark.parametrize("bodies", [[], None, {}])
def test_a_row_without_bodies_is_damaged(bodies):
    row = Row(kind=Kind.BODY, n=0, data=encode({"v": 1, "bodies": bodies}))
    with pytest.raises(midturn.StateInvalid, match="body 0 is missing"):
        Bodies().extend([row])
    with pytest.raises(midturn.StateInvalid, match="body 0 is missing"):
        SomeBodies(1).add([row])
