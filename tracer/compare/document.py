"""Comparisons as documents for `--json`: plain dicts, times in nanoseconds, null for what is not known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, fields, is_dataclass
from typing import Any

from tracer.compare.chains import Chain
from tracer.compare.model import CaseResult, Chains, Comparison, Timing
from tracer.compare.program import ProgramComparison
from tracer.report.documents import chain_lines


def comparisons_document(comparisons: Sequence[Comparison], wrong: str) -> dict[str, Any]:
    """Of the built-in cases. `comparisons` has one for each implementation of the operators."""
    return {"wrong": wrong or None, "comparisons": as_document(comparisons)}


def program_document(found: ProgramComparison, wrong: str) -> dict[str, Any]:
    return {"wrong": wrong or None, **as_document(found)}


def as_document(value: Any) -> Any:
    """Dataclasses as dicts of their fields; a chain with its counts and lines."""
    if isinstance(value, Chain):
        return {**asdict(value.counts), "gpu_ns": value.gpu_ns, "lines": chain_lines(value.nodes)}
    if isinstance(value, Chains):
        return {"stock": as_document(value.stock), "override": as_document(value.override)}
    if is_dataclass(value):
        known = {one.name: as_document(getattr(value, one.name)) for one in fields(value)}
        if isinstance(value, Timing) and value.stock.samples < 2:
            known["ratio"] |= {"low": None, "high": None}
        return known | ({"passed": value.passed} if isinstance(value, CaseResult) else {})
    return [as_document(one) for one in value] if isinstance(value, (list, tuple)) else value
