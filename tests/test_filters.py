import datetime
import decimal
import fractions
import math
import subprocess
import sys
import zoneinfo
from operator import eq, ge, gt, le, lt, ne

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat
import pytest

from tests.support.frames import examples
from tfrecord_io.engines.local import read_table, write_table
from tfrecord_io.errors import OptionError
from tfrecord_io.filters import (
    TextValue,
    columns_of,
    expression,
    filter_batch,
    kept_rows,
    parse,
    possible_rows,
)
from tfrecord_io.reading.plan import plan_scan

field = pc.field
SCHEMA = pa.schema([("a", pa.int64()), ("b", pa.string()), ("c", pa.float64()), ("d", pa.int8())])


@pytest.fixture
def dataset(tmp_path):
    for year in (2024, 2025, None):
        for place in ("x", "y"):
            name = "__HIVE_DEFAULT_PARTITION__" if year is None else year
            folder = tmp_path / f"year={name}" / f"place={place}"
            folder.mkdir(parents=True)
            rows = [{"n": n, "name": f"{year}{place}{n}"} for n in range(3)]
            (folder / "part-00000-000.tfrecord").write_bytes(examples(*rows))
    return tmp_path


def names(table):
    return table["name"].to_pylist()


class TestParse:
    def test_forms(self):
        term = ("a", "=", 1)
        assert parse(None) is None
        assert parse([]) is None
        assert parse([term]) == [[term]]
        assert parse([[term], [term, term]]) == [[term], [term, term]]
        assert parse(field("a") == 1).equals(field("a") == 1)

    @pytest.mark.parametrize(
        "wrong",
        [
            "a = 1",
            "",
            ["a"],
            7,
            {"a": 1},
            [1],
            [[]],
            [("a", "=")],
            [(1, "=", 1)],
            [("a", "~", 1)],
            [("a", "in", 1)],
            [("a", "=", [1])],
            [[("a", "=", 1)], ("a", "=", 1)],
        ],
    )
    def test_wrong_forms(self, wrong):
        with pytest.raises(OptionError, match="filters"):
            parse(wrong)

    def test_equal_sets_are_one_filter(self):
        # Of texts the order of a set is another in each process.
        texts = [str(number) for number in range(100, 120)]
        for given in (set(texts), frozenset(texts)):
            wanted = expression(parse([("b", "in", given)]), SCHEMA)
            assert wanted.equals(expression(parse([("b", "in", texts)]), SCHEMA))

    @pytest.mark.parametrize("op", ["=", "==", "!=", "<", "<=", ">", ">="])
    def test_null_is_compared_with_is(self, op):
        with pytest.raises(OptionError, match=r"'a'.*'is', None.*'is not', None"):
            parse([("a", op, None)])
        for other in ("is", "is not"):
            with pytest.raises(OptionError, match=r"'a'.*'is', None"):
                parse([("a", other, 1)])

    @pytest.mark.parametrize(
        ("op", "value", "kept"),
        [
            ("is", None, [1, 3]),
            ("is not", None, [0, 2]),
            ("in", [], []),
            ("not in", [], [0, 1, 2, 3]),
            ("in", [None], [1, 3]),
            ("not in", (None,), [0, 2]),
        ],
    )
    @pytest.mark.parametrize(
        "t", [pa.int64(), pa.string(), pa.binary(), pa.float32(), pa.date32(), pa.list_(pa.int64())]
    )
    def test_nulls_and_no_values_of_any_type(self, op, value, kept, t):
        valid = [1] if pa.types.is_list(t) else b"a" if t == pa.binary() else "a"
        valid = valid if not (pa.types.is_primitive(t)) else pa.scalar(1, pa.int32()).cast(t)
        table = pa.table({"a": pa.array([valid, None, valid, None], t), "row": range(4)})
        terms = parse([("a", op, value)])
        assert columns_of(terms, table.schema) == ["a"]
        assert table.filter(expression(terms, table.schema))["row"].to_pylist() == kept

    @pytest.mark.parametrize(
        ("op", "value", "kept"),
        [
            ("=", 2, [2]),
            ("==", 2, [2]),
            ("!=", 2, [1, 3]),
            ("<", 2, [1]),
            ("<=", 2, [1, 2]),
            (">", 2, [3]),
            (">=", 2, [2, 3]),
            ("in", {1, 3}, [1, 3]),
            ("not in", (1, 3), [2]),
            ("in", frozenset({2}), [2]),
        ],
    )
    def test_operators(self, op, value, kept):
        table = pa.table({"a": [1, 2, 3]})
        assert (
            table.filter(expression(parse([("a", op, value)]), table.schema))["a"].to_pylist()
            == kept
        )

    @pytest.mark.parametrize(
        ("op", "value", "kept"),
        [
            ("==", 2**63, [2**63]),
            ("<", 2**64 - 1, [1, 2**63]),
            ("in", [2**64 - 1, None, 1], [1, 2**64 - 1, None]),
            ("not in", [2**63], [1, 2**64 - 1, None]),
            ("=", 1, [1]),
            (">", 1, [2**63, 2**64 - 1]),
            ("!=", -1, [1, 2**63, 2**64 - 1]),
            ("<", 0, []),
            ("in", [0, 1], [1]),
            ("in", [-1, 1, 2**64], [1]),
            ("in", [-1, 2**63], [2**63]),
            ("not in", [-1], [1, 2**63, 2**64 - 1, None]),
            ("=", np.int64(1), [1]),
            ("in", [np.int64(-1), np.uint64(2**63)], [2**63]),
        ],
    )
    def test_integers_beyond_int64(self, op, value, kept):
        table = pa.table({"a": pa.array([1, 2**63, 2**64 - 1, None], pa.uint64())})
        terms = parse([("a", op, value)])
        assert columns_of(terms, table.schema) == ["a"]
        wanted = expression(terms, table.schema)
        assert table.filter(wanted)["a"].to_pylist() == kept
        rows = [table["a"].to_pylist().index(value) for value in kept]
        assert sorted(kept_rows(table, wanted)) == sorted(rows)
        assert possible_rows(table, wanted, table.schema) == sorted(rows)

    @pytest.mark.parametrize(
        ("t", "value"),
        [
            (pa.timestamp("ns"), pd.Timestamp),
            (pa.timestamp("ns", "UTC"), lambda n: pd.Timestamp(n, tz="UTC")),
            (pa.duration("ns"), pd.Timedelta),
        ],
    )
    def test_nanoseconds_of_pandas(self, t, value):
        table = pa.table({"a": pa.array([0, 1, -1, 1000, None], pa.int64()).cast(t), "n": range(5)})
        for op, given, kept in (
            ("==", value(1), [1]),
            ("<", value(1), [0, 2]),
            ("!=", value(-1), [0, 1, 3]),
            ("==", value(1000), [3]),
            ("in", [value(0), value(-1), None], [0, 2, 4]),
            ("not in", [value(1), value(1000)], [0, 2, 4]),
        ):
            terms = parse([("a", op, given)])
            assert columns_of(terms, table.schema) == ["a"]
            assert table.filter(expression(terms, table.schema))["n"].to_pylist() == kept

    @pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin"])
    def test_times_of_any_zone(self, zone):
        # The hour from 0:00 on, by UTC, comes twice in Berlin.
        instants = [datetime.datetime(2026, 10, 24, 23, tzinfo=datetime.timezone.utc)]
        instants += [instants[0] + datetime.timedelta(hours=n) for n in (1, 2)]
        values = pa.array([*instants, None], pa.timestamp("ms", zone))
        table = pa.table({"a": values, "n": range(4)})
        here = [one.astimezone(zoneinfo.ZoneInfo("Europe/Berlin")) for one in instants]
        there = [
            one.astimezone(datetime.timezone(datetime.timedelta(hours=-3))) for one in instants
        ]
        for op, given, kept in (
            ("==", here[1], [1]),
            ("==", pd.Timestamp(here[2]), [2]),
            ("!=", there[0], [1, 2]),
            (">", pd.Timestamp(there[1]) - pd.Timedelta(1), [1, 2]),
            ("in", [here[0], instants[2], None], [0, 2, 3]),
            ("not in", {here[1], there[2]}, [0, 3]),
            # In nanoseconds there is no such year.
            ("<", datetime.datetime(9999, 12, 31, tzinfo=datetime.timezone.utc), [0, 1, 2]),
        ):
            terms = parse([("a", op, given)])
            assert columns_of(terms, table.schema) == ["a"]
            assert table.filter(expression(terms, table.schema))["n"].to_pylist() == kept
            assert possible_rows(table, expression(terms, table.schema), table.schema) == kept


class TestColumnsOf:
    @pytest.mark.parametrize(
        ("wanted", "expected"),
        [
            (field("a") == 1, ["a"]),
            ((field("d") > 1) & (field("b") == "x"), ["b", "d"]),
            (field("a").isin([1]) | field("c").is_null() | (field("a") < field("d")), "acd"),
            (pc.scalar(True), []),
        ],
    )
    def test_names(self, wanted, expected):
        assert columns_of(wanted, SCHEMA) == list(expected)

    def test_unknown_and_unfitting(self):
        with pytest.raises(OptionError, match="do not fit"):
            columns_of(field("z") == 1, SCHEMA)
        with pytest.raises(OptionError, match="do not fit"):
            columns_of(field("b") == 1.5, SCHEMA)

    @pytest.mark.parametrize(
        ("term", "told"),
        [
            (("e", "=", 1), "there is no column 'e'"),
            (("b", "=", 1), "column 'b', which is string, with 1;"),
            (("d", "=", 10**20), "filters compare 'd' with 100000000000000000000: "),
            (("a", "in", [1, "x"]), r"column 'a', which is int64, with \[1, 'x'\];"),
            (("a", "=", object()), "filters compare 'a' with <object"),
            (("a", "<", np.timedelta64(1, "s")), "column 'a', which is int64, with "),
            (("c", "=", 2**53 + 1), "column 'c', which is double, with 9007199254740993;"),
            (
                ("t", "<", datetime.datetime(2026, 1, 1)),
                r"column 't', which is timestamp\[us, tz=UTC\], with datetime",
            ),
        ],
    )
    def test_the_term_that_does_not_fit_is_named(self, term, told):
        schema = SCHEMA.append(pa.field("t", pa.timestamp("us", "UTC")))
        with pytest.raises(OptionError, match=told):
            columns_of(parse([("b", "!=", "x"), term]), schema)

    @pytest.mark.parametrize("op", ["in", "not in"])
    @pytest.mark.parametrize(
        ("column", "values"),
        [
            ("a", ["1"]),
            ("a", [1, True]),
            ("a", [1, pd.Timestamp("1970-01-01")]),
            ("a", [2**63]),
            ("date", ["2026-01-01"]),
            ("date", [datetime.date(2026, 1, 1), datetime.datetime(2026, 1, 1, 12)]),
            ("date", [datetime.datetime(2026, 1, 1, 0, 30)]),
            ("date", [datetime.date(2026, 1, 1), pd.Timestamp("2026-01-01 00:00:00.000000001")]),
        ],
    )
    def test_a_list_is_not_cast_to_the_column(self, op, column, values):
        schema = SCHEMA.append(pa.field("date", pa.date32()))
        with pytest.raises(OptionError, match=rf"compare .*'{column}'.* with \["):
            columns_of(parse([(column, op, values)]), schema)

    def test_durations_are_found_by_those_of_numpy(self):
        table = pa.table({"x": pa.array([1, 2, None], pa.duration("s"))})
        for term, rows in (
            (("==", np.timedelta64(1, "s")), [0]),
            ((">", np.timedelta64(1500, "ms")), [1]),
            (("in", [np.timedelta64(2, "s"), None]), [1, 2]),
        ):
            terms = parse([("x", *term)])
            assert columns_of(terms, table.schema) == ["x"]
            assert kept_rows(table, expression(terms, table.schema)) == rows

    def test_days_are_found_by_times_that_begin_them(self):
        day = datetime.date(2026, 1, 1)
        table = pa.table({"date": [day, datetime.date(2026, 1, 2), None]})
        terms = parse([("date", "in", [None, datetime.datetime(2026, 1, 1)])])
        assert columns_of(terms, table.schema) == ["date"]
        assert table.filter(expression(terms, table.schema))["date"].to_pylist() == [day, None]

    @pytest.mark.parametrize("zero", [0.0, -0.0, 0, np.float32(0), decimal.Decimal(0)])
    @pytest.mark.parametrize("t", [pa.float16(), pa.float32(), pa.float64(), pa.int64()], ids=str)
    def test_zeros_are_equal(self, zero, t):
        # As the scalars 0.0 and -0.0 are to pyarrow's comparisons.
        assert pc.equal(pa.scalar(-0.0), pa.scalar(0.0)).as_py()
        table = pa.table({"x": pa.array([-0.0, 0.0, 1.0, None, 2.0]).cast(t)})

        def rows(term):
            terms = parse([term])
            assert columns_of(terms, table.schema) == ["x"]
            return table.filter(expression(terms, table.schema))["x"].to_pylist()

        assert rows(("x", "in", [zero, 2])) == [0, 0, 2]
        assert rows(("x", "not in", [zero, 2])) == [1, None]
        assert rows(("x", "in", [zero, None])) == [0, 0, None]

    @pytest.mark.parametrize("t", [pa.float16(), pa.float32(), pa.float64()], ids=str)
    def test_what_is_too_large_for_a_float_is_not_infinite(self, t):
        values = [1.0, math.inf, -math.inf, None]
        table = pa.table({"x": pa.array(values, pa.float64()).cast(t)})

        def rows(term):
            terms = parse([term])
            return table.filter(expression(terms, table.schema))["x"].to_pylist()

        for large in (1e300, np.float64(-1e300)):
            assert rows(("x", "==", large)) == rows(("x", "in", [large])) == []
            assert rows(("x", "in", [large, 1, None])) == [1.0, None]
            assert rows(("x", "not in", [large])) == values
        assert rows(("x", "in", [math.inf])) == [math.inf]

    @pytest.mark.parametrize("operator", ["==", "in"])
    def test_large_doubles_are_found(self, operator):
        table = pa.table({"x": [1.0, 1e300, math.inf, None]})
        value = [1e300] if operator == "in" else 1e300
        assert kept_rows(table, expression(parse([("x", operator, value)]), table.schema)) == [1]


class TestPossibleRows:
    @pytest.mark.parametrize("zero", [0.0, -0.0])
    def test_zeros_are_equal(self, zero):
        table = pa.table({"p": [-0.0, 0.0, 1.0, None]})
        schema = pa.schema([("a", pa.int64()), ("p", pa.float64())])
        assert possible_rows(table, expression(parse([("p", "in", [zero])]), schema), schema) == [
            0,
            1,
        ]
        wanted = expression(parse([("p", "not in", [zero])]), schema)
        assert possible_rows(table, wanted, schema) == [2, 3]
        assert kept_rows(table, wanted) == [2, 3]

    @pytest.mark.parametrize(
        ("wanted", "rows"),
        [
            ((field("p") == 1) & (field("a") > 0), [0]),
            ((field("p") == 1) | (field("a") > 0), [0, 1, 2]),
            (field("p").isin([1, 2]) & (field("a") > 0), [0, 1]),
            (field("p").is_null() & (field("a") > 0), [2]),
            ((field("p") > 1) & (field("a") > 0), [1]),
        ],
    )
    def test_mixed(self, wanted, rows):
        table = pa.table({"p": [1, 2, None]})
        schema = pa.schema([("a", pa.int64()), ("p", pa.int64())])
        assert possible_rows(table, wanted, schema) == rows

    def test_nan_excludes_nothing(self):
        table = pa.table({"p": [float("nan"), 1.0]})
        schema = pa.schema([("a", pa.int64()), ("p", pa.float64())])
        assert possible_rows(table, (field("p") > 3) & (field("a") > 0), schema) == [0]


class TestReading:
    @pytest.mark.parametrize(
        ("filters", "files", "expected"),
        [
            ([("year", "=", 2024), ("place", "=", "x")], 1, ["2024x0", "2024x1", "2024x2"]),
            ([("year", "=", 2024), ("n", "=", 0)], 2, ["2024x0", "2024y0"]),
            (
                [[("year", "=", 2024), ("n", "=", 0)], [("place", "=", "y"), ("n", ">", 1)]],
                4,
                ["2024x0", "2024y0", "2024y2", "2025y2", "Noney2"],
            ),
            # What one group says of folders alone excludes nothing that the other may keep.
            (
                [[("year", "=", 2024), ("place", "=", "x")], [("n", ">", 1)]],
                6,
                ["2024x0", "2024x1", "2024x2", "2024y2", "2025x2", "2025y2", "Nonex2", "Noney2"],
            ),
            (field("year").is_null() & (field("n") == 1), 2, ["Nonex1", "Noney1"]),
            ([("year", "is", None), ("n", "==", 1)], 2, ["Nonex1", "Noney1"]),
            (
                [("year", "is not", None), ("n", "==", 1), ("place", "==", "x")],
                2,
                ["2024x1", "2025x1"],
            ),
            ([("name", "is", None)], 6, []),
            ([("place", "in", []), ("n", "==", 1)], 0, []),
            ([("name", "in", []), ("place", "==", "x")], 0, []),
            (
                [("name", "not in", []), ("year", "==", 2024), ("n", "==", 1)],
                2,
                ["2024x1", "2024y1"],
            ),
            ((field("place") == "x") & (field("year") > 2024), 1, ["2025x0", "2025x1", "2025x2"]),
            ([("n", "in", [2]), ("place", "!=", "x")], 3, ["2024y2", "2025y2", "Noney2"]),
        ],
    )
    def test_rows_and_files(self, dataset, filters, files, expected):
        assert sorted(names(read_table(dataset, filters=filters))) == sorted(expected)
        assert len(plan_scan(dataset, filters=filters).tasks) == files

    def test_columns_of_the_filter_are_not_returned(self, dataset, codec):
        table = read_table(dataset, columns=["name"], filters=[("n", "=", 1)], codec=codec)
        assert table.column_names == ["name"]
        assert table.num_rows == 6
        none = read_table(dataset, columns=[], filters=[("n", "=", 1)], codec=codec)
        assert (none.num_rows, none.num_columns) == (6, 0)

    def test_files_that_are_excluded_are_not_opened(self, dataset):
        for file in dataset.glob("year=2025/**/*.tfrecord"):
            file.write_bytes(b"no TFRecord at all")
        wanted = [("year", "=", 2024), ("n", ">=", 0)]
        assert read_table(dataset, filters=wanted).num_rows == 6
        assert read_table(dataset, filters=field("year") == 2024).num_rows == 6

    def test_nothing_left_has_all_columns(self, dataset):
        table = read_table(dataset, filters=[("year", "=", 1999), ("n", "=", 1)])
        assert table.num_rows == 0
        assert table.column_names == ["n", "name", "year", "place"]

    @pytest.mark.parametrize("position", [0, 1, 2])
    def test_a_column_by_its_position(self, tmp_path, position):
        table = pa.table({"a": [0, 1, 2, 3], "b": [3, 2, 1, 0], "p": [0, 1, 0, 1]})
        write_table(table, tmp_path / "x", partition_by="p")
        kept = field(position) > 0
        rows = read_table(tmp_path / "x", columns=["a"], filters=kept)["a"].to_pylist()
        assert sorted(rows) == table.filter(kept)["a"].to_pylist()

    @pytest.mark.parametrize(
        "kept",
        [
            (field("b") >= 0) & (field(0) > 1),
            (field("p") == 1) & (field(0) > 1),
            (field("p") == 0) | (field(1) > 1),
            field(0) > field("b"),
        ],
    )
    def test_columns_by_position_and_by_name(self, tmp_path, kept):
        table = pa.table({"a": [0, 1, 2, 3], "b": [3, 2, 1, 0], "p": [0, 1, 0, 1]})
        write_table(table, tmp_path / "x", partition_by="p")
        rows = read_table(tmp_path / "x", columns=["a"], filters=kept)["a"].to_pylist()
        assert sorted(rows) == table.filter(kept)["a"].to_pylist()

    def test_path_column_in_a_filter(self, dataset):
        path = str(dataset / "year=2024" / "place=x" / "part-00000-000.tfrecord")
        table = read_table(dataset, path_column="file", filters=[("file", "=", path)])
        assert names(table) == ["2024x0", "2024x1", "2024x2"]

    @pytest.mark.parametrize(
        "filters",
        [
            lambda path: field("file") == path,
            lambda path: [("file", "in", [path, "/nowhere"])],
            lambda path: [("file", "=", path), ("n", "<", 3)],
            lambda path: [("file", "=", path), ("year", "=", 2024)],
        ],
    )
    def test_files_are_left_out_by_their_path(self, dataset, filters):
        folder = dataset / "year=2024" / "place=x"
        # It would be an error to open it.
        (folder / "other.tfrecord").write_text("not TFRecord")
        path = str(folder / "part-00000-000.tfrecord")
        schema = pa.schema([("n", pa.int64()), ("name", pa.string())])
        table = read_table(dataset, path_column="file", filters=filters(path), schema=schema)
        assert names(table) == ["2024x0", "2024x1", "2024x2"]

    @pytest.mark.parametrize("value", [1, TextValue("soon")])
    def test_unknown_column(self, dataset, value):
        with pytest.raises(OptionError, match="there is no column 'nothing'"):
            read_table(dataset, filters=[("nothing", "=", value)])

    @pytest.mark.parametrize("views", ["s", "p", "b", "spb"])
    @pytest.mark.parametrize("name", ["s", "p", "b"])
    def test_views_beside_partitions_are_compared_like_what_they_show(self, tmp_path, views, name):
        types = {"s": pa.string(), "p": pa.string(), "b": pa.binary()}
        shown = {"s": pa.string_view(), "p": pa.string_view(), "b": pa.binary_view()}
        table = pa.table({"s": ["a", "b"], "b": [b"a", b"b"], "p": ["a", "b"]})
        write_table(table, tmp_path / "ds", partition_by="p")
        schema = pa.schema([(one, shown[one] if one in views else types[one]) for one in "sbp"])
        value = b"b" if name == "b" else "b"
        for given in ([(name, "=", value)], [(name, "in", [value])], pc.field(name) == value):
            found = read_table(tmp_path / "ds", schema=schema, filters=given)
            assert found.schema == schema
            assert found.to_pylist() == table.to_pylist()[1:]

    def test_views_are_compared_like_what_they_show(self, tmp_path, codec):
        rows = {"x": [1, 2, None], "s": ["a", None, "b"], "l": [["c"], None, []]}
        write_table(pa.table(rows), tmp_path / "data")
        schema = pa.schema(
            [("x", pa.int64()), ("s", pa.string_view()), ("l", pa.list_(pa.string_view()))]
        )

        def kept(*term):
            table = read_table(tmp_path / "data", schema=schema, filters=[term], codec=codec)
            assert table.schema == schema
            return table["s"].to_pylist()

        assert kept("x", ">", 1) == [None]
        assert kept("s", "=", "b") == ["b"]
        assert kept("s", "in", ["a", "c"]) == ["a"]
        assert kept("s", "is", None) == [None]
        assert kept("l", "is not", None) == ["a", "b"]
        views = pa.list_view(pa.string())
        for t in (
            views,
            pa.dictionary(pa.int8(), views),
            pa.dictionary(pa.int8(), schema.types[2]),
        ):
            schema = schema.set(2, pa.field("l", t))
            assert kept("l", "is not", None) == ["a", "b"]
            assert kept("x", ">", 1) == [None]

    @pytest.mark.parametrize("ordered", [False, True])
    @pytest.mark.parametrize("values", [pa.string(), pa.string_view()])
    def test_dictionaries_name_folders(self, tmp_path, values, ordered):
        table = pa.table({"x": [1, 2, 3], "p": ["a", "b", None]})
        write_table(table, tmp_path / "data", partition_by="p")
        t = pa.dictionary(pa.int8(), values, ordered)
        schema = pa.schema({"x": pa.int64(), "p": t})
        for filters, kept in [
            ([("p", "=", "b")], [2]),
            ([("p", "in", ["b", None])], [2, 3]),
            ([("p", "is not", None), ("x", "<", 2)], [1]),
            (field("p").is_null(), [3]),
        ]:
            read = read_table(tmp_path / "data", schema=schema, filters=filters)
            read.validate(full=True)
            assert {chunk.type for chunk in read["p"].chunks} == {t}
            assert sorted(read["x"].to_pylist()) == kept

    def test_whole_numbers_of_all_sizes_name_folders(self, tmp_path):
        numbers = pa.array([1, 2**63, 2**64 - 1], pa.uint64())
        table = pa.table({"x": [1, 2, 3], "u": numbers})
        write_table(table, tmp_path / "data", partition_by="u")
        for term, kept in [(("=", 1), [1]), ((">", 1), [2, 3]), (("!=", -1), [1, 2, 3])]:
            read = read_table(tmp_path / "data", filters=[("u", *term)])
            assert sorted(read["x"].to_pylist()) == kept
        with pytest.raises(OptionError, match="compare with values of the columns' own types"):
            read_table(tmp_path / "data", filters=field("u") == 1)

    def test_nanoseconds_need_no_pandas(self, tmp_path):
        times = pa.array([1_700_000_000_123_456_789, None], pa.timestamp("ns"))
        write_table(pa.table({"x": [1, 2], "t": times}), tmp_path / "data", partition_by="t")
        # Once it was loaded, pyarrow does not forget pandas.
        program = """
import sys

class Without:
    def find_spec(self, name, path=None, target=None):
        if name == "pandas":
            raise ImportError(name)

sys.meta_path.insert(0, Without())
import tfrecord_io as tfr

print(tfr.read_table(sys.argv[1], filters=[("x", ">", 0)])["t"].cast("int64"))
"""
        shown = subprocess.run(
            [sys.executable, "-c", program, tmp_path / "data"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        assert "1700000000123456789" in shown

    def test_dates(self, tmp_path):
        for day in ("2026-01-01", "2026-01-02"):
            (tmp_path / f"day={day}").mkdir()
            (tmp_path / f"day={day}" / "a.tfrecord").write_bytes(examples({"n": 1}))
        filters = [("day", ">", datetime.date(2026, 1, 1))]
        assert len(plan_scan(tmp_path, filters=filters).tasks) == 1


def test_values_that_cannot_be_compared_are_told():
    batch = pa.record_batch({"price": pa.array([decimal.Decimal("1.50")], pa.decimal128(3, 2))})
    with pytest.raises(OptionError, match="compare with values of the columns' own types"):
        filter_batch(batch, field("price").isin([1, 2]), ["price"])
    table = pa.table({"a": pa.array([2**64 - 1], pa.uint64())})
    with pytest.raises(OptionError, match="compare with values of the columns' own types"):
        kept_rows(table, field("a") == 1)
    with pytest.raises(OptionError, match="compare with values of the columns' own types"):
        possible_rows(table, field("a") == 1, table.schema)


@pytest.mark.parametrize(
    "t",
    [pa.decimal128(1, 1), pa.decimal256(1, 1), pa.decimal128(38, 5), pa.decimal64(18, 4)],
    ids=str,
)
@pytest.mark.parametrize("is_partition", [False, True])
def test_decimals_are_compared_by_their_digits(tmp_path, t, is_partition):
    tenths = [decimal.Decimal(i) / 10 for i in range(10)]
    table = pa.table({"x": pa.array([*tenths, None], t), "row": range(11)})
    by = "x" if is_partition else ()
    write_table(table, tmp_path / "ds", partition_by=by, float64="cast")

    def kept(operator, value):
        found = read_table(tmp_path / "ds", filters=[("x", operator, value)])
        return sorted(found["row"].to_pylist())

    for i, tenth in enumerate(tenths):
        for value in (tenth, float(tenth), np.float32(tenth), np.float64(tenth)):
            assert kept("==", value) == [i]
            assert kept(">", value) == list(range(i + 1, 10))
            assert kept("<=", value) == list(range(i + 1))
    if t.bit_width > 64:
        assert kept("in", [0.3, 0, decimal.Decimal("0.30"), np.float32(0.7), 0.35]) == [
            0,
            3,
            7,
        ]
        assert kept("not in", [0.3, None]) == [0, 1, 2, 4, 5, 6, 7, 8, 9]
        assert kept("in", [0.35]) == []
    assert kept("<", float("inf")) == list(range(10))
    assert kept("<", math.nan) == kept(">=", math.nan) == []


@pytest.mark.parametrize("t", [pa.decimal128(21, 0), pa.decimal256(42, 20), pa.decimal64(18, 4)])
def test_decimals_are_compared_with_numbers_that_are_none(t):
    last = decimal.Decimal("9" * t.precision).scaleb(-t.scale, decimal.Context(prec=99))
    table = pa.table({"x": pa.array([last.copy_negate(), None, 0, last], t)})
    beyond = 10 ** (t.precision - t.scale)
    between = decimal.Decimal("1e-25")
    for value, smaller in (
        *((value, [0, 2, 3]) for value in (beyond, float(beyond), math.inf, "1e5000")),
        *((value, []) for value in (-beyond, -float(beyond), -math.inf, "-1e5000")),
        *((value, [0, 2]) for value in (between, 1e-25, "1e-5000")),
        *((value, [0]) for value in (-between, -1e-25, "-1e-5000")),
    ):
        value = decimal.Decimal(value) if isinstance(value, str) else value
        larger = [row for row in (0, 2, 3) if row not in smaller]
        for operator, rows in {
            "=": [],
            "!=": [0, 2, 3],
            "<": smaller,
            "<=": smaller,
            ">": larger,
            ">=": larger,
        }.items():
            found = expression(parse([("x", operator, value)]), table.schema)
            assert kept_rows(table, found) == rows


def test_a_float_is_compared_with_decimals_by_its_exact_value():
    # Its shortest digits, 1.1805916207174113e+21, are another number.
    numbers = [2**70, 1180591620717411300000]
    table = pa.table({"x": pa.array(map(decimal.Decimal, numbers), pa.decimal128(38, 0))})
    for term, rows in ((("=", 2.0**70), [0]), (("<", 2.0**70), [1]), (("in", [2.0**70]), [0])):
        assert kept_rows(table, expression(parse([("x", *term)]), table.schema)) == rows


@pytest.mark.parametrize(
    "t", [pa.int8(), pa.int32(), pa.int64(), pa.uint64(), pa.float16(), pa.float32(), pa.float64()]
)
@pytest.mark.parametrize("is_partition", [False, True])
def test_integers_and_floats_are_compared_by_their_exact_values(tmp_path, t, is_partition):
    # Arrow compares them by floats of 32 bits, and refuses integers from 2**24 on.
    numbers = [0, 1, -1, 7, 127, -128, 20260105, 2**24, 2**24 + 1, 2**31, 2**53 + 1, 2**62 + 1]
    numbers += [0.5, 2.5e7, math.inf]
    # Records hold floats of 32 bits, folders any.
    kept_as = pa.float32() if pat.is_float64(t) and not is_partition else t
    numbers = [one for one in numbers if _is_in(kept_as, one)]
    known = pa.array(np.array(numbers, t.to_pandas_dtype()))
    column = pa.chunked_array([known, pa.nulls(1, t)])
    table = pa.table({"x": column, "row": range(len(column))})
    by = "x" if is_partition else ()
    write_table(table, tmp_path / "ds", partition_by=by, float64="cast")

    def kept(name, value):
        found = read_table(tmp_path / "ds", filters=[("x", name, value)])
        return sorted(found["row"].to_pylist())

    values = [
        0.5,
        -0.0,
        7.0,
        127.0,
        -128.0,
        20260104.5,
        20260105,
        2.0e7,
        25_000_000,
        3e9,
        2**40,
        1e30,
        -1e30,
    ]
    values += [math.inf, -math.inf, math.nan, np.float32(0.5), np.float32(2.5e7), np.float64(1e9)]
    if pat.is_integer(t):
        values += [2.0**62, 2.0**63, -(2.0**64)]
    else:
        values += [2**63, -(2**63)]
    compare = {"=": eq, "!=": ne, "<": lt, "<=": le, ">": gt, ">=": ge}
    for value in values:
        # Python compares integers and floats by their exact values.
        exact = value.item() if isinstance(value, np.generic) else value
        for name, holds in compare.items():
            rows = [row for row, number in enumerate(numbers) if holds(number, exact)]
            assert kept(name, value) == rows, (name, value)
    for some in ([20260105], [25_000_000, 0.5], [0.5, 1, 2**24 + 1], [7.0, 1e30, None]):
        rows = [row for row, number in enumerate([*numbers, None]) if number in some]
        assert kept("in", some) == rows
        assert kept("not in", some) == [row for row in range(len(table)) if row not in rows]


def _is_in(t, number):
    if pat.is_integer(t):
        kind = np.iinfo(t.to_pandas_dtype())
        return isinstance(number, int) and kind.min <= number <= kind.max
    with np.errstate(over="ignore"):
        return float(t.to_pandas_dtype()(number)) == number


@pytest.mark.parametrize("by", ["p", ()])
@pytest.mark.parametrize("columns", [None, ["p"], []])
@pytest.mark.parametrize(
    ("filters", "rows"),
    [(pc.scalar(True), 2), (pc.scalar(False), 0), (pc.scalar(pa.scalar(None, pa.bool_())), 0)],
)
def test_a_filter_on_no_column(tmp_path, by, columns, filters, rows):
    write_table(pa.table({"x": [1, 2], "p": ["a", "b"]}), tmp_path / "ds", partition_by=by)
    assert read_table(tmp_path / "ds", columns=columns, filters=filters).num_rows == rows


@pytest.mark.parametrize("by", ["x", ()])
def test_halves_are_compared(tmp_path, by):
    table = pa.table({"x": pa.array(np.float16([-0.0, 1.5, 0.1]), pa.float16()), "row": range(3)})
    table = pa.concat_tables([table, pa.table({"x": pa.nulls(1, pa.float16()), "row": [3]})])
    write_table(table, tmp_path / "ds", partition_by=by)
    for operator, value, rows in (
        ("=", 1.5, [1]),
        ("!=", 1.5, [0, 2]),
        (">", 0, [1, 2]),
        ("<=", np.float16(0.1), [0, 2]),
        # No half is as near.
        ("=", 0.1, []),
        ("in", [0.0, 1.5, None], [0, 1, 3]),
        ("not in", [1.5], [0, 2, 3]),
        ("is", None, [3]),
    ):
        kept = read_table(tmp_path / "ds", filters=[("x", operator, value)])
        assert sorted(kept["row"].to_pylist()) == rows, (operator, value)


@pytest.mark.parametrize("partition_by", [None, ["day", "time"]])
@pytest.mark.parametrize(
    ("term", "rows"),
    [
        (("day", "=", np.datetime64("2026-01-02")), [1]),
        (("day", "<", np.datetime64("2026-02")), [0, 1]),
        (("day", "in", [np.datetime64("2026-01-01"), np.datetime64("2026-02")]), [0, 2]),
        (("day", ">", np.datetime64("2025")), [0, 1, 2]),
        (("time", ">=", np.datetime64("2026-01-01")), [1, 2]),
        (("time", "=", np.datetime64("2026-01-01T12")), [1]),
        (("length", "=", np.timedelta64(2, "D")), [1]),
        (("length", "<", np.timedelta64(60, "m")), [0]),
    ],
)
def test_times_of_numpy_in_units_that_arrow_has_not(tmp_path, partition_by, term, rows):
    table = pa.table(
        {
            "day": [
                datetime.date(2026, 1, 1),
                datetime.date(2026, 1, 2),
                datetime.date(2026, 2, 1),
            ],
            "time": [
                datetime.datetime(2025, 1, 1),
                datetime.datetime(2026, 1, 1, 12),
                datetime.datetime(2027, 1, 1),
            ],
            "length": [datetime.timedelta(0), datetime.timedelta(2), datetime.timedelta(3)],
            "row": [0, 1, 2],
        }
    )
    write_table(table, tmp_path / "ds", partition_by=partition_by)
    found = read_table(tmp_path / "ds", columns=["row"], filters=[term])
    assert sorted(found["row"].to_pylist()) == rows


def test_decimals_of_negative_scale_are_compared(tmp_path):
    table = pa.table({"x": pa.array([decimal.Decimal(5000), None], pa.decimal128(3, -3))})
    write_table(table, tmp_path / "ds")
    for value in (5000, 5e3, decimal.Decimal("5E3"), np.int64(5000)):
        assert read_table(tmp_path / "ds", filters=[("x", "=", value)]).num_rows == 1
        assert read_table(tmp_path / "ds", filters=[("x", "in", {value})]).num_rows == 1
        assert read_table(tmp_path / "ds", filters=[("x", ">", value)]).num_rows == 0


def test_arrow_begins_no_threads():
    """They would hold memory of NumPy's for a moment longer, and abort a process that ends then."""
    code = (
        "import os\n"
        "import pyarrow as pa, pyarrow.acero, pyarrow.compute as pc\n"
        "from tfrecord_io.filters import filter_batch\n"
        "batch = pa.record_batch({'x': [1, 2, 3]})\n"
        "before = len(os.listdir('/proc/self/task'))\n"
        "assert filter_batch(batch, pc.field('x') > 1, ['x']).num_rows == 2\n"
        "assert len(os.listdir('/proc/self/task')) == before\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("-3", pa.scalar(-3, pa.int8())),
        ("18446744073709551615", pa.scalar(2**64 - 1, pa.uint64())),
        ("true", pa.scalar(True)),
        ("0.1", pa.scalar(0.1, pa.float64())),
        ("0.10", pa.scalar(decimal.Decimal("0.10"), pa.decimal128(5, 2))),
        ("2026", pa.scalar("2026")),
        ("2026-01-05", pa.scalar(datetime.date(2026, 1, 5))),
        ("2026-01-05", pa.scalar(datetime.datetime(2026, 1, 5), pa.timestamp("us"))),
        ("2026-01-05 02:00", pa.scalar(datetime.datetime(2026, 1, 5), pa.timestamp("us", "UTC"))),
        (
            "2026-01-05T01:00+01:00",
            pa.scalar(datetime.datetime(2026, 1, 5), pa.timestamp("us", "UTC")),
        ),
        (
            "2026-01-05T02:00:00.000000001",
            pa.scalar(1_767_571_200_000_000_001, pa.timestamp("ns", "Europe/Paris")),
        ),
        (
            "2026-01-05 01:00:00.000000001+01:00",
            pa.scalar(1_767_571_200_000_000_001, pa.timestamp("ns", "Europe/Paris")),
        ),
    ],
)
def test_a_text_stands_for_a_value_of_the_column(text, value):
    zone = datetime.timezone(datetime.timedelta(hours=2))
    table = pa.table({"x": [value, None]})
    schema = table.schema
    for term in [("x", "=", TextValue(text, zone)), ("x", "in", [TextValue(text, zone)])]:
        parsed = parse([term])
        assert columns_of(parsed, schema) == ["x"]
        assert table.filter(expression(parsed, schema)).num_rows == 1
    other = expression(parse([("x", "!=", TextValue(text, zone))]), schema)
    assert table.filter(other).num_rows == 0


@pytest.mark.parametrize(
    "filters",
    [
        [("row", ">", 1)],
        [("row", ">", 1), ("row_", ">", 1)],
        (field("row") > 1) & (field("row_") > 1),
    ],
)
def test_columns_may_bear_any_name(tmp_path, filters):
    write_table(pa.table({"row": [1, 2], "row_": [3, 4]}), tmp_path / "data")
    kept = read_table(tmp_path / "data", filters=filters)
    assert kept.to_pylist() == [{"row": 2, "row_": 4}]


@pytest.mark.parametrize("partition_by", [(), "price"])
@pytest.mark.parametrize(
    ("term", "told"),
    [
        (("price", "==", "cheap"), "'price', which is decimal128.5, 2., with 'cheap'"),
        (("price", "==", b"1.50"), "'price', which is decimal128.5, 2., with b'1.50'"),
        (("price", "==", True), "'price', which is decimal128.5, 2., with True"),
        (("price", "in", ["1.50", None]), "'price', which is decimal128.5, 2., with"),
        (("price", "in", [1.5, "1.50"]), "'price' with"),
        (("price", ">", fractions.Fraction(3, 2)), "'price' with Fraction"),
        (("price", "in", [fractions.Fraction(3, 2)]), r"'price' with .?Fraction"),
        (("price", "<", np.timedelta64(1, "s")), "'price', which is decimal128.5, 2., with"),
        (("price", "in", [np.timedelta64(1, "s"), None]), "'price', which is decimal128.5, 2., w"),
    ],
)
def test_decimals_are_compared_with_numbers_alone(tmp_path, partition_by, term, told):
    prices = pa.array([decimal.Decimal("1.50"), None], pa.decimal128(5, 2))
    table = pa.table({"price": prices, "n": [1, 2]})
    write_table(table, tmp_path / "data", partition_by=partition_by)
    with pytest.raises(OptionError, match=told):
        read_table(tmp_path / "data", filters=[term])


@pytest.mark.parametrize("t", [pa.int8(), pa.bool_(), pa.date32(), pa.timestamp("us", "UTC")])
def test_a_text_that_stands_for_no_value(t):
    with pytest.raises(OptionError, match="'x' with 'soon'"):
        expression(parse([("x", ">", TextValue("soon"))]), pa.schema([("x", t)]))


@pytest.mark.parametrize("zone", [None, "UTC"])
@pytest.mark.parametrize("offset", ["", "Z"])
@pytest.mark.parametrize("point", ".,")
def test_a_text_with_more_digits_than_the_column_stands_for_no_value(zone, offset, point):
    text = TextValue(f"2026-01-05 00:00:00{point}000000001{offset}")
    with pytest.raises(OptionError, match=r"'x' with '2026-01-05 00:00:00.000000001"):
        expression(parse([("x", ">", text)]), pa.schema([("x", pa.timestamp("us", zone))]))
