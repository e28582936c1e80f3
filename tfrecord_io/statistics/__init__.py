"""What a data set holds, feature by feature: one streaming pass, as numbers and as a page."""

from __future__ import annotations

from tfrecord_io.statistics.compute import compute_statistics
from tfrecord_io.statistics.page import html_page
from tfrecord_io.statistics.result import (
    FeatureStatistics,
    FrequentValue,
    NumberStatistics,
    Statistics,
)

__all__ = [
    "FeatureStatistics",
    "FrequentValue",
    "NumberStatistics",
    "Statistics",
    "compute_statistics",
    "html_page",
]
