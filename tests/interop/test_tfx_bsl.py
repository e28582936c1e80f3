"""tfx_bsl's records: the rows that went in come out. Where they are from: golden/tfx_bsl."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import tfrecord_io as tfr

GOLDEN = Path(__file__).parents[1] / "golden" / "tfx_bsl"


@pytest.mark.parametrize("name", ["examples.tfrecord", "examples.tfrecord.gz"])
@pytest.mark.parametrize("codec", ["native", "reference"])
def test_its_rows(name: str, codec: str) -> None:
    table = tfr.read_table(GOLDEN / name, codec=codec)  # type: ignore[arg-type]
    assert {column: table[column].to_pylist() for column in sorted(table.column_names)} == {
        "float": [0.5, -1.0, None, float(np.float32(3e38))],
        "int": [[1], [-(2**63)], None, []],
        "ints": [[1, 2], [], None, [2**63 - 1]],
        "raw": [[b"\xff", b"\x00"], [b""], None, []],
        "text": ["ä", "", None, "c"],
    }
    assert table.schema.field("ints").type == pa.list_(pa.int64())
