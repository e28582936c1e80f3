"""What is measured of which workload, what it is compared with, and what it must reach."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from workloads import COMPRESSED

#: A worker's name (see `PEERS`) and one of its cases.
Run: TypeAlias = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Peer:
    """A worker process.

    Attributes
    ----------
    title : str
        As the results call it.
    module : str
        In the package `peers`.
    environment : {"ours", "tf", "tfx"}
        Whose interpreter runs it.
    cores : int
        How many it is pinned to.
    """

    title: str
    module: str
    environment: str
    cores: int = 1


PEERS: dict[str, Peer] = {
    "ours": Peer("tfrecord-io", "ours", "ours"),
    "tf": Peer("TensorFlow", "tf_data", "tf"),
    "tfx": Peer("tfx_bsl", "tfx_bsl_coders", "tfx"),
    "pypi": Peer("tfrecord (PyPI)", "pypi_tfrecord", "tf"),
    "ours, two cores": Peer("tfrecord-io, two cores", "ours", "ours", cores=2),
}

#: So slow, and so steady, that two rounds are enough.
SLOW: frozenset[Run] = frozenset({("pypi", "read"), ("tf", "write"), ("tf", "write_gzip")})


@dataclass(frozen=True, slots=True)
class Measure:
    """One line of the results.

    Attributes
    ----------
    title : str
        What is done.
    run : (str, str)
        Of which peer, and its case.
    against : (str, str) or None
        What it is compared with.
    target : float or None
        The ratio to reach.
    """

    title: str
    run: Run
    against: Run | None = None
    target: float | None = None


_DECODE = {"ctr": 8.0, "embedding": 5.0, "image": 2.0, "ragged": 8.0, "sequence": 4.0}
_ENCODE = {"ctr": 15.0, "embedding": 4.5, "image": 1.3, "ragged": 8.0}
_IMAGE_VIEWS = 4.0
_TWO_COLUMNS = 2.0
_INFERENCE = 1.0
_STATISTICS = 0.5
_TWO_THREADS = 1.8

#: What `scan` of a large file may hold.
SCAN_LIMIT_BYTES = 500 * 1000 * 1000


def measures(workload: str) -> tuple[Measure, ...]:
    """Return what is measured of a workload, in the order of the results."""
    parse, reach = ("tf", "parse"), _DECODE[workload]
    out = [
        Measure("decode", ("ours", "decode"), parse, reach),
        Measure("read_table", ("ours", "read_table"), parse, reach),
        Measure("scan", ("ours", "scan"), parse, reach),
    ]
    if workload == "image":
        for title, case in (
            ("decode, views", "decode_views"),
            ("read_table, views", "read_table_views"),
        ):
            out.append(Measure(title, ("ours", case), parse, _IMAGE_VIEWS))
    if workload == "ctr":
        for title, case in (
            ("decode, 2 cols", "decode"),
            ("read_table, 2 cols", "read_table"),
        ):
            run = ("ours", f"{case}_two")
            out.append(Measure(title, run, ("ours", case), _TWO_COLUMNS))
    out += [
        Measure("inference", ("ours", "observe"), ("ours", "decode"), _INFERENCE),
        Measure("infer_schema", ("ours", "infer_schema"), ("ours", "read_table"), _INFERENCE),
        Measure("statistics", ("ours", "statistics"), ("ours", "read_table"), _STATISTICS),
        Measure("frames and CRC only", ("ours", "frames")),
    ]
    encode = ("tfx", "encode") if workload in _ENCODE else None
    out += [
        Measure("encode", ("ours", "encode"), encode, _ENCODE.get(workload)),
        Measure("write_table", ("ours", "write_table"), ("tf", "write")),
    ]
    if workload == COMPRESSED:
        one, two = (("ours, two cores", f"write_table_gzip_{name}") for name in ("one", "two"))
        out += [
            Measure("read_table, gzip", ("ours", "read_table_gzip"), ("tf", "parse_gzip")),
            Measure("write_table, gzip", ("ours", "write_table_gzip_one"), ("tf", "write_gzip")),
            Measure("write_table, gzip, 2 threads", two, one),
        ]
    for case, target in (("read_table", _TWO_THREADS), ("scan", _TWO_THREADS), ("copy", None)):
        two, one = (("ours, two cores", f"{case}_{threads}") for threads in (2, 1))
        out.append(Measure(f"{case}, 2 threads", two, one, target))
    return tuple(out)


#: What each peer reads with.
READERS: dict[str, str] = {"ours": "decode", "tf": "parse", "tfx": "decode", "pypi": "read"}
#: What each peer writes with.
WRITERS: dict[str, str] = {"ours": "encode", "tf": "write", "tfx": "encode"}


#: Reading whose memory is measured, each in a process that did nothing before.
MEMORY: tuple[Run, ...] = (
    ("ours", "decode"),
    ("ours", "read_table"),
    ("ours", "scan"),
    ("tf", "parse"),
    ("tfx", "decode"),
    ("pypi", "read"),
)


def against_title(run: Run) -> str:
    """Return how the results call what a measure is compared with."""
    peer, case = run
    if peer == "ours":
        return case
    if peer == "ours, two cores":
        return "1 thread"
    titles = {"parse": "tf.data", "write": "tf.train"}
    return titles.get(case.removesuffix("_gzip"), PEERS[peer].title)


def runs(workload: str) -> list[Run]:
    """Return all that is to be run for a workload, each once."""
    out: dict[Run, None] = {}
    for measure in measures(workload):
        out[measure.run] = None
        if measure.against is not None:
            out[measure.against] = None
    for peer, case in (*READERS.items(), *WRITERS.items()):
        if (peer, case) != ("tfx", "encode") or workload in _ENCODE:
            out[peer, case] = None
    return list(out)
