"""Names for the holders of leases, and the check whether a holder's process on this host is alive."""

from __future__ import annotations

import os
import socket
import uuid
from functools import cache
from hashlib import blake2b
from pathlib import Path

UNSEEN = "?"
"""Start time of a process that seems to exist, where the time itself cannot be read."""


def new_owner() -> str:
    """Return a new, unique name for a holder of leases: ``host/space/pid/start/random``."""
    return f"{_pid_space()}/{os.getpid()}/{_start(os.getpid())}/{uuid.uuid4().hex[:8]}"


def is_dead(owner: str) -> bool:
    """Return whether the owner's process has certainly ended; ``False`` for a process that this one cannot see."""
    try:
        host, space, pid, start, _ = owner.split("/")
        now = _start(int(pid)) if f"{host}/{space}" == _pid_space() else UNSEEN
        return now == "" or (UNSEEN not in (now, start) and now != start)
    except ValueError:
        return False


@cache
def _pid_space() -> str:
    """Return a name for the host since its boot and for its process id namespace; a container has its own."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        space = os.readlink("/proc/self/ns/pid")  # noqa: PTH115 - not a path but "pid:[4026531836]"
    except OSError:
        boot, space = f"{uuid.getnode()}", ""  # the network card's number: two hosts may have the same name
    space = blake2b(f"{boot} {space}".encode(), digest_size=4).hexdigest()
    return f"{socket.gethostname().replace('/', '-')}/{space}"


def _start(pid: int) -> str:
    """Return the start time of a process, to distinguish it from a later one with the same id; empty if it is gone."""
    if pid <= 0:  # for kill() these are groups of processes
        return ""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()  # the program's name, in parentheses, may have any bytes
        fields = stat.rpartition(b")")[2].decode().split()
        return "" if fields[0] in "ZX" else fields[19]  # a zombie can do no more harm
    except OSError:
        pass
    try:  # No /proc (macOS), or one that hides other users' processes: only the existence can be checked.
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return ""
    except OSError:
        return UNSEEN
    return UNSEEN
