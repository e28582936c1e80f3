"""Local files that a commit replaces: what is freed when nobody waits for it.

A system frees the room of a file when the last that holds it lets go: nobody if another file takes
its name, so the rename waits for it. That may take longer than all else that a commit does: on ext4
with the option ``discard``, 40 ms for 200 MB. Until it is done, whatever changes a folder or waits
for the disk waits as well, so the files are held until a commit has ended.
"""

from __future__ import annotations

import contextlib
import os
import threading

#: Smaller files are freed at once.
_LEAST_BYTES = 1024 * 1024

#: So many are held; each takes one of the descriptors that the process may have.
_MOST_FILES = 64


class Replaced:
    """Holds files that are going to be replaced."""

    def __init__(self) -> None:
        self._descriptors: list[int] = []

    def hold(self, path: str | None) -> None:
        """Hold the file at a path of this machine, if one is there and large."""
        # Of other systems, some replace no file that is open.
        if path is None or not hasattr(os, "O_PATH") or len(self._descriptors) == _MOST_FILES:
            return
        with contextlib.suppress(OSError):
            if os.lstat(path).st_size >= _LEAST_BYTES:
                self._descriptors.append(os.open(path, os.O_PATH | os.O_NOFOLLOW))

    def let_go(self) -> None:
        """Free what was replaced, on a thread of its own."""
        descriptors, self._descriptors = self._descriptors, []
        if not descriptors:
            return
        closing = threading.Thread(target=_close, args=[descriptors], name="tfrecord-io-free")
        try:
            closing.start()
        except RuntimeError:
            # The process ends, or has as many threads as it may.
            _close(descriptors)


def _close(descriptors: list[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
