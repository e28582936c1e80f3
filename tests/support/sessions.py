"""Sessions of Spark, with other settings for a while."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def settings(session: Any, **entries: Any) -> Iterator[None]:
    """Settings of a session for a while; ``_`` stands for a point."""
    names = {name.replace("_", "."): value for name, value in entries.items()}
    for name, value in names.items():
        session.conf.set(name, value)
    try:
        yield
    finally:
        for name in names:
            session.conf.unset(name)
