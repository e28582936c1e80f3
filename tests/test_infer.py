from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfrecord_io.errors import InferenceError, InferenceWarning, LimitExceededError
from tfrecord_io.infer import FeatureObservation, Observation, Sighting, merge, to_schema
from tfrecord_io.options import Limits

ONE = Sighting(offset=0, record=0)
TWO = Sighting(offset=100, record=1)


def feature(name: str = "x", *, in_lists: bool = False, **rest: Any) -> FeatureObservation:
    return FeatureObservation(name=name, is_feature_list=in_lists, first=ONE, **rest)


def schema_of(*features: FeatureObservation) -> pa.Schema:
    return to_schema(Observation(records=2, features=features))


@pytest.mark.parametrize(
    ("seen", "t"),
    [
        (feature(with_values={"int64": ONE}), pa.int64()),
        (feature(with_values={"float": ONE}), pa.float32()),
        (feature(with_values={"bytes": ONE}), pa.string()),
        (feature(with_values={"bytes": ONE}, is_utf8=False), pa.binary()),
        (feature(with_values={"int64": ONE}, is_single=False), pa.list_(pa.int64())),
        (feature(with_values={"bytes": ONE}, is_single=False), pa.list_(pa.string())),
        (feature(empty={"float": ONE}, is_single=False), pa.list_(pa.float32())),
        # The kinds of empty lists count for nothing beside values, and the first among themselves.
        (
            feature(with_values={"int64": TWO}, empty={"bytes": ONE}, is_single=False),
            pa.list_(pa.int64()),
        ),
        (feature(empty={"bytes": ONE, "int64": TWO}, is_single=False), pa.list_(pa.string())),
        (feature(in_lists=True, with_values={"float": ONE}), pa.list_(pa.list_(pa.float32()))),
        (feature(in_lists=True, empty={"int64": ONE}), pa.list_(pa.list_(pa.int64()))),
    ],
)
def test_types(seen: FeatureObservation, t: pa.DataType) -> None:
    assert schema_of(seen) == pa.schema([("x", t)])


def test_no_records_and_no_features() -> None:
    assert to_schema(Observation()) == pa.schema([])
    assert to_schema(Observation(records=3)) == pa.schema([])


def test_the_order_is_that_of_first_sight() -> None:
    seen = [feature(name, with_values={"int64": ONE}) for name in "zam"]
    assert schema_of(*seen).names == ["z", "a", "m"]


def test_int64_and_float_are_float64() -> None:
    with pytest.warns(InferenceWarning, match="float64: 'x'"):
        schema = schema_of(feature(with_values={"int64": ONE, "float": TWO}, is_single=False))
    assert schema == pa.schema([("x", pa.list_(pa.float64()))])


@pytest.mark.parametrize("in_lists", [False, True])
def test_without_a_kind(in_lists: bool) -> None:
    with pytest.warns(InferenceWarning, match="without a kind, read as nulls: 'x'"):
        schema = schema_of(feature(in_lists=in_lists))
    assert schema.field("x").type == (pa.list_(pa.list_(pa.null())) if in_lists else pa.null())


@pytest.mark.parametrize("number", ["int64", "float"])
def test_bytes_with_numbers(number: Any) -> None:
    seen = feature(with_values={"bytes": ONE, number: TWO}).placed("part-1", 0)
    with pytest.raises(InferenceError) as caught:
        schema_of(seen)
    assert caught.value.feature == "x"
    text = str(caught.value)
    for part in ("BytesList", "Int64List" if number == "int64" else "FloatList"):
        assert part in text
    for sighting in (ONE, TWO):
        assert f"part-1, record {sighting.record}, byte offset {sighting.offset}" in text


def test_a_name_in_both_places() -> None:
    in_context = feature(with_values={"int64": ONE})
    in_lists = replace(feature(in_lists=True), first=TWO)
    text = rf"context \({ONE}\) and in the feature lists \({TWO}\)"
    for both in ((in_context, in_lists), (in_lists, in_context)):
        with pytest.raises(InferenceError, match=text) as caught:
            schema_of(*both)
        assert caught.value.feature == "x"


@pytest.mark.parametrize(("count", "more"), [(20, ""), (21, " and 1 more"), (30, " and 10 more")])
def test_warnings_name_twenty_features(count: int, more: str) -> None:
    names = [f"x{index}" for index in range(count)]
    shown = ", ".join(map(repr, names[:20]))
    with pytest.warns(InferenceWarning, match=f"read as nulls: {shown}{more}$"):
        schema_of(*map(feature, names))


@pytest.mark.parametrize("order", [1, -1])
def test_one_run_makes_a_list_or_binary_of_all(order: int) -> None:
    single = feature(with_values={"bytes": ONE})
    for odd, t in (
        (replace(single, is_single=False), pa.list_(pa.string())),
        (replace(single, is_utf8=False), pa.binary()),
    ):
        runs = [Observation(records=1, features=(one,)) for one in (single, odd, single)]
        assert to_schema(merge(runs[:2][::order])) == pa.schema([("x", t)])
        assert to_schema(merge(runs)) == pa.schema([("x", t)])


@pytest.mark.parametrize("order", [1, -1])
def test_lists_in_one_run_and_bytes_in_another(order: int) -> None:
    texts = feature(with_values={"bytes": ONE})
    seen = [replace(texts, is_single=False), replace(texts, is_utf8=False)][::order]
    merged = merge(Observation(records=1, features=(one,)) for one in seen)
    assert to_schema(merged) == pa.schema([("x", pa.list_(pa.binary()))])


def test_too_many_names() -> None:
    runs = [
        Observation(records=1, features=(feature(name),), path=f"p{index}", first_record=index)
        for index, name in enumerate("abc")
    ]
    assert len(merge(runs, limits=Limits(max_features=3)).features) == 3
    for most in (1, 2):
        text = f"have 3 distinct feature names, max_features is {most}; raise max_features"
        with pytest.raises(LimitExceededError, match=text) as caught:
            merge(runs, limits=Limits(max_features=most))
        error = caught.value
        assert (error.path, error.offset, error.record) == (f"p{most}", 0, most)


def test_sightings_tell_where_their_run_stands() -> None:
    first = Observation(records=5, features=(feature(with_values={"int64": ONE}),), path="p")
    second = Observation(
        records=2,
        features=(feature(with_values={"int64": ONE, "float": TWO}, empty={"float": TWO}),),
        path="p",
        first_record=5,
    )
    third = Observation(records=1, features=(feature("y", empty={"bytes": ONE}),), path="q")
    in_p, in_q = merge([first, second, third]).features
    assert in_p.first == Sighting(offset=0, record=0, path="p")
    assert in_p.with_values == {
        "int64": Sighting(offset=0, record=0, path="p"),
        "float": Sighting(offset=100, record=6, path="p"),
    }
    assert in_p.empty == {"float": Sighting(offset=100, record=6, path="p")}
    assert in_q.empty == {"bytes": Sighting(offset=0, record=0, path="q")}


@pytest.mark.parametrize("others", [{}, {"int64": TWO}])
@pytest.mark.parametrize("later", ["with_values", "empty"])
def test_a_kind_that_only_a_later_run_has(later: str, others: dict[str, Sighting]) -> None:
    known = {"with_values": {"int64": ONE}, "empty": {"int64": ONE}}
    more = {**known, later: {**others, "float": TWO}}
    runs = [Observation(records=1, features=(feature(**seen),)) for seen in (known, more)]
    (merged,) = merge(runs).features
    assert getattr(merged, later) == {"int64": ONE, "float": TWO}


kinds = st.dictionaries(
    st.sampled_from(["int64", "float", "bytes"]),
    st.builds(Sighting, offset=st.integers(0, 9), record=st.integers(0, 9)),
)
observed = st.builds(
    FeatureObservation,
    name=st.sampled_from("abc"),
    is_feature_list=st.booleans(),
    first=st.builds(Sighting, offset=st.integers(0, 9), record=st.integers(0, 9)),
    is_single=st.booleans(),
    is_utf8=st.booleans(),
    with_values=kinds,
    empty=kinds,
)
runs = st.builds(
    Observation,
    records=st.integers(0, 5),
    features=st.lists(observed, max_size=4, unique_by=lambda f: (f.is_feature_list, f.name)).map(
        tuple
    ),
    path=st.sampled_from([None, "p", "q"]),
    first_record=st.integers(0, 5),
)


def ordered(observation: Observation) -> Any:
    """An observation with the order of its mappings, which `==` leaves out."""
    orders = [(list(f.with_values.items()), list(f.empty.items())) for f in observation.features]
    return observation, orders


@given(runs, runs, runs)
def test_merging_is_associative(a: Observation, b: Observation, c: Observation) -> None:
    left = merge([merge([a, b]), c])
    assert ordered(left) == ordered(merge([a, merge([b, c])])) == ordered(merge([a, b, c]))
    assert left.records == a.records + b.records + c.records


@given(runs)
def test_the_empty_run_is_neutral(a: Observation) -> None:
    alone = ordered(merge([a]))
    assert ordered(merge([Observation(), a])) == ordered(merge([a, Observation()])) == alone
    assert ordered(merge([merge([a])])) == alone
    if a.path is None and not a.first_record:
        assert alone == ordered(a)


@given(runs)
def test_any_observation_has_a_schema_or_an_error(a: Observation) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InferenceWarning)
        try:
            schema = to_schema(a)
        except InferenceError as error:
            assert error.feature in [f.name for f in a.features]
        else:
            assert schema.names == [f.name for f in a.features]
