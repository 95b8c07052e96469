"""A dead owner is known by its process; whoever cannot be seen is taken to live."""

import os
import signal
import subprocess
import sys

import pytest

from midturn.lease.process import is_dead, new_owner

SAY_OWNER = "import midturn.lease.process, sys; print(midturn.lease.process.new_owner(), flush=True); sys.stdin.read()"


@pytest.fixture
def other():
    """Another process, which said its name as an owner and waits."""
    process = subprocess.Popen(
        [sys.executable, "-c", SAY_OWNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    process.owner = process.stdout.readline().strip()
    yield process
    process.kill()
    process.communicate()


def parts(owner):
    return dict(zip(("host", "space", "pid", "start", "random"), owner.split("/"), strict=True))


def forged(owner, **changes):
    return "/".join((parts(owner) | changes).values())


def test_an_owner_names_its_process_and_is_never_used_twice():
    one, other = new_owner(), new_owner()
    assert parts(one)["pid"] == str(os.getpid())
    assert one != other
    assert parts(one) | {"random": ""} == parts(other) | {"random": ""}


def test_this_process_lives():
    assert not is_dead(new_owner())


def test_another_process_lives_while_it_runs(other):
    assert parts(other.owner)["pid"] == str(other.pid)
    assert not is_dead(other.owner)


def test_a_stopped_process_lives(other):
    other.send_signal(signal.SIGSTOP)
    assert not is_dead(other.owner)
    other.send_signal(signal.SIGCONT)


def test_a_killed_and_reaped_process_is_dead(other):
    other.kill()
    other.wait()
    assert is_dead(other.owner)


def test_a_process_that_ended_by_itself_is_dead(other):
    other.stdin.close()
    assert other.wait() == 0
    other.stdin = None
    assert is_dead(other.owner)


def test_a_killed_process_that_nobody_reaped_yet_is_dead(other):
    other.kill()
    os.waitid(os.P_PID, other.pid, os.WEXITED | os.WNOWAIT)  # it is a zombie now and stays one
    assert is_dead(other.owner)


@pytest.mark.parametrize("start", ["1", "", "nonsense"])
def test_a_process_with_the_same_id_but_another_start_is_not_the_owner(start):
    assert is_dead(forged(new_owner(), start=start))


def test_an_id_that_no_process_has_is_dead():
    assert is_dead(forged(new_owner(), pid=str(2**22 + 1)))


@pytest.mark.parametrize("change", [{"host": "elsewhere"}, {"space": "00000000[1]"}, {"space": ""}, {"host": ""}])
def test_a_process_of_another_host_or_container_cannot_be_seen_and_is_taken_to_live(other, change):
    other.kill()
    other.wait()
    assert is_dead(other.owner)
    assert not is_dead(forged(other.owner, **change))


@pytest.mark.parametrize(
    "owner", ["", "/", "////", "a/b/c/d/e", "worker-1", "a/b/1/2", "a/b/1/2/3/4", "\0", "\ud800", "a" * 10_000]
)
def test_what_is_no_owner_of_ours_is_taken_to_live(owner):
    assert not is_dead(owner)


@pytest.mark.parametrize("pid", ["", "self", "x", "1.5", "..", "\0", "9" * 5_000])
def test_an_owner_of_this_place_without_a_process_id_is_taken_to_live(pid):
    assert not is_dead(forged(new_owner(), pid=pid))


@pytest.mark.parametrize("pid", ["-1", "0", "99999999999999999999", "9" * 1_000])
def test_an_impossible_process_id_is_dead(pid):
    assert is_dead(forged(new_owner(), pid=pid))


@pytest.mark.parametrize("name", [b"\xff\xfe", "Bestellungs-Prüfung".encode(), b"a) R 1 (b", b") Z ("])
def test_a_process_with_any_name_has_an_owner_that_lives(name):
    code = f"""
import ctypes, sys
ctypes.CDLL(None).prctl(15, {name!r}, 0, 0, 0)
from midturn.lease.process import is_dead, new_owner
owner = new_owner()
assert not is_dead(owner), owner
print(owner, flush=True)
sys.stdin.read()
"""
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    owner = process.stdout.readline().strip()
    try:
        seen = owner and is_dead(owner)
    finally:
        _, errors = process.communicate()
    assert process.returncode == 0, errors
    assert seen is False
    assert is_dead(owner)


def test_a_process_that_is_hidden_is_not_taken_for_dead(monkeypatch):
    owner = new_owner()

    def hidden(path):
        raise PermissionError

    monkeypatch.setattr("pathlib.Path.read_bytes", hidden)
    assert not is_dead(owner)
