"""From staged part files to a visible data set, all or nothing.

1. Every attempt at a task stages its files in the job's hidden folder, see
   `tfrecord_io.commit.staging`.
2. The driver waits for its turn, looks at the data set as it is now, works out final names and what
   is replaced, and sees to it that folders are there and may be changed.
3. The commit record, created exclusively, decides. Before it, recovery rolls back; after it,
   forward.
4. The record is carried out (`tfrecord_io.commit.publish`): publish by renames, or by completing
   uploads; remove what was replaced, then the manifest, then the hidden folder goes.

Whoever writes next, or `clean`, finishes or removes what a killed driver left behind. A failure
before the record leaves the target, and the folder it is in, as they were.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tfrecord_io.commit.file_staging import behind_link, hidden_folders, remove_hidden, uploads_of
from tfrecord_io.commit.plan import PlannedCommit, plan_commit, plan_forgetting
from tfrecord_io.commit.publish import carry_out, completed_uploads, make_ready, take_back
from tfrecord_io.commit.replaced import Replaced
from tfrecord_io.commit.staging import STALE_AFTER_SECONDS, Staging, Turn
from tfrecord_io.errors import (
    CommitConflictError,
    CommitError,
    CommitStateUnknownError,
    OptionError,
    PrecisionWarning,
    warn,
)
from tfrecord_io.manifest import MANIFEST_NAME
from tfrecord_io.options import flag
from tfrecord_io.plan import CleanResult, StagedFile, TaskCommit, WriteJob, WriteResult
from tfrecord_io.storage import Storage, open_storage
from tfrecord_io.storage.protocol import not_found

#: How often carrying out a decided commit is tried before its end is left to others.
_PUBLISH_TRIES = 3

#: How long a reader waits for a commit that publishes.
_READER_SECONDS = 2.0
_POLL_SECONDS = 0.02


def staging_of(job: WriteJob) -> Staging:
    """Return the hidden folder of a job's target."""
    storage, root = open_storage(job.url, job.storage_options)
    return Staging(storage, root)


def commit_job(job: WriteJob, commits: Sequence[TaskCommit]) -> WriteResult:
    """Publish what task commits name, and nothing else.

    Parameters
    ----------
    job : WriteJob
        Of `tfrecord_io.writing.plan.plan_write`.
    commits : sequence of TaskCommit
        One for each task, in any order.

    Returns
    -------
    WriteResult
        What was published: nothing if the mode is "ignore" and there are data, or if the job is a
        batch of a stream that was committed before.

    Raises
    ------
    DatasetExistsError, CommitConflictError, CommitError
        The target is as it was, and the job is rolled back.
    CommitStateUnknownError
        The job was decided, or had ended before: look at the target.

    Warns
    -----
    PrecisionWarning
        Once, with all columns whose values were narrowed to float32.
    """
    if job.skip:
        return WriteResult()
    try:
        return _commit_tasks(job, commits)
    except KeyboardInterrupt:
        # It may have come before there was anything to roll back or to carry out.
        abort_job(job, commits)
        raise


def _commit_tasks(job: WriteJob, commits: Sequence[TaskCommit]) -> WriteResult:
    staging = staging_of(job)
    _check_is_staged(staging, job.job_id)

    def plan() -> PlannedCommit | None:
        check_state(staging.storage, staging.root, job.state)
        return plan_commit(job, commits, staging.storage, staging.root)

    if not _commit(staging, job.job_id, lambda: check_commits(staging, job, commits), plan):
        return WriteResult()
    warn_of_inexact_columns(commits)
    files = [file for commit in commits for file in commit.files]
    return WriteResult(
        files=len(files),
        rows=sum(file.rows for file in files),
        bytes=sum(file.bytes for file in files),
    )


def _commit(
    staging: Staging,
    job_id: str,
    check: Callable[[], object],
    plan: Callable[[], PlannedCommit | None],
) -> bool:
    """Wait for a job's turn, decide what `plan` gives then, and carry it out.

    Returns False if that is nothing; the job is rolled back then, as after an error.
    """
    try:
        check()
        staging.take_turn(job_id, lambda: _finish_dead_turn(staging))
        is_decided = _decide(staging, job_id, plan)
    except OSError as error:
        if _gave_up(staging, job_id):
            raise
        raise CommitStateUnknownError(
            f"the write may be committed: {error}; when the cause is gone, 'tfrecord-io clean' on "
            "the target, or the next write to it, finishes it or removes what is left of it",
            path=staging.storage.url(staging.root),
        ) from error
    except BaseException as error:
        # An interrupt may come when the record is there already.
        if isinstance(error, KeyboardInterrupt) and _is_decided(staging, job_id):
            _finish(staging, job_id, claim=0)
        else:
            _gave_up(staging, job_id)
        raise
    if not is_decided:
        _gave_up(staging, job_id)
        return False
    _finish(staging, job_id, claim=0)
    return True


def abort_job(job: WriteJob, commits: Iterable[TaskCommit | None] = ()) -> None:
    """Remove what a job staged; the target and the folder it is in are as they were before the job.

    May be called twice, while tasks still write (they fail then), and after `commit_job`: a job
    that was decided stays committed.

    Parameters
    ----------
    job : WriteJob
        Of `tfrecord_io.writing.plan.plan_write`.
    commits : iterable of (TaskCommit or None)
        What engines have at hand. Without it, uploads to an object store stay open as long as
        another job runs in the data set.
    """
    if job.skip:
        return
    staging = staging_of(job)
    if staging.is_decided(job.job_id):
        return
    if staging.storage.stages_by == "upload":
        # Those of lost attempts go when no job runs in the data set any more.
        files = [file for commit in commits if commit is not None for file in commit.files]
        mine = {staging.storage.upload_id(file.staged) for file in files}
        open_ones = staging.storage.uploads(staging.root) if mine else []
        staging.storage.abort_uploads(one for one in open_ones if one.upload_id in mine)
    remove_undecided(staging, job.job_id)


def remove_undecided(staging: Staging, job_id: str) -> None:
    """Remove a job that is not decided, unless it has the turn: its commit may be under way."""
    if _has_turn(staging, job_id):
        # Its commit was given up, and somebody else may be ending it already.
        _finish_dead_turn(staging)
        return
    staging.remove_job(job_id)


@contextlib.contextmanager
def aborted_by_errors(job: WriteJob) -> Iterator[None]:
    """Abort a job when something is raised, which is told even if the store refuses the abort."""
    try:
        yield
    except BaseException:
        try:
            abort_job(job)
        except OSError:
            # The next write of this process removes it.
            staging_of(job).give_up(job.job_id)
        raise


def recover(
    staging: Staging, *, stale_after: float = STALE_AFTER_SECONDS, dry_run: bool = False
) -> CleanResult:
    """Finish decided commits of dead processes, and remove what else dead jobs left.

    Parameters
    ----------
    staging : Staging
        Of the data set.
    stale_after : float
        Seconds after which a job of another host counts as dead.
    dry_run : bool
        Only say what would be done.
    """
    finished: list[str] = []
    removed: list[str] = []
    running: list[str] = []
    completed: set[str] = set()
    staging.check_folder()
    uploads = staging.part_uploads()

    def end_dead_turn() -> Turn | None:
        turn = staging.turn()
        if turn is None or not staging.is_dead(turn, stale_after):
            return turn
        (finished if staging.is_decided(turn.job_id) else removed).append(turn.job_id)
        completed.update(completed_uploads(staging, turn.job_id))
        if dry_run:
            return turn
        _finish_dead_turn(staging, stale_after)
        return staging.turn()

    turn = end_dead_turn()
    for job_id in staging.job_ids():
        if job_id in (*finished, *removed):
            continue
        if not staging.is_stale(job_id, stale_after):
            running.append(job_id)
            continue
        # A job whose process is gone takes no turn any more, but may have until just now.
        turn = end_dead_turn()
        if job_id in (*finished, *removed):
            continue
        if turn is not None and turn.job_id == job_id:
            running.append(job_id)
            continue
        removed.append(job_id)
        if not dry_run:
            staging.remove_job(job_id)
    is_idle = not running and (turn is None or turn.job_id in (*finished, *removed))
    if is_idle and not dry_run:
        staging.abort_unowned_uploads(uploads)
        if staging.storage.is_folder(staging.folder):
            staging.storage.remove_folder(staging.folder)
    left = [one for one in uploads if is_idle and one.upload_id not in completed]
    left = [one for one in left if not staging.is_of_a_file(one)]
    return CleanResult(
        finished=tuple(finished),
        removed=tuple(removed),
        running=tuple(running),
        uploads=len(left),
    )


def clean(
    path: str | os.PathLike[str],
    storage_options: Mapping[str, Any] | None = None,
    *,
    dry_run: bool = False,
    stale_after: float = STALE_AFTER_SECONDS,
    forget_missing: bool = False,
) -> CleanResult:
    """Finish or remove what killed writers left in a data set, or beside a file.

    Parameters
    ----------
    path : str or path-like
        The data set; or a local file that was to be converted to, or a folder of such files.
    storage_options : mapping, optional
        For the file system.
    dry_run : bool
        Only say what would be done.
    stale_after : float
        Seconds without a change after which a job of another host counts as dead; of this host it
        is known. 0 ends all of them: only when none of them runs.
    forget_missing : bool
        Have the manifest forget the files that are gone or have another length than it says: they
        were removed or rewritten on purpose, and `tfrecord_io.verify` is not to tell of them. No
        write does that by itself.

    Returns
    -------
    CleanResult
        The jobs that were met, by what became of them; a conversion to a file bears the name of its
        hidden folder.

    Raises
    ------
    FileNotFoundError
        Nothing is there.
    OptionError
        A `stale_after` that is no number of seconds.
    """
    flag("dry_run", dry_run)
    flag("forget_missing", forget_missing)
    if not isinstance(stale_after, int | float) or not stale_after >= 0:
        raise OptionError(f"stale_after is {stale_after!r}; it must be 0 or more seconds")
    storage, root = open_storage(path, storage_options)
    is_folder = storage.is_folder(root)
    found = CleanResult()
    # In a store of uploads there may be some without any file.
    if is_folder or storage.stages_by == "upload":
        found = recover(Staging(storage, root), stale_after=stale_after, dry_run=dry_run)
    if is_folder:
        beside = _clean_files(storage, root, None, stale_after, dry_run)
    else:
        parent, _, name = behind_link(storage, root).rpartition("/")
        beside = _clean_files(storage, parent or "/", name, stale_after, dry_run)
    if beside == found == CleanResult() and not storage.exists(root):
        raise not_found(storage.url(root))
    forgotten = _forget_missing(Staging(storage, root), dry_run) if forget_missing else ()
    return replace(
        found,
        forgotten=forgotten,
        removed=(*beside.removed, *found.removed),
        running=(*beside.running, *found.running),
        uploads=beside.uploads + found.uploads,
    )


def _forget_missing(staging: Staging, dry_run: bool) -> tuple[str, ...]:
    storage, root = staging.storage, staging.root
    forgotten: list[str] = []

    def plan() -> PlannedCommit | None:
        planned, forgotten[:] = plan_forgetting(storage, root) or (None, [])
        return planned

    def check() -> None:
        storage.check_changeable({root: {MANIFEST_NAME}})

    if plan() is not None and not dry_run:
        _commit(staging, staging.set_up_job(), check, plan)
    return tuple(forgotten)


def _clean_files(
    storage: Storage, folder: str, name: str | None, stale_after: float, dry_run: bool
) -> CleanResult:
    removed: list[str] = []
    running: list[str] = []
    uploads = 0
    for hidden, is_dead in hidden_folders(storage, folder, name, stale_after=stale_after):
        (removed if is_dead else running).append(hidden)
        if is_dead:
            uploads += len(uploads_of(storage, f"{folder}/{hidden}"))
            if not dry_run:
                remove_hidden(storage, f"{folder}/{hidden}")
    return CleanResult(removed=tuple(removed), running=tuple(running), uploads=uploads)


def check_not_committing(storage: Storage, path: str) -> str:
    """Make sure that no commit is being published in the data set that a reader looks at.

    Call it before and after listing: between two calls with the same answer nothing was published.

    Parameters
    ----------
    storage : Storage
        Of the data set.
    path : str
        The data set, one of its partition folders or one of its files.

    Returns
    -------
    str
        A token of the data set's state.

    Raises
    ------
    CommitConflictError
        A commit that was begun is not finished; the message says what to do.
    """
    is_folder = "/" not in path or storage.is_folder(path)
    folder = path if is_folder else path.rpartition("/")[0]
    tokens = []
    while True:
        tokens.append(_wait_while_publishing(Staging(storage, folder)))
        parent, _, name = folder.rpartition("/")
        if "=" not in name:
            return " ".join(tokens)
        folder = parent


def check_state(storage: Storage, path: str, state: str | None) -> None:
    """Raise `CommitConflictError` unless a data set is in a state; None stands for any.

    Parameters
    ----------
    storage, path
        See `check_not_committing`.
    state : str or None
        What `check_not_committing` gave when an append was made.
    """
    if state is not None and state != check_not_committing(storage, path):
        raise CommitConflictError(
            "the data set has changed since this append was made, perhaps by having been computed "
            "before; nothing was written: look at the data set, and make the append anew if its "
            "rows are not there",
            path=storage.url(path),
        )


def _wait_while_publishing(staging: Staging) -> str:
    deadline = time.monotonic() + _READER_SECONDS
    while True:
        turn = staging.turn()
        if turn is None or not staging.is_decided(turn.job_id):
            break
        if staging.is_dead(turn):
            raise CommitConflictError(
                "a commit to the data set was cut off while it published; 'tfrecord-io clean' on "
                "it, or the next write to it, finishes it",
                path=staging.storage.url(staging.root),
            )
        if time.monotonic() > deadline:
            raise CommitConflictError(
                "a commit to the data set is being published; read again when it is done",
                path=staging.storage.url(staging.root),
            )
        time.sleep(_POLL_SECONDS)
    try:
        return staging.storage.info(f"{staging.root}/{MANIFEST_NAME}").version
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        return "-"


def _check_is_staged(staging: Staging, job_id: str) -> None:
    if not staging.storage.is_folder(staging.job_folder(job_id)):
        raise CommitStateUnknownError(
            "nothing of this job is staged: it was committed or aborted before, or cleaned away; "
            "look at the target",
            path=staging.storage.url(staging.root),
        )


def check_commits(staging: Staging, job: WriteJob, commits: Sequence[TaskCommit]) -> None:
    """Raise `CommitError` unless each task has one commit, and all files are there as written."""
    seen = set()
    staged = _staged(staging, job)
    for commit in commits:
        if commit.task_index in seen:
            raise CommitError(
                f"two commits of task {commit.task_index} were given; give one a task"
            )
        seen.add(commit.task_index)
        for file in commit.files:
            if not staged(file):
                raise CommitError(
                    f"a file that task {commit.task_index} staged is not there as it was written; "
                    "write again",
                    path=staging.storage.url(staging.root),
                )


def _staged(staging: Staging, job: WriteJob) -> Callable[[StagedFile], bool]:
    """Return what says whether a file is staged; the store is asked once, not for each file."""
    storage = staging.storage
    if storage.stages_by == "upload":
        place = staging.root if job.file is None else job.file.rpartition("/")[0]
        upload_ids = {upload.upload_id for upload in storage.uploads(place)}
        return lambda file: storage.upload_id(file.staged) in upload_ids
    folder = staging.job_folder(job.job_id)
    sizes = {info.path[len(folder) + 1 :]: info.size for info in storage.list_files(folder)}
    return lambda file: sizes.get(file.staged) == file.bytes


def _decide(staging: Staging, job_id: str, plan: Callable[[], PlannedCommit | None]) -> bool:
    """Create the commit record; return False if there is nothing to be done."""
    storage = staging.storage
    _check_is_staged(staging, job_id)
    planned = plan()
    if planned is None:
        return False
    make_ready(staging, job_id, planned.record, planned.manifest)
    path = staging.record_path(job_id)
    try:
        storage.create_exclusive(path, planned.record.dumps(), staging.job_folder(job_id))
    except OSError:
        # The record may be there although making it durable failed.
        if not storage.exists(path):
            raise
    return True


def _is_decided(staging: Staging, job_id: str) -> bool | None:
    """Return whether a job is decided, or None if the store does not say."""
    try:
        return staging.is_decided(job_id)
    except OSError:
        return None


def _gave_up(staging: Staging, job_id: str) -> bool:
    """Roll a job back; if it was decided after all, or may be, leave its end to others."""
    if _is_decided(staging, job_id) is not False:
        _abandon(staging, job_id, claim=0)
        return False
    try:
        if _has_turn(staging, job_id):
            take_back(staging, job_id)
            staging.leave_turn(job_id)
    except OSError:
        # Whoever ends the turn then removes the job.
        _abandon(staging, job_id, claim=0)
        return True
    staging.remove_job_quietly(job_id)
    return True


# --- after the decision ---------------------------------------------------------------------------


def _finish(staging: Staging, job_id: str, *, claim: int) -> None:
    """Carry out a commit, end its turn, and remove the job's folder.

    An interrupt is raised when that is done: what is decided is seen by all, and readers would be
    kept from a half of it. A second one ends it.
    """
    replaced = Replaced()
    try:
        try:
            _carry_out(staging, job_id, claim, replaced)
            staging.remove_job_quietly(job_id)
        except KeyboardInterrupt:
            if _has_turn(staging, job_id):
                _carry_out(staging, job_id, claim, replaced)
            staging.remove_job_quietly(job_id)
            raise
    except BaseException:
        _abandon(staging, job_id, claim)
        raise
    finally:
        replaced.let_go()


def _carry_out(staging: Staging, job_id: str, claim: int, replaced: Replaced) -> None:
    """Carry out a commit and end its turn, in some tries; or leave both to others."""
    is_begun = False
    for left in range(_PUBLISH_TRIES - 1, -1, -1):
        try:
            # Once the turn has ended another job may have begun: nothing may be done again then.
            if _has_turn(staging, job_id):
                is_begun = True
                carry_out(staging, job_id, replaced)
                staging.leave_turn(job_id)
            elif not is_begun and not claim and staging.is_unfinished(job_id):
                # Without the turn nobody carries it out any more.
                staging.remove_job_quietly(job_id)
                raise CommitStateUnknownError(
                    "something removed the file that says that it is this job's turn to commit, "
                    "and nothing was published; write again",
                    path=staging.storage.url(staging.turn_path),
                )
            break
        except OSError as error:
            if left:
                continue
            raise CommitStateUnknownError(
                f"the write is committed, but publishing it failed: {error}; when the cause is "
                "gone, 'tfrecord-io clean' on the target, or the next write to it, finishes it",
                path=staging.storage.url(staging.root),
            ) from error


def _has_turn(staging: Staging, job_id: str) -> bool:
    turn = staging.turn()
    return turn is not None and turn.job_id == job_id


def _abandon(staging: Staging, job_id: str, claim: int) -> None:
    # Without the mark other processes wait until this one ends; nothing else is lost.
    with contextlib.suppress(OSError):
        staging.abandon(job_id, claim)


def _finish_dead_turn(staging: Staging, stale_after: float = STALE_AFTER_SECONDS) -> None:
    turn = staging.turn()
    if turn is None or not staging.is_dead(turn, stale_after):
        return
    claim = staging.claim(turn, stale_after)
    if claim is not None:
        _finish(staging, turn.job_id, claim=claim)


def warn_of_inexact_columns(commits: Iterable[TaskCommit]) -> None:
    """Warn of the columns whose values were narrowed to float32."""
    warn_of_rounded({column for commit in commits for column in commit.inexact_columns})


def warn_of_rounded(columns: Collection[str]) -> None:
    """Warn of columns whose values were rounded to float32, if there are any."""
    if columns:
        warning = PrecisionWarning(
            f"TFRecord holds 32-bit floats: values of {', '.join(map(repr, sorted(columns)))} were "
            'rounded to the nearest; cast the columns to float32, or say float64="cast", to have '
            'no warning, float64="error" to have an error'
        )
        warning.columns = tuple(sorted(columns))
        warn(warning, PrecisionWarning)
