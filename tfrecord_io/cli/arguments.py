"""From the words of a command line to the Python arguments of the same names."""

from __future__ import annotations

import ast
import csv
import datetime
import functools
import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar, get_args

import click
import pyarrow as pa

from tfrecord_io.compression import Compression
from tfrecord_io.filters import Filters, Term
from tfrecord_io.layout import EmptyPartition
from tfrecord_io.options import CodecName, Float64Mode, Limits, OnCorrupt, RecordType, SaveMode
from tfrecord_io.schema import schema_from_json

Function = TypeVar("Function", bound=Callable[..., Any])

_FILTER = re.compile(
    r"""\s* (?: "(?P<quoted>[^"]+)" | (?P<name>.+?) )
        \s* (?: (?P<null> \s is \s+ (?:not\s+)? null )
              | (?P<operator> == | != | <> | <= | >= | = | < | > | \s not \s+ in \b | \s in \b )
                \s* (?P<value> \S.*? ) )
        \s*""",
    re.VERBOSE | re.IGNORECASE | re.DOTALL,
)
#: What is more than one comparison, or an operator that there is not, when it is not in quotes.
_NO_TEXT = re.compile(r"[<>=!~].*|.*\s(and|or)\s.*", re.IGNORECASE | re.DOTALL)
_ITEM = re.compile(r"""\s*("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^,'"]+)\s*(?:,|$)""")
#: One text in quotes; a backslash before the last one may be of the text, as in paths of Windows.
_QUOTED = re.compile(r"""(["'])((?!\1)[^\\]|\\.)*\\?\1""", re.DOTALL)
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_TIME = re.compile(
    r"\d{4}(-\d\d){2}[T ]\d\d:\d\d(:\d\d(\.(?P<digits>\d{1,9}))?)?(?P<zone>Z|[+-]\d\d:\d\d)?"
)
_TIME_OF_DAY = re.compile(r"([01]\d|2[0-3]):[0-5]\d(:[0-5]\d(\.(?P<digits>\d{1,9}))?)?")
_DIGITS = re.compile(r"\.\d+")
#: ISO 8601's form, such as P1DT2H3M4.5S.
_DURATION = re.compile(
    r"(?P<sign>-?)P(?=.)((?P<days>\d{1,6})D)?"
    r"(T(?=.)((?P<hours>\d{1,9})H)?((?P<minutes>\d{1,9})M)?((?P<seconds>\d{1,9}(\.\d{1,6})?)S)?)?"
)
#: Options of file systems that hold names and passwords; JSON would make numbers of some.
_TEXTS = {
    *("key", "secret", "token", "username", "password"),
    *("user", "account_name", "account_key", "sas_token"),
}
#: As Python spells them. JSON spells them in small letters.
_WORDS = {"True": True, "False": False, "None": None}
_NUMBER = re.compile(r"[+-]?(\d+|(\d+\.\d*|\.\d+)([eE][+-]?\d+)?|\d+[eE][+-]?\d+)")


# --- words to values ------------------------------------------------------------------------------


def parse_names(text: str) -> list[str]:
    """Return names with commas between them; one that holds a comma stands in double quotes."""
    try:
        return [name for row in csv.reader([text], skipinitialspace=True) for name in row]
    except csv.Error as error:
        raise ValueError(
            f"{text!r} is no list of names: one that holds a comma or the end of a line stands in "
            "double quotes"
        ) from error


def parse_setting(text: str) -> tuple[str, Any]:
    """Return name and value of ``name=value``, where the value may be JSON, or a word of Python's.

    What tells who somebody is stays a text, whatever it looks like. No value is shown in an error:
    it may be secret.
    """
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise ValueError("a setting has the form name=value")
    is_text = name in _TEXTS
    if value in _WORDS and not is_text:
        return name, _WORDS[value]
    try:
        found = json.loads(value)
    except ValueError:
        if value.startswith("{"):
            raise ValueError(
                f"the value of {name!r} is no JSON; write one like {name}='{{\"x\": 1}}', in "
                "quotes for the shell"
            ) from None
        return name, value
    return name, value if is_text and not isinstance(found, str | dict) else found


def parse_filter(text: str) -> Term:
    """Return column, operator and value; the operators "is null" and "is not null" have None."""
    found = _FILTER.fullmatch(text)
    if not found:
        raise ValueError(
            f"{text!r} is no comparison; write one like 'month = 1', 'name in (a, b)' or "
            "'time is null', with one of = != <> < <= > >= in, not in, is null, is not null"
        )
    column = found["quoted"] or found["name"]
    if found["null"]:
        return column, " ".join(found["null"].lower().split()), None
    operator = " ".join(found["operator"].lower().split())
    if operator in ("in", "not in"):
        return column, operator, _parse_items(found["value"])
    return column, "!=" if operator == "<>" else operator, _parse_value(found["value"])


def _parse_items(text: str) -> list[Any]:
    inner = text[1:-1] if text[0] + text[-1] in ("()", "[]") else text
    if inner[:1] in ("(", "["):
        raise ValueError(f"{text!r} is no list: its bracket is not closed at its end")
    items: list[Any] = []
    at = 0
    while at < len(inner):
        found = _ITEM.match(inner, at)
        if not found or not found[1].strip():
            raise ValueError(f"{text!r} is no list of values")
        items.append(_parse_value(found[1].strip()))
        at = found.end()
    return items


def _parse_value(text: str) -> Any:
    """Return what a word stands for; what stands in quotes is always a string."""
    if len(text) > 1 and text[0] in "\"'" and text[-1] == text[0]:
        if not _QUOTED.fullmatch(text):
            raise ValueError(
                f"{text!r} is no value: of what stands in quotes, write a quote in it with a "
                "backslash before it, and give --filter several times for several comparisons, of "
                "which all must hold"
            )
        try:
            return ast.literal_eval(text)
        except (SyntaxError, ValueError):
            return text[1:-1]
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    try:
        moment = _parse_time(text)
    except ValueError as error:
        raise ValueError(f"{text!r} is no time: {error}; put a text in quotes") from error
    if moment is not None:
        return moment
    if _NUMBER.fullmatch(text):
        return int(text) if text.lstrip("+-").isdigit() else float(text)
    if text.lower() == "null":
        raise ValueError("a null is found with 'is null' or 'is not null'; put a text in quotes")
    if _NO_TEXT.fullmatch(text):
        raise ValueError(
            f"{text!r} is no value; put it in quotes if it is a text, and give --filter several "
            "times for several comparisons, of which all must hold"
        )
    return text


def _parse_time(text: str) -> Any:
    """Return the date, time, time of day or duration that a word has the form of; None if none."""
    if _DATE.fullmatch(text):
        return datetime.date.fromisoformat(text)
    if time := _TIME.fullmatch(text):
        if _is_fine(time):
            return pa.scalar(text).cast(pa.timestamp("ns", "UTC" if time["zone"] else None))
        return datetime.datetime.fromisoformat(_six_digits(text).replace("Z", "+00:00"))
    if time := _TIME_OF_DAY.fullmatch(text):
        if _is_fine(time):
            # Arrow (26.0.1) makes no times of texts.
            return pa.scalar(f"1970-01-01T{text}").cast(pa.timestamp("ns")).cast(pa.time64("ns"))
        return datetime.time.fromisoformat(_six_digits(text))
    if duration := _DURATION.fullmatch(text):
        return _duration_of(**duration.groupdict())
    return None


def _is_fine(time: re.Match[str]) -> bool:
    """Return whether a time has more digits than Python's have: those of nanoseconds have nine."""
    return len(time["digits"] or "") > 6


def _six_digits(text: str) -> str:
    """Return a time with all digits of its microseconds; older Pythons read no others."""
    return _DIGITS.sub(lambda digits: f"{digits[0]:0<7}", text)


def _duration_of(sign: str, seconds: str | None, **larger: str | None) -> datetime.timedelta:
    whole, _, digits = (seconds or "0").partition(".")
    counts = {unit: int(count or 0) for unit, count in larger.items()}
    found = datetime.timedelta(seconds=int(whole), microseconds=int(f"{digits:0<6}"), **counts)
    return -found if sign else found


def filters_of(texts: Iterable[str]) -> Filters:
    """Return what all comparisons of a command line ask for, as the functions take it."""
    terms = map(parse_filter, texts)
    # As the functions spell them: "is" and "is not" None.
    return [(name, operator.removesuffix(" null"), value) for name, operator, value in terms]


def read_schema(path: str) -> pa.Schema:
    """Return the schema in a file of columns and types, as ``tfrecord-io schema`` prints them."""
    try:
        # Names may hold what else `str.splitlines` takes for the end of a line.
        lines = Path(path).read_text(encoding="utf-8").split("\n")
        return schema_from_json([json.loads(line) for line in lines if line.strip()])
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise ValueError(
            f"{path} holds no schema: {getattr(error, 'msg', error)}; it must hold a line such as "
            '{"name": "x", "type": "int64"} for each column, as \'tfrecord-io schema --json\' '
            "writes it"
        ) from error


def parse_limits(texts: Iterable[str]) -> Limits | None:
    """Return the limits of all ``name=value`` of a command line."""
    settings = dict(map(parse_setting, texts))
    unknown = set(settings) - set(Limits.__slots__)
    if unknown:
        raise ValueError(f"there is no limit {min(unknown)!r}, only {_LIMITS}")
    return Limits(**settings) if settings else None


def file_name(text: str) -> str:
    """Return the name of what is to be written, unless it stands for standard output elsewhere."""
    if text == "-":
        raise ValueError(
            "'-' is no target: what is written is a file or folder, not standard output, to which "
            "'tfrecord-io cat' writes rows; './-' is a file of that name"
        )
    return text


def source_names(texts: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of what is to be read, unless one stands for standard input elsewhere."""
    if "-" in texts:
        raise ValueError(
            "'-' is no source: what is read is files and folders, not standard input, whose bytes "
            "are to be written to a file first; './-' is a file of that name"
        )
    return texts


_LIMITS = ", ".join(Limits.__slots__)
_COMPRESSIONS = ", ".join(get_args(Compression))


# --- options --------------------------------------------------------------------------------------


def parsed(parse_words: Callable[[Any], Any]) -> Callable[..., Any]:
    """Return an option's callback that gives its words to a function."""

    def callback(ctx: click.Context, param: click.Parameter, value: Any) -> Any:
        if value is None:
            return None
        try:
            return parse_words(value)
        except ValueError as error:
            raise click.BadParameter(str(error), ctx, param) from error

    return callback


def together(*options: Callable[[Function], Function]) -> Callable[[Function], Function]:
    """Return several options as one decorator, in their order."""

    def decorate(function: Function) -> Function:
        return functools.reduce(lambda f, option: option(f), reversed(options), function)

    return decorate


paths = click.argument("path", nargs=-1, required=True, callback=parsed(source_names))
sources = click.argument("source", nargs=-1, required=True, callback=parsed(source_names))
target = click.argument("target", callback=parsed(file_name))
html = click.option(
    "--html",
    metavar="FILE",
    callback=parsed(file_name),
    help="Write a page with plots instead.",
)
as_json = click.option("--json", "is_json", is_flag=True, help="JSON lines on a terminal too.")


def _choice(
    name: str, choices: object, default: str, help_text: str | None = None
) -> Callable[[Function], Function]:
    """Return an option whose value is one of a literal type's."""
    return click.option(
        name,
        type=click.Choice(get_args(choices)),
        default=default,
        show_default=True,
        help=help_text,
    )


def _storage_options(name: str, help_text: str) -> Callable[[Function], Function]:
    return click.option(
        f"--{name.replace('_', '-')}",
        f"{name}s",
        metavar="NAME=VALUE",
        multiple=True,
        callback=parsed(lambda texts: dict(map(parse_setting, texts)) or None),
        help=help_text,
    )


storage_options = _storage_options(
    "storage_option",
    "For the file system, such as anon=true, profile=work or endpoint_url=http://minio:9000; "
    'nested ones are JSON: client_kwargs=\'{"region_name": "eu-west-1"}\'. May be repeated. '
    "Settings in the environment, such as AWS_PROFILE, count as well.",
)
target_storage_options = _storage_options(
    "target_storage_option", "The same, for the target, if not those of a source like it."
)
codec = click.option(
    "--codec",
    type=click.Choice(get_args(CodecName)),
    default="auto",
    help="Which codec decodes. Default: TFRECORD_IO_CODEC, else the native one if it was built.",
)
limits = click.option(
    "--limit",
    "limits",
    metavar="NAME=VALUE",
    multiple=True,
    callback=parsed(parse_limits),
    help=f"Raise what files may demand: {_LIMITS}.",
)
threads = click.option(
    "--threads",
    type=click.IntRange(min=1),
    help="Default: one for each core, at least four for a remote store.",
)
record_type = _choice("--record-type", RecordType, "Example")
on_corrupt = _choice("--on-corrupt", OnCorrupt, "raise", "What becomes of damaged files.")
columns = click.option(
    "--columns",
    metavar="NAME,...",
    callback=parsed(parse_names),
    help="Only these columns, in this order.",
)
filters = click.option(
    "--filter",
    "filters",
    metavar="COMPARISON",
    multiple=True,
    callback=parsed(filters_of),
    help="Only rows like this: 'month = 1', 'dest in (LAX, SFO)', 'x is null'. "
    "May be repeated; all must hold. Times in a column with a zone end in Z; times of a day are "
    "like 08:30:00, durations like P1DT2H3M4.5S, and a text of such a form stands in quotes.",
)
schema = click.option(
    "--schema",
    metavar="FILE",
    callback=parsed(read_schema),
    help="Columns and types, in a file like the output of 'tfrecord-io schema --json'.",
)
payloads = click.option(
    "--record-type",
    type=click.Choice(get_args(RecordType)),
    help="Default: what the manifest says, else Example.",
)
sample_files = click.option(
    "--sample-files",
    type=click.IntRange(min=1),
    metavar="N",
    help="Look for columns and types in N files instead of in all.",
)

#: Where the files are, and how they are opened.
access = together(
    click.option(
        "--compression",
        default="infer",
        metavar="NAME",
        help=f"{_COMPRESSIONS} or none. Default: look at each file.",
    ),
    storage_options,
    limits,
    codec,
    threads,
)

#: What is read from them.
selection = together(
    columns,
    filters,
    schema,
    click.option("--path-column", metavar="NAME", help="Add a column with each row's file."),
)
records = together(record_type, on_corrupt, sample_files)

#: What is written.
formats = together(
    click.option("--from-format", metavar="NAME", help="Default: told by names, then by content."),
    click.option("--to-format", metavar="NAME", help="Default: told by the target's name."),
)
saving = together(
    _choice("--mode", SaveMode, "error", "What becomes of data that are there."),
    click.option(
        "--compression",
        metavar="NAME",
        help=f"Of the target's files: {_COMPRESSIONS} or none.",
    ),
)
writing = together(
    click.option(
        "--partition-by",
        metavar="NAME,...",
        default="",
        callback=parsed(parse_names),
        help="Columns that become key=value folders.",
    ),
    saving,
    click.option("--compression-level", type=int, help="Default: that of the compression."),
    click.option(
        "--max-records-per-file",
        type=click.IntRange(min=1),
        metavar="N",
        help="Begin another file after so many rows.",
    ),
    _choice(
        "--float64",
        Float64Mode,
        "warn",
        "What to do about values that TFRecord's 32-bit floats cannot hold exactly.",
    ),
    _choice(
        "--empty-partition",
        EmptyPartition,
        "error",
        "What to do about empty strings in partition columns.",
    ),
)
