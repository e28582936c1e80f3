"""The command line: what it writes where, and how it ends."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import aiohttp
import multidict
import pyarrow as pa
import pytest
import yarl

import tfrecord_io as tfr
from tests.support.program import runner
from tfrecord_io.cli.arguments import filters_of, parse_filter, parse_names, parse_setting
from tfrecord_io.cli.main import program
from tfrecord_io.cli.tables import RowTable
from tfrecord_io.cli.values import json_lines, plain_values, printable, short_text
from tfrecord_io.storage import open_storage
from tfrecord_io.writing.attempt import write_task
from tfrecord_io.writing.plan import plan_write

PROGRAM = [sys.executable, "-W", "error", "-c", "from tfrecord_io.cli import main; main()"]


@pytest.fixture
def data(tmp_path):
    path = tmp_path / "data"
    table = pa.table(
        {
            "n": pa.array([1, None, 3], pa.int64()),
            "name": ["a", "b", None],
            "raw": [b"\xff\x00", b"", b"x" * 20],
            "many": [[1.5, float("inf")], [], None],
            "month": [1, 1, 2],
        }
    )
    tfr.write_table(
        table.set_column(3, "many", table["many"].cast(pa.list_(pa.float32()))),
        path,
        partition_by="month",
    )
    return path


def run(*words, code=0):
    result = runner().invoke(program, [str(word) for word in words])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result


def rows_of(text):
    return [json.loads(line) for line in text.splitlines()]


def on_terminal(words, columns=100, code=0, **settings):
    """Run the program with a terminal for its output, and return what the terminal got."""
    leader, follower = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(columns), "TERM": "xterm", **settings}
    process = subprocess.Popen(
        [*PROGRAM, *map(str, words)], stdout=follower, stderr=follower, env=environment
    )
    os.close(follower)
    got = b""
    while True:
        try:
            piece = os.read(leader, 65536)
        except OSError:  # Linux says so when the other side is closed.
            break
        if not piece:
            break
        got += piece
    os.close(leader)
    assert process.wait(60) == code, got
    text = got.decode(settings.get("PYTHONIOENCODING", "utf-8").partition(":")[0])
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text.replace("\r\n", "\n"))


# --- what is shown --------------------------------------------------------------------------------


def test_a_pipe_gets_json_lines_of_whole_values(data):
    assert rows_of(run("cat", data).stdout) == [
        {"n": 1, "name": "a", "raw": "/wA=", "many": [1.5, "Infinity"], "month": 1},
        {"n": None, "name": "b", "raw": "", "many": [], "month": 1},
        {"n": 3, "name": None, "raw": "eHh4eHh4eHh4eHh4eHh4eHh4eHg=", "many": None, "month": 2},
    ]


@pytest.mark.parametrize("command", ["cat", "schema", "count", "stats", "verify", "clean"])
def test_a_pipe_is_no_terminal_where_colours_are_asked_for(data, command):
    process = subprocess.run(
        [*PROGRAM, command, str(data)],
        env={**os.environ, "FORCE_COLOR": "1"},
        capture_output=True,
        timeout=60,
        check=True,
    )
    assert (process.stdout.decode(), process.stderr) == (run(command, data).stdout, b"")


def test_head_takes_rows_columns_and_filters(data):
    assert rows_of(run("head", data, "-n", 1, "--columns", "month,n").stdout) == [
        {"month": 1, "n": 1}
    ]
    kept = run("head", data, "--filter", "month = 1", "--filter", "n is null", "--columns", "name")
    assert rows_of(kept.stdout) == [{"name": "b"}]


def test_schema_is_what_the_option_schema_takes(data, tmp_path):
    columns = run("schema", data).stdout
    assert rows_of(columns)[0] == {"name": "n", "type": "int64"}
    path = tmp_path / "schema.jsonl"
    path.write_text(columns.replace('"int64"', '"int16"', 1))
    assert run("cat", data, "--schema", path).stdout == run("cat", data).stdout
    for text in ('{"name": "n"}', "import pyarrow as pa\n", '{"name": "n", "type": "int"}', "\xff"):
        path.write_text(text, encoding="latin-1")
        said = " ".join(run("cat", data, "--schema", path, code=2).stderr.split())
        assert "--schema" in said
        assert f"{path} holds no schema" in said
        assert '{"name": "x", "type": "int64"}' in said
    assert "No such file" in run("cat", data, "--schema", tmp_path / "none", code=2).stderr


def test_names_in_a_schema_hold_any_characters(tmp_path):
    name = "a\u2028b\x85\n\r\x1e"
    tfr.write_table(pa.table({name: [1]}), tmp_path / "data")
    path = tmp_path / "schema.jsonl"
    path.write_text(run("schema", tmp_path / "data").stdout, encoding="utf-8")
    assert json.loads(run("cat", tmp_path / "data", "--schema", path).stdout) == {name: 1}


def test_count(data):
    assert run("count", data).stdout == "3\n"
    assert run("count", data, "--json").stdout == '{"rows": 3}\n'
    for file in data.rglob("_SUCCESS"):
        file.unlink()
    assert run("count", data, data).stdout == "6\n"


def test_pipes_are_no_files(data):
    (file, *_) = sorted(data.rglob("*.tfrecord"))
    for words in (["count"], ["schema"], ["head"]):
        done = subprocess.run(
            [*PROGRAM, *words, "/dev/stdin"],
            input=file.read_bytes(),
            capture_output=True,
            check=False,
        )
        assert (done.returncode, done.stdout) == (2, b"")
        assert b"no regular file" in done.stderr
        assert b" first, " in done.stderr
        assert b"[/dev/stdin]" in done.stderr


def test_devices_are_no_targets(data):
    (file, *_) = sorted(data.rglob("*.tfrecord"))
    convert = ["convert", data, "/dev/null", "--to-format", "parquet"]
    for words in (convert, ["repair", data, "/dev/null"], ["index", file, "/dev/null"]):
        said = run(*words, code=2).stderr
        assert "no regular file" in said
        assert said.endswith("choose another target [/dev/null]\n")


def test_clean_says_what_it_would_do(data):
    said = json.loads(run("clean", data).stdout)
    nothing = {"finished": [], "removed": [], "running": [], "uploads": 0, "forgotten": []}
    assert said == {**nothing, "done": False}
    assert json.loads(run("clean", data, "--yes", "--stale-after", 0).stdout)["done"] is True
    assert "No such file" in run("clean", data / "no", code=3).stderr
    assert "stale_after" in run("clean", data, "--stale-after", "nan", code=2).stderr


def test_clean_shows_open_uploads(s3_server):
    target = f"{s3_server.url}/{uuid.uuid4().hex}"
    options = s3_server.storage_options
    job = plan_write(pa.schema([("x", pa.int64())]), target, storage_options=options)
    for index in range(2):
        write_task(job, index, [pa.record_batch({"x": [1]})])
    storage, root = open_storage(target, options)
    client = options["client_kwargs"]
    words = ["clean", target, "--storage-option", f"key={options['key']}"]
    words += ["--storage-option", f"secret={options['secret']}"]
    words += ["--storage-option", f"client_kwargs={json.dumps(client)}"]
    assert "may still run" in on_terminal(words)
    # As if somebody had taken the job away.
    storage.remove_tree(f"{root}/.tfrecord-io")
    shown = on_terminal(words)
    assert "would abort 2 open uploads" in shown
    assert "--yes does it" in shown
    assert len(storage.uploads(root)) == 2
    assert "aborted 2 open uploads" in on_terminal([*words, "--yes"])
    assert storage.uploads(root) == []


def test_convert_there_and_back(data, tmp_path):
    there = ["convert", data, tmp_path / "x.parquet", "--columns", "n,name"]
    said = json.loads(run(*there, "--filter", "n is not null").stdout)
    assert (said["rows"], said["files"], said["to_format"]) == (2, 1, "parquet")
    back = ["convert", tmp_path / "x.parquet", tmp_path / "back", "--partition-by", "n"]
    run(*back, "--compression", "gzip", "--max-records-per-file", 1)
    assert len(list((tmp_path / "back").rglob("n=*/*.tfrecord.gz"))) == 2
    assert "already" in run(*back, code=4).stderr
    run(*back, "--mode", "overwrite", "--scheduler", "synchronous")
    assert run("count", tmp_path / "back").stdout == "2\n"


def test_convert_on_a_terminal_tells_what_it_did(data, tmp_path):
    shown = on_terminal(["convert", data, tmp_path / "x.parquet"])
    assert "3 rows in 1 file, " in shown
    assert re.search(r"of parquet, in \d+\.\d", shown)


def test_one_is_no_plural(tmp_path):
    tfr.write_table(pa.table({"x": [1]}), tmp_path / "one")
    shown = on_terminal(["convert", tmp_path / "one", tmp_path / "x.parquet"])
    assert "1 row in 1 file, " in shown
    assert "1 sound record in 1 file, 30 bytes" in on_terminal(["verify", tmp_path / "one"])
    shown = on_terminal(["repair", tmp_path / "one", tmp_path / "two"])
    assert "1 sound record to 1 file, 30 bytes" in shown
    assert "1 record of 1 file" in on_terminal(["index", tmp_path / "one", tmp_path / "i"])


def test_damage_on_a_terminal_is_told_with_its_place(tmp_path):
    table = pa.table({"n": range(9), "p": [n // 3 for n in range(9)]})
    tfr.write_table(table, tmp_path / "data", partition_by="p")
    flipped, cut, gone = sorted((tmp_path / "data").rglob("*.tfrecord"))
    # All records are of one size.
    size = flipped.stat().st_size // 3
    flipped.write_bytes(b"".join([(data := flipped.read_bytes())[:-5], b"\xff", data[-4:]]))
    cut.write_bytes(cut.read_bytes()[:-1])
    gone.unlink()
    lines = on_terminal(["verify", tmp_path / "data"], columns=1000, code=1).splitlines()
    (line,) = [line for line in lines if line.startswith(f"{flipped} ")]
    assert f" bytes {2 * size} to {3 * size}: the CRC of the record's payload does not" in line
    (line,) = [line for line in lines if line.startswith(f"{cut} ")]
    assert f" bytes {2 * size} to {3 * size - 1}: " in line
    (line,) = [line for line in lines if line.startswith(str(gone))]
    assert line.startswith(f"{gone}: ")
    assert lines[-1] == f"4 sound records in 2 files, {6 * size - 1} bytes"

    repair = ["repair", tmp_path / "data", tmp_path / "new"]
    lines = on_terminal(repair, columns=1000).splitlines()
    for file in (flipped, cut):
        assert any(line.startswith(f"{file} bytes {2 * size} to ") for line in lines)
    assert lines[-1] == f"4 sound records to 2 files, {4 * size} bytes"


def test_a_feature_that_does_not_fit_is_named_on_a_terminal(tmp_path):
    tfr.write_table(pa.table({"n": [1]}), tmp_path / "data")
    other = tmp_path / "other"
    tfr.write_table(pa.table({"n": ["text"]}), other)
    (file,), (source,) = (tmp_path / "data").glob("*.tfrecord"), other.glob("*.tfrecord")
    file.write_bytes(source.read_bytes())
    lines = on_terminal(["verify", tmp_path / "data"], columns=1000, code=1).splitlines()
    assert any(line.startswith(f"{file} bytes 0 to the end feature 'n': ") for line in lines)


def test_clean_on_a_terminal(tmp_path):
    tfr.write_table(pa.table({"n": range(4)}), tmp_path / "data", rows_per_task=2)
    words = ["clean", tmp_path / "data"]
    assert on_terminal(words) == "nothing to clean\n"
    (tmp_path / "data" / "part-00001-000.tfrecord").unlink()
    assert on_terminal(words) == "nothing to clean\n"
    words.append("--forget-missing")
    shown = on_terminal(words)
    assert "would forget part-00001-000.tfrecord (gone, or of another length" in shown
    assert "nothing was changed; --yes does it" in shown
    assert on_terminal([*words, "--yes"]).startswith("forgot part-00001-000.tfrecord (gone, or")
    assert on_terminal(words) == "nothing to clean\n"


def test_convert_with_settings_for_both_storages(tmp_path, data):
    words = ["--storage-option", "auto_mkdir=true", "--target-storage-option", "auto_mkdir=true"]
    run("convert", data, tmp_path / "x.parquet", *words)
    assert (tmp_path / "x.parquet").is_file()


def test_a_terminal_gets_a_table(data):
    shown = on_terminal(["head", data])
    lines = shown.splitlines()
    assert lines[0].split() == ["n", "name", "raw", "many", "month"]
    assert lines[1].split() == ["int64", "string", "binary", "list<float32>", "int64"]
    assert "2 B: ff 00" in shown
    assert "null" in shown
    assert "[1.5, inf]" in shown


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_terminal_without_all_characters_gets_plain_ones(tmp_path, encoding):
    tfr.write_table(
        pa.table({"text": ["é" * 100, "x" * 100], "list": [[1] * 5] * 2}), tmp_path / "x"
    )
    shown = on_terminal(["head", tmp_path / "x"], PYTHONIOENCODING=f"{encoding}:strict")
    lines = shown.splitlines()
    assert set(lines[2]) == {"-"}
    assert lines[3].startswith("\\xe9" if encoding == "ascii" else "é")
    assert "xxx...  [1, 1, 1, ... 5 values]" in lines[4]
    assert "feature" in on_terminal(["stats", tmp_path / "x"], PYTHONIOENCODING=encoding)


def test_a_narrow_terminal_gets_the_columns_that_fit_and_the_names_of_the_others(data):
    shown = on_terminal(["cat", data], columns=20)
    assert shown.splitlines()[0].split() == ["n", "name"]
    assert "3 more columns: raw" in shown


@pytest.mark.parametrize("rows", [(1, 3_000_000_000), (*range(199), 3_000_000_000)])
def test_columns_are_wide_enough_for_the_rows_of_all_files_that_are_shown_first(tmp_path, rows):
    table = pa.table({"n": pa.array(rows), "ok": [True] * (len(rows) - 1) + [False]})
    tfr.write_table(table, tmp_path / "files", max_records_per_file=1)
    shown = on_terminal(["cat", tmp_path / "files"])
    assert shown.splitlines()[-1].split() == ["3000000000", "false"]


def test_a_terminal_gets_json_where_asked(data):
    assert len(rows_of(on_terminal(["cat", data, "--json"]))) == 3


def test_schema_on_a_terminal_tells_partition_columns(data):
    shown = on_terminal(["schema", data])
    assert "list<float32>" in shown
    assert shown.rstrip().endswith("partition folders")


@pytest.mark.parametrize("command", ["head", "cat", "schema"])
def test_a_terminal_sees_that_files_without_a_manifest_are_looked_at(data, command):
    assert "looking for columns" not in on_terminal([command, data])
    (data / "_SUCCESS").unlink()
    assert "looking for columns" in on_terminal([command, data])
    assert "looking" not in on_terminal([command, data, "--record-type", "ByteArray"])


def test_a_table_without_rows_still_has_its_heading(tmp_path):
    tfr.write_table(pa.table({"x": pa.array([], pa.int64())}), tmp_path / "empty")
    assert on_terminal(["head", tmp_path / "empty"]).split()[:2] == ["x", "int64"]


def test_many_columns_are_not_put_into_words_for_nothing():
    from rich.console import Console

    schema = pa.schema([(f"c{i}", pa.int64()) for i in range(5000)])
    console = Console(width=40, file=open(os.devnull, "w"), record=True)  # noqa: SIM115, PTH123
    table = RowTable(console, schema)
    table.write(pa.RecordBatch.from_pylist([{"c0": 1}], schema=schema))
    table.write_rest()
    console.file.close()
    assert "4,994 more columns" in console.export_text()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (b"", "0 B"),
        (b"abc", "3 B: 61 62 63"),
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x1c\0\0\0\x20", "PNG 28x32, 24 B"),
        (b"GIF89a\x05\0\x06\0" + bytes(1990), "GIF 5x6, 2.0 kB"),
        (b"\xff\xd8\xff\xe0\0\x04ab\xff\xc0\0\x11\x08\0\x10\0\x20", "JPEG 32x16, 17 B"),
        (b"\xff\xd8\xff\xe0\xff\xff", "JPEG, 6 B"),
        (b"RIFF\0\0\0\0WEBP", "WebP, 12 B"),
    ],
)
def test_bytes_are_told_by_size_and_start(value, text):
    assert short_text(value, pa.binary()).plain == text


def test_values_do_not_reach_the_terminal_as_commands():
    assert short_text("\x1b]0;title\x07", pa.string()).plain == "\\x1b]0;title\\x07"
    assert short_text("[bold]x[/bold]", pa.string()).plain == "[bold]x[/bold]"
    assert printable("a\u202eb\n", keep="\n") == "a\\u202eb\n"


def test_json_on_a_terminal_holds_no_commands():
    text = "".join(map(chr, range(256))) + "é\u2028"
    [line] = json_lines(pa.record_batch({text: [text]}))
    assert not re.search("[\x00-\x1f\x7f-\x9f]", line.removesuffix("\n"))
    assert json.loads(line) == {text: text}
    assert "é" in line


@pytest.mark.parametrize("zone", [None, "UTC"])
def test_timestamps_of_json_have_the_form_of_iso_8601(zone):
    stamps = pa.array([0, None, 1_700_000_000_123_456]).cast(pa.timestamp("us", zone))
    lists = pa.ListArray.from_arrays([0, 1, 2, 3], stamps)
    encoded = stamps.dictionary_encode()
    batch = pa.RecordBatch.from_arrays([stamps, lists, encoded], ["t", "l", "d"])
    for line, stamp in zip(json_lines(batch), stamps.to_pylist(), strict=True):
        row = json.loads(line)
        text = None if stamp is None else stamp.isoformat(timespec="microseconds")
        text = text and text.replace("+00:00", "Z")
        assert row == {"t": text, "l": [text], "d": text}


def test_times_and_decimals_are_texts():
    column = pa.array([1], pa.timestamp("ns", "UTC"))
    assert plain_values(column) == ["1970-01-01 00:00:00.000000001Z"]
    assert plain_values(pa.array([[1]], pa.list_(pa.duration("s")))) == [[1]]
    assert plain_values(pa.array(["1.50"]).cast(pa.decimal128(5, 2))) == ["1.50"]
    assert plain_values(pa.array([[1]], pa.list_(pa.date32()))) == [["1970-01-02"]]


def test_numbers_are_those_of_json(tmp_path):
    tfr.write_table(pa.table({"x": pa.array([0.5, None, 2.0**-24], pa.float32())}), tmp_path / "x")
    schema = tmp_path / "schema.jsonl"
    schema.write_text('{"name": "x", "type": "float16"}\n')
    shown = rows_of(run("cat", tmp_path / "x", "--schema", schema).stdout)
    assert shown == [{"x": 0.5}, {"x": None}, {"x": 2.0**-24}]


def test_what_is_written_as_json_is_read_back(tmp_path):
    table = pa.table(
        {
            "day": pa.array([0, 2**31 - 1, None], pa.int32()).cast(pa.date32()),
            "at": pa.array([10**12, -(10**14), 0]).cast(pa.timestamp("s", "UTC")),
            "many": pa.array([[1, 2**60], [], None]).cast(pa.list_(pa.timestamp("ms"))),
            "pair": pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int32(), 2)),
            "time": pa.array([1, 86_399_999_999_999, None]).cast(pa.time64("ns")),
        }
    )
    tfr.write_table(table, tmp_path / "data")
    text = run("cat", tmp_path / "data").stdout
    assert rows_of(text)[0] == {
        "day": "1970-01-01",
        "at": "+33658-09-27T01:46:40Z",
        "many": ["1970-01-01T00:00:00.001", "+36536598-01-28T21:54:06.976"],
        "pair": [1, 2],
        "time": "00:00:00.000000001",
    }
    (tmp_path / "x.jsonl").write_text(text)
    (tmp_path / "schema").write_text(run("schema", tmp_path / "data").stdout)
    run("convert", tmp_path / "x.jsonl", tmp_path / "again", "--schema", tmp_path / "schema")
    assert tfr.read_table(tmp_path / "again").equals(table)
    run("convert", tmp_path / "data", tmp_path / "same.jsonl", "--columns", "day,at,many,time")
    assert rows_of((tmp_path / "same.jsonl").read_text()) == [
        {name: value for name, value in row.items() if name != "pair"} for row in rows_of(text)
    ]


# --- words to arguments ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "term"),
    [
        ("month = 1", ("month", "=", 1)),
        ("month=1", ("month", "=", 1)),
        ("x>=-1.5e3", ("x", ">=", -1500.0)),
        ("x != true", ("x", "!=", True)),
        ("name == New York", ("name", "==", "New York")),
        ("code = '01'", ("code", "=", "01")),
        ('"a = b" < 2', ("a = b", "<", 2)),
        ("a in (LAX, 'S, O', 3)", ("a", "in", ["LAX", "S, O", 3])),
        ("a NOT  IN [1,2]", ("a", "not in", [1, 2])),
        ("inside in x", ("inside", "in", ["x"])),
        ("t is  Not null", ("t", "is not null", None)),
        ("a <> LAX", ("a", "!=", "LAX")),
        ("a = '<b'", ("a", "=", "<b")),
        ('a = "this or that"', ("a", "=", "this or that")),
        (r"path = 'C:\x'", ("path", "=", r"C:\x")),
        (r"path = 'C:\'", ("path", "=", "C:\\")),
        (r"a = 'it\'s'", ("a", "=", "it's")),
        ("""a = "it's or isn't" """, ("a", "=", "it's or isn't")),
        ("a in ('null', R&D, andor)", ("a", "in", ["null", "R&D", "andor"])),
        ("x in (True, FALSE)", ("x", "in", [True, False])),
        ("a = 'tis", ("a", "=", "'tis")),
        ('a = "', ("a", "=", '"')),
        # A byte of the command line that is no UTF-8.
        ("a = '\udcff'", ("a", "=", "\udcff")),
    ],
)
def test_filters_are_read(text, term):
    assert parse_filter(text) == term


def test_dates_and_times_in_filters():
    import datetime

    assert parse_filter("d < 2026-01-02")[2] == datetime.date(2026, 1, 2)
    day = datetime.datetime(2026, 1, 2, 3, 4, tzinfo=datetime.timezone.utc)
    assert parse_filter("d < 2026-01-02T03:04Z")[2] == day
    fine = datetime.datetime(2026, 1, 2, 3, 4, 5, 500_000, datetime.timezone.utc)
    assert parse_filter("d < 2026-01-02 04:04:05.5+01:00")[2] == fine
    finer = parse_filter("d < 1970-01-01T00:00:01.1234567Z")[2]
    assert finer.equals(pa.scalar(1_123_456_700, pa.timestamp("ns", "UTC")))
    assert parse_filter("d < '2026-01-02'")[2] == "2026-01-02"
    assert parse_filter("d < 08:30")[2] == datetime.time(8, 30)
    assert parse_filter("d in (23:59:59.5)")[2] == [datetime.time(23, 59, 59, 500_000)]
    assert parse_filter("d > '08:30'")[2] == "08:30"
    whole = datetime.timedelta(days=1, hours=2, minutes=3, seconds=4, microseconds=500_000)
    assert parse_filter("d >= P1DT2H3M4.5S")[2] == whole
    assert parse_filter("d = -PT90S")[2] == -datetime.timedelta(seconds=90)
    assert [parse_filter(f"d = {x}")[2] for x in ("P", "PT", "P1DT", "24:00")] == [
        *("P", "PT", "P1DT", "24:00")
    ]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_filters_by_times_of_day_and_durations(tmp_path, unit):
    at = pa.array([30_600, 30_601], pa.int32()).cast(pa.time32("s"))
    times = at.cast(pa.time32(unit) if unit in ("s", "ms") else pa.time64(unit))
    took = pa.array([90, 7200]).cast(pa.duration("s")).cast(pa.duration(unit))
    tfr.write_table(pa.table({"n": [1, 2], "at": times, "took": took}), tmp_path / "data")
    for comparison, expected in (
        ("at = 08:30", 1),
        ("at > 08:30:00", 2),
        ("at in (08:30:01)", 2),
        ("took <= PT1M30S", 1),
        ("took in (PT2H)", 2),
    ):
        found = rows_of(run("cat", tmp_path / "data", "--filter", comparison).stdout)
        assert [row["n"] for row in found] == [expected], comparison
    text = run("cat", tmp_path / "data", "--filter", "at = noon", code=2).stderr
    assert "give a value of that type" in text


@pytest.mark.parametrize("zone", [None, "UTC"])
def test_times_are_found_by_what_is_shown_of_them(tmp_path, zone):
    times = pa.array([0, 1, 1_767_322_984_000_000_000], pa.timestamp("ns", zone))
    of_day = pa.array([0, 1, 86_399_999_999_999], pa.time64("ns"))
    table = pa.table({"n": [0, 1, 2], "time": times, "of_day": of_day, "day": times})
    tfr.write_table(table, tmp_path / "data", partition_by="day")
    shown = sorted(rows_of(run("cat", tmp_path / "data").stdout), key=lambda row: row["n"])
    assert shown[1]["time"] == f"1970-01-01T00:00:00.000000001{'Z' if zone else ''}"
    for name in ("time", "of_day", "day"):
        for row in shown:
            asked = ("--filter", f"{name} = {row[name]}")
            found = rows_of(run("cat", tmp_path / "data", *asked).stdout)
            assert [one["n"] for one in found] == [row["n"]], asked
        both = ", ".join(row[name] for row in shown[:2])
        found = rows_of(run("cat", tmp_path / "data", "--filter", f"{name} in ({both})").stdout)
        assert sorted(one["n"] for one in found) == [0, 1], both
    moved = "1970-01-01T01:00:00.000000001+01:00" if zone else "1970-01-01 00:00:00.000000001"
    found = rows_of(run("cat", tmp_path / "data", "--filter", f"time <= {moved}").stdout)
    assert sorted(one["n"] for one in found) == [0, 1]


@pytest.mark.parametrize(
    "text",
    [
        *("", "x", "= 1", "x =", "x = ", "x !=  ", "x = \n", "x in ", "x in (", "x in (1, 2"),
        *("x in [a", "x in (a,,b)", "x in (a, , b)", "x in (a, )"),
    ],
)
def test_what_is_no_filter_is_refused(text):
    with pytest.raises(ValueError, match=r"no comparison|no list|not closed"):
        filters_of([text])


@pytest.mark.parametrize(
    "text",
    [
        *("a => b", "a =< b", "a === b", "a =~ b", "a !== b", "a >> b", "a <> > b"),
        *("a = b and c = d", "a = 1 OR a = 2", "a in (b, c) and d = e", "a in (b or c)"),
        *("a = 'b' or a = 'c'", 'a = "b" AND c = "d"', "a = 'it''s'", "a = 'b' 'c'"),
        *("a = null", "a != NULL", "a in (b, null)"),
    ],
)
def test_what_may_be_meant_otherwise_is_refused(text):
    with pytest.raises(ValueError, match=r"in quotes|no list"):
        filters_of([text])


@pytest.mark.parametrize(
    "word", ["2020-13-01", "2020-02-30 00:00", "0000-01-01", "2020-02-30T00:00:00.123456789"]
)
def test_a_filter_by_a_day_that_is_none_tells_which(word):
    for text in (f"day = {word}", f"day in (2020-01-01, {word})"):
        with pytest.raises(ValueError, match=f"'{word}' is no time: .*; put a text in quotes"):
            filters_of([text])
    assert filters_of([f"day = '{word}'"]) == [("day", "=", word)]


def test_names_and_settings():
    assert parse_names('a, b,"c,d","e\nf"') == ["a", "b", "c,d", "e\nf"]
    assert parse_setting('client_kwargs={"a": 1}') == ("client_kwargs", {"a": 1})
    assert parse_setting("key=AKIA=") == ("key", "AKIA=")
    assert parse_setting("default_block_size=5") == ("default_block_size", 5)


def test_names_on_several_lines_are_wrong_usage(data):
    told = run("cat", data, "--columns", "a\nb", code=2).stderr
    assert "the end of a line stands in double quotes" in " ".join(told.split())


@pytest.mark.parametrize("text", ["12345678", "1e5", "00", "true", "None", "[1]"])
def test_a_name_or_password_stays_a_text(text):
    for name in ("key", "secret", "password", "account_name"):
        assert parse_setting(f"{name}={text}") == (name, text)


def test_a_token_may_be_an_object():
    assert parse_setting('token={"type": "x"}') == ("token", {"type": "x"})
    assert parse_setting('token="x"') == ("token", "x")


@pytest.mark.parametrize(("text", "value"), [("True", True), ("False", False), ("None", None)])
def test_a_setting_may_be_spelt_as_in_python(text, value):
    assert parse_setting(f"anon={text}") == ("anon", value)


@pytest.mark.parametrize("text", ["secret:hunter2", "=hunter2", "x={'secret': 'hunter2'}"])
def test_a_malformed_setting_is_told_without_its_value(text):
    answer = run("count", "s3://bucket/x", "--storage-option", text, code=2).stderr
    assert "hunter2" not in answer
    assert "no JSON" in answer or "form name=value" in answer


# --- how it ends ----------------------------------------------------------------------------------


def test_damaged_data_end_with_1(data):
    file = next(data.rglob("*.tfrecord"))
    file.write_bytes(file.read_bytes()[:-1])
    text = run("cat", data, code=1).stderr
    assert text.startswith("error: ")
    assert str(file) in text
    assert "Traceback" not in text
    assert "Traceback" in run("cat", data, "--traceback", code=1).stderr
    warned = run("cat", data, "--on-corrupt", "skip_file")
    assert warned.stderr.startswith("warning: ")


def test_wrong_usage_ends_with_2(data, tmp_path):
    convert = ("convert", data, tmp_path / "new", "--to-format", "tfrecord", "--partition-by")
    text = run(*convert, "mont", code=2).stderr
    assert "there is no column 'mont'; did you mean 'month'?" in text
    assert "'n' is named twice" in run(*convert, "n,n", code=2).stderr
    assert "'nope'" in run("head", data, "--columns", "nope", code=2).stderr
    assert r"no column 'n\udcff'" in run(*convert, "n\udcff", code=2).stderr
    assert r"'n\udcff'; it must be" in run("cat", data, "--path-column", "n\udcff", code=2).stderr
    assert "bogus" in run("head", data, "--filter", "bogus", code=2).stderr
    reference = run("stats", data, "--codec", "reference", code=2).stderr
    assert "stats needs the native codec" in reference
    assert "'n' with" in run("head", data, "--filter", f"n = {10**20}", code=2).stderr
    assert "max_features" in run("head", data, "--limit", "x=1", code=2).stderr
    assert "max_features" in run("head", data, "--limit", "max_features=0", code=2).stderr
    run("head", code=2)


@pytest.mark.parametrize(
    "command", ["convert {} - --to-format csv", "index {} -", "stats {} --html -"]
)
def test_standard_output_is_no_target(data, tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    result = run(*command.format("data").split(), code=2)
    assert "'-' is no target" in result.stderr
    assert "'tfrecord-io cat'" in " ".join(result.stderr.split())
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


@pytest.mark.parametrize("command", ["head -", "cat {} -", "convert - new.parquet", "index - new"])
def test_standard_input_is_no_source(data, tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    result = run(*command.format("data").split(), code=2)
    assert "'-' is no source" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["data"]
    tfr.write_table(pa.table({"x": [1]}), "-")
    assert run("count", "./-").stdout == "1\n"


def test_an_existing_target_ends_with_4(data, tmp_path):
    (tmp_path / "x.parquet").write_bytes(b"")
    run("convert", data, tmp_path / "x.parquet", code=4)
    assert (tmp_path / "x.parquet").read_bytes() == b""


def test_a_page_takes_the_place_of_no_data(data, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    part = next(data.rglob("part-*"))
    before = part.read_bytes()
    # As a shell writes out 'stats --html data/*/part-*'.
    said = run("stats", "--html", part, part, code=4).stderr
    assert "is no page of statistics" in said
    assert part.read_bytes() == before
    assert "folder of the data" in run("stats", "data", "--html", "data/page.html", code=2).stderr
    assert run("count", data).stdout == "3\n"
    for page in ("data/_page.html", "page.html", "page.html"):
        run("stats", "data", "--html", page)
    assert run("count", data).stdout == "3\n"


def test_storage_errors_end_with_3(tmp_path):
    text = run("head", tmp_path / "nothing", code=3).stderr
    assert text == f"error: No such file or directory: {tmp_path / 'nothing'}\n"


def test_limits_reach_the_reader(data):
    assert "max_features" in run("head", data, "--limit", "max_features=1", code=1).stderr


def test_no_output_at_all_is_an_error(tmp_path):
    tfr.write_table(pa.table({"x": [1]}), tmp_path / "short")
    process = subprocess.run(
        ["/bin/sh", "-c", 'exec "$@" >&-', "sh", *PROGRAM, "cat", str(tmp_path / "short")],
        stderr=subprocess.PIPE,
        check=False,
    )
    assert process.stderr == b"error: Bad file descriptor: standard output\n"
    assert process.returncode == 3


@pytest.mark.parametrize("command", [["--help"], ["--version"], ["cat", "--help"]])
def test_help_that_cannot_be_written(command):
    with Path("/dev/full").open("wb") as full:
        process = subprocess.run(
            [*PROGRAM, *command], stdout=full, stderr=subprocess.PIPE, check=False
        )
    assert process.stderr == b"error: No space left on device\n"
    assert process.returncode == 3


def test_rows_that_cannot_be_written(data):
    with Path("/dev/full").open("wb") as full:
        process = subprocess.run(
            [*PROGRAM, "cat", data], stdout=full, stderr=subprocess.PIPE, check=False
        )
    assert process.stderr == b"error: No space left on device: standard output\n"
    assert process.returncode == 3


def test_errors_and_warnings_that_cannot_be_written(data):
    part = next(data.rglob("*.tfrecord"))
    part.write_bytes(part.read_bytes()[:-1])
    words = ["cat", data, "--on-corrupt", "skip_record", "--threads", "1"]
    with Path("/dev/full").open("wb") as full:
        process = subprocess.run([*PROGRAM, *words], capture_output=True, check=True)
        kept = subprocess.run([*PROGRAM, *words], stdout=subprocess.PIPE, stderr=full, check=False)
        assert (kept.returncode, kept.stdout) == (0, process.stdout)
        missing = subprocess.run([*PROGRAM, "cat", "nowhere"], stderr=full, check=False)
    assert missing.returncode == 3


def test_a_protocol_that_nobody_knows():
    text = run("cat", "foo://x", code=2).stderr
    assert text == "error: foo://x cannot be opened: fsspec knows no foo://\n"


def test_a_server_that_is_down_is_named():
    text = run("cat", "http://127.0.0.1:9/x?token=hunter2", code=3).stderr
    assert "127.0.0.1:9" in text
    assert "hunter2" not in text


def test_an_error_of_a_client_is_no_defect(tmp_path, monkeypatch):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    words = ["cat", "simplecache::s3://bucket/x", "--storage-option", 's3={"use_ssl": false}']
    text = run(*words, code=3).stderr
    assert text == "error: NoCredentialsError: Unable to locate credentials\n"


def test_an_error_of_a_client_shows_no_signed_url(monkeypatch):
    url = yarl.URL("https://host/x.tfrecord?signature=hunter2")
    asked = aiohttp.RequestInfo(url, "GET", multidict.CIMultiDictProxy(multidict.CIMultiDict()))

    def refused(*arguments, **options):
        raise aiohttp.ClientResponseError(asked, (), status=403, message="Forbidden")

    monkeypatch.setattr(sys.modules["tfrecord_io.cli.main"], "plan_scan", refused)
    text = run("cat", "simplecache::https://host/x.tfrecord", code=3).stderr
    assert text.startswith("error: ClientResponseError: 403")
    assert "https://host/x.tfrecord" in text
    assert "hunter2" not in text


def test_a_closed_pipe_is_no_error(tmp_path):
    tfr.write_table(pa.table({"x": range(200_000)}), tmp_path / "long")
    process = subprocess.Popen(
        [*PROGRAM, "cat", str(tmp_path / "long")], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout.readline() == b'{"x": 0}\n'
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait(60) == 0


def test_a_closed_pipe_hides_no_damage(data):
    part = next(data.rglob("*.tfrecord"))
    part.write_bytes(part.read_bytes()[:-1])
    source, sink = os.pipe()
    os.close(source)
    process = subprocess.run(
        [*PROGRAM, "verify", data], stdout=sink, stderr=subprocess.PIPE, check=False
    )
    os.close(sink)
    assert (process.returncode, process.stderr) == (1, b"")


#: Runs a program that does not ignore a signal, though who runs the tests may, as nohup does.
HEEDING = """
import os, signal, sys
signal.signal(int(sys.argv[1]), signal.SIG_DFL)
os.execv(sys.argv[2], sys.argv[2:])
"""


def test_as_a_module(data):
    command = [sys.executable, "-m", "tfrecord_io", "count", str(data)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr, done.returncode) == ("3\n", "", 0)
    command[-2:] = ["count", "--help"]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert told.startswith("Usage: tfrecord-io count")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_end_with_130(tmp_path, number):
    tfr.write_table(pa.table({"x": range(200_000)}), tmp_path / "long")
    words = [str(number.value), *PROGRAM, "cat", str(tmp_path / "long")]
    with subprocess.Popen(
        [sys.executable, "-c", HEEDING, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        process.stdout.readline()
        time.sleep(0.2)  # It now waits for the full pipe.
        process.send_signal(number)
        assert process.communicate(timeout=60)[1] == b"interrupted\n"
        assert process.returncode == 130


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("target", ["target.parquet", "target"])
def test_a_conversion_that_is_interrupted_leaves_nothing(tmp_path, number, target):
    table = pa.table({"x": range(500_000), "text": ["a text of some length"] * 500_000})
    tfr.write_table(table, tmp_path / "source", rows_per_task=10_000)
    command = ["convert", str(tmp_path / "source"), str(tmp_path / target)]
    words = [*command, "--compression", "gzip"] + ["--to-format", "tfrecord"] * (target == "target")
    heeding = [sys.executable, "-c", HEEDING, str(number.value)]
    with subprocess.Popen([*heeding, *PROGRAM, *words], stderr=subprocess.PIPE) as process:
        while not any(target in path.name for path in tmp_path.iterdir()):
            time.sleep(0.01)
        process.send_signal(number)
        assert b"interrupted" in process.communicate(timeout=60)[1]
        assert process.returncode == 130
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


def test_version_and_help():
    assert tfr.__version__ in run("--version").stdout
    assert "130 interrupted" in run("--help").stdout
    assert list(program.commands) == program.list_commands(None)
