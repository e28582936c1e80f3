"""Several jobs, readers and recoveries on one data set, in an order drawn from a seed.

The code of the package runs as it is, over clients in memory (`tests.support.memory_clients`):
every call of a client is a step at which another actor may go on, a process may be killed, or the
call may fail. Run as a program it tries many seeds, or shows one::

    python -m tests.support.simulator 0 20000
    python -m tests.support.simulator 1234 --trace
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import random
import secrets
import sys
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Literal
from unittest import mock

import fsspec.asyn
import pyarrow as pa
import s3fs  # noqa: F401 - takes the function that is replaced below, for its own ends

from tests.support import histories
from tests.support.frames import examples
from tests.support.histories import Read, Row, State, Write
from tests.support.memory_clients import (
    Bucket,
    HdfsClient,
    NameNode,
    S3Client,
    hdfs_errors,
    s3_errors,
)
from tests.support.schedules import Actor, KilledError, Process, Schedule
from tfrecord_io import parallel
from tfrecord_io.codec import get_codec
from tfrecord_io.commit import job as commit
from tfrecord_io.commit import ownership, staging
from tfrecord_io.commit.job import abort_job, clean, commit_job
from tfrecord_io.errors import (
    CommitConflictError,
    CommitError,
    CommitStateUnknownError,
    DatasetExistsError,
    TFRecordError,
)
from tfrecord_io.layout import is_data_name
from tfrecord_io.manifest import Manifest
from tfrecord_io.options import SaveMode
from tfrecord_io.plan import CleanResult, TaskCommit, WriteJob
from tfrecord_io.reading import listing
from tfrecord_io.reading.listing import list_paths
from tfrecord_io.storage import Storage, sending
from tfrecord_io.storage import hdfs as hdfs_storage
from tfrecord_io.storage import s3 as s3_storage
from tfrecord_io.storage.hdfs import HdfsStorage
from tfrecord_io.storage.s3 import S3Storage
from tfrecord_io.writing import attempt
from tfrecord_io.writing import plan as write_plan
from tfrecord_io.writing.attempt import write_task
from tfrecord_io.writing.plan import plan_write

ROOT = "/data/deep/set"

_HOST, _WORKERS = "0" * 12, "f" * 12

_MODES: list[SaveMode] = ["error", "ignore", "overwrite", "append", "overwrite_partitions"]
_DAY = 24 * 60 * 60

#: More tries of a task than this are a failed job.
_TASK_TRIES = 3

#: Calls that an outage of one process lasts.
_OUTAGE_CALLS = 30

_SCHEMA = pa.schema([("p", pa.int64()), ("v", pa.int64())])


class WrongError(AssertionError):
    """Something happened that must not; the message tells the seed."""


@dataclass(frozen=True, kw_only=True)
class Character:
    """What a schedule is like.

    Attributes
    ----------
    kills, faults : float
        How likely a process is killed; how likely a call fails.
    partitioned : bool
        Whether rows are in folders.
    """

    stages_by: Literal["rename", "upload"]
    jobs: int
    readers: int
    cleaners: int
    kills: float
    faults: float
    stickiness: float
    hosts: int
    partitioned: bool
    page: int

    @staticmethod
    def draw(rng: random.Random) -> Character:
        return Character(
            stages_by=rng.choice(["rename", "upload"]),
            jobs=rng.choice([2, 2, 2, 3, 3, 4, 5, 8]),
            readers=rng.choice([0, 1, 2]),
            cleaners=rng.choice([0, 0, 1, 2]),
            kills=rng.choice([0.0, 0.0, 0.3, 0.6]),
            faults=rng.choice([0.0, 0.0, 0.005, 0.02, 0.05]),
            stickiness=rng.choice([0.0, 0.5, 0.9, 0.97]),
            hosts=rng.choice([1, 1, 2]),
            partitioned=rng.random() < 0.7,
            page=rng.choice([1, 2, 1000]),
        )


#: Jobs that raced, without any fault, left an empty target: rare.
LEFT_EMPTY = "left empty"


@dataclass
class Tally:
    """What became of jobs, over many schedules."""

    schedules: int = 0
    steps: int = 0
    outcomes: dict[str, int] = field(default_factory=dict)

    def add(self, name: str) -> None:
        self.outcomes[name] = self.outcomes.get(name, 0) + 1


class Simulation:
    """One schedule.

    Parameters
    ----------
    seed : int
        All that is random comes of it.
    tally : Tally
        Counts what happens.
    """

    def __init__(self, seed: int, tally: Tally) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.character = Character.draw(self.rng)
        self.schedule = Schedule(self.rng, self.character.stickiness)
        self.operations: list[histories.Operation] = []
        self._tally = tally
        self._faults_on = True
        self._outages: dict[Actor, int] = {}
        self._pids = iter(range(100, 10_000))
        self._processes: list[Process] = []
        now = self._now
        self.bucket = Bucket(now, self.character.page)
        self.name_node = NameNode(now)

    def _now(self) -> float:
        return self.schedule.now

    # --- the stores -------------------------------------------------------------------------------

    def open_storage(self, url: Any, options: Any = None) -> tuple[Storage, str]:
        del options
        if self.character.stages_by == "upload":
            return S3Storage(S3Client(self.bucket, self.around)), f"bucket{url}"
        return HdfsStorage(HdfsClient(self.name_node, self.around)), url

    def around(self, name: str, changes: bool, call: Callable[[], Any]) -> Any:
        """Make a call of a client a step, and perhaps let it fail."""
        if not self._faults_on:
            return call()
        self.schedule.step(name)
        fault = self._fault()
        if fault is None:
            return call()
        self.schedule.trace.append(f"    {name}: {fault}")
        if fault == "before":
            raise self._error()
        result = call()
        # Others may see the effect before the answer is told to be lost.
        self.schedule.step(name)
        if fault == "after":
            raise self._error()
        return call() if changes else result

    def _fault(self) -> str | None:
        actor = self.schedule.current
        if self._outages.get(actor, 0) > 0:
            self._outages[actor] -= 1
            return "before"
        if self.rng.random() >= self.character.faults:
            return None
        if self.rng.random() < 0.1:
            self._outages[actor] = _OUTAGE_CALLS
        return self.rng.choice(["before", "after", "after", "twice"])

    def _error(self) -> Exception:
        errors = s3_errors() if self.character.stages_by == "upload" else hdfs_errors()
        return self.rng.choice(errors)

    # --- the world --------------------------------------------------------------------------------

    def process(self, host: str | None = None) -> Process:
        made = Process(
            host=host or f"{self.rng.randrange(self.character.hosts):012x}", pid=next(self._pids)
        )
        self._processes.append(made)
        return made

    def _here(self) -> Process:
        return self.schedule.current.process if self._faults_on else self._judge

    def _start_time(self, pid: int) -> str | None:
        found = [one for one in self._processes if one.pid == pid and one.alive]
        return "1" if found and found[0].host == self._here().host else None

    @contextlib.contextmanager
    def world(self) -> Iterator[None]:
        """Put the schedule in the place of stores, processes, threads, time and chance."""
        time = SimpleNamespace(
            time=self._now,
            monotonic=self._now,
            sleep=lambda seconds: self.schedule.sleep(seconds) if self._faults_on else None,
        )
        pool = lambda *_, **__: _Pool(self.rng)  # noqa: E731
        # What only names folders is drawn apart, so that no name changes the schedule.
        names = random.Random(self.seed)
        patches: list[tuple[Any, str, Any]] = [
            *((module, "open_storage", self.open_storage) for module in _OPENERS),
            (parallel, "ThreadPoolExecutor", pool),
            *((module, "time", time) for module in _CLOCKS),
            (s3_storage, "in_flight", _done),
            (sending, "in_flight", _done),
            (fsspec.asyn, "sync", _run_now),
            (ownership, "host", lambda: self._here().host),
            (ownership, "start_time", self._start_time),
            (ownership, "os", SimpleNamespace(getpid=lambda: self._here().pid)),
            (secrets, "token_hex", lambda count: f"{names.getrandbits(8 * count):0{2 * count}x}"),
            (uuid, "uuid4", lambda: uuid.UUID(int=names.getrandbits(128))),
        ]
        with contextlib.ExitStack() as stack:
            for owner, name, value in patches:
                stack.enter_context(mock.patch.object(owner, name, value))
            yield

    # --- actors -----------------------------------------------------------------------------------

    def run(self) -> None:
        """Run the schedule and check what came of it."""
        with self.world():
            for number in range(self.character.jobs):
                process = self._maybe_shared()
                self.schedule.spawn(
                    f"job{number}",
                    process,
                    lambda number=number: self._job(number),  # type: ignore[misc]
                    dies_at=self._death(150),
                )
            for number in range(self.character.readers):
                self.schedule.spawn(f"reader{number}", self.process(), self._reader)
            for number in range(self.character.cleaners):
                self.schedule.spawn(
                    f"cleaner{number}", self.process(), self._cleaner, dies_at=self._death(60)
                )
            self.schedule.run()
            for actor in self.schedule._actors:
                if actor.error is not None and not isinstance(actor.error, KilledError):
                    raise actor.error
            self._judge = self.process(_HOST)
            self._faults_on = False
            self._check()
        self._tally.schedules += 1
        self._tally.steps += self.schedule.steps

    def _maybe_shared(self) -> Process:
        """Two jobs may be threads of one process."""
        if self._processes and self.rng.random() < 0.2:
            return self.rng.choice(self._processes)
        return self.process()

    def _death(self, before: int) -> int | None:
        if self.rng.random() >= self.character.kills:
            return None
        return self.rng.randrange(1, before)

    def _job(self, number: int) -> None:
        rng = self.rng
        modes = _MODES if self.character.partitioned else _MODES[:-1]
        mode = rng.choice(modes)
        tasks = [
            [(rng.randrange(3), number * 1000 + task * 10 + row) for row in range(rng.randrange(4))]
            for task in range(rng.randrange(1, 4))
        ]
        if mode == "ignore" and not any(tasks):
            tasks[0] = [(0, number * 1000)]
        job = _Job(self, number, mode, tasks)
        begin = self.schedule.steps
        # Until it says otherwise: killed.
        outcome: histories.Outcome = "refused"
        end: int | None = None
        try:
            outcome = job.run()
            end = None if outcome == "unknown" else self.schedule.steps
        except KilledError:
            outcome = "unknown" if job.is_committing else "refused"
            raise
        finally:
            self._tally.add(f"{mode} {outcome}")
            self.schedule.trace.append(f"job{number} {mode}: {outcome}")
            self.operations.append(
                Write(
                    name=f"job{number}",
                    mode=mode,
                    rows=frozenset(row for rows in tasks for row in rows),
                    begin=begin,
                    end=end,
                    outcome=outcome,
                )
            )

    def _reader(self) -> None:
        for _ in range(self.rng.randrange(1, 4)):
            begin = self.schedule.steps
            try:
                state = self.read()
            except (TFRecordError, OSError) as error:
                self._tally.add(f"read {type(error).__name__}")
                continue
            self._tally.add("read")
            self.schedule.trace.append(f"{self.schedule.current.name} read {_sorted(state)}")
            name = f"{self.schedule.current.name}-{begin}"
            self.operations.append(
                Read(name=name, state=state, begin=begin, end=self.schedule.steps)
            )

    def _cleaner(self) -> None:
        for _ in range(self.rng.randrange(1, 3)):
            with contextlib.suppress(TFRecordError, OSError):
                clean(ROOT)

    def _cleaned(self) -> CleanResult:
        try:
            return clean(ROOT)
        except FileNotFoundError:
            return CleanResult()

    def read(self) -> State:
        """Read all rows as a reader does."""
        try:
            _, (found,) = list_paths([ROOT], {})
        except FileNotFoundError:
            return None
        rows: list[Row] = []
        told = {file.path: file for file in found.manifest.files} if found.manifest else {}
        for info in found.infos:
            below = info.path.removeprefix(f"{found.root}/")
            data = found.storage.read_range(info.path, 0, info.size, info.version)
            here = list(_rows(below, data))
            if below in told and (told[below].bytes, told[below].rows) != (len(data), len(here)):
                raise WrongError(f"the manifest tells otherwise of {below}")
            rows += here
        if not found.infos and found.manifest is None:
            # A folder that jobs are at work in, and no data set yet.
            return None
        if len({*rows}) != len(rows):
            raise WrongError(f"rows are there twice: {sorted(rows)}")
        return frozenset(rows)

    # --- the end ----------------------------------------------------------------------------------

    def _check(self) -> None:
        for process in self._processes:
            process.alive = process is self._judge
        self.schedule.now += 2 * _DAY
        before = self.everything()
        done = self._cleaned()
        first = self.everything()
        # An attempt that nobody waits for may keep the last job from removing the hidden folder.
        late = {f"{ROOT.lstrip('/')}/{staging.STAGING_NAME}/{s3_storage.MARKER}"}
        if self._is_quiet and ({*before} - {*first} - late or done != CleanResult()):
            raise WrongError(f"without any fault something was left: {done}")
        if (again := self._cleaned()) != CleanResult() or self.everything() != first:
            raise WrongError(f"a second recovery does more: {again}")
        last = self.read()
        if histories.explain(self.operations, last) is None:
            raise WrongError(
                f"no order explains this:\n{histories.describe(self.operations, last)}"
            )
        self._check_is_clean(last)

    @property
    def _is_quiet(self) -> bool:
        return not self.character.kills and not self.character.faults

    def everything(self) -> dict[str, Any]:
        """Everything in the store: objects and uploads, or files and folders."""
        if self.character.stages_by == "rename":
            return {path: node.data for path, node in self.name_node.nodes.items()}
        uploads = {name: upload.key for name, upload in self.bucket.uploads.items()}
        return {key: one.data for key, one in self.bucket.objects.items()} | uploads

    def _check_is_clean(self, last: State) -> None:
        if self.bucket.uploads:
            raise WrongError(f"uploads are open: {self.bucket.uploads}")
        found = self.everything()
        if last is None:
            # Whoever dies, or loses the store, while the target is made may leave it empty; so may
            # who comes after the last of the others removed the hidden folder, before the target.
            if not {*found} <= {ROOT.rsplit("/", n)[0] for n in range(3)}:
                raise WrongError(f"something is left: {sorted(found)}")
            if found and self._is_quiet:
                self._tally.add(LEFT_EMPTY)
            return
        start = f"{ROOT.lstrip('/') if self.character.stages_by == 'upload' else ROOT}/"
        files = {
            path.removeprefix(start): data
            for path, data in found.items()
            if data is not None and path.startswith(start)
        }
        outside = [path for path in found if not path.startswith(start)]
        outside = [path for path in outside if not start.startswith(f"{path}/")]
        if "_SUCCESS" not in files:
            raise WrongError(f"there is no manifest: {sorted(found)}")
        manifest = Manifest.loads(files.pop("_SUCCESS"))
        assert manifest is not None
        if outside or not all(is_data_name(name) for path in files for name in path.split("/")):
            raise WrongError(f"something is left: {sorted(found)}")
        told = {file.path: (file.bytes, file.rows) for file in manifest.files}
        there = {path: (len(data), len(list(_rows(path, data)))) for path, data in files.items()}
        if told != there:
            raise WrongError(f"the manifest tells of {told}, there are {there}")


class _Job:
    """An engine: a driver, and attempts at tasks on workers."""

    def __init__(
        self, simulation: Simulation, number: int, mode: SaveMode, tasks: Sequence[Sequence[Row]]
    ) -> None:
        self._simulation = simulation
        self._schedule = simulation.schedule
        self._rng = simulation.rng
        self._name = f"job{number}"
        self._mode = mode
        self._tasks = tasks
        self.is_committing = False

    def run(self) -> histories.Outcome:
        partition_by = ["p"] if self._simulation.character.partitioned else []
        try:
            job = plan_write(
                _SCHEMA,
                ROOT,
                mode=self._mode,
                partition_by=partition_by,
                max_records_per_file=self._rng.choice([None, 1, 2]),
            )
        except (TFRecordError, OSError):
            return "refused"
        if job.skip:
            return "applied" if self._mode == "ignore" else "refused"
        commits = self._run_tasks(job)
        if None in commits or self._rng.random() < 0.05:
            with contextlib.suppress(OSError):
                abort_job(job, commits)
            return "refused"
        self.is_committing = True
        try:
            commit_job(job, [one for one in commits if one is not None])
        except CommitStateUnknownError:
            return "unknown"
        except (DatasetExistsError, CommitConflictError, CommitError):
            return "refused"
        except (TFRecordError, OSError):
            return "refused"
        return "applied"

    def _run_tasks(self, job: WriteJob) -> list[TaskCommit | None]:
        """Run all tasks, some of them more than once, and one after another or together."""
        commits: list[TaskCommit | None] = []
        running = []
        for index, rows in enumerate(self._tasks):
            running.append([self._attempt(job, index, rows, 0)])
            if self._rng.random() < 0.2:
                running[-1].append(self._attempt(job, index, rows, 1))
        for index, attempts in enumerate(running):
            commits.append(self._result(job, index, attempts))
            if commits[-1] is None and self._rng.random() < 0.7:
                # Spark aborts while other tasks still write.
                return [*commits, *[None] * (len(running) - index - 1)]
        return commits

    def _result(self, job: WriteJob, index: int, attempts: list[Actor]) -> TaskCommit | None:
        while True:
            # Whoever of several attempts ends first; the others go on.
            self._schedule.wait(lambda: any(one.is_done for one in attempts))
            done = [one for one in attempts if one.is_done]
            for one in done:
                if isinstance(one.result, TaskCommit):
                    return one.result
                attempts.remove(one)
            if not attempts:
                if len(done) >= _TASK_TRIES or self._rng.random() < 0.2:
                    return None
                attempts.append(self._attempt(job, index, self._tasks[index], 2))

    def _attempt(self, job: WriteJob, index: int, rows: Sequence[Row], number: int) -> Actor:
        def work() -> TaskCommit | None:
            try:
                return write_task(job, index, self._batches(rows))
            except (TFRecordError, OSError):
                return None

        return self._schedule.spawn(
            f"{self._name}-{index}-{number}",
            self._simulation.process(_WORKERS),
            work,
            dies_at=self._simulation._death(25),
        )

    def _batches(self, rows: Sequence[Row]) -> Iterable[pa.RecordBatch]:
        for row in rows:
            self._schedule.step("rows")
            yield pa.record_batch([[row[0]], [row[1]]], schema=_SCHEMA)


def _sorted(state: State) -> list[Row] | None:
    return None if state is None else sorted(state)


_FRAMES: dict[bytes, tuple[int | None, int]] = {}


def _rows(path: str, data: bytes) -> Iterator[Row]:
    """Give the rows of a file, by frames that protobuf made."""
    partition = int(path.partition("/")[0].removeprefix("p=")) if path.startswith("p=") else None
    while data:
        size = 16 + int.from_bytes(data[:8], "little")
        p, v = _known(data[:size], partition is None)
        data = data[size:]
        yield (p if partition is None else partition), v


def _known(frame: bytes, with_p: bool) -> Row:
    if not _FRAMES:
        for job, task, row in itertools.product(range(8), range(3), range(4)):
            v = job * 1000 + task * 10 + row
            _FRAMES[examples({"v": v})] = (None, v)
            for p in range(3):
                _FRAMES[examples({"p": p, "v": v})] = (p, v)
    p, v = _FRAMES[frame]
    if with_p != (p is not None):
        raise WrongError("a record has other columns than were written")
    return p or 0, v


# The kernel's allocator must not be set up by a thread that ends.
get_codec("auto")

_OPENERS = (attempt, commit, listing, write_plan)
_CLOCKS = (commit, hdfs_storage, s3_storage, staging)


class _Pool:
    """A pool whose work is done at once, in any order; after an error some of the rest is done."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def __enter__(self) -> _Pool:
        return self

    def __exit__(self, *_: object) -> None:
        return

    def map(self, work: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[Any]:
        todo = list(enumerate(items))
        self._rng.shuffle(todo)
        results: dict[int, Any] = {}
        errors: dict[int, Exception] = {}
        for index, item in todo:
            if errors and self._rng.random() < 0.5:
                continue
            try:
                results[index] = work(item)
            except Exception as error:  # noqa: BLE001 - the caller gets it
                errors[index] = error
        if errors:
            raise errors[min(errors)]
        return iter([results[index] for index in sorted(results)])


def _done(call: Callable[[], Any]) -> Future[Any]:
    future: Future[Any] = Future()
    try:
        future.set_result(call())
    except Exception as error:  # noqa: BLE001 - the caller gets it
        future.set_exception(error)
    return future


def _run_now(loop: object, work: Callable[[], Any]) -> Any:
    del loop
    coroutine = work()
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value
    raise AssertionError("a call waits for something that is not simulated")


def run_seed(seed: int, tally: Tally | None = None) -> Simulation:
    """Run one schedule.

    Raises
    ------
    WrongError
        Something happened that must not.
    """
    simulation = Simulation(seed, tally or Tally())
    try:
        simulation.run()
    except Exception as error:
        raise WrongError(
            f"seed {seed} ({simulation.character}): {type(error).__name__}: {error}\n"
            f"see it with: python -m tests.support.simulator {seed} --trace"
        ) from error
    return simulation


def _main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("first", type=int)
    parser.add_argument("count", type=int, nargs="?", default=1)
    parser.add_argument("--trace", action="store_true", help="show the steps of one schedule")
    parser.add_argument("--go-on", action="store_true", help="count failures")
    args = parser.parse_args()
    tally = Tally()
    failed = []
    for seed in range(args.first, args.first + args.count):
        simulation = Simulation(seed, tally)
        try:
            simulation.run()
        except Exception as error:  # noqa: BLE001 - whatever it is, its seed is told
            failed.append(seed)
            print(f"seed {seed}: {simulation.character}: {type(error).__name__}: {error}")
            if args.trace:
                import traceback

                traceback.print_exc()
            if not args.go_on:
                if args.trace:
                    print("\n".join(simulation.schedule.trace))
                break
    if args.trace and not failed:
        print("\n".join(simulation.schedule.trace))
    print(tally)
    print(f"{len(failed)} failed: {failed[:50]}")
    sys.exit(bool(failed))


if __name__ == "__main__":
    _main()
