"""F35: a store with 100,000 sessions lists, counts and runs them as one with a few."""

import asyncio
import os
import time

import pytest
from autogen_agentchat.agents import AssistantAgent
from tools.servers.shared import STORES, store_url

import midturn
from midturn.testing import ScriptedModel, a_write

LONG = bool(os.environ.get("MIDTURN_LONG"))
MANY = 100_000 if LONG else 200
AT_ONCE = 16
PAGE = 50

pytestmark = [pytest.mark.fault("F35"), pytest.mark.timeout(1800 if LONG else 300)]


def clerk():
    return AssistantAgent("clerk", ScriptedModel({"": "Noted."}))


@pytest.mark.parametrize("kind", STORES)
async def test_one_session_of_very_many_is_found_and_run(kind, tmp_path, record_property):
    took = {}

    async def timed(name, work):
        begun = time.monotonic()
        result = await work
        took[name] = round(time.monotonic() - begun, 2)
        return result

    async with midturn.open(store_url(kind, tmp_path / "store")) as store:
        left = iter(range(MANY))

        async def fill():
            for number in left:
                await store.store.write(a_write(f"case-{number:06}", data=b'{"v":1}'))

        async def newest():
            found = []
            async for info in store.sessions(order="updated"):
                found.append(info.id)
                if len(found) == PAGE:
                    return found
            raise AssertionError(found)

        await timed("writing_s", asyncio.gather(*(fill() for _ in range(AT_ONCE))))
        chosen = f"case-{MANY // 3:06}"
        result = await timed("turn_s", store.session(chosen, clerk).run(task="The customer prefers email."))
        assert result.messages[-1].content == "Noted."
        page = await timed("newest_50_s", newest())
        assert page[0] == chosen
        assert len(set(page)) == PAGE
        assert (await timed("counts_s", store.counts()))["idle"] == MANY
    record_property(
        "figures", " ".join(f"{name}={value}" for name, value in {"store": kind, "sessions": MANY, **took}.items())
    )
