"""TFRecord as a table format: Arrow, Dask and Spark tables in and out of TFRecord files."""

from __future__ import annotations

__version__ = "0.1.0"
