"""Local files that a commit replaces are freed when it has ended, and never twice."""

import contextlib
import os
import threading
from pathlib import Path

import pyarrow as pa
import pytest

import tfrecord_io as tfr
from tfrecord_io.commit import replaced
from tfrecord_io.commit.replaced import Replaced

pytestmark = pytest.mark.skipif(not hasattr(os, "O_PATH"), reason="only Linux holds files")

LARGE = pa.table({"text": ["x" * 1024] * 2048})


def held(folder):
    """Return which files of a folder this process has open that have no name any more."""
    found = []
    for path in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found.append(str(path.readlink()))
    return sorted(one for one in found if one.startswith(f"{folder}/") and "(deleted)" in one)


def wait_for_closing():
    for thread in threading.enumerate():
        if thread.name == "tfrecord-io-free":
            thread.join()


def replace(path, hold):
    path.write_bytes(b"old" * replaced._LEAST_BYTES)
    new = path.with_name("new")
    new.write_bytes(b"new")
    hold.hold(str(path))
    new.replace(path)
    assert path.read_bytes() == b"new"


def test_a_replaced_file_stays_until_it_is_let_go(tmp_path):
    hold = Replaced()
    replace(tmp_path / "file", hold)
    assert held(tmp_path) == [f"{tmp_path}/file (deleted)"]
    hold.let_go()
    wait_for_closing()
    assert held(tmp_path) == []
    hold.let_go()
    wait_for_closing()


def test_small_files_links_and_what_is_not_there_are_not_held(tmp_path):
    (tmp_path / "small").write_bytes(b"x")
    (tmp_path / "large").write_bytes(b"x" * replaced._LEAST_BYTES)
    (tmp_path / "link").symlink_to("large")
    hold = Replaced()
    for name in ("small", "link", "missing"):
        hold.hold(str(tmp_path / name))
    hold.hold(None)
    assert not hold._descriptors


def test_descriptors_are_not_used_up(tmp_path, monkeypatch):
    monkeypatch.setattr(replaced, "_MOST_FILES", 2)
    hold = Replaced()
    for name in "abc":
        replace(tmp_path / name, hold)
    assert held(tmp_path) == [f"{tmp_path}/a (deleted)", f"{tmp_path}/b (deleted)"]
    hold.let_go()
    wait_for_closing()
    assert held(tmp_path) == []


def test_without_another_thread_files_are_freed_at_once(tmp_path, monkeypatch):
    def fail(self):
        raise RuntimeError("can't start new thread")

    hold = Replaced()
    replace(tmp_path / "file", hold)
    monkeypatch.setattr(threading.Thread, "start", fail)
    hold.let_go()
    assert held(tmp_path) == []


def test_a_commit_lets_go_of_all_it_replaced(tmp_path):
    for _ in range(2):
        tfr.write_table(LARGE, tmp_path / "data", mode="overwrite", rows_per_task=1024)
    wait_for_closing()
    assert held(tmp_path) == []
    assert tfr.read_table(tmp_path / "data").equals(LARGE)


def test_so_does_one_that_fails_while_it_publishes(tmp_path, monkeypatch):
    from tfrecord_io.storage.local import LocalStorage

    tfr.write_table(LARGE, tmp_path / "data", rows_per_task=1024)
    own, seen = LocalStorage.publish, []

    def publish(self, staged, final):
        if final.endswith("part-00001-000.tfrecord"):
            seen.extend(held(tmp_path))
            raise OSError("no more")
        own(self, staged, final)

    with monkeypatch.context() as patch:
        patch.setattr(LocalStorage, "publish", publish)
        with pytest.raises(tfr.CommitStateUnknownError):
            tfr.write_table(LARGE, tmp_path / "data", mode="overwrite", rows_per_task=1024)
    wait_for_closing()
    assert f"{tmp_path}/data/part-00000-000.tfrecord (deleted)" in seen
    assert held(tmp_path) == []
    tfr.clean(tmp_path / "data")
    assert tfr.read_table(tmp_path / "data").equals(LARGE)
