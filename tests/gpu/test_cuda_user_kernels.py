"""Kernels that no op launches: Triton's (torch.compile's and by hand), Numba's, CuPy's, an extension's."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from launching import Launcher
from seen import Part, Recorded, launches, record_cases, run_cases

PROGRAM = Path(__file__).parent / "user_kernels.py"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict, Recorded]:
    """The program under python, which builds the kernels, and recorded, with what was built."""
    folder = tmp_path_factory.mktemp("user_kernels")
    launcher = Launcher(folder)
    built = {
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        "TRITON_CACHE_DIR": str(folder / "triton"),
        "TORCH_EXTENSIONS_DIR": str(folder / "extensions"),
    }
    plain = run_cases(launcher, PROGRAM, extra=built)
    return plain, record_cases(launcher, PROGRAM, "recorded", extra=built)


def part_of(runs: tuple[dict, Recorded], case: str) -> Part:
    plain, recorded = runs
    if error := plain["cases"][case]["error"]:
        pytest.skip(f"{case} does not run here, without tracer either: {error.strip().splitlines()[-1]}")
    assert recorded.noted["cases"][case]["error"] is None, recorded.noted["cases"][case]["error"]
    part = recorded.part(case)
    digests = [noted["cases"][case]["parts"]["warm"]["digest"] for noted in (plain, recorded.noted)]
    assert digests[0] == digests[1], f"not the same bytes\n{part}"
    return part


def assert_outside_ops(part: Part, name: str, domain: str) -> dict:
    """One kernel of this name, launched by the user's code and in no hop. Returns the launch."""
    kernel = part.kernel(name)
    call = part.call_of(kernel)
    assert call["domain"] == domain, str(part)
    assert call["name"].startswith("cudaLaunchKernel" if domain == "runtime" else "cuLaunchKernel"), str(part)
    assert call["result"] == 0, str(part)
    assert (call["hop"], kernel["hop"]) == (None, None), f"no op is around it\n{part}"
    assert kernel["block"][0] >= 32, str(part)
    assert call["stack"] is not None, str(part)
    return call


def test_kernel_of_torch_compile(runs: tuple[dict, Recorded]) -> None:
    part = part_of(runs, "compiled")
    kernel = part.kernel("^triton_")
    call = part.call_of(kernel)
    assert call["domain"] == "driver", str(part)
    assert call["name"].startswith("cuLaunchKernel"), str(part)
    assert len(part.kernels) == 1, f"sin, cos and the sum are fused\n{part}"
    assert call["hop"] == kernel["hop"], str(part)


def test_kernel_of_triton(runs: tuple[dict, Recorded]) -> None:
    part = part_of(runs, "triton")
    call = assert_outside_ops(part, "^double_kernel", "driver")
    kernel = part.kernel("^double_kernel")
    assert kernel["grid"] == [4, 1, 1], str(part)
    assert call["source"] is not None, f"the line of the script\n{part}"
    assert ".py:" in call["source"], str(part)


def test_kernel_of_numba(runs: tuple[dict, Recorded]) -> None:
    part = part_of(runs, "numba")
    call = assert_outside_ops(part, "double_numba", "driver")
    kernel = part.kernel("double_numba")
    assert (kernel["grid"], kernel["block"]) == ([16, 1, 1], [256, 1, 1]), str(part)
    assert ".py:" in (call["source"] or ""), str(part)


def test_kernels_of_cupy(runs: tuple[dict, Recorded]) -> None:
    part = part_of(runs, "cupy")
    call = assert_outside_ops(part, "double_cupy", "driver")
    lines = [part.call_of(kernel)["source"] or "" for kernel in part.kernels.iter_rows(named=True)]
    assert len(lines) >= 2, f"one that the script wrote, and those of mean\n{part}"
    assert all(line.rpartition(":")[0].endswith("user_kernels.py") for line in lines), (lines, str(part))
    assert lines[0] == call["source"] != lines[-1], (lines, str(part))
    assert any("cupy" in frame for frame in part.stack_of(call)), "\n".join(part.stack_of(call))


def test_kernel_of_an_extension(runs: tuple[dict, Recorded]) -> None:
    part = part_of(runs, "extension")
    call = assert_outside_ops(part, "double_all", "runtime")
    kernel = part.kernel("double_all")
    assert (kernel["grid"], kernel["block"]) == ([16, 1, 1], [256, 1, 1]), str(part)
    assert (call["source"] or "").rpartition(":")[0].endswith("user_kernels.py"), str(part)
    stack = part.stack_of(call)
    assert any("double_extension" in frame for frame in stack), "\n".join(stack)
    assert any("double_all_of" in frame for frame in stack), "\n".join(stack)
    assert "aten::empty_like" in " ".join(part.ops()), str(part)


def test_what_ran_outside_ops_is_named_and_counted(runs: tuple[dict, Recorded]) -> None:
    _, recorded = runs
    outside = recorded.kernels.filter(pl.col("hop").is_null())
    certificate = recorded.cuda
    assert certificate["outside_ops"] == len(outside) > 0, recorded.about()
    assert sum(row["count"] for row in certificate["outside_ops_by"]) == len(outside), recorded.about()
    assert all(row["what"] for row in certificate["outside_ops_by"]), recorded.about()
    assert len(launches(recorded.api_calls)) == len(recorded.kernels), recorded.about()
    assert certificate["reconciles"] is True, recorded.about()
