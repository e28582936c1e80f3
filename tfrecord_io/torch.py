"""A data set for torch.utils.data.DataLoader; PyTorch has to be installed for it.

The class is made when it is first asked for, since it has to inherit from PyTorch's.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

from tfrecord_io.errors import MissingDependencyError
from tfrecord_io.numpy_batches import Batches, batches


def _make_class() -> Any:
    try:
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
            The other arguments of `tfrecord_io.batches`; `framework` is "torch".

        Notes
        -----
        What comes out are batches, so the DataLoader must make none: ``DataLoader(TFRecordDataset(
        path, batch_size=1024), batch_size=None, num_workers=4)``. Each worker reads pieces of the
        data that no other does. A compressed file is one piece. Workers that live for one epoch do
        not know which one it is: tell the dataset with `set_epoch` before each.

        ``len()``, and so that of the DataLoader, counts the batches of one process, since PyTorch
        does not tell a dataset how many workers there are. Each of n workers has a last batch of
        its own, with fewer rows: together they may give up to n - 1 batches more, of which PyTorch
        warns, or with ``drop_remainder`` as many less. ``sum(len(batches.of_worker(i, n)) for i in
        range(n))`` is their number, where ``batches`` is what `tfrecord_io.batches` returns.
        """

        def __init__(self, path: Any, **options: Any) -> None:
            options.setdefault("framework", "torch")
            self._batches: Batches = batches(path, **options)

        def __iter__(self) -> Iterator[dict[str, Any]]:
            worker = data.get_worker_info()
            if worker is None:
                return iter(self._batches)
            mine = self._batches.of_worker(worker.id, worker.num_workers)
            self.set_epoch(self._batches.epoch + 1)
            return iter(mine)

        def set_epoch(self, epoch: int) -> None:
            """Say which epoch is next; the order of shuffled rows hangs on it."""
            self._batches.set_epoch(epoch)

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
