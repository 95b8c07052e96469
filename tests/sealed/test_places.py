"""The other places of records from a sealed store: archives, forks, and stores behind a scheme of the user's own."""

import pytest
from autogen_agentchat.agents import AssistantAgent

import midturn
from midturn.stores import registry
from midturn.stores.registry import open_store
from midturn.stores.sealed.keys import new_key
from midturn.stores.sealed.store import Sealed
from midturn.stores.wrapper import wrap
from midturn.testing import ScriptedModel

KEYS = midturn.Keys.parse(new_key("2026-11"))
WORD = b"kanari"


def build():
    return AssistantAgent("desk", ScriptedModel({"": "Noted, kanari."}))


@pytest.fixture(params=["keys", "scheme"])
async def store(request, tmp_path, monkeypatch):
    """A sealed store, opened with keys or by a scheme whose opener seals."""
    monkeypatch.setattr(registry, "_openers", dict(registry._openers))

    async def opener(url):
        return wrap(Sealed, await open_store(f"sqlite:///{tmp_path}/x.db"), keys=KEYS)

    midturn.register_store("vault", opener)
    keys = KEYS if request.param == "keys" else None
    url = f"sqlite:///{tmp_path}/x.db" if keys else "vault://"
    async with midturn.open(url, keys=keys) as store:
        await store.session("case-42", build).run(task="My name is kanari.")
        yield store


async def test_an_archive_of_a_sealed_store_is_sealed_with_the_same_keys(store, tmp_path):
    report = await store.prune(keep_last=0, archive=tmp_path / "archive")
    assert report.deleted == ["case-42"]
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and WORD in path.read_bytes()]
    async with midturn.open(f"file://{tmp_path}/archive", keys=KEYS) as archive:
        [turn] = [turn async for turn in archive.session("case-42", build).history()]
        assert turn.messages[0].content == "My name is kanari."


async def test_a_fork_has_a_data_key_of_its_own(store):
    await store.session("case-42", build).fork("case-43")
    assert dict((await store.key_counts()).sessions) == {"2026-11": 2}
    await store.delete("case-42")
    assert (await store.session("case-43", build).run(task="And now?")).messages
