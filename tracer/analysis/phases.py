"""Which phase of training an op call is: forward, backward or the optimizer.

Every table, tree, page, export and diff asks here, so that none counts an op where another does not.
"""

from __future__ import annotations

import polars as pl

FORWARD, BACKWARD, OPTIMIZER = "forward", "backward", "optimizer"
_OF_OPTIMIZERS = "Optimizer."  # torch marks `Optimizer.step#Adam.step` and `Optimizer.zero_grad#...`


def phase() -> pl.Expr:
    """The phase of each row of `hops`: FORWARD, BACKWARD or OPTIMIZER.

    OPTIMIZER: in a range with which torch marks its optimizers. BACKWARD: an autograd node called it.
    """
    return (
        pl.when(in_optimizer())
        .then(pl.lit(OPTIMIZER))
        .when(in_backward())
        .then(pl.lit(BACKWARD))
        .otherwise(pl.lit(FORWARD))
    )


def in_backward() -> pl.Expr:
    """Whether an autograd node called the op, of each row of `hops`; an optimizer may have asked for it."""
    return pl.col("backward_node").is_not_null()


def in_optimizer() -> pl.Expr:
    """Whether the op ran in a range with which torch marks its optimizers, of each row of `hops`."""
    return pl.col("range").cast(pl.String).str.starts_with(_OF_OPTIMIZERS).fill_null(False)


def of_compiled_backward() -> pl.Expr:
    """Whether the code is that of a backward, of each row of `compiled_calls`."""
    return (pl.col("direction").cast(pl.String) == BACKWARD).fill_null(False)


def calling_line() -> pl.Expr:
    """The line that called the op, of each row of `hops`; BACKWARD if a thread of autograd did."""
    by_autograd = pl.col("called_from").is_null() & in_backward()
    line = pl.coalesce("called_from", "source").cast(pl.String)
    return pl.when(by_autograd).then(pl.lit(BACKWARD)).otherwise(line)
