"""Chains out of a trace, with their counts, and two of them side by side."""

from __future__ import annotations

import re

import pytest
from cuda_frames import CudaBuilder
from frames import TraceBuilder, hop
from gpu_trace import Sample

from tracer.compare.both_chains import WIDTH, both_chains
from tracer.compare.chains import Chain, ChainTables, certificate_of, facts_of_gpu
from tracer.compare.model import Chains


@pytest.fixture(scope="module")
def sample() -> Sample:
    return Sample()


def two_steps() -> TraceBuilder:
    """Step 1: stock's mm. Step 3: an override's, which makes a tensor and adds."""
    builder = TraceBuilder()
    builder.calls(hop("aten::mm", "AutogradCPU", hop("aten::mm", "CPU", step=1), step=1))
    own = hop(
        "aten::mm",
        "CPU",
        hop("aten::empty", "CPU", step=3),
        hop("aten::add", "CPU", step=3),
        hop("aten::add", "CPU", step=3),
        kernel="mine.mm",
        override="mine",
        step=3,
    )
    builder.calls(hop("aten::mm", "AutogradCPU", own, step=3), hop("aten::mul", "CPU"))
    return builder


def test_a_step_is_a_chain() -> None:
    tables = ChainTables(two_steps().trace())
    stock, override = tables.of_step(1), tables.of_step(3)
    assert [(link.op, link.key, link.most) for link in override.links] == [
        ("aten::mm", "AutogradCPU", 1),
        ("aten::mm", "CPU", 1),
        ("aten::empty", "CPU", 1),
        ("aten::add", "CPU", 2),
    ]
    assert (stock.counts.op_calls, stock.counts.hops) == (1, 2)
    assert (override.counts.op_calls, override.counts.hops) == (4, 5)
    assert tables.of_step(2).links == []


def test_calls_by_their_inputs_and_what_stands_below_one() -> None:
    builder = TraceBuilder()
    small = builder.signature(([4, 4], "torch.float32"), ([4, 4], "torch.float32"))
    large = builder.signature(([8, 8], "torch.float32"), ([8, 8], "torch.float32"))
    inside = hop("aten::mm", "CPU", hop("aten::conj", "CPU"))
    call = hop("aten::mm", "AutogradCPU", inside, inputs=small)
    builder.calls(hop("aten::matmul", "AutogradCPU", call), hop("aten::mul", "CPU"))
    builder.calls(hop("aten::mm", "CPU", inputs=large))
    tables = ChainTables(builder.trace())
    calls = tables.calls(["aten::mm"])
    assert calls["inputs"].to_list() == ["4x4 f32, 4x4 f32", "8x8 f32, 8x8 f32"]
    assert calls["hop"].to_list() == [1, 5]
    assert calls["duration_ns"].to_list() == [3000, 1000]
    assert calls["structure"].n_unique() == 2
    below = tables.below(calls["place"][0])
    assert [link.op for link in below.links] == ["aten::mm", "aten::mm", "aten::conj"]
    assert [link.op for link in tables.below(calls["place"][1]).links] == ["aten::mm"]
    assert tables.calls(["aten::bmm"]).is_empty()
    assert tables.calls(["aten::mm", "aten::matmul"])["op"].to_list() == ["aten::matmul", "aten::mm"]


def test_paths_of_python_kernels_are_those_from_the_folder_of_the_program() -> None:
    kernel = "kernels.mm (/home/user/project/kernels.py:7)"
    builder = TraceBuilder().calls(hop("aten::mm", "CPU", step=1, kernel=kernel))
    assert ChainTables(builder.trace()).of_step(1).links[0].kernel == "kernels.mm (kernels.py:7)"
    builder = TraceBuilder().calls(
        hop("aten::mm", "CPU", step=1, kernel="own.mm (/opt/own kernels/own.py:7)")
    )
    assert ChainTables(builder.trace()).of_step(1).links[0].kernel == "own.mm (own.py:7)"


def test_counts_of_cuda_are_those_of_the_step_alone() -> None:
    builder = CudaBuilder()
    builder.calls(
        hop("aten::mm", "CUDA", self_ns=9000, step=1), hop("aten::mm", "CUDA", self_ns=9000, step=2)
    )
    for number, start in ((0, 1000), (1, 11_000)):
        for query in range(3):
            builder.api("cudaGetDevice", "query", start + 100 * query, start + 100 * query + 50, hop=number)
        sgemm = builder.library("cublasSgemm_v2", start + 1000, start + 5000, hop=number)
        launch = builder.api(
            "cudaLaunchKernelExC", "launch", start + 2000, start + 3000, hop=number, library_call_id=sgemm
        )
        builder.kernel("gemm", start + 3000, start + 6300 + number, launch)
    builder.api("cudaDeviceSynchronize", "synchronisation", 20_000, 21_000)
    chain = ChainTables(builder.cuda_trace()).of_step(2)
    assert chain.counts.library_calls == 1
    assert chain.counts.api_calls == 4
    assert chain.counts.launches == 1
    assert chain.gpu_ns == 3301
    assert [link.kind for link in chain.links] == ["call", "library", "api", "kernel"]


def test_a_real_chain_goes_down_to_the_device_kernel(sample: Sample) -> None:
    tables = ChainTables(sample.trace)
    calls = tables.calls(["aten::mm"])
    assert len(calls) > 2
    chain = tables.below(calls["place"][0])
    kinds = [link.kind for link in chain.links]
    assert kinds[0] == "call"
    assert "api" in kinds
    assert kinds.count("kernel") >= 1
    assert chain.counts.launches >= 1
    assert chain.counts.api_calls > chain.counts.launches
    assert chain.gpu_ns == calls["gpu_ns"][0] > 0


def test_the_device_of_a_trace(sample: Sample) -> None:
    facts = facts_of_gpu(sample.trace)
    assert facts is not None
    assert "H200" in facts["name"]
    assert facts_of_gpu(two_steps().trace()) is None


def test_both_chains_in_one_text() -> None:
    tables = ChainTables(two_steps().trace())
    assert both_chains(Chains.of(tables.of_step(1), tables.of_step(3))).splitlines() == [
        "       stock  override",
        "      2.0 us    5.0 us   aten::mm [AutogradCPU] mm_AutogradCPU",
        "=>    1.0 us           -   -> aten::mm [CPU] mm_CPU",
        "                4.0 us +   -> aten::mm [CPU] mine.mm *",
        "                1.0 us +     aten::empty [CPU] empty_CPU",
        "                1.0 us +     2 x aten::add [CPU] add_CPU",
    ]


def test_long_runs_of_equal_lines_are_left_out_but_not_what_differs() -> None:
    def chain(kernel: str) -> TraceBuilder:
        builder = TraceBuilder()
        names = [f"aten::op{number}" for number in range(40)]
        return builder.calls(
            *(hop(name, "CPU", step=1) for name in names[:20]),
            hop("aten::mm", "CPU", step=1, kernel=kernel),
            *(hop(name, "CPU", step=1) for name in names[20:]),
        )

    sides = [ChainTables(chain(kernel).trace()).of_step(1) for kernel in ("stock", "mine.mm")]
    lines = both_chains(Chains.of(*sides)).splitlines()
    assert len(lines) == 1 + 1 + 4 + 1
    assert [line.strip() for line in lines if "more lines" in line] == [
        "... 19 more lines that are the same"
    ] * 2
    first = next(line for line in lines if line.startswith("=> "))
    assert first.split()[3:] == ["-", "aten::mm", "[CPU]", "stock"]
    same = both_chains(Chains.of(sides[0], sides[0])).splitlines()
    assert len(same) == 42  # nothing differs: the whole chain


def test_what_encloses_a_difference_is_shown() -> None:
    def chain(kernel: str) -> Chain:
        mine = hop("aten::mm", "CPU", step=1, kernel=kernel)
        before = [hop(f"aten::op{number}", "CPU", step=1) for number in range(5)]
        inner = hop("aten::matmul", "CPU", *before, mine, step=1)
        return ChainTables(TraceBuilder().calls(hop("aten::linear", "CPU", inner, step=1)).trace()).of_step(1)

    lines = both_chains(Chains.of(chain("stock"), chain("mine.mm"))).splitlines()
    names = [re.findall(r"aten::\w+|\.\.\.|^ *stock", line)[0].strip() for line in lines]
    assert names == [*("stock", "aten::linear", "aten::matmul", "...", "aten::op4", "aten::mm", "aten::mm")]
    assert lines[3].strip() == "... 4 more lines that are the same"


def test_what_only_stock_has_comes_before_what_only_the_override_has() -> None:
    def chain(*inside: str) -> Chain:
        hops = [hop(name, "CPU", step=1) for name in inside]
        builder = TraceBuilder().calls(hop("aten::mm", "CPU", *hops, step=1))
        return ChainTables(builder.trace()).of_step(1)

    text = both_chains(Chains.of(chain("aten::copy_", "aten::dot"), chain("aten::empty")))
    found = re.findall(r"^(=>)?.*us +([-+]) +(aten::\w+)", text, flags=re.M)
    assert found == [("=>", "-", "aten::copy_"), ("", "-", "aten::dot"), ("", "+", "aten::empty")]


def test_lines_fit_a_page() -> None:
    def chain(kernel: str) -> Chain:
        inner = hop("aten::mm", "CPU", step=1, kernel=kernel * 20)
        return ChainTables(TraceBuilder().calls(inner).trace()).of_step(1)

    text = both_chains(Chains.of(chain("at::native::gemm"), chain("mine::gemm")))
    assert max(map(len, text.splitlines())) <= WIDTH


def test_launches_go_together_by_what_they_launch() -> None:
    def chain(kernel: str) -> Chain:
        builder = CudaBuilder()
        builder.calls(hop("aten::mm", "CUDA", self_ns=9000, step=1))
        launch = builder.api("cudaLaunchKernel", "launch", 1000, 2000, hop=0)
        builder.kernel(kernel, 2000, 3000, launch)
        return ChainTables(builder.cuda_trace()).of_step(1)

    assert [link.kernel for link in chain("gemm").links][1:] == ["gemm", ""]
    chains = Chains.of(chain("gemm"), chain("mine"))
    assert [(pair.one, pair.other) for pair in chains.pairs] == [
        *((0, 0), (1, None), (2, None), (None, 1), (None, 2))
    ]
    assert all(pair.same for pair in Chains.of(chain("gemm"), chain("gemm")).pairs)


NAMELESS = "/site-packages/tracer/_overrides.cpython-312-x86_64-linux-gnu.so+0xe9e70"


def test_a_kernel_function_of_an_override_without_a_name_has_that_of_the_override() -> None:
    builder = TraceBuilder().calls(
        hop("aten::mm", "CPU", step=1, kernel=NAMELESS, override="mine"),
        hop("aten::add", "CPU", step=1, kernel="lib.so+0x10"),
        hop("aten::mul", "CPU", step=1, kernel="mine.mul", override="mine"),
    )
    links = ChainTables(builder.trace()).of_step(1).links
    assert [link.kernel for link in links] == ["override mine", "lib.so+0x10", "mine.mul"]


def test_the_certificate_of_the_chains() -> None:
    said = [
        "1 kernel function without a name",
        "override mine of aten::mm.out [CPU] was enabled but never ran: it",
    ]
    builder = TraceBuilder().calls(hop("aten::mm", "CPU", step=1, kernel=NAMELESS, override="mine"))
    trace = builder.trace()
    trace.certificate.update(why=[*said, "another"], unresolved_kernels=1)
    assert certificate_of(trace)["why"] == ["another"]
    assert trace.certificate["why"] == [*said, "another"]
    trace.certificate.update(unresolved_kernels=2)  # one of them is not an override's
    assert certificate_of(trace)["why"] == [said[0], "another"]
