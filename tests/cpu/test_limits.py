"""docs/limits.md: what a recording does not see, its certificate names."""

from __future__ import annotations

from pathlib import Path

import pytest

import tracer


@pytest.mark.promise("tracer.record", "docs/limits.md#what-is-not-visible")
def test_a_call_that_bypasses_the_dispatch_table_has_no_hop(tmp_path: Path) -> None:
    import torch

    matrix = torch.ones(2, 2)
    with tracer.record(tmp_path / "run.trace"):
        torch.ops.aten.mm.default._op_dk(torch._C.DispatchKey.CPU, matrix, matrix)
        torch.relu(matrix)
    trace = tracer.load(tmp_path / "run.trace")
    ops = trace.hops["op"].cast(str).to_list()
    assert "aten::mm" not in ops
    assert "aten::resolve_conj" in ops, "the hops inside are there"
    assert "aten::relu" in ops
    (said,) = (text for text in trace.certificate["not_visible"] if "callBoxedForDispatchKey" in text)
    assert "OpOverload._op_dk" in said
