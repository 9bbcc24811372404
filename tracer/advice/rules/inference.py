"""A program that never runs backward, and records for it all the same."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from tracer.advice.experiments import Recorded
from tracer.advice.finding import Finding
from tracer.advice.lines import costliest
from tracer.advice.often import often
from tracer.advice.steady import Steady

looks_for = (
    "ops that make nodes for a backward pass, in a run without any, recorded from its start to its end"
)
threshold = "1 % of a step in autograd's own kernels, for a tenth of the calls at least"
needs: tuple[str, ...] = ("shapes", "sources")

LEAST, LEAST_CALLS = 0.01, 0.1
MOST_CALLS = 4


def find(steady: Steady) -> Iterator[Finding]:
    if not steady.never_backward:
        return
    at_autograd = pl.col("key").str.starts_with("Autograd") | (pl.col("key") == "ADInplaceOrView")
    grad = steady.with_inputs(lambda of: any(one.requires_grad for one in of))
    numbered = steady.hops.filter(at_autograd & pl.col("sequence_nr").is_not_null())
    later = pl.col("sequence_nr").shift(-1).over("process", "thread", order_by="id")
    nodes = numbered.filter(later > pl.col("sequence_nr"))  # under no_grad no hop makes one
    made = nodes.filter(pl.col("inputs").is_in(grad))
    if len(made) < LEAST_CALLS * len(steady.calls) or made.is_empty():
        return
    own = steady.usual_ns(steady.hops.filter(at_autograd), "self_ns")
    if own < LEAST * steady.step_ns:
        return
    roots = steady.roots.filter(pl.col("id").is_in(made["id"].implode()))
    hottest = steady.hottest(roots, MOST_CALLS)
    yield Finding(
        line=costliest(made),
        do="call the model under torch.inference_mode() or no_grad(): nothing is ever differentiated",
        evidence=f"{often(steady.a_step(len(made)), 'hop')} for a backward pass that never runs",
        cost_ns=steady.usual_ns(roots),
        most_ns=_most(steady, own),
        experiment=Recorded(*hottest, change="no_grad", to="") if hottest[0] else None,
        caveat="it also frees what the nodes keep",
    )


def _most(steady: Steady, own: float) -> float:
    """Autograd's own kernels, and what it costs to free the nodes, which is in no op: as long again."""
    return min(steady.step_ns, 2 * own + steady.parts["outside_ops_ns"])
