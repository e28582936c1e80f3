"""The command line in this process."""

import contextlib
import inspect
import sys
from collections.abc import Iterator
from typing import Any

from click.testing import CliRunner


def runner() -> CliRunner:
    """Return one that keeps standard error apart, as click does without being asked since 8.2."""
    is_asked = "mix_stderr" in inspect.signature(CliRunner).parameters
    return _OldRunner(mix_stderr=False) if is_asked else CliRunner()


class _OldRunner(CliRunner):
    """That of click 8.1, which takes standard error without flushing it."""

    @contextlib.contextmanager
    def isolation(self, *args: Any, **settings: Any) -> Iterator[Any]:
        with super().isolation(*args, **settings) as streams:
            sys.stderr.reconfigure(write_through=True)
            yield streams
