"""Python looks for garbage again when what was built is there."""

import gc

import pytest

from midturn.record.bodies import gc_paused


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
