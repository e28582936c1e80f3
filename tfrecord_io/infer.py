"""From what was seen in records to a schema.

An `Observation` is what a codec's observer saw in one run of records. Observations of consecutive
runs merge (`merge` is associative); whoever infers in parallel merges in the order of the files, so
the schema does not depend on which task finished first. `to_schema` turns the last one into Arrow
types by the rules of docs/format.md.
"""

from __future__ import annotations

import functools
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

import pyarrow as pa

from tfrecord_io.errors import InferenceError, InferenceWarning, LimitExceededError, warn
from tfrecord_io.options import Limits

Kind = Literal["int64", "float", "bytes"]

_LIST_NAMES: dict[str, str] = {"int64": "Int64List", "float": "FloatList", "bytes": "BytesList"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """The first place at which something was seen.

    Attributes
    ----------
    offset, record : int
        Of the record in its file, see `tfrecord_io.errors.TFRecordError`.
    path : str or None
        The file; codecs know none, whoever reads the file adds it.
    """

    offset: int
    record: int
    path: str | None = None

    def __str__(self) -> str:
        place = f"record {self.record}, byte offset {self.offset}"
        return f"{self.path}, {place}" if self.path is not None else place


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureObservation:
    """What was seen of one name in one place (context or feature lists).

    Attributes
    ----------
    name : str
        The feature's name.
    is_feature_list : bool
        Whether it stands in the feature lists; an Example's features count as context.
    first : Sighting
        Where the name was seen first, kind or no kind.
    is_single : bool
        Whether every Feature with a kind had exactly one value (in feature lists: of no meaning).
    is_utf8 : bool
        Whether every bytes value seen is valid UTF-8.
    with_values : mapping of kind to Sighting
        The kinds seen with at least one value.
    empty : mapping of kind to Sighting
        The kinds seen set but without values. Both mappings are in the order of first sight.
    """

    name: str
    is_feature_list: bool
    first: Sighting
    is_single: bool = True
    is_utf8: bool = True
    with_values: Mapping[Kind, Sighting] = field(default_factory=dict)
    empty: Mapping[Kind, Sighting] = field(default_factory=dict)

    @property
    def traits(self) -> Hashable:
        """What was seen, but for where."""
        kinds = frozenset(self.with_values), frozenset(self.empty)
        return (self.name, self.is_feature_list, self.is_single, self.is_utf8, *kinds)

    def placed(self, path: str | None, first_record: int) -> FeatureObservation:
        """Return this as seen in a file, if it is known, in a run that begins with that record."""
        if path is None and first_record == 0:
            return self

        def place(seen: Sighting) -> Sighting:
            return replace(seen, path=path or seen.path, record=seen.record + first_record)

        return replace(
            self,
            first=place(self.first),
            with_values={kind: place(seen) for kind, seen in self.with_values.items()},
            empty={kind: place(seen) for kind, seen in self.empty.items()},
        )

    def adds_to(self, other: FeatureObservation) -> bool:
        """Whether this shows something that `other`, of the same name and place, does not."""
        return (
            self.is_single < other.is_single
            or self.is_utf8 < other.is_utf8
            or not self.with_values.keys() <= other.with_values.keys()
            or not self.empty.keys() <= other.empty.keys()
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What was seen in a run of records, features in the order of first sight on the wire.

    Within a record the context comes before the feature lists.

    Attributes
    ----------
    records : int
        How many.
    features : tuple of FeatureObservation
        What they hold. The sightings of one run know no file, and count records from where it
        begins.
    path : str or None
        The file of a run.
    first_record : int
        Which of the file's records it begins with. `merge` gives both to the sightings that it
        keeps, which of many runs are few, and has none itself.
    traits : frozenset of hashable
        What was seen of each feature of a run, but for where, in a form of the codec's own. A run
        whose traits earlier ones have adds nothing to them.
    """

    records: int = 0
    features: tuple[FeatureObservation, ...] = ()
    path: str | None = None
    first_record: int = 0
    traits: frozenset[Hashable] = field(default=frozenset(), compare=False, repr=False)


def _merge_feature(a: FeatureObservation, b: FeatureObservation) -> FeatureObservation:
    return replace(
        a,
        is_single=a.is_single and b.is_single,
        is_utf8=a.is_utf8 and b.is_utf8,
        with_values=_first_seen(a.with_values, b.with_values),
        empty=_first_seen(a.empty, b.empty),
    )


def _first_seen(a: Mapping[Kind, Sighting], b: Mapping[Kind, Sighting]) -> Mapping[Kind, Sighting]:
    return {**a, **{kind: sighting for kind, sighting in b.items() if kind not in a}}


def _merge_two(a: Observation, b: Observation) -> Observation:
    """Merge a run into those before it, which are merged already."""
    if not b.features:
        return replace(a, records=a.records + b.records)
    merged = {(f.is_feature_list, f.name): f for f in a.features}
    for feature in b.features:
        key = (feature.is_feature_list, feature.name)
        seen = merged.get(key)
        if seen is None or feature.adds_to(seen):
            placed = feature.placed(b.path, b.first_record)
            merged[key] = placed if seen is None else _merge_feature(seen, placed)
    return Observation(records=a.records + b.records, features=tuple(merged.values()))


def merge(observations: Iterable[Observation], *, limits: Limits = Limits()) -> Observation:
    """Merge observations of consecutive runs of records, given in the order of the records.

    Raises
    ------
    LimitExceededError
        More distinct names than ``limits.max_features``; with the place of the first one too many.
    """
    merged = functools.reduce(_merge_two, observations, Observation())
    if len(merged.features) > limits.max_features:
        over = merged.features[limits.max_features].first
        raise LimitExceededError(
            f"the records have {len(merged.features)} distinct feature names, max_features is "
            f"{limits.max_features}; raise max_features, or give a schema",
            path=over.path,
            offset=over.offset,
            record=over.record,
        )
    return merged


def to_schema(observation: Observation) -> pa.Schema:
    """Return the schema that the records seen have.

    Returns
    -------
    pyarrow.Schema
        One nullable field a name: ``int64``, ``float32``, ``float64``, ``string``, ``binary`` or
        ``null`` for features, lists of these where a record has no or several values, lists of
        lists for feature lists.

    Raises
    ------
    InferenceError
        Bytes and numbers under one name, or one name in the context and in the feature lists.

    Warns
    -----
    InferenceWarning
        Names with int64 and float values (read as float64), and names only ever seen without a
        kind (read as nulls).
    """
    places: dict[str, FeatureObservation] = {}
    fields = []
    widened = []
    kindless = []
    for feature in observation.features:
        other = places.setdefault(feature.name, feature)
        if other is not feature:
            raise InferenceError(
                f"feature {feature.name!r} stands in the context ({_at(other, feature, False)}) "
                f"and in the feature lists ({_at(other, feature, True)}); give a schema that reads "
                "it from one of them",
                feature=feature.name,
            )
        leaf, was_widened = _leaf(feature)
        if was_widened:
            widened.append(feature.name)
        if not feature.with_values and not feature.empty:
            kindless.append(feature.name)
        fields.append(pa.field(feature.name, _shape(feature, leaf)))
    if widened:
        text = f"int64 and float values are mixed, read as float64: {_names(widened)}"
        warn(text, InferenceWarning)
    if kindless:
        text = f"only ever seen without a kind, read as nulls: {_names(kindless)}"
        warn(text, InferenceWarning)
    return pa.schema(fields)


def _leaf(feature: FeatureObservation) -> tuple[pa.DataType, bool]:
    kinds = feature.with_values
    if not kinds and feature.empty:
        # Of empty lists alone the first seen gives the type; an empty list of any kind fits it.
        kinds = dict([next(iter(feature.empty.items()))])
    if "bytes" in kinds and len(kinds) > 1:
        number: Kind = "int64" if "int64" in kinds else "float"
        raise InferenceError(
            f"feature {feature.name!r} is a {_LIST_NAMES['bytes']} ({kinds['bytes']}) and a "
            f"{_LIST_NAMES[number]} ({kinds[number]}); no column holds both: rewrite one of them, "
            "or leave the feature out by giving a schema",
            feature=feature.name,
        )
    if "bytes" in kinds:
        return (pa.string() if feature.is_utf8 else pa.binary()), False
    if len(kinds) == 2:
        return pa.float64(), True
    if "int64" in kinds:
        return pa.int64(), False
    if "float" in kinds:
        return pa.float32(), False
    return pa.null(), False


def _shape(feature: FeatureObservation, leaf: pa.DataType) -> pa.DataType:
    if feature.is_feature_list:
        return pa.list_(pa.list_(leaf))
    return leaf if feature.is_single else pa.list_(leaf)


def _at(a: FeatureObservation, b: FeatureObservation, is_feature_list: bool) -> Sighting:
    return a.first if a.is_feature_list is is_feature_list else b.first


def _names(names: list[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:20])
    return f"{shown} and {len(names) - 20} more" if len(names) > 20 else shown
