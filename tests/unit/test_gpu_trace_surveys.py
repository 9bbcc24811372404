"""A recording from a GPU: stacks, arguments, surveys and reports."""

from __future__ import annotations

import os
import re
from pathlib import Path

import gpu_sample
import polars as pl
import pytest
from gpu_sample import STEPS
from gpu_trace import Sample
from markdown_it import MarkdownIt

from tracer.analysis.components import component_of
from tracer.analysis.cuda_tables import has_cuda
from tracer.analysis.kernel_survey import KernelSurvey, survey_kernels
from tracer.analysis.links import combine
from tracer.analysis.runtime_survey import (
    calls_with_context,
    count_steps,
    hidden_synchronisations,
    launches_per_op,
    per_component,
    per_function,
    per_role,
    steady_allocations,
)

sample, reports = gpu_sample.sample, gpu_sample.reports

GOLDEN = Path(__file__).parent / "golden"


@pytest.fixture(scope="session")
def survey(sample: Sample) -> KernelSurvey:
    return survey_kernels(sample.trace)


@pytest.fixture(scope="session")
def contexts(sample: Sample) -> pl.DataFrame:
    return calls_with_context(sample.trace)


def test_the_stack_of_a_product_names_what_lies_between_cublas_and_python(sample: Sample) -> None:
    part = sample.call_of("aten::matmul", line=53)
    stack = sample.stack_of(part.launch_of(part.kernel()))
    named = [frame["function"] for frame in stack if frame["function"]]
    assert named == [
        "cublasLtSSSMatmul",
        "cublasSgemm_v2",
        "at::cuda::blas::gemm_internal_cublas",
        "at::native::addmm_out_cuda_impl",
        "at::native::structured_mm_out_cuda::impl",
        "wrapper_CUDA_mm",
        "at::_ops::mm::redispatch",
        "torch::autograd::VariableType::mm",
        "torch::autograd::VariableType::mm",
        "at::_ops::mm::call",
        "at::native::_matmul_impl",
        "at::native::matmul",
        "wrapper_CompositeImplicitAutograd__matmul",
        "at::_ops::matmul::call",
        "torch::autograd::THPVariable_matmul",
    ]
    modules = [frame["module"].rpartition("/")[2] for frame in stack]
    assert modules[0] == "libcublasLt.so.13"
    assert modules[-1] == "libtorch_python.so"
    assert all(frame["offset"] for frame in stack)


def test_library_functions_without_arguments_are_named_by_stacks(sample: Sample) -> None:
    named = sample.api_calls.filter(
        pl.col("library_call_id").is_null(),
        pl.col("library_call").is_not_null(),
        pl.col("name") == "cudaMalloc",
    )
    assert set(named.select("library", "library_call").rows()) == {
        ("libcublas", "cublasCreate_v2"),
        ("libcudnn", "cudnnCreate"),
    }


def test_what_cublas_does_through_cublaslt_is_cublas(sample: Sample) -> None:
    part = sample.call_of("aten::matmul", line=53)
    frames = sample.stack_of(part.launch_of(part.kernel()))
    assert "libcublasLt" in frames[0]["module"]
    assert component_of(frames) == "cuBLAS"


def test_every_call_has_a_stack_and_those_of_torch_are_named(sample: Sample) -> None:
    assert sample.api_calls["stack"].null_count() == 0
    frames = sample.trace.stacks.explode("frames").unnest("frames")
    of_torch = frames.filter(pl.col("module").str.contains(r"/lib(torch|c10)[^/]*$"))
    assert len(of_torch) > 10_000
    assert of_torch["function"].null_count() / len(of_torch) < 0.01


def test_arguments_as_typed_columns(sample: Sample) -> None:
    typed = sample.trace.arguments("cudaMemcpyAsync")
    calls = sample.api_calls.filter(pl.col("name") == "cudaMemcpyAsync")
    assert typed.columns == ["id", "dst", "src", "count", "kind", "stream"]
    assert typed["id"].to_list() == calls["id"].to_list()
    assert typed["count"].dtype.is_integer()
    copies = sample.activities.filter(pl.col("kind") == "memcpy").sort("api_call")
    assert typed["count"].to_list() == copies["bytes"].to_list()
    assert set(typed["kind"]) == {
        f"cudaMemcpy{way}" for way in ("HostToDevice", "DeviceToHost", "DeviceToDevice")
    }


def test_arguments_of_structures_results_and_libraries(sample: Sample) -> None:
    launches = sample.trace.arguments("cudaLaunchKernelExC")
    grids = launches.select(pl.concat_list(f"config.gridDim.{axis}" for axis in "xyz")).to_series()
    ran = sample.activities.filter(pl.col("api_call").is_in(launches["id"].implode()))
    by_call = dict(zip(launches["id"], grids.to_list(), strict=True))
    assert [by_call[row["api_call"]] for row in ran.iter_rows(named=True)] == ran["grid"].to_list()
    assert len(ran) == len(launches) - 1  # one is in the graph
    taken = sample.trace.arguments("cudaMalloc")
    assert taken["*devPtr"].min() > 0
    assert sample.trace.arguments("cudnnRNNForward")["hidden"].to_list() == [64] * STEPS


def test_roles_add_up(sample: Sample, contexts: pl.DataFrame) -> None:
    assert has_cuda(sample.trace)
    steps = count_steps(sample.trace)
    assert (steps.warmup, steps.steady) == (2, 2)
    roles = {row["role"]: row for row in per_role(contexts, steps).iter_rows(named=True)}
    assert sum(row["calls"] for row in roles.values()) == len(sample.api_calls)
    assert sum(row["total_ns"] for row in roles.values()) == contexts["duration"].sum()
    assert roles["launch"]["steady_calls"] == 62
    assert roles["query"]["calls"] == 3_512
    assert None not in roles


def test_functions_know_who_calls_them(sample: Sample, contexts: pl.DataFrame) -> None:
    steps = count_steps(sample.trace)
    functions = {row["name"]: row for row in per_function(contexts, steps).iter_rows(named=True)}
    assert functions["cudaMalloc"]["components"][0] == {"what": "caching allocator", "count": 10}
    assert functions["cudaLaunchKernel"]["components"][0]["what"] == "operators"
    assert functions["cudaGetDevice"]["calls"] == 3_378
    assert functions["cudaMalloc"]["steady_calls"] == functions["cuLibraryLoadData"]["steady_calls"] == 0
    assert all(row["failed"] == 0 for name, row in functions.items() if name != "cudaGetErrorString")


def test_components_cover_every_call(sample: Sample, contexts: pl.DataFrame) -> None:
    found = {row["component"]: row for row in per_component(contexts, count_steps(sample.trace)).to_dicts()}
    assert {"operators", "cuBLAS", "cuBLASLt", "cuDNN", "guards and streams", "copies", "CUDA graphs"} <= set(
        found
    )
    assert "unknown" not in found
    assert sum(row["calls"] for row in found.values()) == len(sample.api_calls)


def test_waits_and_allocations(sample: Sample, contexts: pl.DataFrame) -> None:
    waits = hidden_synchronisations(sample.trace, contexts, count_steps(sample.trace))
    item = waits.filter(pl.col("op") == "aten::_local_scalar_dense").row(0, named=True)
    assert (item["what"], item["count"]) == ("cudaStreamSynchronize", STEPS)
    assert item["source"].endswith("sample.py:59")
    assert steady_allocations(contexts).is_empty()


def test_launches_per_op(sample: Sample, contexts: pl.DataFrame) -> None:
    table = launches_per_op(sample.trace, contexts)
    rows = {row["op"]: row for row in table.iter_rows(named=True)}
    assert table["launches"].sum() == sample.cuda["launches"]
    assert (rows["aten::cat"]["op_calls"], rows["aten::cat"]["per_call"]) == (STEPS, 1)
    assert rows["aten::_cudnn_rnn"]["per_call"] == 3


def test_kernels_have_the_work_of_their_ops(sample: Sample, survey: KernelSurvey) -> None:
    assert survey.launches + survey.left_out == sample.cuda["kernels"]
    assert survey.untimed == 0
    cat = next(row for row in survey.rows if row.op == "aten::cat")
    assert cat.work is not None
    assert (cat.calls, cat.work.bytes) == (2, 2 * 2 * 4 * 64 * 4)
    assert cat.family is not None
    assert cat.family.name == "concatenation"
    mm = next(row for row in survey.rows if row.op == "aten::mm" and "xmma_gemm" in row.kernel)
    assert mm.work is not None
    assert mm.work.flops == 2 * 64**3
    assert (mm.tile, mm.grid) == ((32, 32), (2, 2, 1))
    assert mm.limit is not None
    assert mm.limit.by == "the shortest kernel"
    assert survey.floor_ns < 1_000
    assert all(row.family for row in survey.rows if row.op and row.op.startswith("aten::_cudnn"))
    known = sum(row.total_ns for row in survey.rows if row.limit)
    assert known / survey.total_ns > 0.9


def test_no_short_name_is_mangled(survey: KernelSurvey) -> None:
    for row in survey.rows:
        assert not row.kernel.startswith("_Z"), row.symbol
        assert len(row.kernel) < 200, row.kernel


@pytest.mark.parametrize("only", ["cuda", "kernels", None])
def test_every_table_is_well_formed(reports: dict[str | None, str], only: str | None) -> None:
    text = reports[only]
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    rules = [line for line in text.splitlines() if re.fullmatch(r"(\| -+:? )+\|", line)]
    assert sum(token.type == "table_open" for token in tokens) == len(rules) >= 4
    for block in re.findall(r"(?:^\|.*\n)+", text, flags=re.M):
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()}) == 1, block


@pytest.mark.parametrize("only", ["cuda", "kernels", None])
def test_reports_name_no_folder_of_the_machine(reports: dict[str | None, str], only: str | None) -> None:
    assert not re.search(r"(?<![\w.*])/(opt|work|home|root|tmp|usr)/", reports[only])


@pytest.mark.parametrize("name", ["gpu_cuda_report", "gpu_kernels_report", "gpu_path"])
def test_golden_reports(reports: dict[str | None, str], name: str) -> None:
    text = {
        "gpu_cuda_report": lambda: reports["cuda"],
        "gpu_kernels_report": lambda: reports["kernels"],
        "gpu_path": lambda: path_of(reports[None], "`aten::matmul [AutogradCUDA]` -> `cublasSgemm_v2`"),
    }[name]()
    golden = GOLDEN / f"{name}.md"
    if os.environ.get("TRACER_UPDATE_GOLDEN"):
        golden.write_text(text)
    assert text == golden.read_text()
    assert len(text) <= 60_000


def path_of(report: str, word: str) -> str:
    """The section of the first path that has `word` in it."""
    sections = re.findall(r"^### \d+\. .*?(?=^##)", report, flags=re.S | re.M)
    return next(section for section in sections if word in section).strip() + "\n"


def test_links_hold_every_activity(sample: Sample) -> None:
    rows = combine(sample.trace).rows
    assert rows["activity"].drop_nulls().n_unique() == len(sample.activities)
    outermost = rows.filter(pl.col("parent").is_null())
    assert outermost["gpu_ns"].sum() == (sample.activities["end_ns"] - sample.activities["start_ns"]).sum()
