"""What frames hold becomes Arrow as it is, or is refused by its column's name."""

import datetime
import decimal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from tests.support.trees import tree
from tfrecord_io.engines.local import read_table, write_table
from tfrecord_io.errors import InferenceError, TFRecordWarning, UnsupportedTypeError
from tfrecord_io.pandas_columns import to_arrow, to_table

DATE = datetime.date(2026, 1, 2)
TIME = datetime.datetime(2026, 1, 2, 3, 4, 5)
ZONED = TIME.replace(tzinfo=datetime.timezone.utc)
DECIMAL = decimal.Decimal("1.25")


def objects(*values: object) -> pd.Series:
    return pd.Series(values, dtype=object, name="v")


class TestObjects:
    @pytest.mark.parametrize(
        ("values", "t"),
        [
            (["a", "b"], pa.string()),
            ([b"a", b"b"], pa.binary()),
            ([1, 2.5], pa.float64()),
            ([1, DECIMAL], pa.decimal128(3, 2)),
            ([DATE, DATE], pa.date32()),
            ([TIME, TIME], pa.timestamp("us")),
            ([ZONED, ZONED], pa.timestamp("us", "UTC")),
            ([datetime.time(1)], pa.time64("us")),
            ([datetime.timedelta(1)], pa.duration("us")),
            ([[1], [2.5], []], pa.list_(pa.float64())),
            ([[TIME], [], [TIME, TIME]], pa.list_(pa.timestamp("us"))),
            ([[b"a"], []], pa.list_(pa.binary())),
        ],
    )
    def test_of_one_kind(self, values, t):
        array = to_arrow(objects(*values, None))
        assert array.type == t
        assert array.to_pylist() == [*values, None]

    @pytest.mark.parametrize(
        ("values", "told"),
        [
            ([DATE, TIME], "2026, 1, 2.*datetime"),
            ([TIME, DATE], "date"),
            ([DATE, pd.Timestamp(TIME)], "datetime"),
            ([TIME, ZONED], "a datetime.*a datetime with a zone"),
            ([ZONED, TIME], "a datetime with a zone.*a datetime"),
            (["a", b"b"], "'a' is a str, b'b' a binary"),
            ([b"b", "a"], "b'b' is a binary, 'a' a str"),
            ([datetime.time(1, tzinfo=datetime.timezone.utc)], "zone"),
            ([[DATE], [TIME]], "datetime"),
            ([np.array([DATE]), np.array([TIME])], "datetime"),
            ([["a"], [b"b"]], "'a' is a str"),
            ([["a", b"b"]], "'a' is a str, b'b' a binary"),
            ([["a"], ("b", bytearray(b"c"))], "'b' is a str, bytearray"),
            ([[[TIME]], [[ZONED]]], "zone"),
            ([1, "a"], "'a'"),
            ([True, 2], "2"),
            ([2**63, 1], "too large"),
            (["\ud800"], "surrogates"),
            ([1j], "1j"),
            ([decimal.Decimal("inf")], "integer"),
            ([np.ma.array([1, 2], mask=[False, True])], "mask"),
            ([[np.ma.array([1, 2], mask=[False, True])]], "mask"),
        ],
    )
    def test_of_several_kinds_are_refused(self, values, told):
        for column in (objects(*values), objects(None, *values, None)):
            with pytest.raises(InferenceError, match=rf"'v'.*{told}.*convert the column") as caught:
                to_arrow(column)
            assert caught.value.feature == "v"

    @pytest.mark.parametrize(
        "values",
        [
            # Numbers that would become times, and times that would become numbers.
            (datetime.time(1), np.int64(-7)),
            (datetime.time(1), np.float32(0.1)),
            (DATE, np.True_),
            (pd.Timedelta(1), DECIMAL),
            (2**63 - 1, np.timedelta64(5, "ns")),
            (DATE, np.timedelta64(5, "ns")),
            (DATE, np.datetime64(5, "ns")),
            (DATE, 5),
            # Numbers that would be cut.
            (-1, np.float16(1.5)),
            (1, np.float16(-0.0)),
            (np.float64(0.1), np.uint64(2**64 - 1)),
            (0.5, np.int64(2**53 + 1)),
            # Booleans.
            (-1, np.True_),
            (0.5, False),
            (True, np.float32("nan")),
        ],
    )
    def test_mixtures_change_no_value(self, values):
        apart = [[[value]] for value in values]
        array = np.empty(2, object)
        array[:] = values
        for column in (
            objects(*values),
            objects(*values[::-1], None),
            objects([*values], None),
            objects(tuple(values)),
            objects({*values}),
            objects(array),
            objects([values[0]], np.array([values[1]])),
            objects(*(one for (one,) in apart)),
            objects(*apart),
        ):
            with pytest.raises(InferenceError, match="'v'"):
                to_arrow(column)

    @pytest.mark.parametrize(
        "values",
        [
            "np.datetime64('2026-01-02'), np.bool_(True)",
            "np.datetime64('NaT'), np.int64(1)",
            "[np.datetime64('2026-01-02')], [np.uint8(1)]",
            "np.array(['2026-01-02'], 'M8[ns]'), np.array([], float)",
        ],
    )
    def test_times_of_numpy_crash_nothing(self, values):
        code = (
            "import numpy as np, pandas as pd\n"
            "from tfrecord_io import InferenceError\n"
            "from tfrecord_io.pandas_columns import to_arrow\n"
            "try:\n"
            f"    to_arrow(pd.Series([{values}], dtype=object))\n"
            "except InferenceError:\n"
            "    print('refused')\n"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert (done.returncode, done.stdout) == (0, "refused\n"), done.stderr

    @pytest.mark.parametrize("dtype", ["M8[ns]", "m8[s]", "f2", "U3", "S3", "?"])
    def test_arrays_without_values(self, dtype):
        some, none = np.ones(2, dtype), np.ones(0, dtype)
        array = to_arrow(objects(some, none, None))
        assert array.equals(pa.array([some, none, None]))
        assert to_arrow(objects(none)).type == array.type

    def test_numbers_of_several_types_that_are_kept(self):
        for values in (
            [1, 2.5],
            [np.float32(0.1), 0.5],
            [np.uint8(200), -1],
            [1, DECIMAL],
            [DECIMAL, decimal.Decimal("-0.0"), 1],
        ):
            assert to_arrow(objects(*values, None)).to_pylist() == [*values, None]
            lists = to_arrow(objects(values[:1], None, [], values[1:]))
            assert lists.to_pylist() == [values[:1], None, [], values[1:]]

    def test_lists_keep_nans(self):
        nan = float("nan")
        for values, t in (
            ([[1.5, nan], None, [], nan], pa.list_(pa.float64())),
            ([np.array([nan, 1], np.float32), pd.NA], pa.list_(pa.float32())),
            ([[nan], None], pa.list_(pa.float64())),
            ([[1, nan], None, [2]], pa.list_(pa.float64())),
            ([[1], [nan]], pa.list_(pa.float64())),
            ([[1, nan], [2.5]], pa.list_(pa.float64())),
            ([[[nan], []], None], pa.list_(pa.list_(pa.float64()))),
        ):
            array = to_arrow(objects(*values))
            there = [value for value in values if pd.api.types.is_list_like(value)]
            assert array.drop_null().to_string() == pa.array(there, t).to_string()
            assert array.type == t
        # These are no numbers.
        assert to_arrow(objects(["a", nan], [None])).to_pylist() == [["a", None], [None]]
        assert to_arrow(objects([nan], [True])).to_pylist() == [[None], [True]]
        assert to_arrow(objects([1, None], None)).to_pylist() == [[1, None], None]
        # A double would round it.
        assert to_arrow(objects([2**53 + 1, nan])).to_pylist() == [[2**53 + 1, None]]
        assert to_arrow(objects([1.5, pd.NA, None])).to_pylist() == [[1.5, None, None]]

    @pytest.mark.parametrize("values", [[[b"a"], [], None, [b"b", b"c"]], [[1], [2.5], None, []]])
    def test_lists_in_chunks(self, values):
        """As pyarrow makes them of more than 2 GiB of bytes."""

        class Large(pd.Series):
            def __arrow_array__(self, type=None):
                t = pa.array(values).type
                return pa.chunked_array([pa.array(values[:2], t), pa.array(values[2:], t)])

        array = to_arrow(Large(values, dtype=object, name="v"))
        assert array.num_chunks == 2
        assert array.equals(pa.chunked_array([values[:2], values[2:]], pa.array(values).type))

    def test_what_is_missing_is_of_every_kind(self):
        nans = [float("nan"), np.float64("nan"), decimal.Decimal("nan")]
        missing = [None, *nans, pd.NA, pd.NaT]
        for value in (DATE, ZONED, TIME, "a", b"a", datetime.time(1), True):
            assert to_arrow(objects(*missing, value)).to_pylist() == [None] * 6 + [value]

    def test_nans_of_float32_are_numbers(self):
        """As pyarrow has it; they are no Python floats."""
        for values in ([np.float32("nan"), 1], [np.float16("nan"), 2.5, 1]):
            array = to_arrow(objects(*values, None))
            assert array.to_string() == pa.array([*values, None], pa.float64()).to_string()

    def test_masked_arrays_without_a_mask(self):
        values = np.ma.array([1, 2], mask=[False, False])
        assert to_arrow(objects(values, None)).to_pylist() == [[1, 2], None]

    @pytest.mark.parametrize(
        ("value", "t"),
        [
            (pd.Timestamp(1), pa.timestamp("ns")),
            (pd.Timestamp(1, tz="UTC"), pa.timestamp("ns", "UTC")),
            (pd.Timedelta(1), pa.duration("ns")),
        ],
    )
    def test_nanoseconds_are_kept(self, value, t):
        array = to_arrow(objects(None, value))
        assert array.type == t
        assert array.view(pa.int64()).to_pylist() == [None, 1]
        lists = to_arrow(objects([value], None, []))
        assert lists.type == pa.list_(t)
        assert lists.values.view(pa.int64()).to_pylist() == [1]

    def test_nanoseconds_out_of_range_are_refused(self):
        far = pd.Timestamp("9999-01-01")
        assert to_arrow(objects(far)).to_pylist() == [far.to_pydatetime()]
        with pytest.raises(InferenceError, match="'v'"):
            to_arrow(objects(far, pd.Timestamp(1)))

    @pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
    def test_durations_of_any_unit(self, unit):
        numpy = np.array([7, -(2**40) - 1, "NaT"], f"m8[{unit}]")
        expected = pa.array(numpy)
        # Of pandas' own, with a unit of theirs.
        column = pd.Series(numpy, name="v").astype(object)
        assert {value.unit for value in column.dropna()} == {unit}
        if unit == "s":
            column, expected = column[[0, 2]], expected.take([0, 2])
        nanoseconds = pa.duration("ns")
        assert to_arrow(column).cast(nanoseconds).equals(expected.cast(nanoseconds))
        lists = to_arrow(objects(column.tolist(), None, [column[0]]))
        assert lists.values[:-1].cast(nanoseconds).equals(expected.cast(nanoseconds))
        assert to_arrow(objects(numpy, None)).equals(pa.array([numpy, None]))

    def test_durations_out_of_range_are_refused(self):
        with pytest.raises(InferenceError, match=r"'v'.*overflow"):
            to_arrow(pd.Series(np.array([2**40], "m8[s]"), name="v").astype(object))

    @pytest.mark.parametrize(
        "values",
        [
            (np.array([3], "m8[s]"), np.array([3], "m8[ms]")),
            (np.array([], "m8[s]"), np.array([3], "m8[h]")),
            ([np.timedelta64(3, "us")], np.array([3], "m8[s]")),
            ([datetime.timedelta(1)], np.array([3], "m8[s]")),
            ([pd.Timedelta(1)], np.array([3], "m8[us]")),
            ([np.array([3], "m8[ns]")], [np.array([3], "m8[s]")]),
        ],
    )
    def test_durations_of_several_units_are_refused(self, values):
        for column in (objects(*values), objects(*values[::-1], None)):
            with pytest.raises(InferenceError, match=r"'v'.*(would become|Expected|unit)"):
                to_arrow(column)

    @pytest.mark.parametrize("zone", [None, "UTC"])
    @pytest.mark.parametrize("year", [-1, 10_000, 30_000])
    def test_instants_of_years_that_python_has_not(self, year, zone):
        """Which a Timestamp is, but not the datetime that it is as well."""
        numpy = np.array([year - 1970], "M8[Y]").astype("M8[s]")
        times = pd.Series(numpy, name="v").dt.tz_localize(zone)
        for column in (times.astype(object), objects([times[0]], None)):
            with pytest.raises(InferenceError, match=r"'v'.*in no year.*convert"):
                to_arrow(column)
        assert to_arrow(times).cast(pa.int64()).to_pylist() == numpy.astype(int).tolist()
        assert to_arrow(objects(numpy)).values.equals(pa.array(numpy))


class TestDtypes:
    @pytest.mark.parametrize(
        "array",
        [
            pa.array([[1], None], pa.list_view(pa.int8())),
            pa.array([["a"], None], pa.large_list_view(pa.string())),
            pa.FixedShapeTensorArray.from_numpy_ndarray(np.ones((2, 3), np.float32)),
            pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"x" * 16, None], pa.binary(16))),
        ],
    )
    def test_of_arrow_alone(self, array):
        """Of these types pandas knows nothing but that they are Arrow's."""
        column = pd.Series(pd.arrays.ArrowExtensionArray(pa.chunked_array([array])), name="v")
        assert to_arrow(column).equals(array)

    @pytest.mark.parametrize(
        ("column", "told"),
        [
            (pd.Series([1j]), "complex128"),
            (pd.Series(pd.arrays.SparseArray([0, 1])), r"Sparse.*sparse\.to_dense\(\)"),
            (pd.Series(pd.period_range("2026", periods=2, freq="M")), "frequency of periods"),
            (pd.Series(pd.period_range("2026", periods=2, freq="M"), dtype="category"), "periods"),
        ],
    )
    def test_without_a_type(self, column, told):
        with pytest.raises(UnsupportedTypeError, match=f"'v'.*{told}.*convert it"):
            to_arrow(column.rename("v"))

    def test_categories(self):
        t = pd.ArrowDtype(pa.string())
        chunks = pd.Index(pd.concat([pd.Series(["a"], dtype=t), pd.Series(["b"], dtype=t)]))
        for column in (
            pd.Series(["b", None, "a", "b"], dtype="category"),
            pd.Series(["b", None, "a", "b"], dtype="string[pyarrow]").astype("category"),
            pd.Series(pd.Categorical.from_codes([1, -1, 0, 1], categories=chunks)),
        ):
            assert to_arrow(column).to_pylist() == ["b", None, "a", "b"]
        with pytest.raises(InferenceError, match=r"'v'.*datetime"):
            to_arrow(pd.Series(pd.Categorical([DATE, TIME]), name="v"))

    def test_arrays_with_several_axes(self):
        column = pd.Series([np.arange(4).reshape(2, 2), None], name="v")
        with pytest.raises(InferenceError, match=r"'v'.*numpy\.ravel makes lists"):
            to_arrow(column)
        lists = column.map(np.ravel, na_action="ignore")
        assert to_arrow(lists).to_pylist() == [[0, 1, 2, 3], None]

    def test_text_that_is_none(self):
        with pytest.raises(InferenceError, match=r"'v'.*surrogates"):
            to_arrow(pd.Series(["\ud800"], dtype=pd.StringDtype("python"), name="v"))


class TestFrames:
    def test_an_index_that_is_no_plain_range_is_a_column(self):
        frame = pd.DataFrame({"v": [1, 2]})
        assert to_table(frame).to_pydict() == {"v": [1, 2]}
        frame.index = pd.Index(["a", "b"], name="w")
        assert to_table(frame).to_pydict() == {"v": [1, 2], "w": ["a", "b"]}
        frame.index = pd.MultiIndex.from_tuples([("a", 1), ("b", 2)], names=["w", None])
        with pytest.warns(TFRecordWarning, match="__index_level_1__"):
            found = to_table(frame)
        assert found.to_pydict() == {"v": [1, 2], "w": ["a", "b"], "__index_level_1__": [1, 2]}
        # As pyarrow does it.
        assert found.equals(pa.Table.from_pandas(frame), check_metadata=False)
        frame.index = pd.Index([3, 4], name="v")
        with pytest.warns(TFRecordWarning, match="__index_level_0__"):
            assert to_table(frame).to_pydict() == {"v": [1, 2], "__index_level_0__": [3, 4]}
        frame.index = pd.Index([DATE, TIME], name="i")
        with pytest.raises(InferenceError, match="'i'"):
            to_table(frame)

    @pytest.mark.parametrize(("name", "told"), [(0, "0 is a int"), ("\ud800", "no text")])
    def test_an_index_with_a_name_that_no_feature_has(self, name, told):
        frame = pd.DataFrame({"v": [1, 2]}, index=pd.Index([3, 4], name=name))
        with pytest.raises(UnsupportedTypeError, match=told):
            to_table(frame)

    def test_an_index_takes_no_column_s_place(self) -> None:
        # As of rows that were chosen from data which an index was written to.
        frame = pd.DataFrame({"v": [1, 2], "__index_level_0__": [3, 4]}, index=[5, 6])
        with pytest.raises(UnsupportedTypeError, match=r"'__index_level_0__'.*reset_index"):
            to_table(frame)

    def test_rows_that_were_chosen(self, tmp_path: Path):
        frame = pd.DataFrame({"v": [1, 2, 3, 4]})
        # Of every second row, the index is a range since pandas 3.
        chosen = frame[frame["v"] != 2]
        with pytest.warns(TFRecordWarning, match=r"reset_index\(drop=True\)") as warned:
            write_table(chosen, tmp_path / "out")
        assert warned[0].filename == __file__
        assert read_table(tmp_path / "out").column_names == ["v", "__index_level_0__"]
        write_table(chosen.reset_index(drop=True), tmp_path / "new")
        assert read_table(tmp_path / "new").column_names == ["v"]

    def test_rows_without_columns(self):
        assert to_table(pd.DataFrame(index=range(3))).num_rows == 3

    @pytest.mark.parametrize(
        ("names", "told"),
        [
            ([0, "a"], "column name 0 is a int"),
            (["a", "a"], "two columns are named 'a'"),
            (["a", "\ud800"], "no text"),
            ([("a", "b"), "c"], "tuple"),
        ],
    )
    def test_names_that_no_feature_has(self, tmp_path: Path, names, told):
        frame = pd.DataFrame([[1, 2]])
        frame.columns = pd.Index(names, dtype=object, tupleize_cols=False)
        with pytest.raises(UnsupportedTypeError, match=told):
            write_table(frame, tmp_path / "out")
        assert tree(tmp_path) == {}

    def test_written_and_read(self, tmp_path: Path):
        frame = pd.DataFrame({"t": objects(pd.Timestamp(1), None), "d": objects(DATE, DATE)})
        write_table(frame, tmp_path / "out")
        found = read_table(tmp_path / "out")
        assert found.schema.types == [pa.timestamp("ns"), pa.date32()]
        assert found["t"].to_pylist() == [pd.Timestamp(1), None]
        with pytest.raises(InferenceError, match="'d'"):
            write_table(pd.DataFrame({"d": objects(DATE, TIME)}), tmp_path / "new")
        assert not (tmp_path / "new").exists()
