"""The benchmark of finding works, and its pages read what they should; how long they take is not looked at."""

import pytest
from benchmarks.finding import FILL, PAGE, finding

MANY = 2_000


@pytest.mark.parametrize("kind", FILL)
async def test_pages_read_few_of_many_sessions(kind):
    made = []
    found = {each.query: each for each in await finding(kind, MANY, made.append)}
    assert sum(made) == MANY
    assert found["counts"].found == MANY
    for query, figures in found.items():
        assert figures.ms > 0
        if "label" not in query and not query.startswith("by id, "):
            assert figures.heads <= PAGE + 10, query
    assert found["newest, a label (0.2 %)"].found == 4
