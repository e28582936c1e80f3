"""Thousands of schedules of jobs, readers, kills and faults, each from a seed.

A failure prints its seed, and how to see the steps: ``python -m tests.support.simulator SEED
--trace``. The same program runs any number of other seeds.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.histories import Read, Write, explain
from tests.support.simulator import LEFT_EMPTY, Tally, WrongError, run_seed
from tfrecord_io.commit import job as commit
from tfrecord_io.commit import publish
from tfrecord_io.commit.staging import Staging
from tfrecord_io.reading.listing import check_not_committing
from tfrecord_io.storage.hdfs import HdfsStorage
from tfrecord_io.storage.s3 import S3Storage

REPOSITORY = Path(__file__).parent.parent

CHUNKS = 8
CHUNK = 75

#: Each showed a defect once; those below `CHUNKS` * `CHUNK` are run anyway.
SEEDS_THAT_FAILED = [4519, 10596, 11687, 7700482, 7716822, 7729993]


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_schedules(chunk: int) -> None:
    tally = Tally()
    for seed in range(chunk * CHUNK, (chunk + 1) * CHUNK):
        run_seed(seed, tally)
    done = sum(count for name, count in tally.outcomes.items() if name.endswith(" applied"))
    # Who refuses everything is safe, too.
    assert done > CHUNK
    assert tally.outcomes["read"] > CHUNK
    assert tally.outcomes.get(LEFT_EMPTY, 0) <= 1


@pytest.mark.parametrize("seed", SEEDS_THAT_FAILED)
def test_schedules_that_failed_once(seed: int) -> None:
    run_seed(seed)


TRACE = """
from tests.support.simulator import run_seed
for seed in range({first}, {last}):
    print("\\n".join(run_seed(seed).schedule.trace))
"""


def test_a_seed_is_a_schedule() -> None:
    def digest(hash_seed: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", TRACE.format(first=10, last=30)],
            cwd=REPOSITORY,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            check=True,
        )
        assert len(done.stdout) > 10_000
        return hashlib.sha256(done.stdout).hexdigest()

    assert digest("1") == digest("2")


# --- does it see defects? -------------------------------------------------------------------------


def publish_first(patch: pytest.MonkeyPatch) -> None:
    """The record comes after what it decides about."""
    decide = commit._decide

    def decide_late(staging: Staging, job_id: str, plan: Any) -> bool:
        planned = plan()
        if planned is not None:
            for staged, final in planned.record.publish:
                if staging.storage.stages_by == "rename":
                    # The staged file is needed again for the record.
                    data = f"{staging.job_folder(job_id)}/{staged}"
                    staging.storage.make_folders(f"{staging.root}/{final}".rpartition("/")[0])
                    copied = staging.storage.read_bytes(data, 1 << 20)
                    staging.storage.write_bytes(f"{staging.root}/{final}", copied)
                else:
                    staging.storage.publish(staged, f"{staging.root}/{final}")
        return decide(staging, job_id, lambda: planned)

    patch.setattr(commit, "_decide", decide_late)


def no_turns(patch: pytest.MonkeyPatch) -> None:
    """Two jobs commit at the same time."""
    for storage in (S3Storage, HdfsStorage):

        def create(self: Any, path: str, data: bytes, scratch: str) -> bool:
            self.write_bytes(path, data)
            return True

        patch.setattr(storage, "create_exclusive", create)


def impatient(patch: pytest.MonkeyPatch) -> None:
    """Whoever commits counts as dead."""
    patch.setattr(Staging, "is_dead", lambda *_: True)
    patch.setattr(Staging, "_holder_is_dead", lambda *_: True)


def blind_readers(patch: pytest.MonkeyPatch) -> None:
    """Readers do not ask whether a commit is under way."""
    assert check_not_committing
    patch.setattr("tfrecord_io.reading.listing.check_not_committing", lambda *_: "")


def forgotten_uploads(patch: pytest.MonkeyPatch) -> None:
    """The last job leaves uploads open."""
    patch.setattr(Staging, "abort_unowned_uploads", lambda *_: None)


def forgotten_files(patch: pytest.MonkeyPatch) -> None:
    """What was replaced stays."""
    patch.setattr(S3Storage, "remove_files", lambda *_: None)
    patch.setattr(HdfsStorage, "remove_files", lambda *_: None)


def forgotten_manifest(patch: pytest.MonkeyPatch) -> None:
    """The new manifest is not put into its place."""
    patch.setattr(publish, "publish_by_rename", lambda *_: None)


@pytest.mark.parametrize(
    "defect",
    [
        publish_first,
        no_turns,
        impatient,
        blind_readers,
        forgotten_uploads,
        forgotten_files,
        forgotten_manifest,
    ],
)
def test_defects_are_found(defect: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    defect(monkeypatch)
    with pytest.raises(WrongError, match=r"seed \d+") as caught:
        for seed in range(1000):
            run_seed(seed)
    # What it does is wrong, not how it is written.
    assert isinstance(caught.value.__cause__, WrongError)


def written(name: str, mode: str, value: int, begin: int, end: int | None, outcome: str) -> Write:
    return Write(
        name=name,
        mode=mode,
        rows=frozenset({(0, value)}),
        begin=begin,
        end=end,
        outcome=outcome,  # type: ignore[arg-type]
    )


def test_histories() -> None:
    first = written("a", "overwrite", 1, 0, 10, "applied")
    second = written("b", "append", 2, 5, 20, "applied")
    both = frozenset({(0, 1), (0, 2)})
    assert explain([first, second], both) == ["a", "b"]
    assert explain([first, second], frozenset({(0, 1)})) == ["b", "a"]
    assert explain([first, second], frozenset({(0, 2)})) is None
    late = written("b", "append", 2, 11, 20, "applied")
    assert explain([first, late], frozenset({(0, 1)})) is None
    perhaps = written("c", "append", 3, 0, None, "unknown")
    assert explain([first, perhaps], frozenset({(0, 1)})) == ["a"]
    assert explain([first, perhaps], both - {(0, 2)} | {(0, 3)}) == ["a", "c"]
    seen = Read(name="r", state=frozenset({(0, 1)}), begin=12, end=13)
    assert explain([first, second, seen], both) == ["a", "r", "b"]
    gone = Read(name="r", state=None, begin=12, end=13)
    assert explain([first, second, gone], both) is None
    refused = written("d", "overwrite", 4, 0, 9, "refused")
    assert explain([first, refused], frozenset({(0, 4)})) is None
