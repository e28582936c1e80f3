"""A bar on standard error while something takes its time; nothing where no person looks."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from tfrecord_io.cli.verbs import error_console


@contextlib.contextmanager
def bytes_bar(label: str) -> Iterator[Callable[[int, int], None]]:
    """Show a bar while the block runs.

    Parameters
    ----------
    label : str
        What is done.

    Yields
    ------
    callable
        To be called with the bytes that are done and the bytes there are.
    """
    console = error_console()
    if not console.is_terminal:
        yield lambda done, total: None
        return
    shown = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
    )
    with shown:
        task = shown.add_task(label, total=None)
        yield lambda done, total: shown.update(task, completed=done, total=total)
