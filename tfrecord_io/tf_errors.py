"""Errors of this package that are TensorFlow's errors as well, where TensorFlow is loaded.

A program that uses TensorFlow catches ``tf.errors.DataLossError``; one that does not, should need
nothing of it. So an error keeps its class and its text, and where ``tensorflow`` has been imported
it is also an instance of the error that TensorFlow raises in its place.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Iterable, Iterator
from typing import Any, cast

from tfrecord_io.errors import (
    ClosedError,
    CorruptDataError,
    OptionError,
    SchemaMismatchError,
    TFRecordError,
)

#: What TensorFlow raises where we raise these.
_TWINS = (
    (CorruptDataError, "DataLossError"),
    (ClosedError, "FailedPreconditionError"),
    (SchemaMismatchError, "InvalidArgumentError"),
    (FileNotFoundError, "NotFoundError"),
    (PermissionError, "PermissionDeniedError"),
    (IsADirectoryError, "FailedPreconditionError"),
)


#: What it raises, beyond these, where a file's bytes are read: the one option that can turn out
#: wrong there is a compression that the file does not have, which is damage to TensorFlow.
_TWINS_OF_BYTES = (*_TWINS, (OptionError, "DataLossError"))


@contextlib.contextmanager
def as_tensorflow(*, of_bytes: bool = False) -> Iterator[None]:
    """Make the errors of the block TensorFlow's as well.

    Parameters
    ----------
    of_bytes : bool
        Whether all that the block does is to read a file's bytes.
    """
    try:
        yield
    except (TFRecordError, OSError) as error:
        twin = dressed(error, _TWINS_OF_BYTES if of_bytes else _TWINS)
        if twin is error:
            raise
        raise twin from error.__cause__


def dressed(error: Exception, twins: Iterable[tuple[type[Exception], str]] = _TWINS) -> Exception:
    """Return an error that is also TensorFlow's, or the error itself.

    The latter if TensorFlow is not loaded, or raises nothing of the kind.
    """
    errors = getattr(sys.modules.get("tensorflow"), "errors", None)
    name = next((twin for kind, twin in twins if isinstance(error, kind)), None)
    if errors is None or name is None or isinstance(error, errors.OpError):
        return error
    kind = _twin(cast("Any", type(error)), getattr(errors, name))
    twin: Exception
    if isinstance(error, TFRecordError):
        twin = kind(error.what)
    else:
        assert isinstance(error, OSError)
        twin = kind(error.errno, error.strerror, error.filename)
    twin.__dict__.update(error.__dict__)
    twin.__dict__.update(_message=str(error), _op=None, _node_def=None)
    twin.__traceback__ = error.__traceback__
    return twin


@functools.cache
def _twin(kind: Any, theirs: Any) -> Any:
    def reduce(self: Any) -> tuple[Any, ...]:
        # Another process need not have TensorFlow.
        if isinstance(self, OSError):
            return kind, (self.errno, self.strerror, self.filename)
        return TFRecordError.reduced(self, kind)

    members = {
        "__module__": kind.__module__,
        "__doc__": kind.__doc__,
        "__init__": kind.__init__,
        "__str__": kind.__str__,
        "__reduce__": reduce,
        "_error_code": _code(theirs),
    }
    return type(kind.__name__, (kind, theirs), members)


def _code(theirs: Any) -> int:
    return int(theirs(None, None, "").error_code)
