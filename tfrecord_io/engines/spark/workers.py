"""What is done about Spark's Python workers."""

from __future__ import annotations

import functools
import gc


@functools.cache
def keep_what_is_loaded() -> None:
    """Keep what this worker has loaded out of its collections of garbage; once is enough.

    A worker collects garbage after every task (``pyspark/daemon.py``), and its next task waits
    meanwhile. Nearly all it looks at are the modules' objects, which stay anyway: 40 ms.
    """
    gc.freeze()
