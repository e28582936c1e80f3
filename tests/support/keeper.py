"""Keeps a server running for as long as anybody uses it: see `tests.support.servers`.

Run as ``python keeper.py FOLDER COMMAND...`` with the read end of ``FOLDER/users`` as standard
input. The pipe has no writer left once every process that uses the server has closed it or is
gone, however it went. The server ends then, and ``FOLDER/data`` with it; it also ends, on Linux,
when this process is killed.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import select
import shutil
import signal
import subprocess
import sys
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_CHECK_MILLISECONDS = 1000
_GRACE_SECONDS = 5


def _die_with_parent() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _has_users(wait_milliseconds: int) -> bool:
    users = select.poll()
    users.register(0, 0)
    return not users.poll(wait_milliseconds)


def keep(folder: Path, command: list[str]) -> None:
    """Run `command` until nobody uses it."""
    named = folder / "litter"
    litter = named.read_text().splitlines() if named.exists() else []
    server = subprocess.Popen(command, stdin=subprocess.DEVNULL, preexec_fn=_die_with_parent)
    os.dup2(2, 1)  # Closes what the server may announce itself on, should it end first.
    with (folder / "lock").open("r+") as lock:
        while server.poll() is None:
            if _has_users(_CHECK_MILLISECONDS):
                continue
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not _has_users(0):
                break
            # Somebody came between the two looks.
            fcntl.flock(lock, fcntl.LOCK_UN)
        else:
            fcntl.flock(lock, fcntl.LOCK_EX)
        (folder / "ready.json").unlink(missing_ok=True)
        server.terminate()
        try:
            server.wait(_GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()
        shutil.rmtree(folder / "data", ignore_errors=True)
        for path in litter:
            Path(path).unlink(missing_ok=True)


if __name__ == "__main__":
    # The starter waits for this process, which leaves a child behind that belongs to nobody.
    if os.fork() == 0:
        os.setsid()
        keep(Path(sys.argv[1]), sys.argv[2:])
