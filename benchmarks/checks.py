"""What came out of a run, brought to a form in which peers can be compared."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from workloads import Lists, Values, Workload

_DTYPES = {"int64": np.int64, "float": np.float32}


@dataclass(slots=True)
class Checked:
    """Rows, and for each checked column the CRC-32 of its values and of their lengths.

    Attributes
    ----------
    rows : int
        How many rows came out.
    checksums : dict
        By column name; columns come in the order in which they were first added to.
    payload_bytes : int or None
        Of writers, the size of all payloads.
    """

    rows: int = 0
    checksums: dict[str, tuple[int, int]] = field(default_factory=dict)
    payload_bytes: int | None = None

    def add(self, name: str, values: Any, lengths: Any = ()) -> None:
        """Go on with a column's next values and, of bytes and lists, their lengths."""
        of_values, of_lengths = self.checksums.get(name, (0, 0))
        if isinstance(values, np.ndarray):
            values = memoryview(np.ascontiguousarray(values).ravel()).cast("B")
        sizes = np.ascontiguousarray(lengths, dtype=np.int64)
        self.checksums[name] = (
            zlib.crc32(values, of_values),
            zlib.crc32(memoryview(sizes).cast("B") if sizes.size else b"", of_lengths),
        )

    def add_bytes(self, name: str, values: list[bytes]) -> None:
        """Go on with a column's next values of bytes."""
        self.add(name, b"".join(values), [len(value) for value in values])

    def as_json(self) -> dict[str, Any]:
        """Return it as plain lists and dicts."""
        return {
            "rows": self.rows,
            "checksums": {name: list(pair) for name, pair in self.checksums.items()},
            "payload_bytes": self.payload_bytes,
        }


def add_values(checked: Checked, workload: Workload, name: str, values: Values) -> None:
    """Go on with a column as the workload makes it."""
    kind = workload.column(name).kind
    if isinstance(values, Lists):
        checked.add(name, values.values.astype(_DTYPES[kind]), np.diff(values.offsets))
    elif isinstance(values, list):
        checked.add_bytes(name, values)
    else:
        checked.add(name, values.astype(_DTYPES[kind]))


def expected(workload: Workload, *, repeats: int = 1) -> Checked:
    """Return what a right reader of the workload's file gets, from the values it was made of."""
    out = Checked()
    for _ in range(repeats):
        for rows, values in workload.chunks():
            out.rows += rows
            for name in workload.checked:
                add_values(out, workload, name, values[name])
    return out
