"""Whether the process of a job lives, and where that cannot be known."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tfrecord_io.commit import ownership
from tfrecord_io.commit.ownership import Owner, owner_of

needs_proc = pytest.mark.skipif(
    not Path("/proc/self/stat").exists(), reason="the system has no /proc"
)


def reading(monkeypatch: pytest.MonkeyPatch, of: str, answer: Callable[[], str]) -> None:
    """Have one file of the system read otherwise."""
    own = Path.read_text

    def read_text(self: Path, *args: Any, **options: Any) -> str:
        return answer() if str(self) == of else own(self, *args, **options)

    monkeypatch.setattr(Path, "read_text", read_text)


def test_a_process_lives_until_it_ends() -> None:
    assert owner_of().is_alive is True
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    owner = owner_of(process.pid)
    assert owner.is_alive is True
    assert Owner(host=owner.host, pid=owner.pid, started="1").is_alive is False
    assert Owner(host="0" * 12, pid=owner.pid, started=owner.started).is_alive is None
    process.communicate()
    assert owner.is_alive is False
    assert Owner(host=owner.host, pid=2**64, started="1").is_alive is False


@needs_proc
def test_a_process_whose_name_looks_like_a_state() -> None:
    """proc(5): the name stands in brackets, before the state, and may hold brackets itself."""
    code = "open('/proc/self/comm', 'w').write('a) Z (b'); print('named', flush=True); input()"
    program = [sys.executable, "-c", code]
    process = subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    started = owner_of(process.pid)
    assert process.stdout is not None
    assert process.stdout.readline() == b"named\n"
    assert owner_of(process.pid) == started
    assert started.is_alive is True
    process.communicate()


@needs_proc
def test_a_process_that_nobody_waited_for_is_dead() -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    owner = owner_of(process.pid)
    process.kill()
    # It stays in the system's table until it is waited for.
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert owner.is_alive is False
    process.communicate()


@needs_proc
@pytest.mark.parametrize("error", [FileNotFoundError, PermissionError])
def test_a_process_that_proc_hides_is_not_taken_for_dead(
    monkeypatch: pytest.MonkeyPatch, error: type[OSError]
) -> None:
    """proc(5): hidepid=1 makes the files of other users' processes unreadable, 2 invisible."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    owner = owner_of(process.pid)

    def hidden() -> str:
        raise error

    reading(monkeypatch, f"/proc/{process.pid}/stat", hidden)
    assert owner.is_alive is None

    def forbidden(pid: int, signal: int) -> None:
        raise PermissionError

    with monkeypatch.context() as patch:
        patch.setattr(os, "kill", forbidden)
        assert owner.is_alive is None
    process.communicate()
    assert owner.is_alive is False


@pytest.mark.parametrize("path", ["/bin:/usr/bin", ""], ids=["ps fails", "there is no ps"])
def test_without_proc_a_living_process_is_not_taken_for_dead(tmp_path: Path, path: str) -> None:
    """Its job would be removed by the next one. In a chroot /proc may not be mounted."""
    (tmp_path / "ps").write_text("#!/bin/sh\necho 'error: /proc must be mounted' >&2\nexit 1\n")
    (tmp_path / "ps").chmod(0o755)
    script = """
import os, pathlib, subprocess, sys
read, exists = pathlib.Path.read_text, pathlib.Path.exists

def nothing(path, *arguments, **options):
    if str(path).startswith("/proc/"):
        raise FileNotFoundError(str(path))
    return read(path, *arguments, **options)

pathlib.Path.read_text = nothing
pathlib.Path.exists = lambda path: not str(path).startswith("/proc/") and exists(path)
from tfrecord_io.commit.ownership import Owner, owner_of

process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
owner = owner_of(process.pid)
print(owner.started, owner_of().is_alive, owner.is_alive)
process.communicate()
print(owner.is_alive)
"""
    env = {**os.environ, "PATH": f"{tmp_path}:{path}" if path else str(tmp_path / "none")}
    done = subprocess.run(
        [sys.executable, "-c", script], env=env, capture_output=True, text=True, check=True
    )
    assert done.stdout == "0 None None\nFalse\n"


def is_told_apart_from(other: Owner) -> None:
    ownership.host.cache_clear()
    try:
        assert owner_of().host != other.host
        assert other.is_alive is None
    finally:
        ownership.host.cache_clear()


@needs_proc
def test_containers_of_one_name_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """They share the kernel and its boot, and each counts its processes from 1."""
    here = owner_of()
    own = Path.readlink

    def readlink(self: Path) -> Path:
        return Path("pid:[7]") if str(self) == "/proc/self/ns/pid" else own(self)

    monkeypatch.setattr(Path, "readlink", readlink)
    is_told_apart_from(here)


@needs_proc
def test_hosts_of_one_name_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first namespace of process ids has one number on all of them."""
    here = owner_of()
    reading(monkeypatch, "/proc/sys/kernel/random/boot_id", lambda: "another boot\n")
    is_told_apart_from(here)
