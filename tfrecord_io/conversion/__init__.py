"""Conversion between TFRecord and other file formats; see `tfrecord_io.conversion.driver`."""

from __future__ import annotations

from tfrecord_io.conversion.driver import ConvertProgress, ConvertResult, convert

__all__ = ["ConvertProgress", "ConvertResult", "convert"]
