"""What `compute_statistics` finds, held to numpy, pyarrow and collections; its table and page."""

import base64
import collections
import contextlib
import datetime
import decimal
import html.parser
import io
import itertools
import json
import os
import re
import resource
import threading
import traceback
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat
import pytest
from rich.console import Console

import tfrecord_io as tfr
from tests.support.program import runner
from tfrecord_io.cli.main import program
from tfrecord_io.cli.tables import statistics_table
from tfrecord_io.schema import is_any_list
from tfrecord_io.statistics import html_page

ROWS = 30_000
RNG = np.random.default_rng(7)
#: One pixel.
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


@pytest.fixture(scope="module")
def table():
    city = RNG.choice(["Rome", "Oslo", "Lima", "", "Bonn"], ROWS, p=[0.5, 0.2, 0.15, 0.1, 0.05])
    return pa.table(
        {
            "id": pa.array(range(ROWS)),
            "price": pa.array(RNG.normal(3, 2, ROWS).astype("f4"), mask=RNG.random(ROWS) < 0.2),
            "city": pa.array(city.tolist()),
            "user": pa.array([f"user-{n % 9000}" for n in range(ROWS)]),
            "seen": pa.array([datetime.date(2026, 1, 1 + n % 28) for n in range(ROWS)]),
            "ok": pa.array([n % 4 == 0 for n in range(ROWS)]),
            "tags": pa.array([["a", "b", "a"][: n % 4] for n in range(ROWS)]),
            "p": pa.array([n % 3 for n in range(ROWS)]),
        }
    )


@pytest.fixture(scope="module")
def dataset(table, tmp_path_factory):
    path = tmp_path_factory.mktemp("statistics") / "data"
    tfr.write_table(table, path, partition_by="p", rows_per_task=7_000)
    return path


def features(path, **how):
    return {feature.name: feature for feature in tfr.compute_statistics(path, **how).features}


class TestValues:
    def test_the_whole(self, dataset, table):
        found = tfr.compute_statistics(dataset)
        files = list(dataset.rglob("*.tfrecord"))
        assert (found.rows, found.files) == (ROWS, len(files))
        assert found.bytes == sum(file.stat().st_size for file in files)
        assert [feature.name for feature in found.features] == table.column_names
        assert [feature.name for feature in found.features if feature.is_partition] == ["p"]

    def test_counts_and_extremes_are_exact(self, dataset, table):
        found = features(dataset)
        price, column = found["price"], table["price"]
        assert (price.kind, price.type) == ("float", "float32")
        assert price.missing == column.null_count
        assert price.missing_share == column.null_count / ROWS
        least, most = pc.min_max(column).values()
        assert (price.values.min, price.values.max) == (least.as_py(), most.as_py())
        assert price.values.mean == pytest.approx(pc.mean(column).as_py(), rel=1e-9)
        assert price.values.count == ROWS - column.null_count
        number = found["id"].values
        assert (number.min, number.max, number.mean) == (0, ROWS - 1, (ROWS - 1) / 2)

    def test_types_are_those_of_the_columns(self, dataset):
        found = features(dataset)
        days = found["seen"].values
        assert (days.min, days.max) == (datetime.date(2026, 1, 1), datetime.date(2026, 1, 28))
        assert days.quantiles["50%"] in (datetime.date(2026, 1, 14), datetime.date(2026, 1, 15))
        assert (found["ok"].values.min, found["ok"].values.max) == (False, True)
        assert found["ok"].values.mean == 0.25

    def test_quantiles_are_near(self, dataset, table):
        values = np.sort(table["price"].drop_null().to_numpy())
        for name, value in features(dataset)["price"].values.quantiles.items():
            rank = np.searchsorted(values, value) / len(values)
            # Four times the error that is told.
            assert abs(rank - float(name.rstrip("%")) / 100) < 0.025

    def test_quantiles_of_few_values_are_exact(self, tmp_path):
        tfr.write_table(pa.table({"x": range(101)}), tmp_path / "few")
        x = features(tmp_path / "few")["x"].values
        assert x.quantiles == {f"{q}%": q for q in (1, 5, 25, 50, 75, 95, 99)}
        assert sum(share for _, _, share in x.histogram) == pytest.approx(1)
        assert (x.histogram[0][0], x.histogram[-1][1]) == (0, 100)

    def test_numbers_too_far_apart_for_a_double_are_one_bin(self, tmp_path):
        # NumPy warned of that.
        ends = [1.7e308, -1.7e308]
        tfr.write_table(pa.table({"x": [1, 2], "p": ends}), tmp_path / "far", partition_by="p")
        p = features(tmp_path / "far")["p"].values
        assert (p.min, p.mean, p.max) == (-1.7e308, 0, 1.7e308)
        assert p.histogram == ((-1.7e308, 1.7e308, 1.0),)

    def test_distinct_values(self, dataset):
        found = features(dataset)
        for name, count in {
            "id": ROWS,
            "user": 9000,
            "city": 5,
            "seen": 28,
            "ok": 2,
            "p": 3,
        }.items():
            assert found[name].distinct == pytest.approx(count, rel=0.03), name

    def test_frequent_strings(self, dataset, table):
        exact = collections.Counter(table["city"].to_pylist())
        found = features(dataset)["city"].frequent
        assert [(one.value, one.count) for one in found] == exact.most_common()
        assert all(one.count == one.at_most for one in found)

    def test_counts_of_frequent_strings_hold_among_many(self, tmp_path):
        rows = [f"often-{n % 3}" if n % 5 == 0 else f"once-{n}" for n in range(ROWS)]
        tfr.write_table(pa.table({"x": rows}), tmp_path / "many")
        exact = collections.Counter(rows)
        found = features(tmp_path / "many")["x"].frequent
        assert {one.value for one in found[:3]} == {"often-0", "often-1", "often-2"}
        for one in found:
            assert one.count <= exact[one.value] <= one.at_most

    def test_lists(self, dataset, table):
        tags = features(dataset)["tags"]
        (lengths,) = tags.lengths
        exact = pc.list_value_length(table["tags"])
        assert (lengths.min, lengths.max) == (0, 3)
        assert lengths.mean == pytest.approx(pc.mean(exact).as_py())
        assert {one.value: one.count for one in tags.frequent} == collections.Counter(
            pc.list_flatten(table["tags"]).to_pylist()
        )

    def test_feature_lists(self, tmp_path):
        steps = pa.array([[[1.0, 2.0], [3.0]], [], None, [[4.0]]], pa.list_(pa.list_(pa.float32())))
        tfr.write_table(pa.table({"s": steps}), tmp_path / "s", record_type="SequenceExample")
        s = features(tmp_path / "s", record_type="SequenceExample")["s"]
        assert s.missing == 1
        assert [(x.count, x.min, x.max) for x in s.lengths] == [(3, 0, 2), (3, 1, 2)]
        assert (s.values.count, s.values.mean) == (4, 2.5)

    @pytest.mark.parametrize(
        ("t", "values", "mean"),
        [
            (pa.decimal128(5, 2), ["1.25", "2.50", "3.30"], "2.35"),
            (pa.decimal128(9, 0), ["-999999999", "999999999"], "0"),
            (pa.decimal128(5, -3), ["12E3", "-4E3"], "4E3"),
            # The nearest float is 1.
            (pa.decimal256(76, 76), ["0." + "9" * 76], "0." + "9" * 76),
        ],
    )
    def test_decimals_are_decimals(self, tmp_path, t, values, mean):
        values = [*map(decimal.Decimal, values)]
        table = pa.table({"x": pa.array([*values, None], t)})
        tfr.write_table(table, tmp_path / "d", float64="cast")
        found = features(tmp_path / "d")["x"]
        assert (found.type, found.missing, found.values.count) == (str(t), 1, len(values))
        assert (found.values.min, found.values.max) == (min(values), max(values))
        assert found.values.mean == decimal.Decimal(mean)
        (shown,) = tfr.compute_statistics(tmp_path / "d").to_json()["features"]
        assert decimal.Decimal(shown["values"]["max"]) == max(values)

    def test_types_that_others_define(self, tmp_path):
        tfr.write_table(pa.table({"ok": [1, 0, None]}), tmp_path / "ok")
        ok = features(tmp_path / "ok", schema=pa.schema([("ok", pa.bool8())]))["ok"]
        assert (ok.missing, ok.values.count, ok.values.min, ok.values.max) == (1, 2, 0, 1)
        steps = pa.table({"s": [[[1, 2], [3, 4]], [[5, 6]]]})
        tfr.write_table(steps, tmp_path / "s", record_type="SequenceExample")
        schema = pa.schema([("s", pa.list_(pa.fixed_shape_tensor(pa.int64(), [2])))])
        s = features(tmp_path / "s", schema=schema, record_type="SequenceExample")["s"]
        assert [(x.count, x.min, x.max) for x in s.lengths] == [(2, 1, 2), (3, 2, 2)]
        assert (s.values.count, s.values.min, s.values.max) == (6, 1, 6)

    def test_nans_and_infinities(self, tmp_path):
        values = [1.0, float("nan"), float("inf"), -0.0, 0.0, float("nan")]
        tfr.write_table(pa.table({"x": pa.array(values, pa.float32())}), tmp_path / "n")
        x = features(tmp_path / "n")["x"]
        assert (x.values.nans, x.values.count, x.values.max) == (2, 4, float("inf"))
        # Zero is one value, NaN another.
        assert x.distinct == 4
        assert "Infinity" in json.dumps(
            tfr.compute_statistics(tmp_path / "n").to_json(), allow_nan=False
        )

    def test_nans_are_one_value_beside_the_others(self, tmp_path):
        nan = float("nan")
        tfr.write_table(
            pa.table({"one": pa.array([nan, nan, 1.0], pa.float32()), "all": [nan] * 3}),
            tmp_path / "n",
        )
        found = features(tmp_path / "n")
        assert (found["one"].distinct, found["one"].values.mean) == (2, 1)
        assert (found["all"].distinct, found["all"].values.mean) == (1, None)
        assert (found["all"].kind, found["all"].values.nans) == ("float", 3)

    @pytest.mark.parametrize("t", [pa.float32(), pa.float64()], ids=str)
    def test_floats_of_all_forms(self, tmp_path, t):
        tiny = np.finfo("f4").smallest_subnormal
        nans = np.arange(0x7FC00000, 0x7FC00000 + 700, dtype="u4").view("f4")
        parts = [np.float32([0.0, -0.0, tiny, -tiny]), np.arange(-900, 900) / np.float32(8), nans]
        values = RNG.permutation(np.concatenate(parts).astype("f4"))
        tfr.write_table(pa.table({"x": pa.array(values)}), tmp_path / "x")
        x = features(tmp_path / "x", schema=pa.schema({"x": t}))["x"]
        numbers = values[~np.isnan(values)]
        assert (x.values.count, x.values.nans) == (len(numbers), 700)
        assert (x.values.min, x.values.max) == (numbers.min(), numbers.max())
        assert x.values.mean == pytest.approx(numbers.mean(dtype="f8"), rel=1e-12)
        # The forms of zero are one value, those of NaN another.
        assert x.distinct == pytest.approx(len(np.unique(numbers)) + 1, rel=0.03)

    @pytest.mark.parametrize("pattern", ["ints", "tenths", "coarse", "random"])
    def test_distinct_floats_of_any_pattern(self, tmp_path, pattern):
        count = 300_000
        values = {
            "ints": np.arange(count),
            "tenths": np.arange(count) / 10,
            "coarse": (np.arange(count, dtype="u4") << 12).view("f4"),
            "random": RNG.standard_normal(count),
        }[pattern].astype("f4")
        lists = pa.FixedSizeListArray.from_arrays(pa.array(values), 100)
        tfr.write_table(pa.table({"x": lists}), tmp_path / "x")
        exact = len(np.unique(values))
        assert features(tmp_path / "x")["x"].distinct == pytest.approx(exact, rel=0.03)

    def test_ints_at_the_ends_of_their_range(self, tmp_path):
        values = [2**63 - 1] * 600 + [-(2**63)] * 500 + [None, 7]
        tfr.write_table(pa.table({"x": pa.array(values, pa.int64())}), tmp_path / "x")
        x = features(tmp_path / "x")["x"]
        assert (x.values.min, x.values.max, x.missing) == (-(2**63), 2**63 - 1, 1)
        exact = (600 * (2**63 - 1) - 500 * 2**63 + 7) / 1101
        assert x.values.mean == pytest.approx(exact, rel=1e-15)
        assert x.distinct == 3

    def test_means_are_as_exact_as_doubles(self, tmp_path):
        times = [1_760_000_000_123_456_789 + n * 7 for n in range(1000)]
        table = pa.table(
            {
                "ints": pa.array([2**62, -(2**62), 1, 0] * 250),
                "floats": pa.array([1e30, 1.0, -1e30, 0.0] * 250, pa.float32()),
                "times": pa.array(times, pa.timestamp("ns")),
            }
        )
        tfr.write_table(table, tmp_path / "x")
        found = features(tmp_path / "x")
        assert found["ints"].values.mean == 0.25
        assert abs(found["floats"].values.mean - 0.25) <= 1e30 * 2**-45
        mean = pa.scalar(found["times"].values.mean, pa.timestamp("ns")).value
        assert abs(mean - sum(times) // 1000) <= 512

    def test_strings_of_all_lengths(self, tmp_path):
        long = "the same beginning for all of them, "
        texts = [long[:n] + str(k) for n in range(37) for k in range(40)]
        texts += ["\0" * n for n in range(40)] + ["x" * 256, "y" * 257]
        rows = [text for text in texts for _ in range(3)] + ["often"] * 50
        tfr.write_table(pa.table({"x": rows}), tmp_path / "x")
        x = features(tmp_path / "x")["x"]
        sizes = [len(row) for row in rows]
        assert (x.byte_lengths.min, x.byte_lengths.max) == (0, 257)
        assert x.byte_lengths.mean == pytest.approx(np.mean(sizes))
        assert x.distinct == pytest.approx(len({*rows}), rel=0.03)
        assert x.frequent[0].value == "often"
        assert x.frequent[0].count <= 50 <= x.frequent[0].at_most

    @pytest.mark.parametrize(
        "t",
        [
            pa.string(),
            pa.large_string(),
            pa.string_view(),
            pa.binary(),
            pa.large_binary(),
            pa.binary_view(),
            pa.list_(pa.string()),
            pa.large_list(pa.large_string()),
            pa.list_(pa.string(), 2),
        ],
        ids=str,
    )
    def test_strings_of_all_types(self, tmp_path, t):
        row = ["Zürich", "Genève"] if is_any_list(t) else "Zürich"
        column = pa.array([row] * 5 + [None], t)
        tfr.write_table(pa.table({"x": column}), tmp_path / "x")
        x = features(tmp_path / "x")["x"]
        assert (x.kind, x.missing, x.byte_lengths.min, x.byte_lengths.max) == ("bytes", 1, 7, 7)
        first = "Zürich" if "string" in str(t) else "Zürich".encode()
        (found,) = [one for one in x.frequent if one.value == first]
        assert (found.count, found.at_most) == (5, 5)
        assert x.examples[0] == "Zürich".encode()

    @pytest.mark.parametrize("is_list", [False, True])
    def test_examples_are_the_first_strings_wherever_they_are(self, tmp_path, is_list):
        texts = [None] * 30 + ["a", "b"] + [None] * 30 + [f"{n}" for n in range(9)]
        rows = [[text] if text else [] for text in texts] if is_list else texts
        tfr.write_table(pa.table({"x": rows}), tmp_path / "x", rows_per_task=10)
        assert features(tmp_path / "x")["x"].examples == tuple(
            b"ab012345"[i : i + 1] for i in range(8)
        )

    @pytest.mark.parametrize("t", [pa.int64(), pa.float32(), pa.string()], ids=str)
    def test_nulls_between_values(self, tmp_path, t):
        rows = [None if n % 3 == 1 or n < 700 else n % 1000 for n in range(5000)]
        column = pa.array(rows, pa.int64()).cast(t)
        tfr.write_table(pa.table({"x": column}), tmp_path / "x")
        x = features(tmp_path / "x")["x"]
        numbers = x.byte_lengths or x.values
        values = pc.binary_length(column) if pa.types.is_string(t) else column
        least, most = pc.min_max(values).values()
        assert (x.missing, numbers.count) == (column.null_count, 5000 - column.null_count)
        assert (numbers.min, numbers.max) == (least.as_py(), most.as_py())
        assert numbers.mean == pytest.approx(pc.mean(values).as_py())
        assert x.distinct == pytest.approx(pc.count_distinct(column).as_py(), rel=0.03)

    def test_nothing(self, tmp_path):
        tfr.write_table(
            pa.table({"x": pa.array([], pa.int64()), "s": pa.array([], pa.string())}),
            tmp_path / "none",
        )
        found = tfr.compute_statistics(tmp_path / "none")
        assert found.rows == 0
        assert [(one.kind, one.missing_share, one.distinct) for one in found.features] == [
            (None, 0, None)
        ] * 2

    @pytest.mark.parametrize("t", [pa.int64(), pa.float32(), pa.string(), pa.null()], ids=str)
    def test_columns_without_values(self, tmp_path, t):
        tfr.write_table(pa.table({"x": pa.array([None, None], t)}), tmp_path / "null")
        x = features(tmp_path / "null")["x"]
        assert (x.kind, x.missing, x.missing_share, x.distinct) == (None, 2, 1, None)


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_threads_change_nothing(dataset, threads):
    assert tfr.compute_statistics(dataset, threads=threads) == tfr.compute_statistics(dataset)


@pytest.mark.parametrize("threads", [1, 3])
def test_progress_counts_the_bytes_of_files(dataset, threads):
    seen = []
    tfr.compute_statistics(dataset, threads=threads, progress=lambda *at: seen.append(at))
    sizes = [file.stat().st_size for file in sorted(dataset.rglob("part-*"))]
    assert len(sizes) > 2
    assert seen == [(done, sum(sizes)) for done in itertools.accumulate(sizes)]


def test_a_thread_that_cannot_be_started_is_not_waited_for(dataset, monkeypatch):
    start = threading.Thread.start

    def refuse(thread):
        if thread.name == "tfrecord-io-statistics-1":
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        tfr.compute_statistics(dataset, threads=3)


def test_columns_and_filters(dataset):
    found = tfr.compute_statistics(dataset, columns=["city"], filters=[("p", "=", 1)])
    assert [one.name for one in found.features] == ["city"]
    assert found.rows == ROWS // 3


def test_damage(dataset, tmp_path):
    file = next(dataset.rglob("*.tfrecord"))
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    (tmp_path / "bad.tfrecord").write_bytes(data)
    with pytest.raises(tfr.CorruptDataError):
        tfr.compute_statistics(tmp_path / "bad.tfrecord")
    with pytest.warns(tfr.CorruptDataWarning):
        found = tfr.compute_statistics(tmp_path / "bad.tfrecord", on_corrupt="skip_record")
    assert found.rows == tfr.count_rows(file) - 1


class Page(html.parser.HTMLParser):
    """What a browser would take from a page."""

    def __init__(self, text):
        super().__init__()
        self.tags = collections.Counter()
        self.sources = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags[tag] += 1
        self.sources += [value for name, value in attrs if name in ("src", "href")]

    def handle_data(self, data):
        self.text += data


class TestPage:
    @pytest.mark.parametrize(
        ("start", "kind"),
        [
            (PNG, "png"),
            (b"\xff\xd8\xff\xe0", "jpeg"),
            (b"GIF89a", "gif"),
            (b"RIFF\x04\0\0\0WEBP", "webp"),
            (b"RIFF\x04\0\0\0WAVE", None),
        ],
    )
    def test_images_are_known_by_how_they_begin(self, tmp_path, start, kind):
        tfr.write_table(pa.table({"image": [start + bytes([0, 255])]}), tmp_path / "x")
        page = Page(html_page(tfr.compute_statistics(tmp_path / "x"), "x"))
        found = [source.partition(";")[0] for source in page.sources if "base64" in source]
        assert found == ([] if kind is None else [f"data:image/{kind}"])

    def test_nans_are_counted(self, tmp_path):
        data = pa.table({"x": pa.array([0.5, float("nan"), float("nan")], pa.float32())})
        tfr.write_table(data, tmp_path / "x")
        page = html_page(tfr.compute_statistics(tmp_path / "x"), "x")
        assert re.search(r"NaN(<[^>]*>)+2<", page)

    def test_sizes_have_units(self, tmp_path):
        tfr.write_table(pa.table({"x": [1]}), tmp_path / "x")
        found = tfr.compute_statistics(tmp_path / "x")
        for size, text in [(999, "999 bytes"), (2_500, "2.5 kB"), (3 * 10**15, "3,000.0 TB")]:
            assert text in Page(html_page(replace(found, bytes=size), "x")).text

    def test_plots_and_images(self, tmp_path):
        data = pa.table({"image": [PNG] * 3, "x": [1, 2, 3]})
        tfr.write_table(data, tmp_path / "images")
        page = Page(html_page(tfr.compute_statistics(tmp_path / "images"), "images"))
        assert page.tags["img"] == 3
        assert page.tags["svg"] == 1
        shown = [source for source in page.sources if source.startswith("data:image/png;base64,")]
        assert [base64.b64decode(source.partition(",")[2]) for source in shown] == [PNG] * 3
        # It needs nothing from anywhere, and runs nothing.
        assert set(page.sources) - set(shown) == {"#f0", "#f1"}
        assert page.tags["script"] == page.tags["link"] == 0

    def test_what_files_hold_is_text(self, tmp_path):
        evil = "<script>alert(1)</script>"
        tfr.write_table(pa.table({evil: [evil, evil]}), tmp_path / "evil")
        page = Page(html_page(tfr.compute_statistics(tmp_path / "evil"), evil))
        assert page.tags["script"] == 0
        assert page.text.count(evil) == 5

    def test_edges_of_plots_are_dates_and_times(self, tmp_path):
        data = pa.table(
            {
                "day": pa.array([0, 19_000], pa.date32()),
                "time": pa.array([0, 86_399], pa.time32("s")),
                "seen": pa.array([0, 1_700_000_000], pa.timestamp("s", "UTC")),
                "took": pa.array([[-1_500], [90_000_000]], pa.list_(pa.duration("ms"))),
                "ok": pa.array([False, True]),
                "n": pa.array([0, 19_000]),
            }
        )
        tfr.write_table(data, tmp_path / "times")
        page = html_page(tfr.compute_statistics(tmp_path / "times"), "times")
        assert "2 rows in 1 file," in page
        edges = re.findall("<figcaption><span>(.*?)</span><span>(.*?)</span></figcaption>", page)
        assert edges == [
            ("1970-01-01", "2022-01-08"),
            ("00:00:00", "23:59:59"),
            ("1970-01-01 00:00:00+00:00", "2023-11-14 22:13:20+00:00"),
            ("-0:00:01.500000", "1 day, 1:00:00"),
            ("0", "1"),
            ("0", "19,000"),
        ]
        assert "<title>1970-01-01 to 1971-09-26: 50.0%</title>" in page


class TestProgram:
    def run(self, *words):
        result = runner().invoke(program, ["stats", *map(str, words)])
        assert result.exit_code == 0, result.output
        return result.output

    def test_json(self, dataset):
        (line,) = self.run(dataset, "--columns", "city,seen").splitlines()
        found = json.loads(line)
        city, seen = found["features"]
        assert city["frequent"][0]["value"] == "Rome"
        assert city["missing_share"] == 0
        assert seen["values"]["min"] == "2026-01-01"

    @pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
    def test_durations(self, tmp_path, unit):
        values = pa.array([-2, 1, 90_000], pa.duration(unit))
        tfr.write_table(pa.table({"x": values, "xs": [[v] for v in values]}), tmp_path / "x")
        # As the rows have them.
        rows = runner().invoke(program, ["cat", str(tmp_path / "x")]).output.splitlines()
        assert [json.loads(row)["x"] for row in rows] == [-2, 1, 90_000]
        for feature in json.loads(self.run(tmp_path / "x"))["features"]:
            found = feature["values"]
            assert (found["min"], found["quantiles"]["50%"], found["max"]) == (-2, 1, 90_000)
            assert found["mean"] == 30_000

    @pytest.mark.parametrize(
        ("t", "values", "texts"),
        [
            (
                pa.time64("ns"),
                [1, 86_399_999_999_999],
                ["00:00:00.000000001", "23:59:59.999999999"],
            ),
            (pa.date32(), [-(2**31), 2**31 - 1], ["-5877641-06-23", "+5881580-07-11"]),
            (pa.date64(), [0, 86_400_000 * 4_000_000], ["1970-01-01", "+12921-08-18"]),
            (pa.timestamp("s", "UTC"), [-(10**14), 10**12], [None, "+33658-09-27T01:46:40Z"]),
            (
                pa.timestamp("ns"),
                [-(2**63), 1],
                ["1677-09-21T00:12:43.145224192", "1970-01-01T00:00:00.000000001"],
            ),
            (pa.duration("ns"), [-(2**63), 1], [-(2**63), 1]),
        ],
    )
    def test_times_that_python_has_not(self, tmp_path, t, values, texts):
        number = pa.int32() if t.bit_width == 32 else pa.int64()
        tfr.write_table(pa.table({"x": pa.array(values, number).view(t)}), tmp_path / "x")
        found = json.loads(self.run(tmp_path / "x"))["features"][0]["values"]
        for name, text in zip(("min", "max"), texts, strict=True):
            assert text is None or found[name] == text
        assert found["quantiles"]["1%"] == found["min"]
        assert found["count"] == 2
        page = html_page(tfr.compute_statistics(tmp_path / "x"), "x")
        assert pat.is_duration(t) or texts[1] in page.replace(" 00:", "T00:")

    @pytest.mark.parametrize("low", [0, 2**63 - 1])
    @pytest.mark.parametrize("t", [pa.timestamp("us"), pa.duration("s")], ids=str)
    def test_the_last_time_whose_double_is_none(self, tmp_path, t, low):
        last = 2**63 - 1
        tfr.write_table(pa.table({"x": pa.array([low, last, last]).view(t)}), tmp_path / "x")
        found = json.loads(self.run(tmp_path / "x"))["features"][0]["values"]
        text = last if pat.is_duration(t) else "+294247-01-10T04:00:54.775807"
        assert found["max"] == found["quantiles"]["99%"] == text
        assert (found["mean"] == text) is (low == last)
        shown = f"{last:,}" if pat.is_duration(t) else text
        assert shown in html_page(tfr.compute_statistics(tmp_path / "x"), "x")

    @pytest.mark.parametrize(
        "text",
        [
            *("9999999999999999.99", "-9999999999999999.99"),
            # Of those between only the doubles are known.
            *("1234567.25", "-0.5", "0"),
        ],
    )
    def test_decimals_up_to_the_last_of_their_type(self, tmp_path, text):
        values = pa.array([decimal.Decimal(text)] * 2, pa.decimal128(18, 2))
        tfr.write_table(pa.table({"x": values}), tmp_path / "x", float64="cast")
        (feature,) = tfr.compute_statistics(tmp_path / "x").features
        found = feature.values
        for value in (found.min, found.mean, found.max, found.quantiles["50%"]):
            assert value == decimal.Decimal(text)

    def test_table_of_durations_and_booleans(self, tmp_path):
        durations = pa.array([-2, 1, 90_000], pa.duration("s"))
        tfr.write_table(pa.table({"took": durations, "ok": [True, False, True]}), tmp_path / "x")
        console = Console(file=io.StringIO(), width=200)
        console.print(statistics_table(tfr.compute_statistics(tmp_path / "x"), 200))
        assert "-0:00:02 … 0:00:01 … 1 day, 1:00:00, mean 8:20:00" in console.file.getvalue()
        assert "false … true … true, mean 0.67" in console.file.getvalue()

    def test_empty_strings_are_to_be_seen(self, tmp_path):
        data = pa.table({"s": ["", "", "", "a", "a"], "b": [b"", b"", b"", b"a", b"a"]})
        tfr.write_table(data, tmp_path / "x")
        found = tfr.compute_statistics(tmp_path / "x")
        console = Console(file=io.StringIO(), width=200)
        console.print(statistics_table(found, 200))
        assert console.file.getvalue().count("empty 3, ") == 2
        assert Page(html_page(found, "x")).text.count("empty3") == 2

    @pytest.mark.parametrize("width", [70, 100, 200])
    def test_table(self, dataset, width):
        console = Console(file=io.StringIO(), width=width)
        console.print(statistics_table(tfr.compute_statistics(dataset), width))
        lines = console.file.getvalue().splitlines()
        assert max(len(line.rstrip()) for line in lines) <= width
        (city,) = [line for line in lines if line.startswith("city")]
        assert city.split()[:7] == ["city", "string", "0.0%", "0-4", "B", "5", "Rome"]

    def test_table_of_nans(self, tmp_path):
        data = pa.table({"all": [float("nan")] * 2, "some": [0.5, float("nan")]})
        tfr.write_table(data, tmp_path / "x", float64="cast")
        console = Console(file=io.StringIO(), width=100)
        console.print(statistics_table(tfr.compute_statistics(tmp_path / "x"), 100))
        lines = console.file.getvalue().splitlines()
        (every,) = [line for line in lines if line.startswith("all")]
        (some,) = [line for line in lines if line.startswith("some")]
        assert " 2 NaN" in every
        assert "mean 0.50, 1 NaN" in some

    def test_page(self, dataset, tmp_path):
        assert self.run(dataset, "--html", tmp_path / "page.html") == ""
        page = Page((tmp_path / "page.html").read_text())
        assert page.tags["section"] == 8
        assert "Rome" in page.text

    def test_page_without_room(self, dataset):
        done = runner().invoke(program, ["stats", str(dataset), "--html", "/dev/full"])
        assert (done.exit_code, done.stderr) == (3, "error: No space left on device: /dev/full\n")

    def test_page_without_room_leaves_the_one_before(self, dataset, tmp_path):
        page = tmp_path / "page.html"
        self.run(dataset, "--html", page)
        before = page.read_bytes()
        old = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) // 2, old[1]))
        try:
            done = runner().invoke(program, ["stats", str(dataset), "--html", str(page)])
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, old)
        assert (done.exit_code, done.stderr) == (3, f"error: File too large: {page}\n")
        assert page.read_bytes() == before
        assert list(tmp_path.iterdir()) == [page]

    def test_page_behind_a_link_keeps_its_permissions(self, dataset, tmp_path):
        page, link = tmp_path / "page.html", tmp_path / "link.html"
        link.symlink_to(page)
        self.run(dataset, "--html", link)
        page.chmod(0o600)
        page.write_bytes(b"")
        self.run(dataset, "--html", link)
        assert Page(page.read_text()).tags["section"] == 8
        assert (link.is_symlink(), page.stat().st_mode & 0o777) == (True, 0o600)
        assert sorted(tmp_path.iterdir()) == [link, page]

    def test_page_into_a_pipe(self, dataset):
        source, sink = os.pipe()
        self.run(dataset, "--columns", "p", "--html", f"/dev/fd/{sink}")
        os.close(sink)
        with os.fdopen(source) as pipe:
            assert Page(pipe.read()).tags["section"] == 1

    def test_page_of_a_path_that_is_no_utf_8(self, tmp_path):
        path = os.fsdecode(os.fsencode(tmp_path) + b"/\xff")
        tfr.write_table(pa.table({"x": [1]}), path)
        self.run(path, "--html", tmp_path / "page.html")
        assert "\\udcff</h1>" in (tmp_path / "page.html").read_text()


class TestLists:
    @pytest.mark.parametrize("inner", [pa.float32(), pa.list_(pa.float32(), 2)])
    def test_what_is_under_a_null_does_not_count(self, tmp_path, inner):
        value = [5.0, 6.0] if pa.types.is_floating(inner) else [[5.0, 6.0], None]
        column = pa.array([None, value] + [None] * 8, pa.list_(inner, 2)).slice(1)
        record_type = "Example" if pa.types.is_floating(inner) else "SequenceExample"
        tfr.write_table(pa.table({"x": column}), tmp_path / "t", record_type=record_type)
        found = features(tmp_path / "t", record_type=record_type)["x"]
        values = found.values
        assert (found.missing, values.count, values.min, values.max) == (8, 2, 5.0, 6.0)
        assert (values.mean, found.distinct) == (5.5, 2)

    @pytest.mark.parametrize("make", [pa.list_view, pa.large_list_view, pa.large_list])
    def test_all_forms_of_lists_are_alike(self, tmp_path, make):
        tfr.write_table(pa.table({"x": [[1, 2], None, [3], [], [4] * 9]}), tmp_path / "t")
        schema = pa.schema([("x", make(pa.int64()))])
        asked, plain = features(tmp_path / "t", schema=schema)["x"], features(tmp_path / "t")["x"]
        assert (asked.missing, asked.lengths, asked.values) == (1, plain.lengths, plain.values)
        assert (plain.values.count, plain.values.max) == (12, 4)


def test_an_interrupt_leaves_no_lock_that_threads_wait_for(dataset, monkeypatch):
    """As one between a condition's `__enter__` and its block does, of those in Python's pools."""
    left = 0

    class Interrupted(threading.Condition):
        def __enter__(self):
            nonlocal left
            entered = super().__enter__()
            under_way = {frame.name for frame in traceback.extract_stack()}
            # Threads that are begun have no other locks.
            if interrupted_call.__name__ in under_way and "start" not in under_way:
                left -= 1
                if left == 0:
                    raise KeyboardInterrupt
            return entered

    def interrupted_call():
        with contextlib.suppress(KeyboardInterrupt):
            tfr.compute_statistics(dataset, threads=3)

    monkeypatch.setattr(threading, "Condition", Interrupted)
    for at in range(1, 8):
        left = at
        caller = threading.Thread(target=interrupted_call, daemon=True)
        caller.start()
        caller.join(20)
        assert not caller.is_alive()


def test_no_more_values_are_distinct_than_there_are(tmp_path):
    """Whatever the estimate: of so many columns some are estimated too high."""
    columns = {f"x{n}": range(5000 * n, 5000 * (n + 1)) for n in range(10)}
    tfr.write_table(pa.table(columns), tmp_path / "a")
    found = [one.distinct for one in tfr.compute_statistics(tmp_path / "a").features]
    assert max(found) == 5000
    assert min(found) > 4500


@pytest.mark.parametrize("threads", [1, 3])
def test_columns_that_could_not_be_taken_in_are_an_error(dataset, monkeypatch, threads):
    class Full:
        def __init__(self, columns):
            pass

        def update(self, batch):
            raise MemoryError("no room")

        def columns(self, most_frequent):
            raise AssertionError("nothing was taken in")

    monkeypatch.setattr("tfrecord_io._native.Summary", Full)
    with pytest.raises(MemoryError, match="no room"):
        tfr.compute_statistics(dataset, threads=threads)


def test_lists_of_lists_of_one_length_and_of_text(tmp_path):
    pairs = pa.array([[[1.0, 2.0], None], [[3.0, 5.0]]], pa.list_(pa.list_(pa.float32(), 2)))
    table = pa.table({"pairs": pairs, "words": [[["a"], ["b", "c"]], [[]]]})
    tfr.write_table(table, tmp_path / "data", record_type="SequenceExample")
    found = tfr.compute_statistics(
        tmp_path / "data", schema=table.schema, record_type="SequenceExample"
    )
    pairs, words = found.features
    assert (pairs.values.count, pairs.values.mean, pairs.values.max) == (4, 2.75, 5)
    assert words.examples == (b"a", b"b", b"c")
