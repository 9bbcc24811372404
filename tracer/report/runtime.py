"""What a report says of the CUDA API, as plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import polars as pl

from tracer.analysis import runtime_survey as survey
from tracer.analysis.api_functions import describe, role_descriptions
from tracer.analysis.components import DESCRIPTIONS
from tracer.analysis.cuda_tables import CudaTables
from tracer.analysis.idle import Idleness, idleness
from tracer.analysis.limits import Limits
from tracer.analysis.runtime_survey import Steps


@dataclass(frozen=True)
class Rows:
    """The first rows of a table, each a dictionary, and how many are left out."""

    rows: list[dict[str, Any]]
    left_out: int

    @classmethod
    def first(cls, table: pl.DataFrame, limit: int) -> Rows:
        return cls(table.head(limit).to_dicts(), max(len(table) - limit, 0))


@dataclass(frozen=True)
class RuntimeReport:
    """Tables have the columns of the functions of runtime_survey with like names.

    Rows of `functions` also have `does` (a sentence) and `frames` (lines of an example stack);
    those of `roles` and `components` have `does`.
    """

    calls: int
    host_ns: int
    launches: int
    steps: Steps
    devices: list[Limits]
    roles: Rows
    functions: Rows
    components: Rows
    launches_per_op: Rows
    synchronisations: Rows
    allocations: Rows
    copies: Rows
    idle: list[Idleness]


def build_runtime(trace: CudaTables, rows: int) -> RuntimeReport:
    calls = survey.calls_with_context(trace)
    steps = survey.count_steps(trace)
    roles = survey.per_role(calls, steps)
    functions = Rows.first(survey.per_function(calls, steps), rows)
    frames = dict(
        trace.stacks.filter(
            pl.col("id")
            .cast(pl.Int64)
            .is_in([row["stack"] for row in functions.rows if row["stack"] is not None])
        ).iter_rows()
    )
    for row in functions.rows:
        row["does"] = describe(row["name"]) or ""
        row["frames"] = frames.get(row["stack"]) or []
    components = Rows.first(survey.per_component(calls, steps), rows)
    for row in components.rows:
        row["does"] = DESCRIPTIONS.get(row["component"], "")
    of_roles = Rows.first(roles, rows)
    for row in of_roles.rows:
        row["does"] = role_descriptions().get(row["role"] or "", "")
    return RuntimeReport(
        calls=len(calls),
        host_ns=int(calls["duration"].sum()),
        launches=len(survey.launches_that_ran(calls)),
        steps=steps,
        devices=[Limits.of(row) for row in trace.devices.unique("device", maintain_order=True).to_dicts()],
        roles=of_roles,
        functions=functions,
        components=components,
        launches_per_op=Rows.first(survey.launches_per_op(trace, calls), rows),
        synchronisations=Rows.first(survey.hidden_synchronisations(trace, calls, steps), rows),
        allocations=Rows.first(survey.steady_allocations(calls), rows),
        copies=Rows.first(survey.copies(trace.gpu_activities, steps), rows),
        idle=idleness(trace),
    )
