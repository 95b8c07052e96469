"""``keys``, ``rekey``, and copies that seal, open and seal again."""

import os
from pathlib import Path

import pytest

import midturn

KEY_VARIABLES = ("MIDTURN_KEYS", "MIDTURN_KEYS_FILE", "MIDTURN_KEY_SERVICE")


@pytest.fixture(autouse=True)
def no_keys(monkeypatch):
    for name in KEY_VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def key(cli, monkeypatch):
    """A key in the environment, and the name of a file that has it, too."""
    line = cli("keys", "new", "2026-11").out.strip()
    file = Path("keys.txt")
    file.write_text(line)
    file.chmod(0o600)
    monkeypatch.setenv("MIDTURN_KEYS", line)
    return str(file)


def is_sealed(path):
    """Return whether nothing of what was said is in the files of a store."""
    return not any(b"fail now" in file.read_bytes() for file in Path().glob(f"{path}*"))


def test_a_new_key_is_printed_or_written_before_those_of_a_file(cli):
    made = cli("keys", "new", "2026-11").out
    assert midturn.Keys.parse(made).current == "2026-11"
    assert cli("keys", "new", "2026-11", "--json").json["line"].startswith("2026-11:")
    assert cli("keys", "new", "2026-05", "--file", "keys.txt").out == "keys.txt begins with the new key 2026-05\n"
    assert cli("keys", "new", "2026-11", "--file", "keys.txt", "--json").json["line"] is None
    assert Path("keys.txt").stat().st_mode & 0o777 == 0o600
    assert repr(midturn.Keys.from_file("keys.txt")) == "Keys(2026-11, 2026-05)"
    assert "occurs twice" in cli("keys", "new", "2026-05", "--file", "keys.txt", code=2).err


def test_the_status_of_a_store_has_the_key_that_seals_it(cli, key, monkeypatch):
    cli("chat", "app:support", "case-42", "hello")
    assert "\nsealed   2026-11\n" in cli("db", "status").out
    monkeypatch.delenv("MIDTURN_KEYS")
    assert "\nsealed   no\n" in cli("db", "status").out
    assert cli("db", "status", "--json").json["sealed"] is None


def test_a_store_is_sealed_moved_to_another_key_and_counted(cli, key, monkeypatch):
    cli("chat", "app:support", "case-42", "fail now", code=1)
    assert is_sealed("midturn.db")
    newer = cli("keys", "new", "2027-05").out.strip()
    monkeypatch.setenv("MIDTURN_KEYS", f"{newer},{os.environ['MIDTURN_KEYS']}")
    assert "to move 1 to the current key: midturn rekey --all" in cli("keys", "status").err
    assert cli("rekey", "--all", "--dry-run").out.startswith("would move 1 to key 2027-05")
    result = cli("rekey", "case-42", "--json", "--by", "ann", "--why", "once a year").json
    assert (result["rekeyed"], result["key"], result["skipped"]) == (["case-42"], "2027-05", [])
    assert cli("keys", "status", "--json").json["sessions"] == {"2027-05": 1}
    monkeypatch.setenv("MIDTURN_KEYS", newer)
    [entry] = cli("audit", "--session", "case-42", "--json").json
    assert (entry["what"], entry["by"], entry["why"]) == ("rekey", "ann", "once a year")
    monkeypatch.delenv("MIDTURN_KEYS")
    assert "set MIDTURN_KEYS" in cli("keys", "status", code=2).err
    assert "set MIDTURN_KEYS" in cli("show", "case-42", code=1).err
    [listed] = cli("ls", "--json").json
    assert "set MIDTURN_KEYS" in listed["problem"]


@pytest.mark.parametrize("target", ["new.db", "file://./new"])
def test_a_copy_seals_opens_and_seals_with_another_key(cli, key, target):
    cli("chat", "app:support", "case-42", "fail now", "--store", "sealed.db", code=1)
    cli("chat", "app:support", "gone", "hello", "--store", "sealed.db")
    cli("rm", "gone", "--yes", "--by", "ann", "--why", "asked for", "--store", "sealed.db")
    shown = cli("show", "case-42", "--store", "sealed.db", "--json").json["history"]

    cli("copy", "sealed.db", "plain.db", "--all", "--target-keys", "none")
    assert (is_sealed("sealed.db"), is_sealed("plain.db")) == (True, False)
    assert "it is not sealed" in cli("show", "case-42", "--store", "plain.db", code=1).err

    cli("keys", "new", "other", "--file", "other.txt")
    assert cli("copy", "plain.db", "other.db", "--all", "--source-keys", "none", "--target-keys", "other.txt").out
    assert cli("copy", "sealed.db", "other.db", "--all", "--target-keys", "other.txt").out.startswith("unchanged")
    assert "key 'other'" in cli("show", "case-42", "--store", "other.db", code=1).err

    cli("copy", "other.db", target, "--all", "--source-keys", "other.txt", "--target-keys", key)
    assert cli("show", "case-42", "--store", target, "--json").json["history"] == shown
    [gone] = cli("ls", "--status", "deleted", "--store", target, "--json").json
    assert (gone["deleted"]["by"], gone["deleted"]["why"]) == ("ann", "asked for")


def test_a_copy_with_wrong_keys_reports_each_session_and_writes_none(cli, key):
    cli("chat", "app:support", "case-42", "fail now", "--store", "sealed.db", code=1)
    cli("chat", "app:support", "gone", "hello", "--store", "sealed.db")
    cli("rm", "gone", "--yes", "--store", "sealed.db")
    cli("keys", "new", "other", "--file", "other.txt")
    for wrong in ("other.txt", "none"):
        options = ("--source-keys", wrong, "--target-keys", "none")
        result = cli("copy", "sealed.db", "plain.db", "--all", *options, "--json", code=1).json
        assert sorted(each["session"] for each in result["failed"]) == ["case-42", "gone"]
        assert cli("ls", "--store", "plain.db", "--json", "--status", "deleted").json == []
    assert "cannot be read" in cli("copy", "sealed.db", "x.db", "--all", "--source-keys", "no.txt", code=2).err


SERVICE = '''
import midturn

class Vault:
    """A key service with one key."""

    asked = 0
    keys = midturn.Keys({"vault-1": bytes(32)})

    async def wrap(self, data_key, context):
        return await self.keys.wrap(data_key, context)

    async def unwrap(self, key_id, wrapped, context):
        return await self.keys.unwrap(key_id, wrapped, context)

keys = Vault()
nothing = 5
'''


def test_every_command_asks_the_key_service_of_an_app(cli, place, monkeypatch):
    (place / "vault.py").write_text(SERVICE)
    monkeypatch.delitem(__import__("sys").modules, "vault", raising=False)
    monkeypatch.setenv("MIDTURN_KEY_SERVICE", "vault:keys")
    cli("chat", "app:support", "case-42", "fail now", code=1)
    assert is_sealed("midturn.db")
    assert [listed["problem"] for listed in cli("ls", "--json").json] == [None]
    assert cli("keys", "status", "--json").json["sessions"] == {"vault-1": 1}
    cli("resume", "app:support", "case-42", code=1)
    cli("copy", "midturn.db", "plain.db", "--all", "--target-keys", "none")
    cli("copy", "plain.db", "again.db", "--all", "--source-keys", "none", "--target-keys", "vault:keys")
    assert (is_sealed("plain.db"), is_sealed("again.db")) == (False, True)
    monkeypatch.setenv("MIDTURN_KEY_SERVICE", "vault:nothing")
    assert "a int is no keys" in cli("ls", code=2).err
    monkeypatch.setenv("MIDTURN_KEY_SERVICE", "vault:none")
    assert "vault has no 'none'" in cli("ls", code=2).err
    monkeypatch.setenv("MIDTURN_KEYS", "x:y")
    assert "MIDTURN_KEY_SERVICE and MIDTURN_KEYS are both set; keep one" in cli("ls", code=2).err
