"""The names of tf.compat that programs which write or read records use.

`v1` is where TensorFlow 2 keeps tf_record_iterator, and the numbers of compressions.
"""

from __future__ import annotations

from typing import Any

from tfrecord_io.compat import v1

__all__ = ["as_bytes", "as_str", "as_str_any", "as_text", "v1"]


def as_bytes(bytes_or_text: str | bytes | bytearray, encoding: str = "utf-8") -> bytes:
    """Return text encoded, and bytes as they are.

    Parameters
    ----------
    bytes_or_text : str, bytes or bytearray
        What a BytesList is to hold.
    encoding : str
        Of the bytes.

    Returns
    -------
    bytes
        Never a bytearray.

    Raises
    ------
    TypeError
        Something else.

    Examples
    --------
    >>> import tfrecord_io as tfr
    >>> tfr.compat.as_bytes("text")
    b'text'
    """
    if isinstance(bytes_or_text, str):
        return bytes_or_text.encode(encoding)
    if isinstance(bytes_or_text, bytes | bytearray):
        return bytes(bytes_or_text)
    raise TypeError(f"Expected binary or unicode string, got {bytes_or_text!r}")


def as_text(bytes_or_text: str | bytes, encoding: str = "utf-8") -> str:
    """Return bytes decoded, and text as it is.

    Parameters
    ----------
    bytes_or_text : str or bytes
        Such as a value of a BytesList.
    encoding : str
        Of the bytes.

    Returns
    -------
    str
        The text.

    Raises
    ------
    TypeError
        Something else.
    """
    if isinstance(bytes_or_text, bytes):
        return bytes_or_text.decode(encoding)
    if isinstance(bytes_or_text, str):
        return bytes_or_text
    raise TypeError(f"Expected binary or unicode string, got {bytes_or_text!r}")


as_str = as_text


def as_str_any(value: Any, encoding: str = "utf-8") -> str:
    """Return bytes decoded, and of anything else its str().

    Parameters
    ----------
    value : object
        Bytes, or anything else.
    encoding : str
        Of bytes.

    Returns
    -------
    str
        The text.
    """
    return as_text(value, encoding) if isinstance(value, bytes) else str(value)
