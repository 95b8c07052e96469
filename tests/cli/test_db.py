"""``midturn db``: tables in a database, and commands on a server."""

import json

import pytest
from tools.servers.shared import STORES, store_url

from midturn.stores.postgres.schema import NEWEST


@pytest.fixture
def url(tmp_path):
    return store_url("postgres", tmp_path / "store")


def test_a_database_without_tables_says_so_and_is_left_as_it_is(cli, url):
    result = cli("db", "status", "--json", "--store", url)
    facts = result.json
    assert (facts["version"], facts["newest"], facts["profile"]) == (0, NEWEST, "strict")
    result = cli("ls", "--store", url, code=3)
    assert "no midturn tables yet" in result.err
    assert cli("db", "status", "--json", "--store", url).json["version"] == 0


def test_the_tables_are_made_once(cli, url):
    assert f"created tables of version {NEWEST}" in cli("db", "upgrade", "--store", url).out
    assert f"nothing to do: the tables have version {NEWEST}" in cli("db", "upgrade", "--store", url).out
    assert cli("db", "upgrade", "--json", "--store", url).json == {"before": NEWEST, "version": NEWEST}
    result = cli("db", "status", "--store", url)
    assert "PostgreSQL" in result.out
    assert "the tables:" not in result.err


def test_what_is_to_be_typed_has_no_password_in_it(cli, url):
    password = url.partition("://")[2].partition(":")[2].partition("@")[0]
    result = cli("db", "status", "--store", url)
    assert "create the tables: midturn db upgrade --store" in result.err
    assert ":***@" in result.err
    assert password not in result.out + result.err


def test_a_file_has_nothing_to_upgrade(cli, tmp_path):
    path = tmp_path / "support.db"
    result = cli("db", "status", "--store", f"sqlite:///{path}", code=3)
    assert "there is no store" in result.err
    result = cli("db", "upgrade", "--store", f"sqlite:///{path}", code=2)
    assert "has no tables to upgrade" in result.err
    assert not path.exists()


def test_a_store_says_what_it_promises(cli, tmp_path):
    url = store_url("redis", tmp_path)
    assert cli("db", "status", "--json", "--store", url).json["profile"] == "bounded-loss"


@pytest.mark.parametrize("kind", STORES[1:])
def test_the_tutorials_json_comes_into_every_store_and_out_again(cli, tmp_path, kind):
    url = store_url(kind, tmp_path / "store")
    state = {"type": "AssistantAgentState", "version": "1.0.0", "llm_context": {"messages": []}}
    (tmp_path / "agent_state.json").write_text(json.dumps(state))
    assert "imported as checkpoint 1" in cli("import", "agent_state.json", "case-42", "--store", url).out
    assert cli("export", "case-42", "--store", url).json == state
    assert [found["session"] for found in cli("ls", "--json", "--store", url).json] == ["case-42"]
    cli("rm", "case-42", "--yes", "--store", url)
    assert cli("ls", "--json", "--store", url).json == []
