"""Which format a file is of: by name, else by content.

The rule. A name that ends in a known suffix, before one of compression where the format takes
that, decides. Of a folder or pattern the files' names do, which must agree; our own manifest
knows. Without a known suffix the first file's content decides: a magic number, a TFRecord frame
with a fitting CRC, or an object for JSON lines. CSV has no mark; it needs its suffix.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from pathlib import PurePosixPath

from tfrecord_io.compression import (
    HEAD_BYTES,
    from_suffix,
    normalize_compression,
    starts_with_frame,
)
from tfrecord_io.errors import CorruptDataError, OptionError
from tfrecord_io.formats import TFRECORD_SUFFIXES, format_names, get_format
from tfrecord_io.formats.base import InputFile
from tfrecord_io.plan import ScanFile
from tfrecord_io.storage import Storage

_MAGIC = {
    b"PAR1": "parquet",
    b"ORC": "orc",
    b"ARROW1": "arrow",
    b"\xff\xff\xff\xff": "arrow",
    b"Obj\x01": "avro",
}
#: What TensorFlow Datasets and Beam write behind the suffix, or before that of the compression:
#: x.tfrecord-00000-of-00010, x.tfrecord-00000-of-00010.gz.
_SHARD = re.compile(r"-\d+-of-\d+(?=$|\.\w+$)")


def format_of_name(path: str) -> tuple[str, str | None] | None:
    """Return what a file's name says: format and compression, or None.

    Examples
    --------
    >>> format_of_name("a/b.csv.gz"), format_of_name("b.parquet"), format_of_name("part-00000")
    (('csv', 'gzip'), ('parquet', None), None)
    """
    name = _SHARD.sub("", PurePosixPath(path).name.lower())
    compression = from_suffix(name)
    stem = name.rpartition(".")[0] if compression is not None else name
    suffix = PurePosixPath(stem).suffix
    if suffix in TFRECORD_SUFFIXES:
        return "tfrecord", compression
    for known in format_names():
        found = get_format(known)
        if suffix in found.suffixes and (compression is None or found.is_wrapped):
            return known, compression
    return None


def format_compressed_within(path: str) -> str | None:
    """Return the format of a name like ``x.parquet.gz``: it is never compressed as a whole.

    Examples
    --------
    >>> format_compressed_within("x.parquet.gz"), format_compressed_within("x.csv.gz")
    ('parquet', None)
    """
    if from_suffix(path) is None or format_of_name(path) is not None:
        return None
    named = format_of_name(path.rpartition(".")[0])
    return named[0] if named is not None and named[1] is None else None


def format_of_files(storages: Sequence[Storage], files: Sequence[ScanFile]) -> str:
    """Return the one format of the files of a source.

    Raises
    ------
    OptionError
        There is none, or there are several.
    """
    by_name: dict[str, ScanFile] = {}
    for file in files:
        named = format_of_name(file.path)
        if named is not None:
            by_name.setdefault(named[0], file)
    if len(by_name) > 1:
        first, second = list(by_name.items())[:2]
        raise OptionError(
            f"the source holds {first[0]} files ({first[1].url}) and {second[0]} files "
            f"({second[1].url}); name the files of one format, or give from_format"
        )
    if by_name:
        return next(iter(by_name))
    for file in files:
        if file.size:
            found = format_of_content(InputFile(storages[file.location], file))
            if found is None:
                raise OptionError(
                    f"neither the name nor the content of {file.url} tells its format; give "
                    "from_format"
                )
            return found
    raise OptionError("the source holds no data whose format could be told; give from_format")


def format_of_content(file: InputFile) -> str | None:
    """Return what the first bytes of a file say, or None."""
    with file.open() as handle:
        head = handle.read(HEAD_BYTES)
    for magic, name in _MAGIC.items():
        if head.startswith(magic):
            return name
    # A compressed file that is damaged tells nothing.
    with contextlib.suppress(CorruptDataError), file.open_decompressed() as stream:
        head = stream.read(HEAD_BYTES)
    if starts_with_frame(head):
        return "tfrecord"
    return "jsonl" if head.lstrip()[:1] == b"{" else None


def compression_of_target(path: str, asked: str | None, named: str | None) -> str | None:
    """Return the compression of a single target file: what was asked for, else what its name says.

    Raises
    ------
    OptionError
        The two disagree.
    """
    if asked is None:
        return named
    if named is not None and normalize_compression(asked) != named:
        raise OptionError(
            f"compression is {asked!r}, and the target's name, {PurePosixPath(path).name!r}, "
            f"says {named!r}; change one of them"
        )
    return asked
