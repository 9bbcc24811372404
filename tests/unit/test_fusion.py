"""An eager run joined to the kernels that replaced its ops, on a GPU, with and without CUDA graphs."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from frames import FakeTrace, TraceBuilder, hop

from tracer.analysis.difference.fusing import fusion
from tracer.report.fusion_text import fusion_lines, kernel_costs
from tracer.trace.tables import schema

GELU, ADD, BACK = "net.py:7", "net.py:8", "net.py:9"
SIZE = [64, 64]
TEXTS = {GELU: "y = gelu(x)", ADD: "z = y + 1", BACK: "z.sum().backward()"}


def table(kind: Any, *rows: dict[str, Any]) -> pl.DataFrame:
    strings = {name: pl.String if of == schema.STRING else of for name, of in kind.items()}
    full = [{**dict.fromkeys(kind), "process": 0, "open": False, **row} for row in rows]
    full = [{name: value for name, value in row.items() if name in kind} for row in full]
    return pl.DataFrame(full, schema=strings).cast(dict(kind))


def activities(*rows: dict[str, Any]) -> pl.DataFrame:
    return table(schema.GPU_ACTIVITIES, *({"id": n, "kind": "kernel", **row} for n, row in enumerate(rows)))


def with_texts(trace: FakeTrace) -> FakeTrace:
    lines = [{"source": line, "text": text} for line, text in TEXTS.items()]
    trace.source_lines = pl.DataFrame(lines, schema=schema.SOURCE_LINES)
    return trace


def eager() -> FakeTrace:
    """In steps 0 and 1: gelu, which launches a kernel of 10 us, add one of 5 us, and mm one of 100 us."""
    builder = TraceBuilder()
    inputs = builder.signature((SIZE, "torch.float32"))
    for step in (0, 1):
        for op, line in (("aten::gelu", GELU), ("aten::add.Scalar", ADD), ("aten::mm", ADD)):
            module = "net.norm" if op == "aten::gelu" else "net"
            builder.calls(hop(op, "CUDA", source=line, step=step, inputs=inputs, module=module))
    trace = with_texts(builder.trace())
    times = [10_000, 5_000, 100_000] * 2
    trace.gpu_activities = activities(
        *(
            {"hop": n, "api_call": n, "start_ns": 0, "end_ns": ns, "step": n // 3}
            for n, ns in enumerate(times)
        )
    )
    return trace


def compiled(*, graph: bool = False, bytes_of_run: int | None = 32_768, padded: bool = False) -> FakeTrace:
    """One Triton kernel of both, 6 us, and mm.out; with a CUDA graph both are captured before step 0."""
    builder = TraceBuilder()
    steps = [None] if graph else [0, 1]
    for step in steps:
        builder.calls(hop("aten::mm.out", "CUDA", source=ADD, step=step))
    trace = with_texts(builder.trace())
    nodes = [
        {"op": "aten::gelu", "source": GELU},
        {"op": "aten::add", "source": ADD},
        {"op": "aten::view", "source": BACK},
        *([{"op": "aten::mm", "source": ADD}] if padded else []),
    ]
    starts = trace.hops["start_ns"].to_list()
    trace.compiled_calls = table(
        schema.COMPILED_CALLS,
        *(
            {
                "id": n,
                "region": 1,
                "function": "net",
                "direction": "forward",
                "thread": 100,
                "start_ns": start,
                "end_ns": start + 1_000,
                "step": step,
                "visible": True,
            }
            for n, (step, start) in enumerate(zip(steps, starts, strict=True))
        ),
    )
    trace.compiled_kernels = table(
        schema.COMPILED_KERNELS,
        *(
            {
                "id": n,
                "compiled_call": n,
                "name": "triton_fused_add_gelu_0",
                "autotuning": False,
                "nodes": nodes,
                "bytes": bytes_of_run,
                "thread": 100,
                "start_ns": start,
                "end_ns": start + 50,
                "step": step,
            }
            for n, (step, start) in enumerate(zip(steps, starts, strict=True))
        ),
    )
    trace.gpu_activities = activities(
        *(
            {"start_ns": 0, "end_ns": ns, "step": step, "api_call": 0, of: 0 if graph else step}
            for step in (0, 1)
            for of, ns in (("compiled_kernel", 6_000), ("hop", 90_000))
        )
    )
    return trace


@pytest.mark.parametrize("graph", [False, True], ids=["launched", "replayed"])
def test_launches_and_times_are_those_of_the_gpu(graph: bool) -> None:
    found = fusion((eager(), compiled(graph=graph)), ([0, 1], [0, 1]))  # type: ignore[arg-type]
    assert found is not None
    assert found.on_gpu
    (kernel,) = found.kernels
    assert [(op.line, op.op, op.calls, op.by_line) for op in kernel.ops] == [
        (GELU, "aten::gelu", 1.0, False),
        (ADD, "aten::add", 1.0, False),
    ]
    assert kernel.cost.calls == (2.0, 1.0)
    assert kernel.cost.launches == (2.0, 1.0)
    assert (kernel.cost.times.before, kernel.cost.times.after) == (15_000, 6_000)
    assert kernel.cost.bytes == (2 * 2 * 64 * 64 * 4, 32_768)
    assert found.kept.launches == (1.0, 1.0)
    assert (found.kept.times.before, found.kept.times.after) == (100_000, 90_000)
    lines = {line.line: (line.times.before, line.times.after) for line in found.lines}
    # 6 us are shared out as 10 to 5, and the product is on the line of add
    assert lines == {GELU: (10_000, pytest.approx(4_000)), ADD: (105_000, pytest.approx(92_000))}
    modules = {module.name: (module.times.before, module.times.after) for module in found.modules}
    # gelu has 10 of the kernel's 15 us; add has the rest, and the product is the module's own
    assert modules == {"net.norm": (10_000, pytest.approx(4_000)), "net": (115_000, pytest.approx(96_000))}
    text = kernel_costs(kernel)
    assert text == (
        "2 op calls -> 1 run (1 saved); 2 GPU kernels -> 1 (1 saved); 64.0 KiB -> 32.0 KiB; "
        "15.0 us -> 6.0 us: 0.40 x"
    )
    assert "(times of the GPU)" in fusion_lines(found)[0]


def test_bytes_that_are_not_known_are_said() -> None:
    found = fusion((eager(), compiled(bytes_of_run=None)), ([0, 1], [0, 1]))  # type: ignore[arg-type]
    assert found is not None
    assert found.kernels[0].cost.bytes[1] is None
    assert "64.0 KiB -> unknown" in kernel_costs(found.kernels[0])
    assert (found.bytes_unknown, found.fused.bytes) == (1, (None, None))


def test_what_a_kernel_computes_may_be_unknown() -> None:
    trace = compiled()
    trace.compiled_kernels = trace.compiled_kernels.with_columns(
        nodes=pl.lit(None, schema.COMPILED_KERNELS["nodes"])
    )
    found = fusion((eager(), trace), ([0, 1], [0, 1]))  # type: ignore[arg-type]
    assert found is not None
    assert (found.unknown, found.kernels[0].known, found.kernels[0].ops) == (1, False, [])
    assert any(line.startswith("the ops of 1 kernel are unknown") for line in fusion_lines(found))
    assert kernel_costs(found.kernels[0]).startswith("unknown op calls -> 1 run, 6.0 us")


def test_traces_of_one_kind_have_none() -> None:
    for trace in (eager(), compiled()):
        assert fusion((trace, trace), ([0, 1], [0, 1])) is None  # type: ignore[arg-type]


def test_a_kernel_that_pads_the_inputs_of_a_product_replaces_no_product() -> None:
    """It has a node of aten::mm, as Inductor names it; the product itself is mm.out, which still runs."""
    without, padded = (
        fusion((eager(), compiled(padded=padded)), ([0, 1], [0, 1]))  # type: ignore[arg-type]
        for padded in (False, True)
    )
    assert without is not None
    assert padded is not None
    assert "aten::mm" not in [op.op for op in padded.kernels[0].ops]
    assert padded.kernels == without.kernels
    assert padded.kept == without.kept
