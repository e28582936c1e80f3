"""The command line, ``tfrecord-io``: an adapter like the engines, with no format knowledge.

Results go to standard output: tables for a person, JSON lines for a program (`tables`, `values`).
All else goes to standard error: progress, warnings, and errors as one text (`verbs`), after which
the exit code tells what kind of error it was.
"""

from __future__ import annotations

from tfrecord_io.cli.main import main

__all__ = ["main"]
