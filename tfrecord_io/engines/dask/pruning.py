"""Which files can have a row that a predicate of Dask's keeps, by the values of their folders.

Of ``frame[frame["day"] == "2026-01-05"]`` Dask's optimizer knows the predicate. Its own operations
are applied to the values of the folders, in the dtypes of the frame; so nothing is said again here
of what they mean, of nulls or of types. What hangs on other columns may be true.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from dask.dataframe.dask_expr._expr import (
    EQ,
    GE,
    GT,
    LE,
    LT,
    NE,
    And,
    Between,
    CombineFrame,
    Elemwise,
    Eval,
    Expr,
    Invert,
    Isin,
    IsNa,
    Map,
    NotNull,
    Or,
    Projection,
    Replace,
    ResetIndex,
    XOr,
    _DelayedExpr,
)

if TYPE_CHECKING:
    import pandas as pd

#: What is worked out on values of folders.
_COMPARISONS = (
    *(EQ, NE, LT, LE, GT, GE, And, Or, XOr),
    *(Between, Invert, Isin, IsNa, NotNull),
)

#: What Dask calls elementwise, though it counts the rows of a partition, or needs all of them.
_OF_PARTITIONS = (CombineFrame, Eval, ResetIndex)

#: What looks for its values among others, which may be those of a whole column.
_LOOKING_UP = (Isin, Map, Replace)


class _UnknownError(Exception):
    """The values of folders do not tell."""


def possible(predicate: Any, read: Any, values: pd.DataFrame) -> npt.NDArray[np.bool_]:
    """Return for which values of partition columns a predicate may be true.

    Parameters
    ----------
    predicate : dask.dataframe.dask_expr.Expr
        On the columns of `read`.
    read : dask.dataframe.dask_expr.Expr
        The frame.
    values : pandas.DataFrame
        Of the partition columns, in the frame's dtypes.

    Returns
    -------
    numpy.ndarray of bool
        One for each row of `values`.
    """
    # Of a sum, a shift or a function of a partition nobody knows which rows it needs.
    return _possible(predicate, read, values) if _is_by_row(predicate, read) else _all(values)


def _all(values: pd.DataFrame) -> npt.NDArray[np.bool_]:
    return np.full(len(values), True)


def _is_by_row(predicate: Any, read: Any) -> bool:
    return all(_tells_by_row(one) for one in predicate.walk() if one._name != read._name)


def _tells_by_row(node: Any) -> bool:
    if isinstance(node, _DelayedExpr):
        return True
    if isinstance(node, _LOOKING_UP):
        return all(isinstance(one, _DelayedExpr) for one in node.dependencies()[1:])
    return isinstance(node, Elemwise) and not isinstance(node, _OF_PARTITIONS)


def _possible(predicate: Any, read: Any, values: pd.DataFrame) -> npt.NDArray[np.bool_]:
    if isinstance(predicate, And | Or):
        sides = [_possible(side, read, values) for side in predicate.operands]
        together = np.logical_and if isinstance(predicate, And) else np.logical_or
        joined: npt.NDArray[np.bool_] = together(*sides)
        return joined
    try:
        told = _computed(predicate, read, values)
        # A row is kept where the predicate is true, not where it is null.
        kept: npt.NDArray[np.bool_] = told.fillna(False).to_numpy(bool)
        return kept
    except Exception:  # noqa: BLE001
        # What cannot be compared is told by the computation, with the rows at hand.
        return _all(values)


def _computed(operand: Any, read: Any, values: pd.DataFrame) -> Any:
    if not isinstance(operand, Expr):
        return operand
    if isinstance(operand, _DelayedExpr):
        # As `isin` wraps its values; what is yet to be computed wraps none.
        return operand.obj.__wrapped__
    is_column = isinstance(operand, Projection) and operand.frame._name == read._name
    if is_column and operand.ndim == 1:
        return values[operand.columns[0]]
    if isinstance(operand, _COMPARISONS):
        taken = [_computed(one, read, values) for one in operand._args]
        return operand.operation(*taken, **operand._kwargs)
    raise _UnknownError
