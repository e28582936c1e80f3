"""tfx_bsl: its coders between serialized messages and Arrow; it does no framing and no CRC.

The decoder is fed from records that were read beforehand.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Iterator
from importlib.metadata import version
from typing import Any

import pyarrow as pa
from arrow_values import add_batch, batches
from checks import Checked
from tensorflow_metadata.proto.v0 import schema_pb2
from tfx_bsl.coders.example_coder import ExamplesToRecordBatchDecoder, RecordBatchToExamplesEncoder
from tfx_bsl.coders.sequence_example_coder import SequenceExamplesToRecordBatchDecoder
from workloads import Column, Workload

from peers import Case

VERSIONS = {"tfx-bsl": version("tfx-bsl")}

_BATCH_ROWS = 1024
_SEQUENCE = "##SEQUENCE##"
_TYPES = {"int64": schema_pb2.INT, "float": schema_pb2.FLOAT, "bytes": schema_pb2.BYTES}


def _records(workload: Workload) -> Iterator[bytes]:
    with workload.path.open("rb") as file:
        while header := file.read(12):
            (length,) = struct.unpack_from("<Q", header)
            yield file.read(length)
            file.read(4)


def _schema(columns: list[Column]) -> schema_pb2.Schema:
    out = schema_pb2.Schema()
    steps = None
    for column in columns:
        if column.shape == "steps":
            if steps is None:
                steps = out.feature.add(name=_SEQUENCE, type=schema_pb2.STRUCT).struct_domain
            steps.feature.add(name=column.name, type=_TYPES[column.kind])
        else:
            out.feature.add(name=column.name, type=_TYPES[column.kind])
    return out


def _decoder(workload: Workload) -> Any:
    schema = _schema(list(workload.columns)).SerializeToString()
    if workload.is_sequence:
        return SequenceExamplesToRecordBatchDecoder(_SEQUENCE, schema)
    return ExamplesToRecordBatchDecoder(schema)


def _add(out: Checked, workload: Workload, batch: pa.RecordBatch) -> None:
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    if (steps := columns.pop(_SEQUENCE, None)) is not None:
        columns |= {f.name: steps.field(f.name) for f in steps.type}
    add_batch(out, workload, pa.record_batch(columns))


class _Decoding:
    """Records in memory to batches; the batches are dropped one by one."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self._decoder = _decoder(workload)

    @functools.cached_property
    def records(self) -> list[list[bytes]]:
        records = list(_records(self._workload))
        return [records[i : i + _BATCH_ROWS] for i in range(0, len(records), _BATCH_ROWS)]

    def run(self) -> None:
        for batch in self.records:
            self._decoder.DecodeBatch(batch)

    def check(self) -> Checked:
        out = Checked()
        for batch in self.records:
            _add(out, self._workload, self._decoder.DecodeBatch(batch))
        return out


class _Encoding:
    """The batches that tfrecord-io encodes, with single values as lists of one, to messages."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self._encoder = RecordBatchToExamplesEncoder()

    @functools.cached_property
    def _batches(self) -> list[pa.RecordBatch]:
        return list(batches(self._workload, only_lists=True))

    def run(self) -> None:
        for batch in self._batches:
            self._encoder.encode(batch)

    def check(self) -> Checked:
        decoder = _decoder(self._workload)
        out = Checked(payload_bytes=0)
        for batch in self._batches:
            records = self._encoder.encode(batch)
            out.payload_bytes += sum(map(len, records))
            _add(out, self._workload, decoder.DecodeBatch(records))
        return out


def cases(workload: Workload) -> dict[str, Case]:
    """Return what is measured of tfx_bsl; it has no encoder of SequenceExamples."""
    size = workload.path.stat().st_size
    decoding, encoding = _Decoding(workload), _Encoding(workload)
    out = {"decode": Case(decoding.run, decoding.check, size, lambda: decoding.records)}
    if not workload.is_sequence:
        out["encode"] = Case(encoding.run, encoding.check, size)
    return out
