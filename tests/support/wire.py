"""A protobuf writer for forms that no library writes: over-long varints, split lists, groups ...

Nothing of the code under test and nothing of protobuf's runtime is used. Source:
https://protobuf.dev/programming-guides/encoding/
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

VARINT, FIXED64, LEN, GROUP, END_GROUP, FIXED32 = 0, 1, 2, 3, 4, 5


def varint(number: int, *, padding: int = 0) -> bytes:
    """`number` modulo 2**64, with `padding` bytes more than it needs."""
    number &= 2**64 - 1
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    for _ in range(padding):
        out[-1] |= 0x80
        out.append(0)
    return bytes(out)


def tag(number: int, wire_type: int, *, padding: int = 0) -> bytes:
    return varint(number << 3 | wire_type, padding=padding)


def field(number: int, payload: bytes, *, padding: int = 0) -> bytes:
    """A length-delimited field."""
    return tag(number, LEN, padding=padding) + varint(len(payload), padding=padding) + payload


def group(number: int, *fields: bytes) -> bytes:
    return tag(number, GROUP) + b"".join(fields) + tag(number, END_GROUP)


def packed_ints(values: Iterable[int], *, padding: int = 0) -> bytes:
    # Ten bytes are the most that a varint may have.
    return field(1, b"".join(varint(v, padding=min(padding, 10 - len(varint(v)))) for v in values))


def unpacked_ints(values: Iterable[int]) -> bytes:
    return b"".join(tag(1, VARINT) + varint(value) for value in values)


def packed_floats(values: Iterable[float]) -> bytes:
    return field(1, b"".join(struct.pack("<f", value) for value in values))


def unpacked_floats(values: Iterable[float]) -> bytes:
    return b"".join(tag(1, FIXED32) + struct.pack("<f", value) for value in values)


def bytes_values(values: Iterable[bytes]) -> bytes:
    return b"".join(field(1, value) for value in values)


def bytes_list(values: Iterable[bytes]) -> bytes:
    return field(1, bytes_values(values))


def float_list(values: Iterable[float]) -> bytes:
    return field(2, packed_floats(values) if (values := list(values)) else b"")


def int64_list(values: Iterable[int]) -> bytes:
    return field(3, packed_ints(values) if (values := list(values)) else b"")


def entry(key: bytes | None, *values: bytes, unknown: bytes = b"") -> bytes:
    """An entry of a map; several values are merged by a parser, and there may be none."""
    head = b"" if key is None else field(1, key)
    return field(1, head + unknown + b"".join(field(2, value) for value in values))


def feature_list(*steps: bytes) -> bytes:
    return b"".join(field(1, step) for step in steps)


def example(*entries: bytes) -> bytes:
    return field(1, b"".join(entries))


def sequence_example(context: Iterable[bytes] = (), lists: Iterable[bytes] = ()) -> bytes:
    return field(1, b"".join(context)) + field(2, b"".join(lists))
