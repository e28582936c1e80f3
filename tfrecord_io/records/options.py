"""How single files of records are compressed, in the words of tf.io.

The names, arguments and checks are TensorFlow's. Where it ends the process (a level that zlib does
not have), an error says what is wrong.
"""

from __future__ import annotations

import inspect
import zlib
from collections.abc import Hashable
from typing import Any

from tfrecord_io.compression import Compression
from tfrecord_io.errors import OptionError


class TFRecordCompressionType:
    """The compressions by number, as the old tf.python_io has them."""

    NONE = 0
    ZLIB = 1
    GZIP = 2


class TFRecordOptions:
    """Options of `TFRecordWriter` and `TFRecordReader`; the arguments of tf.io.TFRecordOptions.

    Both take TensorFlow's own as well.

    Parameters
    ----------
    compression_type : {"", "GZIP", "ZLIB"} or None
        Or one of the numbers of `TFRecordCompressionType`. None is no compression for a writer; a
        reader then looks at the file.
    flush_mode : int, optional
        Without effect: it steers buffers that are not there.
    input_buffer_size, output_buffer_size : int, optional
        Without effect.
    window_bits : int, optional
        Base-two logarithm of zlib's window, 9 to 15; for GZIP also with 16 added to it, as
        TensorFlow wants it.
    compression_level : int, optional
        0 to 9, or -1 for zlib's default.
    compression_method : int, optional
        8, zlib's only one.
    mem_level : int, optional
        1 to 9.
    compression_strategy : int, optional
        0 to 4.

    Raises
    ------
    OptionError
        A compression or a number that is none of these.

    Examples
    --------
    >>> import tfrecord_io as tfr
    >>> tfr.TFRecordOptions("GZIP", compression_level=9).compression_type
    'GZIP'
    """

    compression_type_map = {
        TFRecordCompressionType.ZLIB: "ZLIB",
        TFRecordCompressionType.GZIP: "GZIP",
        TFRecordCompressionType.NONE: "",
    }

    def __init__(
        self,
        compression_type: str | int | TFRecordOptions | None = None,
        flush_mode: int | None = None,
        input_buffer_size: int | None = None,
        output_buffer_size: int | None = None,
        window_bits: int | None = None,
        compression_level: int | None = None,
        compression_method: int | None = None,
        mem_level: int | None = None,
        compression_strategy: int | None = None,
    ) -> None:
        kind = self.get_compression_type_string(compression_type)
        windows = (*range(9, 16), *(range(25, 32) if kind == "GZIP" else ()))
        for name, value, allowed in (
            ("window_bits", window_bits, windows),
            ("compression_level", compression_level, range(-1, 10)),
            ("compression_method", compression_method, (zlib.DEFLATED,)),
            ("mem_level", mem_level, range(1, 10)),
            ("compression_strategy", compression_strategy, range(5)),
        ):
            if value is not None and value not in allowed:
                raise OptionError(
                    f"{name} is {value!r}; it must be one of {', '.join(map(str, allowed))}"
                )
        self.compression_type = compression_type
        self.flush_mode = flush_mode
        self.input_buffer_size = input_buffer_size
        self.output_buffer_size = output_buffer_size
        self.window_bits = window_bits
        self.compression_level = compression_level
        self.compression_method = compression_method
        self.mem_level = mem_level
        self.compression_strategy = compression_strategy

    @classmethod
    def get_compression_type_string(cls, options: Any) -> str:
        """Return the compression that anything which may stand for one means.

        Parameters
        ----------
        options : TFRecordOptions, str, int or None
            Options, ours or TensorFlow's, the name of a compression, or a number of
            `TFRecordCompressionType`.

        Returns
        -------
        str
            ``""``, ``"GZIP"`` or ``"ZLIB"``.

        Raises
        ------
        OptionError
            Something else.
        """
        if _are_options(options):
            return cls.get_compression_type_string(options.compression_type)
        if options is None:
            return ""
        if isinstance(options, Hashable):
            # Numbers of NumPy, too, as in TensorFlow.
            if options in cls.compression_type_map:
                return cls.compression_type_map[options]
            if isinstance(options, str) and options in cls.compression_type_map.values():
                return options
        raise OptionError(
            f'Not a valid compression_type: "{options}"; it must be "GZIP", "ZLIB", "" or None'
        )


_ARGUMENTS = tuple(inspect.signature(TFRecordOptions).parameters)


def _are_options(options: Any) -> bool:
    """Return whether these are options, ours or TensorFlow's, which hold the same."""
    return all(hasattr(options, name) for name in _ARGUMENTS)


def options_of(options: Any) -> TFRecordOptions:
    """Return options that were given as such, by a compression's name or number, or not at all.

    TensorFlow's own become ours.
    """
    if isinstance(options, TFRecordOptions):
        return options
    if _are_options(options):
        return TFRecordOptions(*(getattr(options, name) for name in _ARGUMENTS))
    return TFRecordOptions(options)


def compression_to_read(options: TFRecordOptions) -> Compression | str | None:
    """Return what a reader opens a file with, in the words of the rest of the package."""
    kind: Any = options
    while _are_options(kind):
        kind = kind.compression_type
    if kind is None:
        return "infer"
    known = {"": None, "GZIP": "gzip", "ZLIB": "deflate"}
    return known[TFRecordOptions.get_compression_type_string(kind)]


def compressor_to_write(options: TFRecordOptions) -> Any:
    """Return zlib's compressor for a writer, or None."""
    kind = TFRecordOptions.get_compression_type_string(options)
    if not kind:
        return None
    window = options.window_bits or zlib.MAX_WBITS
    if kind == "GZIP" and window <= zlib.MAX_WBITS:
        window += 16

    def chosen(value: int | None, default: int) -> int:
        return default if value is None else value

    return zlib.compressobj(
        chosen(options.compression_level, zlib.Z_DEFAULT_COMPRESSION),
        zlib.DEFLATED,
        window,
        chosen(options.mem_level, zlib.DEF_MEM_LEVEL),
        chosen(options.compression_strategy, zlib.Z_DEFAULT_STRATEGY),
    )
