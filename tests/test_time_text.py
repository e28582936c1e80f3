"""Texts of times: of all years as NumPy has them, and the same times again."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfrecord_io.time_text import far_times, time_texts


@pytest.mark.parametrize(
    ("t", "value", "text"),
    [
        # LocalDate.MIN and MAX of Java are farther; these are what its toString gives.
        (pa.date32(), 2**31 - 1, "+5881580-07-11"),
        (pa.date32(), -(2**31), "-5877641-06-23"),
        (pa.date32(), 2_932_896, "9999-12-31"),
        (pa.date32(), 2_932_897, "+10000-01-01"),
        (pa.date32(), -719_528, "0000-01-01"),
        (pa.date32(), -719_529, "-0001-12-31"),
        (pa.timestamp("s", "Europe/Berlin"), 10**12, "+33658-09-27 01:46:40Z"),
        (pa.timestamp("s", "Europe/Berlin"), -5_364_662_608, "1799-12-31 23:56:32Z"),
        (pa.time64("ns"), 86_399_999_999_999, "23:59:59.999999999"),
    ],
)
def test_texts(t, value, text):
    number = pa.int32() if t.bit_width == 32 else pa.int64()
    assert time_texts(pa.array([value, None], number).view(t)) == [text, None]


@given(
    st.sampled_from(["D", "s", "ms", "us", "ns"]),
    st.lists(st.none() | st.integers(-(2**63) + 10**9, 2**63 - 1)),
    st.integers(0, 62),
)
def test_all_years_there_and_back(unit, values, less):
    # Arrow does not read the first second of nanoseconds.
    bits = less + 32 if unit == "D" else less
    values = [None if x is None else x >> bits for x in values]
    t, number = (pa.date32(), pa.int32()) if unit == "D" else (pa.timestamp(unit), pa.int64())
    times = pa.array(values, number).view(t)
    texts = time_texts(times)
    for value, text in zip(values, texts, strict=True):
        # NumPy knows no signs of years behind 9999, and fills others up less.
        expected = None if value is None else str(np.datetime64(value, unit)).replace("T", " ")
        sign = "" if text is None else text[0] if text[0] in "+-" else ""
        assert text is None or text.lstrip("+-").lstrip("0") == expected.lstrip("+-").lstrip("0")
        assert expected is None or (sign == "-") == expected.startswith("-")
    assert far_times(pa.array(texts, pa.string()), t).cast(t).equals(times)
