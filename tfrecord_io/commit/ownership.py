"""Which process runs a job, and whether it still lives.

A process is known by its host, its id and the time it started at, so that an id that was used again
is not taken for the process that is gone. About a process of another host (or another container, or
of this host before it was started anew) nothing can be known: then age decides, see
`tfrecord_io.commit.staging.STALE_AFTER_SECONDS`.
"""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import re
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

#: What `Owner` writes of a process into names.
OWNER_TEXT = r"(?P<host>[0-9a-f]{12})-(?P<pid>[0-9]{1,10})-(?P<started>[0-9A-Za-z]{1,32})"

#: Of a process of which no more can be known than that it is there.
_HIDDEN = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """A process.

    Attributes
    ----------
    host : str
        A short hash of the host's name and, on Linux, of its boot and of the namespace that process
        ids count in: hosts may have the same name.
    pid : int
        The process id.
    started : str
        When it started, in a form that only equality is asked of; "0" where that is not known.
    """

    host: str
    pid: int
    started: str

    def __str__(self) -> str:
        return f"{self.host}-{self.pid}-{self.started}"

    @classmethod
    def of_name(cls, match: re.Match[str]) -> Owner:
        """Return the process that a name tells, which has `OWNER_TEXT` in it."""
        return cls(host=match["host"], pid=int(match["pid"]), started=match["started"])

    @property
    def is_alive(self) -> bool | None:
        """Whether the process lives; None if that cannot be known, as of another host."""
        if self.host != host():
            return None
        started = start_time(self.pid)
        return None if started == _HIDDEN else started == self.started


def is_gone(owner: Owner | None, is_old: Callable[[], bool]) -> bool:
    """Return whether a process is gone; of one that cannot be asked for, whether it `is_old`."""
    alive = owner.is_alive if owner is not None else None
    return is_old() if alive is None else not alive


def owner_of(pid: int | None = None) -> Owner:
    """Return the process with this id on this host; by default the running one."""
    known = os.getpid() if pid is None else pid
    return Owner(host=host(), pid=known, started=start_time(known) or "0")


@functools.cache
def host() -> str:
    """Return the name of this host, see `Owner.host`."""
    try:
        namespace = Path("/proc/self/ns/pid").readlink().name
    except OSError:
        namespace = ""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        boot = ""
    return hashlib.sha256(f"{platform.node()} {boot} {namespace}".encode()).hexdigest()[:12]


def start_time(pid: int) -> str | None:
    """Return when a process of this host started, or None if there is no such process.

    Of one that the system hides from this user it is `_HIDDEN`.
    """
    try:
        status = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except (FileNotFoundError, PermissionError):
        started = "" if Path("/proc/self/stat").exists() else _start_time_by_ps(pid)
        return started or (_HIDDEN if _is_there(pid) else None)
    except ProcessLookupError:
        return None
    # The name in brackets may hold blanks and brackets; field 3 is the state, 22 the start time
    # (proc(5)).
    fields = status.rpartition(")")[2].split()
    return None if fields[0] in ("Z", "X") else fields[19]


def _is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        # It is somebody else's; with the option hidepid, /proc does not show it.
        return True
    return True


def _start_time_by_ps(pid: int) -> str:
    """Return what ``ps`` tells, as on macOS, or nothing: on Linux it needs /proc itself."""
    try:
        done = subprocess.run(
            ["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False
        )
    except OSError:
        return ""
    return "".join(c for c in done.stdout if c.isalnum())
