"""Bytes of framed records to Arrow and back; `get_codec` chooses the implementation."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tfrecord_io.errors import MissingDependencyError, ReferenceCodecWarning, warn
from tfrecord_io.options import CodecName, choice

if TYPE_CHECKING:
    from tfrecord_io.codec.base import Codec

#: Forces a codec where the caller says "auto": "native", "reference" or "auto".
ENVIRONMENT_VARIABLE = "TFRECORD_IO_CODEC"

_HOW_TO = (
    "install a wheel, or a Rust toolchain (https://rustup.rs) and then run "
    "'pip install --force-reinstall --no-deps tfrecord-io'"
)
_warned = False


def get_codec(name: CodecName = "auto") -> Codec:
    """Return the codec of this name.

    Parameters
    ----------
    name : {"auto", "native", "reference"}
        "auto" follows the environment variable ``TFRECORD_IO_CODEC`` and else takes the native
        kernel if it was built. Where it was not, the reference codec serves and the first use
        warns.

    Raises
    ------
    OptionError
        Another name, here or in the environment variable.
    MissingDependencyError
        "native" was asked for and the kernel was not built.
    """
    choice("codec", name, CodecName)
    if name == "auto":
        forced = os.environ.get(ENVIRONMENT_VARIABLE, "auto")
        choice(f"the environment variable {ENVIRONMENT_VARIABLE}", forced, CodecName)
        name = forced  # type: ignore[assignment]
    if name == "reference":
        return _reference()
    try:
        from tfrecord_io.codec.native import NativeCodec
    except ImportError as error:
        if name == "native":
            raise MissingDependencyError(
                f"the native codec is not built on this machine; {_HOW_TO}"
            ) from error
        _warn_once()
        return _reference()
    return NativeCodec()


def _reference() -> Codec:
    from tfrecord_io.codec.reference import ReferenceCodec

    return ReferenceCodec()


def _warn_once() -> None:
    global _warned
    if not _warned:
        _warned = True
        warn(
            "the native kernel is not built, so the reference codec is in use: reading and writing "
            f"are about a hundred times slower; to get the kernel, {_HOW_TO}",
            ReferenceCodecWarning,
        )
