"""What every command has in common: errors as one text, exit codes, warnings, a closed pipe.

===== ==========================================================================================
code  meaning
===== ==========================================================================================
0     done
1     the data are damaged or do not fit what was asked for, or any other `TFRecordError`
2     usage: an option or argument is wrong (`OptionError`)
3     the storage failed: nothing there, no permission, no room (`OSError`, or its client's own)
4     the target exists (`DatasetExistsError`)
130   interrupted
===== ==========================================================================================

Any other exception is a defect of this program and shows its traceback.
"""

from __future__ import annotations

import codecs
import contextlib
import errno
import io
import os
import re
import sys
import traceback
import warnings
from typing import Any, TextIO

import click
import pyarrow as pa
from rich.console import Console
from rich.text import Text

from tfrecord_io.cli.values import printable
from tfrecord_io.errors import DatasetExistsError, OptionError, TFRecordError, TFRecordWarning
from tfrecord_io.storage.redaction import redact

DATA, USAGE, STORAGE, EXISTS, INTERRUPTED = 1, 2, 3, 4, 130

#: Packages of stores' clients, whose errors are not all of the system's.
_CLIENTS = {"adlfs", "aiohttp", "azure", "botocore", "fsspec", "gcsfs", "google", "requests"}

#: In what they say. Some are signed.
_URL = re.compile(r"\w+://[^\s'\"]+")


class OutputClosed(Exception):  # noqa: N818 - it ends a command well
    """Whoever read the output has had enough, as ``head`` does."""


def error_console() -> Console:
    """Return what writes to standard error."""
    return Console(stderr=True, highlight=False, soft_wrap=True)


def is_terminal(stream: TextIO | None) -> bool:
    """Return whether a person reads a stream.

    To rich's consoles a pipe is a terminal too where ``FORCE_COLOR`` is set, as in many builds.
    """
    return stream is not None and stream.isatty()


def write(text: str) -> None:
    """Write to standard output, in UTF-8.

    Raises
    ------
    OutputClosed
        Nobody reads it any more.
    OSError
        It was closed before the program began, or has no room.
    """
    if sys.stdout is None:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF), "standard output")
    try:
        # Of a path that is no UTF-8, JSON takes the escapes.
        sys.stdout.buffer.write(text.encode(errors="backslashreplace"))
        sys.stdout.buffer.flush()
    except BrokenPipeError as error:
        _give_output_up()
        raise OutputClosed from error
    except OSError as error:
        error.filename = "standard output"
        raise


#: What tables draw and cut with, where a terminal has no such characters.
_PLAIN = {"─": "-", "…": "..."}


def _in_plain(error: UnicodeError) -> tuple[str, int]:
    """Return what stands for characters that an encoding lacks; see `codecs.register_error`."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lost = error.object[error.start : error.end]
    plain = (_PLAIN.get(c) or c.encode("ascii", "backslashreplace").decode() for c in lost)
    return "".join(plain), error.end


codecs.register_error("tfrecord_io_plain", _in_plain)


class Verb(click.Command):
    """A command that ends with one of the exit codes."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        option = click.Option(
            ["--traceback"], is_flag=True, help="Show where an error comes from.", expose_value=True
        )
        self.params.append(option)

    def invoke(self, ctx: click.Context) -> Any:
        """Carry the command out; what it raises becomes a text and an exit code."""
        is_traced = ctx.params.pop("traceback")
        with warnings.catch_warnings():
            warnings.simplefilter("always", TFRecordWarning)
            warnings.showwarning = _show_warning
            try:
                return super().invoke(ctx)
            except OutputClosed:
                return ctx.exit(0)
            except KeyboardInterrupt:
                _show("interrupted", "")
                return ctx.exit(INTERRUPTED)
            except (TFRecordError, pa.ArrowException, OSError) as error:
                if is_traced:
                    traceback.print_exc()
                else:
                    _show("error", _text(error))
                return ctx.exit(_exit_code(error))
            except Exception as error:
                if is_traced or type(error).__module__.partition(".")[0] not in _CLIENTS:
                    raise
                told = _URL.sub(lambda url: redact(url[0]), str(error))
                _show("error", f"{type(error).__name__}: {told}")
                return ctx.exit(STORAGE)


class Program(click.Group):
    """The commands, in the order in which they were added."""

    command_class = Verb

    def main(self, *args: Any, **settings: Any) -> Any:
        """Run a command; where not even ``--help`` can be written, say so as commands do."""
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="tfrecord_io_plain")
        try:
            return super().main(*args, **settings)
        except OSError as error:
            _show("error", _text(error))
            _give_output_up()
            sys.exit(STORAGE)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands."""
        return list(self.commands)


def _give_output_up() -> None:
    """Keep the interpreter from flushing the stream at its end, and complaining."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _exit_code(error: BaseException) -> int:
    if isinstance(error, DatasetExistsError):
        return EXISTS
    if isinstance(error, OptionError):
        return USAGE
    if isinstance(error, TFRecordError):
        return DATA
    return STORAGE if isinstance(error, OSError) else DATA


def _text(error: BaseException) -> str:
    if isinstance(error, OSError) and not isinstance(error, TFRecordError) and error.strerror:
        if error.filename:
            return f"{error.strerror}: {error.filename}"
        # Some say more than that, such as which host it is.
        return str(error).removeprefix(f"[Errno {error.errno}] ")
    return str(error) or type(error).__name__


def _show(kind: str, message: str) -> None:
    style = "bold yellow" if kind == "warning" else "bold red"
    text = printable(message, keep="\n")
    # Where nothing can be told, the exit code still is.
    with contextlib.suppress(OSError):
        error_console().print(Text.assemble((kind, style), f": {text}" if text else ""))


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: Any = None,
    line: str | None = None,
) -> None:
    _show("warning", str(message))
