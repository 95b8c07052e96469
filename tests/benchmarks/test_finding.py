"""The benchmark of finding and pruning works, and its pages read what they should; no test looks at the times."""

import pytest
from benchmarks.finding import FILL, LINEAGE, PAGE, PRUNE, finding

MANY = {"sqlite": 2_000, "postgres": 2_000, "redis": 2_000, "file": 500}
"""The file store reads all its files for most pages."""


@pytest.mark.parametrize("kind", FILL)
async def test_pages_read_few_of_many_sessions(kind):
    made, many = [], MANY[kind]
    found = {each.query: each for each in await finding(kind, many, made.append)}
    assert sum(made) == many
    assert found["counts"].found == many
    for query, figures in found.items():
        assert figures.ms > 0
        page = query.startswith(("newest", "oldest", "from", "by id")) and "label" not in query
        if kind != "file" and page and not query.startswith("by id, "):
            assert figures.heads <= PAGE + 10, query
    assert found["newest, a label (0.2 %)"].found == many // 500
    assert found[LINEAGE].heads >= many
    assert found["audit"].found == many // 10
    assert many // 10 <= found["prune the oldest 10 %, dry run"].found < many // 5
    assert found[f"{PRUNE}, dry run"].found == found[PRUNE].found == many // 10
