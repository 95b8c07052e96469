"""F31: a record that is damaged, forged or missing is restored exactly or refused by name, on every store."""

import asyncio
import os
from collections import Counter
from dataclasses import replace

import pytest
from click.testing import CliRunner
from records import LISTENER, chosen, clerk, damages, good, readers, users, watchdog
from tools.servers.shared import EMBEDDED, STORES, store_url

import midturn
from midturn.cli import main
from midturn.record.head import Kind

LONG_RUN = bool(os.environ.get("MIDTURN_LONG"))
MANY = {"memory": 6_000, "file": 800, "sqlite": 1_500, "postgres": 1_000, "redis": 1_000}
FEW = {"memory": 120, "file": 15, "sqlite": 15, "postgres": 15, "redis": 15}
COUNTS = MANY if LONG_RUN else FEW

pytestmark = [
    pytest.mark.fault("F31"),
    pytest.mark.timeout(7_200 if LONG_RUN else 300),
    pytest.mark.filterwarnings("ignore::midturn.errors.NotKept"),
]


async def outcomes(attempts, pat):
    """Return what each attempt returned or raised, and those that raised what they must not."""
    found, wrong = {}, {}
    for name, attempt in attempts.items():
        pat()
        try:
            found[name] = await attempt()
        except midturn.MidturnError as error:
            found[name] = error
        except Exception as error:  # noqa: BLE001 - that it is of no other type is what is tested
            wrong[name] = f"{type(error).__name__}: {error}"[:300]
    return found, wrong


SAME = (
    "history",
    "history(last=2)",
    "load",
    *(f"{what}" for n in range(1, 5) for what in (f"turn({n})", f"at({n}).tree")),
)
"""Readers that find the same in a session of another name."""


async def test_undamaged_every_reader_finds_something():
    problems = {}
    async with midturn.open("memory://") as store, midturn.open("memory://") as elsewhere:
        with watchdog() as pat:
            for name, one in (await good()).items():
                await one.write(store.store, name)
                found, wrong = await outcomes(readers(store, name) | users(store, elsewhere, name), pat)
                assert wrong == {}
                problems[name] = {which for which, result in found.items() if isinstance(result, midturn.MidturnError)}
    # The second turn of the first one failed. That of the other two is open, and they have no third one.
    absent = {"at(2).tree", "at(2).fingerprint"}
    later = {f"{what}({n}){part}" for n in (3, 4) for what, part in PARTS} | {"replay(3)", "replay(4)"}
    assert problems["rests"] == absent | {"answer"}
    assert problems["waits"] - later == absent
    assert problems["answered"] - later == absent | {"answer"}


PARTS = [("turn", ""), ("at", ".tree"), ("at", ".fingerprint")]


@pytest.mark.parametrize("kind", STORES)
async def test_a_damaged_record_is_restored_exactly_or_refused_by_name(kind, tmp_path, record_property, caplog):
    kept = await good()
    every = [(name, one, damage) for name, one in kept.items() for damage in damages(one)]
    picked = chosen(every, COUNTS[kind], kind)
    undamaged, wrong, heard, ends = {}, {}, {}, Counter()
    async with midturn.open(store_url(kind, tmp_path / "store")) as store, midturn.open("memory://") as elsewhere:
        with watchdog() as pat:
            for name, one in kept.items():  # whatever is imported when somebody reads is imported by now
                await one.write(store.store, f"good {name}")
                undamaged[name], _ = await outcomes(readers(store, f"good {name}"), pat)
            for number, (name, one, damage) in enumerate(picked):
                others = kept["waits" if name == "rests" else "rests"]
                if (bad := damage.apply(one, others)) is None:
                    continue
                session = f"{number:05} {name}"
                await bad.write(store.store, session)
                LISTENER.heard.clear()
                LISTENER.listens = kind in EMBEDDED
                found, failed = await outcomes(readers(store, session), pat)
                LISTENER.listens = False
                if LISTENER.heard:
                    heard[f"{name}: {damage}"] = [*LISTENER.heard]
                for reader in SAME if damage.is_noticed(one) else ():
                    result = found.get(reader)
                    if not isinstance(result, midturn.MidturnError) and result != undamaged[name][reader]:
                        failed.setdefault(reader, f"returned something else: {result}"[:300])
                used, failed_too = await outcomes(users(store, elsewhere, session), pat)
                if failed | failed_too:
                    wrong[f"{name}: {damage}"] = failed | failed_too
                for result in (found | used).values():
                    ends[type(result).__name__ if isinstance(result, midturn.MidturnError) else "returned"] += 1
                caplog.clear()
            pat()
            assert sum((await store.counts()).values()) >= len(picked) // 2
    record_property("figures", f"{kind}: {len(picked):,} damaged sessions, {dict(ends.most_common())}")
    assert wrong == {}
    assert heard == {}


@pytest.mark.parametrize("kind", STORES)
async def test_a_row_that_the_head_does_not_count_is_named_as_damage_also_inside_a_turn(kind, tmp_path):
    one = (await good())["rests"]
    async with midturn.open(store_url(kind, tmp_path / "store")) as store:
        for surplus in (Kind.TURN, Kind.CALL, Kind.CHECKPOINT):
            last = next(row for row in reversed(one.rows) if row.kind is surplus)
            bad = replace(one, rows=(*one.rows, replace(last, n=last.n + 1)))
            await bad.write(store.store, surplus.name)
            with pytest.raises(midturn.StateInvalid, match="a row that the head does not count"):
                await store.session(surplus.name, clerk, timeout=0.01).run(task="look once more")
            assert (await store.info(surplus.name)).status in ("idle", "failed")


SHOWN = 400 if LONG_RUN else 12


@pytest.mark.parametrize("kind", ["file", "sqlite"])
def test_a_damaged_session_is_shown_or_its_damage_is(kind, tmp_path):
    url = store_url(kind, tmp_path / "store")

    async def fill():
        kept = await good()
        every = [(name, one, damage) for name, one in kept.items() for damage in damages(one)]
        written = {}
        async with midturn.open(url) as store:
            for number, (name, one, damage) in enumerate(chosen(every, SHOWN, f"shown {kind}")):
                if (bad := damage.apply(one, kept["waits" if name == "rests" else "rests"])) is not None:
                    await bad.write(store.store, f"{number:05}")
                    written[f"{number:05}"] = f"{name}: {damage}"
        return written

    wrong = {}
    with watchdog() as pat:
        for session, damage in asyncio.run(fill()).items():
            for words in (
                ["show", session],
                ["show", f"{session}@1"],
                ["show", session, "--json"],
                ["answer", session],
            ):
                pat()
                done = CliRunner().invoke(main, [*words, "--store", url])
                if not isinstance(done.exception, SystemExit | None) or done.exit_code not in (0, 1, 3, 4):
                    wrong[f"{damage}: {words}"] = repr(done.exception or done.stderr)
        pat()
        assert CliRunner().invoke(main, ["ls", "--store", url]).exit_code == 0
    assert wrong == {}
