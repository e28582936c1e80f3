"""Is there a serial order of writes and reads that explains what everybody saw?

Each operation takes effect at once at some step between its begin and its end, if it takes effect.
The search is that of Wing and Gong, for the few operations of a schedule.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

Row: TypeAlias = tuple[int, int]

#: The rows of a data set as (partition, value), or None where there is no data set.
State: TypeAlias = frozenset[Row] | None

Outcome: TypeAlias = Literal["applied", "refused", "unknown"]


@dataclass(frozen=True, kw_only=True)
class Write:
    """A job.

    Attributes
    ----------
    end : int or None
        None if it may still take effect whenever somebody recovers it.
    outcome : {"applied", "refused", "unknown"}
        What the job was told; a refused one must have no effect.
    """

    name: str
    mode: str
    rows: frozenset[Row]
    begin: int
    end: int | None
    outcome: Outcome


@dataclass(frozen=True, kw_only=True)
class Read:
    """What a reader saw."""

    name: str
    state: State
    begin: int
    end: int


Operation: TypeAlias = Write | Read


def after(state: State, write: Write) -> State | Literal["impossible"]:
    """Return what a write makes of a state."""
    if write.mode == "error":
        return write.rows if state is None else "impossible"
    if write.mode == "ignore":
        return write.rows if state is None else state
    if write.mode == "overwrite" or state is None:
        return write.rows
    if write.mode == "append":
        return state | write.rows
    written = {partition for partition, _ in write.rows}
    return frozenset(row for row in state if row[0] not in written) | write.rows


def explain(operations: Iterable[Operation], last: State) -> list[str] | None:
    """Return the names in an order that explains all, ending in `last`; None if there is none."""
    doing = [one for one in operations if not (isinstance(one, Write) and one.outcome == "refused")]
    seen: set[tuple[frozenset[int], State]] = set()

    def search(left: frozenset[int], state: State, order: list[str]) -> list[str] | None:
        if not left:
            return order if state == last else None
        if (left, state) in seen:
            return None
        seen.add((left, state))
        first_end = min((_end(doing[index]) for index in left), default=0.0)
        for index in sorted(left):
            one = doing[index]
            if one.begin > first_end:
                continue
            rest = left - {index}
            if isinstance(one, Read):
                found = search(rest, state, [*order, one.name]) if one.state == state else None
            else:
                found = None
                new = after(state, one)
                if new != "impossible":
                    found = search(rest, new, [*order, one.name])
                if found is None and one.outcome == "unknown":
                    found = search(rest, state, order)
            if found is not None:
                return found
        return None

    return search(frozenset(range(len(doing))), None, [])


def _end(operation: Operation) -> float:
    return float("inf") if operation.end is None else operation.end


def describe(operations: Sequence[Operation], last: State) -> str:
    """Return what happened, as text for a failed test."""
    lines = [f"{one}" for one in sorted(operations, key=lambda one: one.begin)]
    return "\n".join([*lines, f"at the end: {sorted(last) if last is not None else None}"])
