"""The hidden folder in a data set: staged files, whose turn it is to commit, what is stale.

::

    TARGET/.tfrecord-io/
        committing.json          the turn: the one job that commits now, and its process
        JOB/                     one folder a job; its name says which process runs it
            00003-1f2e3d4c/      one folder an attempt at a task
            _SUCCESS             the new manifest
            commit.json          the commit record: from its creation on the job is committed
            claim-0000.json      the process whose turn it is
            claim-0001.json      the process that finishes the job after the first one died
            abandoned-0001.json  a claim whose process lives, but has given up
            committing.json      on HDFS, the turn that the job had

Invariants
----------
- The turn is created exclusively, and removed only by the process that took it or holds the last
  claim. Claims are numbered, and their numbers are used once, so two processes never finish the
  same job at once.
- A job folder without the turn is nobody's data: it may be removed once its process is gone.
- A job's name also says how many folders were made for it, down to the target, so that they go with
  it. An empty target may be left only by a process that dies, or loses the store, between making it
  and removing it again; or by one that comes while the last of the others removes it.
"""

from __future__ import annotations

import contextlib
import json
import re
import secrets
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tfrecord_io.commit.ownership import OWNER_TEXT, Owner, is_gone, owner_of
from tfrecord_io.errors import (
    CommitConflictError,
    CommitStateUnknownError,
    LayoutError,
    OptionError,
)
from tfrecord_io.layout import parse_part_name
from tfrecord_io.storage import Storage, Upload

#: The hidden folder's name.
STAGING_NAME = ".tfrecord-io"

#: A job of another host counts as dead when nothing changed in its folder for this long (one day).
STALE_AFTER_SECONDS = 24 * 60 * 60

#: How long a commit waits for another job's commit.
TURN_SECONDS = 30.0
_POLL_SECONDS = 0.02

_JOB_ID = re.compile(rf"{OWNER_TEXT}-(?P<levels>[0-9]{{1,3}})-[0-9a-f]{{8}}")

#: The turn, a claim: both small.
_MAX_RECORD_BYTES = 64 * 1024

#: Folders come and go beside us while jobs start and end; so many tries are enough.
_SETUP_TRIES = 20

#: How often removing a job is tried.
_REMOVE_TRIES = 3

#: Claims that this process gave up, by job and number, 0 for a job of its own: it knows that even
#: where the store takes no mark of it.
_given_up: set[tuple[str, int]] = set()


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """The job that commits now, and the process that carries the commit out."""

    job_id: str
    owner: Owner


@dataclass(frozen=True, slots=True)
class Staging:
    """The hidden folder of one data set.

    Attributes
    ----------
    storage : Storage
        Where the data set is.
    root : str
        The data set's path.
    """

    storage: Storage
    root: str

    @property
    def folder(self) -> str:
        """The hidden folder."""
        return f"{self.root}/{STAGING_NAME}"

    @property
    def turn_path(self) -> str:
        """The file that says whose turn it is."""
        return f"{self.folder}/committing.json"

    def job_folder(self, job_id: str) -> str:
        """Return the folder of a job."""
        return f"{self.folder}/{job_id}"

    def record_path(self, job_id: str) -> str:
        """Return the commit record of a job."""
        return f"{self.job_folder(job_id)}/commit.json"

    def is_decided(self, job_id: str) -> bool:
        """Return whether a job is committed, if perhaps not carried out yet."""
        return self.storage.exists(self.record_path(job_id))

    def is_unfinished(self, job_id: str) -> bool:
        """Return whether a job is committed and no other process has claimed to carry it out."""
        return self.is_decided(job_id) and not self._is_claimed(job_id, 1)

    # --- jobs -------------------------------------------------------------------------------------

    def check_folder(self) -> None:
        """Raise `LayoutError` if the hidden folder is a link, or none: that is not ours."""
        local = self.storage.local_path(self.folder)
        if local is None:
            return
        if is_link(self.storage, self.folder):
            raise LayoutError(
                "the hidden folder is a link, and what it leads to is not ours; remove the link",
                path=self.folder,
            )
        if Path(local).is_file():
            raise LayoutError(
                "a file stands where the hidden folder is to be; remove it", path=self.folder
            )

    def set_up_job(self, owner_pid: int | None = None) -> str:
        """Make the folder of a new job and return the job's id.

        Parameters
        ----------
        owner_pid : int, optional
            The process whose end is the job's end; by default this one.
        """
        self.check_folder()
        owner = owner_of(owner_pid)
        levels = 0
        for _ in range(_SETUP_TRIES):
            levels = max(levels, self._new_levels())
            job_id = f"{owner}-{levels}-{secrets.token_hex(4)}"
            try:
                self.storage.make_folders(self.folder)
                self.storage.make_folder(self.job_folder(job_id))
                self._sync_new_folders(levels)
            except FileNotFoundError:
                # Another job that ended has just removed the folder.
                continue
            except BaseException:
                self.remove_job_quietly(job_id)
                raise
            return job_id
        raise CommitConflictError(
            "other jobs keep removing the target folder; try again",
            path=self.storage.url(self.root),
        )

    def _new_levels(self) -> int:
        """Return how many folders, from the target upwards, are made for the jobs there are."""
        if not self.storage.has_folders:
            return 0
        path, levels = self.root, 0
        while path and not self.storage.is_folder(path):
            path = path.rpartition("/")[0]
            levels += 1
        # Whoever of several jobs ends last takes away the folders that the first one made.
        return max([levels, *map(_made_levels, self.job_ids())])

    def _sync_new_folders(self, levels: int) -> None:
        path = self.root
        folders = [self.folder, path]
        for _ in range(levels):
            path = path.rpartition("/")[0]
            folders.append(path or "/")
        self.storage.sync_folders(folders)

    def job_ids(self) -> list[str]:
        """Return the jobs that have a folder, sorted."""
        try:
            tree = self.storage.tree(self.folder)
        except FileNotFoundError:
            return []
        # A store whose folders are only prefixes of names may hold no more than the files.
        paths = {*tree.folders, *(path for path in tree.files if "/" in path)}
        return sorted({path.partition("/")[0] for path in paths})

    def has_attempts(self, job_id: str) -> bool:
        """Return whether a task of a job has begun to stage files."""
        try:
            return bool(self.storage.tree(self.job_folder(job_id)).folders)
        except FileNotFoundError:
            return False

    def remove_job(self, job_id: str) -> None:
        """Remove a job's folder and uploads, and the folders made for it that hold nothing else."""
        try:
            self.storage.remove_tree(self.job_folder(job_id))
            self.abort_unowned_uploads(self.part_uploads())
        except BaseException:
            self.give_up(job_id)
            raise
        if not self.storage.remove_folder(self.folder):
            return
        path = self.root
        for _ in range(_made_levels(job_id)):
            if not self.storage.remove_folder(path):
                return
            path = path.rpartition("/")[0]

    def remove_job_quietly(self, job_id: str) -> None:
        """Remove a job if the store lets us; the next write removes what is left."""
        for _ in range(_REMOVE_TRIES):
            with contextlib.suppress(OSError):
                self.remove_job(job_id)
                return

    def part_uploads(self) -> list[Upload]:
        """Return the open uploads of part files."""
        return [
            upload
            for upload in self.storage.uploads(self.root)
            if parse_part_name(upload.path.rpartition("/")[2]) is not None
        ]

    def abort_unowned_uploads(self, uploads: list[Upload]) -> None:
        """End those of `part_uploads` that no job may own, if no job runs any more.

        Which job made an upload is not known, so the last job to go ends all that are left. They
        must have been listed before: a job whose upload was seen is seen as well, unless it ended.
        """
        if uploads and not self._has_jobs():
            self.storage.abort_uploads(one for one in uploads if not self.is_of_a_file(one))

    def _has_jobs(self) -> bool:
        try:
            tree = self.storage.tree(self.folder)
        except FileNotFoundError:
            return False
        # Not every file counts: an attempt that nobody waits for may leave some where its job was.
        return any("/" not in path for path in tree.folders)

    def is_of_a_file(self, upload: Upload) -> bool:
        """Return whether a conversion to one file of that name has its hidden folder beside it."""
        folder, _, name = upload.path.rpartition("/")
        return bool(self.storage.folders(folder, f".{name}."))

    def is_stale(self, job_id: str, stale_after: float) -> bool:
        """Return whether the process that runs a job is gone, or gave it up."""
        if (job_id, 0) in _given_up:
            return True
        match = _JOB_ID.fullmatch(job_id)
        owner = Owner.of_name(match) if match else None
        return is_gone(owner, lambda: self._is_old(job_id, stale_after))

    def _is_old(self, job_id: str, stale_after: float) -> bool:
        for folder in (self.job_folder(job_id), self.folder):
            with contextlib.suppress(FileNotFoundError):
                return self.storage.age_seconds(folder) >= stale_after
        return False

    # --- the turn ---------------------------------------------------------------------------------

    def turn(self) -> Turn | None:
        """Return whose turn it is to commit, if anybody's."""
        value = self._read_json(self.turn_path)
        if value is None:
            return None
        owner = _owner_from_json(value.get("owner"))
        job_id = value.get("job_id")
        if owner is None or not isinstance(job_id, str) or not _JOB_ID.fullmatch(job_id):
            raise CommitStateUnknownError(
                "the file that says which job commits cannot be understood; a newer version of "
                "tfrecord-io may have written it: look at the target, and remove the file if no "
                "job runs",
                path=self.storage.url(self.turn_path),
            )
        return Turn(job_id=job_id, owner=owner)

    def take_turn(self, job_id: str, finish_dead: Callable[[], object]) -> None:
        """Wait until it is a job's turn to commit.

        Parameters
        ----------
        job_id : str
            The job, which has a folder.
        finish_dead : callable
            Finishes the commit of a process that is gone, if that is whose turn it is.

        Raises
        ------
        CommitConflictError
            Another job did not end its commit in `TURN_SECONDS`.
        """
        me = _this_process()
        folder = self.job_folder(job_id)
        self.storage.create_exclusive(self._claim_path(job_id, 0), _to_json(me), folder)
        data = _to_json({"job_id": job_id, "owner": me})
        deadline = time.monotonic() + TURN_SECONDS
        while not self.storage.create_exclusive(self.turn_path, data, folder):
            finish_dead()
            if time.monotonic() > deadline:
                raise CommitConflictError(
                    f"another job has been committing to the target for {TURN_SECONDS:.0f} "
                    "seconds; try again, or run 'tfrecord-io clean' on the target if that job is "
                    "gone",
                    path=self.storage.url(self.root),
                )
            time.sleep(_POLL_SECONDS)

    def leave_turn(self, job_id: str) -> None:
        """End a job's turn; only for the process that took it or holds the last claim."""
        self.storage.release(self.turn_path, self.job_folder(job_id))

    def is_dead(self, turn: Turn, stale_after: float = STALE_AFTER_SECONDS) -> bool:
        """Return whether nobody carries out the commit of `turn` any more."""
        return self._holder_is_dead(turn, self._last_claim(turn.job_id), stale_after)

    def claim(self, turn: Turn, stale_after: float) -> int | None:
        """Become the process that finishes a dead commit.

        Returns
        -------
        int or None
            The number of the claim, for `abandon`; None if another process finishes or has finished
            it.
        """
        folder = self.job_folder(turn.job_id)
        if is_link(self.storage, folder):
            raise LayoutError(
                "the folder of the job that commits is a link, and what it leads to is not ours; "
                "remove the link",
                path=folder,
            )
        data = _to_json(_this_process())
        last = self._last_claim(turn.job_id)
        if not self._holder_is_dead(turn, last, stale_after):
            return None
        number = last + 1
        path = self._claim_path(turn.job_id, number)
        try:
            won = self.storage.create_exclusive(path, data, folder)
        except FileNotFoundError:
            won = self._claim_without_folder(turn, path, data)
        # Another process may have made the same claim and given it up since we looked.
        if not won or self.storage.exists(self._abandoned_path(turn.job_id, number)):
            return None
        return number if self.turn() == turn else None

    def _claim_without_folder(self, turn: Turn, path: str, data: bytes) -> bool:
        """Claim the turn of a job whose folder somebody took away."""
        # Usually because the turn has ended.
        if self.turn() != turn:
            return False
        folder = self.job_folder(turn.job_id)
        with contextlib.suppress(FileExistsError):
            self.storage.make_folder(folder)
        try:
            won = self.storage.create_exclusive(path, data, folder)
        except FileNotFoundError:
            return False
        if won and self.turn() != turn:
            self.remove_job_quietly(turn.job_id)
            return False
        return won

    def abandon(self, job_id: str, claim: int) -> None:
        """Say that this process gives up finishing a commit, so that others may.

        Parameters
        ----------
        job_id : str
            The job whose turn it is.
        claim : int
            The number of this process's claim; 0 if it took the turn itself.
        """
        self.give_up(job_id, claim)
        # A rename needs no room on a full disk.
        self.storage.rename(self._claim_path(job_id, claim), self._abandoned_path(job_id, claim))

    def give_up(self, job_id: str, claim: int = 0) -> None:
        """Have this process know that it gave up, without a word to the store; see `abandon`."""
        _given_up.add((job_id, claim))

    def _claim_path(self, job_id: str, number: int) -> str:
        return f"{self.job_folder(job_id)}/claim-{number:04d}.json"

    def _abandoned_path(self, job_id: str, number: int) -> str:
        return f"{self.job_folder(job_id)}/abandoned-{number:04d}.json"

    def _last_claim(self, job_id: str) -> int:
        number = 0
        while self._is_claimed(job_id, number + 1):
            number += 1
        return number

    def _is_claimed(self, job_id: str, number: int) -> bool:
        paths = (self._claim_path(job_id, number), self._abandoned_path(job_id, number))
        return any(map(self.storage.exists, paths))

    def _holder_is_dead(self, turn: Turn, number: int, stale_after: float) -> bool:
        if (turn.job_id, number) in _given_up:
            return True
        if self.storage.exists(self._abandoned_path(turn.job_id, number)):
            return True
        owner: Owner | None = turn.owner
        if number:
            owner = _owner_from_json(self._read_json(self._claim_path(turn.job_id, number)))
        return is_gone(owner, lambda: self._is_old(turn.job_id, stale_after))

    def _read_json(self, path: str) -> dict[str, Any] | None:
        try:
            data = self.storage.read_bytes(path, _MAX_RECORD_BYTES)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (IsADirectoryError, OptionError):
            # No file, so none of ours.
            return {}
        try:
            value = json.loads(data)
        except (ValueError, RecursionError):
            return {}
        return value if isinstance(value, dict) else {}


def is_link(storage: Storage, path: str) -> bool:
    """Return whether a link stands at a path; only local folders have them."""
    local = storage.local_path(path)
    return local is not None and Path(local).is_symlink()


def _made_levels(job_id: str) -> int:
    match = _JOB_ID.fullmatch(job_id)
    return int(match["levels"]) if match else 0


def _this_process() -> dict[str, Any]:
    # The nonce tells two processes' records apart where a store's answer got lost.
    return {**asdict(owner_of()), "nonce": secrets.token_hex(8)}


def _to_json(value: Any) -> bytes:
    return json.dumps(value).encode()


def _owner_from_json(value: object) -> Owner | None:
    if not isinstance(value, dict):
        return None
    host, pid, started = (value.get(key) for key in ("host", "pid", "started"))
    if not isinstance(host, str) or type(pid) is not int or not isinstance(started, str):
        return None
    return Owner(host=host, pid=pid, started=started)
