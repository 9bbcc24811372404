"""gdb is the witness from outside: what it sees at at::_ops is what the recorder recorded."""

from __future__ import annotations

import polars as pl
import pytest
from debugging import debug
from launching import Launcher

import tracer

pytestmark = pytest.mark.gdb

PROGRAM = """
import torch

torch.manual_seed(0)
matrix = torch.randn(8, 4, requires_grad=True)
torch.matmul(matrix, torch.randn(4, 3))
torch.matmul(torch.randn(2, 8, 4), torch.randn(2, 4, 3))
torch.cat([matrix, torch.randn(1, 4)])
torch.nn.Embedding(10, 4)(torch.tensor([[1, 2], [3, 9]]))
torch.nn.Linear(4, 2)(matrix)
(matrix * 2).relu().sum().backward()
gru = torch.nn.GRU(4, 5)
gru(torch.randn(1, 2, 4))
conjugate = torch.randn(3, 3, dtype=torch.complex64).conj()
torch.sigmoid(conjugate)  # the fallback of the conjugate key redispatches boxed
"""


def test_every_stop_is_a_hop_and_every_hop_a_stop(launcher: Launcher) -> None:
    launcher.write(PROGRAM)
    recorded = launcher.record("-o", "run.trace", "script.py")
    assert recorded.status == 0, recorded.err
    debugged = debug(launcher, "script.py", "--break", "aten::*", "--limit", "0", "--backtrace", "1")
    assert debugged.run.status == 0, debugged.run.err
    seen = [(stop["op"], stop["kind"]) for stop in debugged.stops]
    hops = tracer.load(launcher.folder / "run.trace").hops
    assert seen == _through_functions(hops)
    assert len(seen) > 300


def _through_functions(hops: pl.DataFrame) -> list[tuple[str, str]]:
    """(op, kind) of the hops that pass through at::_ops: all but redispatches out of boxed fallbacks."""
    hops = hops.with_columns(pl.col("op", "kind", "kernel").cast(pl.String)).sort("start_ns")
    fallbacks = hops.filter(pl.col("kernel").str.starts_with("fallback: "))["id"]
    boxed = (pl.col("kind") == "redispatch") & pl.col("parent").is_in(fallbacks.implode())
    assert hops.filter(boxed)["op"].to_list(), "the program has none that tells boxed redispatches apart"
    return list(hops.filter(~boxed).select("op", "kind").iter_rows())
