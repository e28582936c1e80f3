"""What a file probably is when its first bytes are no record: a hint for the error message.

Both codecs, and the look over damage, call this after the length CRC of the first frame of a file
has failed, so a guess here can never turn away a sound file.
"""

from __future__ import annotations

#: Enough of a file's beginning to tell what it is.
HEAD_BYTES = 64

_COMPRESSED = (
    (b"\x1f\x8b", "gzip", "gzip"),
    (b"BZh", "bzip2", "bz2"),
    (b"\x28\xb5\x2f\xfd", "Zstandard", "zstd"),
)
_MAGIC = (
    (b"PAR1", "Parquet"),
    (b"ORC", "ORC"),
    (b"ARROW1", "Arrow IPC"),
    (b"\xff\xff\xff\xff", "Arrow IPC (stream)"),
    (b"Obj\x01", "Avro"),
    (b"\x89HDF\r\n", "HDF5"),
    (b"PK\x03\x04", "ZIP"),
    (b"\xfd7zXZ\x00", "xz"),
    (b"\x04\x22\x4d\x18", "an LZ4 frame"),
    (b"\xff\x06\x00\x00sNaPpY", "a framed snappy stream"),
    (b"SQLite format 3", "SQLite"),
    (b"\x93NUMPY", "NumPy"),
    (b"\x83\xaf\x70\xd1\x0d\x88\x4a\x3f", "ArrayRecord (Riegeli)"),
)
#: Of these, what is told by its first bytes for sure, and read by conversions.
_CONVERTED = {"Parquet", "ORC", "Arrow IPC", "Avro"}
_TEXTS = {b"{": "JSON", b"[": "JSON", b"<": "HTML or XML"}
_LFS_POINTER = b"version https://git-lfs"


def foreign_format_hint(head: bytes) -> str:
    """Return what to add to an error message about a file that does not start with a record.

    Parameters
    ----------
    head : bytes
        The first bytes of the file: `HEAD_BYTES`, or all that there are.

    Returns
    -------
    str
        A clause that starts with "; ", or nothing where the bytes tell nothing.

    Notes
    -----
    zlib's header is two bytes that are a multiple of 31, of which the first is 0x78 for the window
    size that everybody uses (RFC 1950). Avro: "Obj" and a one. Riegeli: the header of a block that
    begins a file (riegeli_records_file_format.md).
    """
    for magic, name, compression in _COMPRESSED:
        if head.startswith(magic):
            return f'; the file looks like {name}: read it with compression="{compression}"'
    if len(head) > 1 and head[0] == 0x78 and int.from_bytes(head[:2], "big") % 31 == 0:
        return '; the file looks like zlib: read it with compression="deflate"'
    for magic, name in _MAGIC:
        if head.startswith(magic):
            return _other(name)
    if head.startswith(_LFS_POINTER):
        return "; the file is a pointer of Git LFS: git lfs pull fetches what it stands for"
    if _is_text(head):
        return _other(_TEXTS.get(head.lstrip()[:1], "text (CSV?)"))
    return ""


def _other(name: str) -> str:
    how = "convert reads it; " if name in _CONVERTED else ""
    return (
        f"; the file looks like {name}, not like TFRecord: {how}if TFRecord files stand beside it, "
        "name them, such as folder/*.tfrecord*"
    )


def _is_text(head: bytes) -> bool:
    return bool(head) and all(byte >= 0x20 or byte in b"\t\r\n" for byte in head)
