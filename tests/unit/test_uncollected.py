"""Python looks for garbage again when what was built is there."""

import gc

import pytest

from midturn.record.uncollected import uncollected


@pytest.fixture(autouse=True)
def as_before():
    enabled = gc.isenabled()
    yield
    (gc.enable if enabled else gc.disable)()


def test_nothing_is_collected_in_the_block_and_all_is_afterwards():
    gc.enable()
    with uncollected():
        assert not gc.isenabled()
    assert gc.isenabled()


def test_blocks_may_be_inside_each_other():
    gc.enable()
    with uncollected():
        with uncollected():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_an_error_leaves_nothing_behind():
    gc.enable()
    with pytest.raises(KeyError), uncollected():
        raise KeyError
    assert gc.isenabled()


def test_who_collects_nothing_at_all_goes_on_with_that():
    gc.disable()
    with uncollected():
        assert not gc.isenabled()
    assert not gc.isenabled()
