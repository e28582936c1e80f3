"""A data set for torch.utils.data.DataLoader; PyTorch has to be installed for it.

The class is made when it is first asked for, since it has to inherit from PyTorch's.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator
from typing import Any

from tfrecord_io.errors import MissingDependencyError
from tfrecord_io.tensors.numpy_batches import Batches, batches

#: Of so many workers each has a place of its own for the number of its epochs.
_WORKERS = 1024


def _make_class() -> Any:
    try:
        torch = importlib.import_module("torch")
        data = importlib.import_module("torch.utils.data")
    except ImportError as error:
        raise MissingDependencyError("tfrecord_io.torch needs PyTorch; install torch") from error

    class TFRecordDataset(data.IterableDataset):  # type: ignore[misc, name-defined]
        """Batches of a data set, shared between the workers of a DataLoader.

        Parameters
        ----------
        path : str, path-like or a list of them
            See `tfrecord_io.batches`.
        **options : object
            The other arguments of `tfrecord_io.batches`; `framework` is "torch" by default.

        Notes
        -----
        What comes out are batches, so the DataLoader must make none: ``DataLoader(TFRecordDataset(
        path, batch_size=1024), batch_size=None)``. Threads decode, so workers are for what is done
        with batches in Python (``collate_fn``). Each worker reads pieces of the data that no other
        does. A compressed file is one piece. Epochs are counted, so that the next one has another
        order; `set_epoch` says which is next.

        ``len()``, and so that of the DataLoader, counts the batches of one process, since PyTorch
        does not tell a dataset how many workers there are. Each of n workers has a last batch of
        its own, with fewer rows: together they may give up to n - 1 batches more, of which PyTorch
        warns, or with ``drop_remainder`` as many less. ``sum(len(batches.of_worker(i, n)) for i in
        range(n))`` is their number, where ``batches`` is what `tfrecord_io.batches` returns.
        """

        def __init__(self, path: Any, **options: Any) -> None:
            options.setdefault("framework", "torch")
            self._batches: Batches = batches(path, **options)
            # How often `set_epoch` was called, as far as this copy of the dataset knows.
            self._calls = 0
            self._is_begun_worker = False
            self._share()

        def _share(self) -> None:
            """Make what this process and the copies in its workers share."""
            # The last epoch that was told, `_calls` with it, and how many each worker began since.
            self._told: Any = torch.zeros(2 + _WORKERS, dtype=torch.int64).share_memory_()
            self._process = os.getpid()

        def __iter__(self) -> Iterator[dict[str, Any]]:
            worker = data.get_worker_info()
            if worker is None:
                return iter(self._batches)
            epoch, calls = self._told[:2].tolist()
            if calls != self._calls and self._is_begun_worker:
                self._calls = calls
                self._batches.set_epoch(epoch)
            mine = self._batches.of_worker(worker.id, worker.num_workers)
            # The first epoch of a worker is the one at which the dataset got there: until it
            # begins, the next one may have been told, which it does not count for.
            self._is_begun_worker = True
            if calls == self._calls:
                place = 2 + worker.id % _WORKERS
                mine.set_epoch(mine.epoch + int(self._told[place]))
                self._told[place] += 1
            return iter(mine)

        def set_epoch(self, epoch: int) -> None:
            """Say which epoch is next; the order of shuffled rows hangs on it.

            Workers that live on take it for the next epoch that they begin. Called in a worker, it
            is for that worker alone.
            """
            self._batches.set_epoch(epoch)
            worker = data.get_worker_info()
            if worker is not None:
                self._told[2 + worker.id % _WORKERS] = 0
                return
            if self._process != os.getpid():
                # The process that this copy comes from has workers of its own.
                self._share()
            self._calls += 1
            self._told[2:] = 0
            self._told[0] = self._batches.epoch
            self._told[1] = self._calls

        def __setstate__(self, state: dict[str, Any]) -> None:
            self.__dict__.update(state)
            # Without effect if it came to a worker; other copies share nothing with where they are
            # from.
            self._told.share_memory_()

        def __len__(self) -> int:
            return len(self._batches)

    TFRecordDataset.__module__ = __name__
    TFRecordDataset.__qualname__ = TFRecordDataset.__name__
    return TFRecordDataset


def __getattr__(name: str) -> Any:
    if name != "TFRecordDataset":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    made = globals()[name] = _make_class()
    return made
