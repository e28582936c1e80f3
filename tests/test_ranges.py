"""Ranges give a file's bytes in order, fetch no more ahead than they say, and notice a cut."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfrecord_io.errors import DatasetChangedError
from tfrecord_io.reading import ranges
from tfrecord_io.reading.ranges import Fetch, FirstRanges, Ranges

RANGE = 100
BEHIND = 10
DATA = bytes(index % 251 for index in range(1050))


@pytest.fixture(autouse=True, scope="module")
def small_ranges() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranges, "_RANGE_BYTES", RANGE)
        patch.setattr(ranges, "_RANGES_AHEAD", 4)
        patch.setattr(ranges, "_BEHIND_BYTES", BEHIND)
        patch.setattr(ranges, "_FILES_AHEAD_BYTES", 4 * RANGE)
        yield


class Store:
    """Holds one file, notes what is fetched, and answers when it is let to."""

    def __init__(self, data: bytes = DATA) -> None:
        self.data = data
        self.asked: list[tuple[int, int]] = []
        self.threads: set[int] = set()
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.changed = threading.Condition()

    def fetch(self, start: int, end: int) -> bytes:
        with self.changed:
            self.asked.append((start, end))
            self.threads.add(threading.get_ident())
            self.changed.notify_all()
        assert self.may_answer.wait(30)
        return self.data[start:end]

    def wait_for(self, count: int) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.asked) >= count, 30)


def rest(found: Ranges) -> bytes:
    return b"".join(iter(found.take, b""))


@given(
    size=st.integers(0, len(DATA)),
    start=st.integers(0, len(DATA)),
    stop=st.none() | st.integers(0, len(DATA)),
    step=st.none() | st.integers(1, 2 * RANGE),
    is_wanted=st.booleans(),
)
def test_all_bytes_come_in_order(
    size: int, start: int, stop: int | None, step: int | None, is_wanted: bool
) -> None:
    start = min(start, size)
    store = Store(DATA[:size])
    with contextlib.closing(Ranges(store.fetch, size, start=start, stop=stop)) as found:
        if is_wanted:
            found.reach_the_end()
        read = found.take if step is None else lambda: found.read(step)
        assert b"".join(iter(read, b"")) == DATA[start:size]
        assert read() == b""
    asked = sorted(store.asked)
    assert [end for _, end in asked[:-1]] == [begin for begin, _ in asked[1:]]
    assert all(0 < end - begin <= RANGE * 3 // 2 for begin, end in asked)


def test_a_small_file_is_one_request_and_no_thread() -> None:
    store = Store(DATA[:150])
    found = Ranges(store.fetch, 150)
    assert found.peek(7) == DATA[:7]
    assert found.peek(500) == DATA[:150]
    assert rest(found) == DATA[:150]
    assert store.asked == [(0, 150)]
    assert store.threads == {threading.get_ident()}
    found.close()


def test_four_ranges_are_under_way_at_a_time() -> None:
    store = Store()
    store.may_answer.clear()
    with contextlib.closing(Ranges(store.fetch, len(DATA))) as found:
        # All four are asked for although none is answered.
        store.wait_for(4)
        store.may_answer.set()
        # None is taken yet, so there is no room for a fifth.
        with store.changed:
            assert not store.changed.wait_for(lambda: len(store.asked) > 4, 0.2)
        assert found.take() == DATA[:RANGE]
        store.wait_for(5)
        assert sorted(store.asked) == [(at, at + RANGE) for at in range(0, 500, RANGE)]
        assert rest(found) == DATA[RANGE:]


def test_behind_the_stop_nothing_is_fetched_unasked() -> None:
    store = Store()
    with contextlib.closing(Ranges(store.fetch, len(DATA), start=50, stop=60)) as found:
        assert found.take() == DATA[50:70]
        assert store.asked == [(50, 70)]
        assert rest(found) == DATA[70:]
    # In growing steps.
    assert store.asked[1:5] == [(70, 80), (80, 100), (100, 140), (140, 220)]


def test_an_end_that_is_wanted_after_all_is_fetched_ahead() -> None:
    store = Store()
    with contextlib.closing(Ranges(store.fetch, len(DATA), start=50, stop=60)) as found:
        assert found.peek(7) == DATA[50:57]
        found.reach_the_end()
        assert found.take() == DATA[50:70]
        # Whoever has seen enough by now has fetched no more.
        assert store.asked == [(50, 70)]
        assert found.take() == DATA[70:170]
        store.wait_for(6)
        assert sorted(store.asked)[1:] == [(at, at + RANGE) for at in range(70, 570, RANGE)]
        assert rest(found) == DATA[170:]


def test_closing_waits_for_what_is_under_way() -> None:
    store = Store()
    store.may_answer.clear()
    found = Ranges(store.fetch, len(DATA))
    store.wait_for(4)
    threading.Timer(0.1, store.may_answer.set).start()
    found.close()
    assert store.may_answer.is_set()
    assert len(store.asked) == 4


def test_a_forked_process_does_not_wait_for_threads_of_its_parent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = Store()
    store.may_answer.clear()
    with contextlib.closing(Ranges(store.fetch, len(DATA))) as found:
        store.wait_for(4)
        with monkeypatch.context() as patch:
            patch.setattr(os, "getpid", lambda: 0)
            with pytest.raises(RuntimeError, match="begin to read in this process"):
                found.take()
        store.may_answer.set()
        assert rest(found) == DATA


def test_a_file_that_was_cut_is_an_error_in_its_place() -> None:
    store = Store(DATA[:250])
    with contextlib.closing(Ranges(store.fetch, len(DATA))) as found:
        assert found.take() == DATA[:100]
        assert found.take() == DATA[100:200]
        with pytest.raises(DatasetChangedError, match="ended before byte 300"):
            found.take()


def test_files_are_begun_ahead() -> None:
    stores = {name: Store() for name in range(10)}
    order = []
    with FirstRanges(lambda name: (stores[name].fetch, 20, len(DATA))) as first:
        for name in first.over(stores):
            order.append(name)
            if name == 0:
                # So many that they hold four ranges in all, and the next.
                for ahead in range(5):
                    stores[ahead].wait_for(1)
                assert not stores[5].asked
            begun = first.take(name)
            assert begun is not None
            assert first.take(name) is None
            found = Ranges(stores[name].fetch, len(DATA), start=20, first=begun)
            assert rest(found) == DATA[20:]
            found.close()
            assert stores[name].asked.count((20, 120)) == 1
    assert order == list(range(10))


def test_small_files_that_were_begun_are_few_and_end_with_the_last_that_is_read() -> None:
    store = Store()
    store.may_answer.clear()
    begun = []

    def begin(name: int) -> tuple[Fetch, int, int]:
        begun.append(name)
        return store.fetch, 0, 1

    with FirstRanges(begin) as first:
        assert next(first.over(range(100))) == 0
        # Sixteen, and one more to know that these are all that may wait.
        assert begun == list(range(17))
        store.wait_for(16)
        threading.Timer(0.1, store.may_answer.set).start()
    assert store.may_answer.is_set()


def test_what_needs_no_fetching_is_not_fetched() -> None:
    with FirstRanges[int](lambda name: None) as first:
        assert [(name, first.take(name)) for name in first.over([1, 2])] == [(1, None), (2, None)]
