"""Warnings of a Dask worker: nobody looks at its output, so they go to the cluster's clients."""

from __future__ import annotations

import contextlib
import sys
from typing import Any

from tfrecord_io.errors import TFRecordWarning, warnings_to


def warnings_to_clients() -> contextlib.AbstractContextManager[Any]:
    """Return what makes this thread's warnings reach the clients, if it is a worker's."""
    distributed = sys.modules.get("distributed")
    if distributed is None:
        return contextlib.nullcontext()
    try:
        distributed.get_worker()
    except ValueError:
        return contextlib.nullcontext()

    def tell(warning: TFRecordWarning) -> None:
        distributed.warn(warning, type(warning))

    return warnings_to(tell)
