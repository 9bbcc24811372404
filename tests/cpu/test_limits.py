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
    assert trace.certificate["python_dispatched"] == 0


@pytest.mark.promise("tracer.record", "docs/limits.md#what-is-not-visible")
def test_kernels_below_the_python_dispatcher_are_counted(tmp_path: Path) -> None:
    import torch
    from torch._dispatch.python import enable_python_dispatcher

    vector = torch.ones(3)
    with tracer.record(tmp_path / "run.trace"), enable_python_dispatcher():
        vector.expm1()
        vector.requires_grad_().erf()
    trace = tracer.load(tmp_path / "run.trace")
    hidden = trace.hops.filter(trace.hops["key"] == "PythonDispatcher")
    assert {"aten::expm1", "aten::erf"} <= set(hidden["op"].cast(str))
    assert trace.certificate["python_dispatched"] == len(hidden) > 1
    said = f"nothing dropped; {len(hidden)} kernels below the Python dispatcher without a hop"
    assert trace.certificate["verdict"].endswith(said)
    (said,) = (text for text in trace.certificate["not_visible"] if "make_fx" in text)
    assert said.startswith(f"{len(hidden)} kernels")
