"""Statistics as one HTML page that needs nothing else: no script, no network."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from typing import Any

import pyarrow as pa
import pyarrow.types as pat

from tfrecord_io.statistics.result import (
    FeatureStatistics,
    NumberStatistics,
    Statistics,
    image_kind,
    text_of,
    typed,
)

_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 62rem; padding: 0 1rem;
       color: #1b1f24; background: #fff; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.1rem; margin: 0; }
section { border-top: 1px solid #d8dee4; padding: 1rem 0; }
.kind { color: #57606a; font-weight: normal; font-size: .9rem; }
.parts { display: flex; flex-wrap: wrap; gap: 1rem 2.5rem; margin-top: .6rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .9rem; }
td, th { padding: .1rem .8rem .1rem 0; text-align: left; vertical-align: top; font-weight: normal; }
td.n { text-align: right; } th { color: #57606a; }
a { color: inherit; } caption { text-align: left; color: #57606a; font-size: .85rem; }
figure { margin: 0; width: 300px; } svg rect { fill: #2f6fab; }
figcaption { color: #57606a; font-size: .7rem; display: flex; justify-content: space-between;
             gap: 1rem; } figcaption :last-child { text-align: right; }
.bar { display: inline-block; height: .6rem; background: #2f6fab; }
.images { display: flex; gap: .5rem; flex-wrap: wrap; } .images img { height: 96px; }
"""

#: How a page begins.
PAGE_START = "<!DOCTYPE html>"

_PLOT_WIDTH, _PLOT_HEIGHT = 300, 90
_BAR_WIDTH = 120
_SHOWN_CHARACTERS = 60
#: Of lengths of lists and of strings.
_COUNTS = pa.int64()
#: Larger images would make a page that no browser likes.
_MOST_IMAGE_BYTES = 512 * 1024


def html_page(statistics: Statistics, title: str) -> str:
    """Return statistics as a page.

    Parameters
    ----------
    statistics : Statistics
        Of `tfrecord_io.compute_statistics`.
    title : str
        What they are of.

    Returns
    -------
    str
        HTML. What came from files stands in it as text, or as images in ``data:`` URLs.
    """
    name = escape(title)
    size = _size(statistics.bytes)
    files = "1 file" if statistics.files == 1 else f"{statistics.files:,} files"
    body = "".join(_section(index, feature) for index, feature in enumerate(statistics.features))
    return (
        f"{PAGE_START}\n"
        f'<html lang="en"><head><meta charset="utf-8"><title>{name}</title>'
        f"<style>{_STYLE}</style></head><body>\n"
        f"<h1>{name}</h1>\n"
        f"<p>{statistics.rows:,} rows in {files}, {size}</p>\n"
        f"{_overview(statistics.features)}\n{body}</body></html>\n"
    )


def _overview(features: Sequence[FeatureStatistics]) -> str:
    rows = (
        f'<tr><td><a href="#f{index}">{escape(feature.name)}</a></td>'
        f"<td>{escape(feature.type)}</td>"
        f'<td class="n">{feature.missing_share:.1%}</td>'
        f'<td class="n">{"" if feature.distinct is None else f"{feature.distinct:,}"}</td></tr>'
        for index, feature in enumerate(features)
    )
    heading = "<tr><th>feature</th><th>type</th><th>missing</th><th>distinct, about</th></tr>"
    return f"<table>{heading}{''.join(rows)}</table>"


def _section(index: int, feature: FeatureStatistics) -> str:
    where = "partition folders" if feature.is_partition else feature.kind or "no values"
    parts = "".join(f"<div>{part}</div>" for part in _parts(feature))
    return (
        f'<section id="f{index}"><h2>{escape(feature.name)} '
        f'<span class="kind">{escape(feature.type)} &middot; {escape(where)}</span></h2>'
        f'<div class="parts">{parts}</div></section>\n'
    )


def _parts(feature: FeatureStatistics) -> Iterator[str]:
    facts = [("rows", f"{feature.rows:,}")]
    facts.append(("missing", f"{feature.missing:,} ({feature.missing_share:.1%})"))
    if feature.distinct is not None:
        facts.append(("distinct, about", f"{feature.distinct:,}"))
    yield _facts("", facts)
    if feature.values is not None:
        yield from _of_numbers("values", feature.values, feature.value_type)
    if feature.frequent:
        yield _frequent(feature)
    if feature.byte_lengths is not None:
        yield from _of_numbers("bytes of a value", feature.byte_lengths)
    names = ("values of a row",) if len(feature.lengths) == 1 else ("steps", "values of a step")
    for name, lengths in zip(names, feature.lengths, strict=False):
        yield from _of_numbers(name, lengths)
    if images := "".join(_images(feature.examples)):
        yield f'<div class="images">{images}</div>'


def _of_numbers(name: str, numbers: NumberStatistics, t: pa.DataType = _COUNTS) -> Iterator[str]:
    quantiles = {"min": numbers.min, **numbers.quantiles, "max": numbers.max}
    facts = [("count", f"{numbers.count:,}")]
    if numbers.nans:
        facts.append(("NaN", f"{numbers.nans:,}"))
    facts += [(key, _number(value)) for key, value in quantiles.items() if value is not None]
    if numbers.mean is not None:
        facts.append(("mean", _number(numbers.mean)))
    yield _facts(name, facts)
    if len(numbers.histogram) > 1:
        yield _plot(name, numbers.histogram, t)


def _facts(name: str, facts: Iterable[tuple[str, str]]) -> str:
    rows = (f'<tr><th>{escape(k)}</th><td class="n">{escape(v)}</td></tr>' for k, v in facts)
    return f"<table><caption>{escape(name)}</caption>{''.join(rows)}</table>"


def _plot(name: str, histogram: Sequence[tuple[float, float, float]], t: pa.DataType) -> str:
    width = _PLOT_WIDTH / len(histogram)
    tallest = max(share for _, _, share in histogram)
    bars = "".join(
        f'<rect x="{index * width:.1f}" y="{_PLOT_HEIGHT * (1 - share / tallest):.1f}" '
        f'width="{width - 1:.1f}" height="{_PLOT_HEIGHT * share / tallest:.1f}">'
        f"<title>{_edge(low, t)} to {_edge(high, t)}: {share:.1%}</title></rect>"
        for index, (low, high, share) in enumerate(histogram)
    )
    return (
        f'<figure><svg width="{_PLOT_WIDTH}" height="{_PLOT_HEIGHT}" role="img" '
        f'aria-label="histogram of {escape(name)}">{bars}</svg><figcaption>'
        f"<span>{_edge(histogram[0][0], t)}</span><span>{_edge(histogram[-1][1], t)}</span>"
        "</figcaption></figure>"
    )


def _frequent(feature: FeatureStatistics) -> str:
    most = feature.frequent[0].count
    rows = []
    for one in feature.frequent:
        text = one.value if isinstance(one.value, str) else one.value.hex(" ")
        if len(text) > _SHOWN_CHARACTERS:
            text = text[: _SHOWN_CHARACTERS - 1] + "…"
        count = f"{one.count:,}" if one.count == one.at_most else f"{one.count:,} or more"
        bar = f'<span class="bar" style="width:{_BAR_WIDTH * one.count / most:.0f}px"></span>'
        shown = escape(text) or '<span class="kind">empty</span>'
        rows.append(f'<tr><td>{shown}</td><td class="n">{count}</td><td>{bar}</td></tr>')
    return f"<table><caption>most frequent</caption>{''.join(rows)}</table>"


def _images(values: Iterable[bytes]) -> Iterator[str]:
    for value in values:
        kind = image_kind(value)
        if kind is not None and len(value) <= _MOST_IMAGE_BYTES:
            data = base64.b64encode(value).decode()
            yield f'<img alt="" src="data:image/{kind};base64,{data}">'


def _edge(value: float, t: pa.DataType) -> str:
    return _number(typed(value, t) if pat.is_temporal(t) else value)


def _number(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return text_of(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:,.6g}"


def _size(count: int) -> str:
    size = float(count)
    for unit in ("bytes", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:,.0f} {unit}" if unit == "bytes" else f"{size:,.1f} {unit}"
        size /= 1000
    return f"{size:,.1f} TB"
