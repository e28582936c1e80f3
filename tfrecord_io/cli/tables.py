"""Rows as a table for a person.

The first rows decide how wide each column is, and how many there is room for; the others are named
below. Rows that come later are written into the same columns, so any number of them can pass.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.types as pat
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tfrecord_io.cli.values import counted, plain_values, printable, short_text
from tfrecord_io.schema import type_text
from tfrecord_io.statistics import FeatureStatistics, NumberStatistics, Statistics
from tfrecord_io.statistics.result import text_of
from tfrecord_io.verification import Fault

_MAX_WIDTH = 44
_GAP = "  "
_NAMED_COLUMNS = 12
_FREQUENT = 3


class RowTable:
    """Writes batches as the rows of one table.

    Parameters
    ----------
    console : Console
        Where to.
    schema : pyarrow.Schema
        Of the batches.
    """

    def __init__(self, console: Console, schema: pa.Schema) -> None:
        self._console = console
        # No more columns are put into words than there can be room for.
        self._fields = list(schema)[: console.width // len(_GAP) + 1]
        self._names: list[str] = schema.names
        self._widths: list[int] = []

    def write(self, batch: pa.RecordBatch) -> None:
        """Write the batch's rows; the first time with the heading above them."""
        columns = [
            [short_text(value, field.type) for value in plain_values(batch.column(index))]
            for index, field in enumerate(self._fields)
        ]
        if not self._widths:
            self._widths = self._fitting(columns)
            self._fields = self._fields[: len(self._widths)]
            self._line([Text(printable(field.name), "bold") for field in self._fields])
            self._line([Text(printable(type_text(field.type)), "dim") for field in self._fields])
            width = sum(self._widths) + len(_GAP) * max(len(self._widths) - 1, 0)
            self._console.print(Text("─" * width, "dim"))
        for row in range(batch.num_rows):
            self._line([column[row] for column in columns[: len(self._widths)]])

    def write_rest(self) -> None:
        """Name the columns that there was no room for."""
        left = self._names[len(self._widths) :]
        if left:
            named = ", ".join(printable(name) for name in left[:_NAMED_COLUMNS])
            more = ", ..." if len(left) > _NAMED_COLUMNS else ""
            columns = counted(len(left), "more column")
            self._console.print(Text(f"{columns}: {named}{more}", "dim"))
            self._console.print(Text("--columns picks columns, --json shows all of them", "dim"))

    def _fitting(self, columns: list[list[Text]]) -> list[int]:
        widths: list[int] = []
        room = self._console.width
        for field, cells in zip(self._fields, columns, strict=True):
            lengths = [cell.cell_len for cell in cells]
            lengths += [Text(printable(field.name)).cell_len, len(type_text(field.type))]
            width = min(max(lengths), _MAX_WIDTH)
            if widths and width > room:
                break
            widths.append(min(width, room))
            room -= width + len(_GAP)
        return widths

    def _line(self, cells: list[Text]) -> None:
        line = Text(no_wrap=True)
        for index, (field, width, cell) in enumerate(
            zip(self._fields, self._widths, cells, strict=True)
        ):
            if index:
                line.append(_GAP)
            fitted = cell.copy()
            fitted.truncate(width, overflow="ellipsis")
            fill = " " * (width - fitted.cell_len)
            line.append_text(Text(fill) + fitted if _is_number(field.type) else fitted + Text(fill))
        line.rstrip()
        self._console.print(line)


def _is_number(t: pa.DataType) -> bool:
    return bool(pat.is_integer(t) or pat.is_floating(t) or pat.is_decimal(t))


def schema_table(schema: pa.Schema, partition_columns: list[str]) -> Table:
    """Return a schema as a table: columns, types, and where each stands."""
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for heading in ("column", "type", ""):
        table.add_column(heading)
    for field in schema:
        place = "partition folders" if field.name in partition_columns else ""
        table.add_row(
            Text(printable(field.name)),
            Text(printable(type_text(field.type)), "cyan"),
            Text(place, "dim"),
        )
    return table


def fault_text(fault: Fault) -> Text:
    """Return what is wrong with a file, and where."""
    place = ""
    if fault.start is not None:
        end = "the end" if fault.end is None else f"{fault.end:,}"
        place = f" bytes {fault.start:,} to {end}"
    if fault.feature is not None:
        place += f" feature {printable(repr(fault.feature))}"
    what = printable(fault.what)
    return Text.assemble((printable(fault.path), "bold"), (place, "dim"), f": {what}")


def statistics_table(statistics: Statistics, width: int) -> Table:
    """Return what features hold as a table, a line for each, of so many characters at most."""
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, len(_GAP), 0, 0))
    headings = ("feature", "type", "missing", "length", "distinct", "values")
    rows = [
        (
            Text(printable(feature.name)),
            Text(feature.type, "cyan"),
            Text(f"{feature.missing_share:.1%}", "" if feature.missing else "dim"),
            _length(feature),
            Text("" if feature.distinct is None else f"{feature.distinct:,}"),
            _range(feature.values) if feature.values else _most_frequent(feature),
        )
        for feature in statistics.features
    ]
    room = width
    for index, heading in enumerate(headings):
        widest = max(cell.cell_len for cell in (Text(heading), *(row[index] for row in rows)))
        fitting = max(min(widest, room if heading == "values" else _MAX_WIDTH // 2), len(heading))
        room -= fitting + len(_GAP)
        is_number = heading in ("missing", "length", "distinct")
        table.add_column(
            heading, no_wrap=True, width=fitting, justify="right" if is_number else "left"
        )
    for row in rows:
        table.add_row(*row)
    return table


def _length(feature: FeatureStatistics) -> Text:
    """Return how long lists, or else strings, are."""
    found = feature.lengths[0] if feature.lengths else feature.byte_lengths
    if found is None or not found.count:
        return Text()
    unit = "" if feature.lengths else " B"
    if found.min == found.max:
        return Text(f"{found.min:,}{unit}")
    return Text(f"{found.min:,}-{found.max:,}{unit}")


def _range(numbers: NumberStatistics) -> Text:
    """Return the least number, the median, the greatest, and the mean."""
    nans = f", {numbers.nans:,} NaN" if numbers.nans else ""
    if not numbers.count:
        return Text(nans.removeprefix(", "))
    shown = (numbers.min, numbers.quantiles["50%"], numbers.max)
    return Text.assemble(
        Text(" … ", "dim").join(map(_number, shown)),
        (f", mean {_number(numbers.mean)}{nans}", "dim"),
    )


def _number(value: object) -> Text:
    if isinstance(value, float):
        is_plain = not value or 0.01 <= abs(value) < 1e9
        return Text(f"{value:,.2f}" if is_plain else f"{value:.4g}")
    return Text(f"{value:,}" if type(value) is int else text_of(value))


def _most_frequent(feature: FeatureStatistics) -> Text:
    shown = [one for one in feature.frequent if one.count > 1][:_FREQUENT]
    return Text(", ").join(
        Text.assemble(
            short_text(one.value, pa.null()) if one.value else Text("empty", "dim"),
            (f" {one.count:,}", "dim"),
        )
        for one in shown
    )
