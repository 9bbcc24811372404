"""Commands on a real trace of a GPU, in processes of their own."""

from __future__ import annotations

import lzma
import re
import subprocess
import sys
from pathlib import Path

import gpu_sample
import pytest
from gpu_sample import NAME
from gpu_trace import PATH, Sample

from tracer.report.github import joined
from tracer.trace import load

ROOT = Path(__file__).parents[2]


sample, reports = gpu_sample.sample, gpu_sample.reports


def command(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tracer.cli.app", *map(str, arguments)],
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "COLUMNS": "120"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.promise("tree", "docs/cuda.md")
def test_tree_shows_the_chain() -> None:
    shown = command("tree", PATH, "--op", "aten::matmul")
    assert shown.returncode == 0, shown.stderr
    lines = [re.sub(r"^( *[\d.]+ .?s)* +", "", line) for line in shown.stdout.splitlines()]
    at = next(number for number, line in enumerate(lines) if line.startswith("cublasSgemm_v2"))
    assert lines[at - 1].startswith("-> aten::mm [CUDA] wrapper_CUDA_mm")
    assert lines[at].startswith("cublasSgemm_v2(N, N, m=64, n=64, k=64)")
    assert lines[at + 1].startswith("cudaLaunchKernelExC(grid 2x2, block 64)")
    assert lines[at + 2].startswith("sm80_xmma_gemm")
    assert any(line.startswith("cuLaunchKernelEx(grid 4x2, block 384)") for line in lines)


@pytest.mark.promise("report", "docs/report.md#how-to-read-the-two-surveys")
def test_report_of_a_file_is_that_of_its_trace(reports: dict[str | None, str], tmp_path: Path) -> None:
    output = tmp_path / "report.md"
    done = command("report", PATH, "--only", "cuda", "-o", output)
    assert done.returncode == 0, done.stderr
    written = output.read_text().replace("gpu.trace.xz", NAME)
    assert joined(written) == reports["cuda"], "long names may be broken in a file"


@pytest.mark.parametrize("option", [["--op", "mm"], ["--steady"]])
def test_options_for_paths_need_paths(option: list[str]) -> None:
    done = command("report", PATH, "--only", "cuda", *option)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"tracer: {option[0]} chooses paths, but --only cuda shows none; remove one\n"


def test_without_phases_no_kernel_is_left_out_as_warm_up() -> None:
    told = command("report", PATH, "--rows", "500").stdout
    alike = command("report", PATH, "--rows", "500", "--no-phases").stdout
    assert " kernels of warm-up steps are left out" in " ".join(told.split())
    assert "warm-up" not in alike[alike.index("## Device kernels") : alike.index("### By possible gain")]
    assert "- 4 steps, all counted the same" in alike
    done = command("report", PATH, "--steady", "--no-phases")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert "--no-phases treats none as warm-up" in done.stderr


@pytest.mark.promise("report", "docs/report.md")
def test_report_of_steady_paths_with_a_library() -> None:
    done = command("report", PATH, "--steady", "--op", "cudnnRNN*", "--paths", "1")
    assert done.returncode == 0, done.stderr
    text = " ".join(done.stdout.split())
    assert "the 1 hottest of 2 that have `cudnnRNN*` in them, of " in text
    assert "### 1. `aten::_cudnn_rnn_backward [AutogradCUDA]` -> `cudnnRNNBackwardData_v8` -> " in text


@pytest.mark.promise("pack", "docs/export.md#keep-and-share-traces-tracer-pack")
def test_pack_gives_the_same_trace_back(sample: Sample, tmp_path: Path) -> None:
    plain = tmp_path / NAME
    plain.write_bytes(lzma.decompress(PATH.read_bytes()))
    done = command("pack", plain)
    assert done.returncode == 0, done.stderr
    packed = tmp_path / f"{NAME}.xz"
    assert lzma.decompress(packed.read_bytes()) == plain.read_bytes()
    again = load(packed)
    for table in ("hops", "api_calls", "library_calls", "gpu_activities", "stacks", "devices"):
        assert getattr(again, table).equals(getattr(sample.trace, table)), table
    assert again.certificate == sample.trace.certificate
