"""The comparison of the benchmarks works; how long anything takes is not looked at."""

import sys
from dataclasses import replace

import pytest
from benchmarks.compare import measuring
from benchmarks.compare.comparing import Plan, compare
from benchmarks.compare.measuring import Limits, forecast
from benchmarks.compare.results import Point, Results, family
from benchmarks.compare.tables import tables
from benchmarks.compare.talking import ContenderFailed
from benchmarks.workload import turns
from rich.console import Console

CONTENDERS = ("floor-sqlite", "midturn-sqlite", "json")
LIMITS = Limits(seconds=60, size=1e9)


def test_every_contender_has_all_figures_at_every_point(tmp_path):
    plan = Plan(contenders=CONTENDERS, shapes=["chat"], points=[5, 10], counts=False, rates=False)
    compare(plan, Console(quiet=True), tmp_path / "compare.json")
    results = Results.read(tmp_path / "compare.json")
    assert sorted(series.contender for series in results.series) == sorted(CONTENDERS)
    for series in results.series:
        assert series.stopped is None
        assert [point.turns for point in series.points] == [5, 10]
        for point in series.points:
            said = list(turns("chat", 0, point.turns))
            assert point.raw == sum(turn.raw_bytes for turn in said)
            assert point.messages == point.expected == 2 * point.turns
            assert min(point.durable_p50, point.durable_p95, point.plain_p50, point.restore_ms) > 0
            assert point.at_rest > point.raw
            assert point.peak_kb > 0
            assert point.written > 0
    assert len(list(tables(results))) == 2
    assert results.about["seed"] == 7
    assert {"python", "sqlite", "autogen-core"} <= results.about["versions"].keys()


def test_a_contender_that_cannot_begin_ends_the_comparison(tmp_path, monkeypatch):
    monkeypatch.setattr(measuring, "command", lambda *_: [sys.executable, "-c", "import what_is_not_installed"])
    plan = Plan(contenders=CONTENDERS, shapes=["chat"], points=[5, 10], counts=False, rates=False)
    with pytest.raises(ContenderFailed, match="No module named 'what_is_not_installed'"):
        compare(plan, Console(quiet=True), tmp_path / "compare.json")


def point(turns, milliseconds, size):
    zero = dict.fromkeys(Point.__dataclass_fields__, 0)
    return replace(Point(**zero), turns=turns, durable_p50=milliseconds, at_rest=size)


@pytest.mark.parametrize(
    ("points", "stopped"),
    [
        pytest.param([], None, id="nothing is known before the first point"),
        pytest.param([point(100, 5, 1e5)], None, id="900 turns of 5 ms"),
        pytest.param([point(100, 70, 1e5)], "stopped at 100: 1,000 would take about 63 s", id="900 turns of 70 ms"),
        pytest.param([point(10, 5, 1e4), point(100, 5, 1e5)], None, id="flat"),
        pytest.param(
            [point(10, 2, 1e4), point(100, 20, 1e5)],
            "stopped at 100: 1,000 would take about 99 s",
            id="ten times as long, ten times as slow",
        ),
        pytest.param(
            [point(10, 1, 1e6), point(100, 1, 1e8)],
            "stopped at 100: 1,000 would need about 10.0 GB",
            id="every turn keeps the whole again",
        ),
        pytest.param([point(10, 9, 1e4), point(100, 1, 1e5)], None, id="slow beginnings are not held against anybody"),
    ],
)
def test_who_would_take_too_long_is_stopped_before(points, stopped):
    assert forecast(points, 1_000, LIMITS) == stopped


def test_a_store_is_known_by_the_name_of_the_contender():
    names = ("midturn-sqlite-turn", "langgraph-postgres-delta", "openai-redis", "json", "floor-file")
    assert [family(name) for name in names] == ["sqlite", "postgres", "redis", "file", "file"]
