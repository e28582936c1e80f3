"""Which process runs a job, and whether it still lives.

A process is known by its host, its id and the time it started at, so that an id that was used again
is not taken for the process that is gone. About a process of another host (or another container)
nothing can be known: then age decides, see `tfrecord_io.staging.STALE_AFTER_SECONDS`.
"""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """A process.

    Attributes
    ----------
    host : str
        A short hash of the host's name and, on Linux, of the namespace that process ids count in.
    pid : int
        The process id.
    started : str
        When it started, in a form that only equality is asked of; "0" where that is not known.
    """

    host: str
    pid: int
    started: str

    @property
    def is_alive(self) -> bool | None:
        """Whether the process lives; None for a process of another host."""
        if self.host != host():
            return None
        return start_time(self.pid) == self.started


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
    return hashlib.sha256(f"{platform.node()} {namespace}".encode()).hexdigest()[:12]


def start_time(pid: int) -> str | None:
    """Return when a process of this host started, or None if there is no such process."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except FileNotFoundError:
        return None if Path("/proc/self/stat").exists() else _start_time_by_ps(pid)
    except ProcessLookupError:
        return None
    # The name in brackets may hold blanks and brackets; field 3 is the state, 22 the start time
    # (proc(5)).
    fields = status.rpartition(")")[2].split()
    return None if fields[0] in ("Z", "X") else fields[19]


def _start_time_by_ps(pid: int) -> str | None:
    done = subprocess.run(
        ["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    started = "".join(c for c in done.stdout if c.isalnum())
    return started or None
