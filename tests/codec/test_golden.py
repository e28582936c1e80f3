"""Records written by spark-tfrecord: our bytes are its bytes, and its records are its rows.

Two defects of that writer are no measure: decimals with a scale (no case here has one), and float64
values beyond float32's range, which it writes as infinity and which are infinity here from the
start.
"""

from __future__ import annotations

import base64
import gzip
import json
import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tfrecord_io.cast import ToWire, from_wire
from tfrecord_io.codec import get_codec
from tfrecord_io.options import DecodeOptions
from tfrecord_io.schema import check_writable, wire_schema

GOLDEN = Path(__file__).parents[1] / "golden" / "spark_tfrecord"
CASES = sorted(
    path.name.removesuffix(".manifest.json")
    for path in GOLDEN.glob("*.manifest.json")
    if json.loads(path.read_text())["partitionBy"] is None
)

SPARK_TYPES = {
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "decimal(10,0)": pa.decimal128(10, 0),
}


@pytest.fixture(params=["reference", "native"])
def codec(request: pytest.FixtureRequest) -> Any:
    return get_codec(request.param)


def arrow_type(spark: Any) -> pa.DataType:
    if isinstance(spark, dict):
        return pa.list_(arrow_type(spark["elementType"]))
    return SPARK_TYPES[spark]


def value(json_value: Any, spark: Any) -> Any:
    """A manifest's value, and a double as the float32 that the record can hold."""
    if json_value is None:
        return None
    if isinstance(json_value, list):
        return [value(item, spark["elementType"]) for item in json_value]
    if isinstance(json_value, dict):
        ((kind, text),) = json_value.items()
        return {"b64": base64.b64decode, "float": float, "decimal": Decimal}[kind](text)
    if spark in ("double", "float"):
        with np.errstate(over="ignore"):
            return float(np.float32(json_value))
    return json_value


class Case:
    def __init__(self, name: str) -> None:
        manifest = json.loads((GOLDEN / f"{name}.manifest.json").read_text())
        fields = manifest["schema"]["fields"]
        self.record_type = manifest["write_options"]["recordType"]
        self.schema = pa.schema([(f["name"], arrow_type(f["type"])) for f in fields])
        columns = [
            pa.array([value(row[index], f["type"]) for row in manifest["rows"]], column.type)
            for index, (f, column) in enumerate(zip(fields, self.schema, strict=True))
        ]
        self.batch = pa.RecordBatch.from_arrays(columns, schema=self.schema)
        parts = sorted((GOLDEN / name).iterdir())
        self.data = b"".join(
            gzip.decompress(part.read_bytes()) if part.suffix == ".gz" else part.read_bytes()
            for part in parts
        )


@pytest.mark.parametrize("name", CASES)
def test_our_bytes_are_its_bytes(codec: Any, name: str) -> None:
    case = Case(name)
    check_writable(case.schema, case.record_type)
    wire, narrowed = ToWire(case.schema, float64="error")(case.batch)
    data, offsets = codec.encoder(wire.schema, case.record_type).encode(wire)
    assert narrowed == frozenset()
    assert data.to_pybytes() == case.data
    assert len(offsets) == case.batch.num_rows + 1


@pytest.mark.parametrize("name", CASES)
def test_its_records_are_its_rows(codec: Any, name: str) -> None:
    case = Case(name)
    decoder = codec.decoder(
        wire_schema(case.schema, reading=True), DecodeOptions(record_type=case.record_type)
    )
    assert decoder.decode(pa.py_buffer(case.data)) == len(case.data)
    batch = from_wire(decoder.flush(), case.schema, place=decoder.row_place)
    assert batch.schema == case.schema
    assert same(batch.to_pylist(), case.batch.to_pylist())


def same(a: Any, b: Any) -> bool:
    """Equality in which NaN equals NaN and the two zeros differ."""
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, float) and isinstance(b, float):
        return (math.isnan(a) and math.isnan(b)) or (
            a == b and math.copysign(1, a) == math.copysign(1, b)
        )
    return bool(a == b)


def test_the_cases_are_all_there() -> None:
    assert len(CASES) == 11
