"""Who holds a lease, and whether that process still lives when it is one of this host."""

from __future__ import annotations

import os
import socket
import uuid
from functools import cache
from hashlib import blake2b
from pathlib import Path

UNSEEN = "?"
"""The start of a process that exists, as far as one can tell."""


def new_owner() -> str:
    """Return a name for one holder of leases: ``host/space/pid/start/random``, readable and never used twice."""
    return f"{_pid_space()}/{os.getpid()}/{_start(os.getpid())}/{uuid.uuid4().hex[:8]}"


def is_dead(owner: str) -> bool:
    """Say whether the owner's process is known to be gone; ``False`` for a process that this one cannot see."""
    try:
        host, space, pid, start, _ = owner.split("/")
        now = _start(int(pid)) if f"{host}/{space}" == _pid_space() else UNSEEN
        return now == "" or (UNSEEN not in (now, start) and now != start)
    except ValueError:
        return False


@cache
def _pid_space() -> str:
    """Return the host since its last boot, and the space in which process ids are unique: a container has its own."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        space = os.readlink("/proc/self/ns/pid")  # noqa: PTH115 - not a path but "pid:[4026531836]"
    except OSError:
        boot, space = f"{uuid.getnode()}", ""  # of the network card: two hosts may have the same name
    space = blake2b(f"{boot} {space}".encode(), digest_size=4).hexdigest()
    return f"{socket.gethostname().replace('/', '-')}/{space}"


def _start(pid: int) -> str:
    """Return when the process began, so that a reused id is not taken for it; empty if there is no such process."""
    if pid <= 0:  # for kill() these are groups of processes
        return ""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()  # it has the program's name, of whatever bytes, in parentheses
        fields = stat.rpartition(b")")[2].decode().split()
        return "" if fields[0] in "ZX" else fields[19]  # a zombie can do no more harm
    except OSError:
        pass
    try:  # No /proc (macOS), or one that hides other users' processes: whether it exists is all there is to know.
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return ""
    except OSError:
        return UNSEEN
    return UNSEEN
