"""Op calls that torch.compile makes while it compiles: of tensors without data, or to choose a kernel."""

from __future__ import annotations

import numpy as np
import polars as pl

from tracer.analysis.trees import Forest
from tracer.trace.tables.compiled import innermost
from tracer.trace.tables.series import numbers


def of_compiler(rows: pl.DataFrame, phases: pl.DataFrame) -> np.ndarray:
    """Which rows (process, thread, start_ns) began while their thread was in a phase of the compiler."""
    places = (numbers(rows[name]) for name in ("process", "thread", "start_ns"))
    return innermost(phases, *places) >= 0


def without_compiler(forest: Forest, phases: pl.DataFrame) -> Forest:
    """The outermost calls that began outside of the compiler, and all in them."""
    if phases.is_empty():
        return forest
    compiling = of_compiler(forest.hops, phases) & (forest.parent < 0)
    if not compiling.any():
        return forest
    return Forest.of(forest.hops.filter(~compiling[forest.root]))
