"""The sessions that tracer brings run from any folder and walk the path that they describe."""

from __future__ import annotations

import runpy
from pathlib import Path

import polars as pl
import pytest
from debugging import debug
from launching import Launcher

import tracer

pytestmark = pytest.mark.gdb

ADDMM = [
    "at::_ops::addmm::call",
    "torch::autograd::VariableType::addmm",
    "at::_ops::addmm::redispatch",
    "wrapper_CPU_addmm",
]
MM = ["at::_ops::mm::call", "torch::autograd::VariableType::mm", "at::_ops::mm::redispatch", "wrapper_CPU_mm"]
T = [
    "at::_ops::t::call",
    "torch::autograd::VariableType::t",
    "at::_ops::t::redispatch",
    "torch::ADInplaceOrView::t",
    "at::_ops::t::redispatch",
    "wrapper_CompositeExplicitAutograd__t",
]
LINEAR = ["at::_ops::linear::call", "wrapper_CompositeImplicitAutograd__linear"]

COMPARED = [
    "conv2d",
    "layer_norm",
    "scaled_dot_product_attention",
    "custom_operator",
    "raises",
    "vmap",
    "autocast",
]

PATHS = {
    "mm": [
        "torch::autograd::THPVariable_matmul",
        "at::_ops::matmul::call",
        "wrapper_CompositeImplicitAutograd__matmul",
        "at::native::matmul",
        "at::native::_matmul_impl",
        *MM,
        "at::native::structured_mm_out_cpu::impl",
    ],
    "cat": [
        "at::_ops::cat::call",
        "torch::autograd::VariableType::cat",
        "at::_ops::cat::redispatch",
        "wrapper_CPU_cat",
        "at::native::structured_cat_out_cpu::impl",
    ],
    "embedding": [
        "torch::autograd::THPVariable_embedding",
        "at::_ops::embedding::call",
        "torch::autograd::VariableType::embedding",
        "at::_ops::embedding::redispatch",
        "wrapper_CompositeExplicitAutograd__embedding",
        "at::native::embedding_symint",
        "at::_ops::index_select::call",
        "wrapper_CPU__index_select",
    ],
    "linear": [*LINEAR, *T, *ADDMM, "at::native::structured_addmm_out_cpu::impl"],
    "backward": [*MM, "torch::autograd::generated::MmBackward0::apply", *MM, *MM],
}


# The two others have more to show, below.
@pytest.mark.parametrize("name", sorted(PATHS.keys() - {"mm", "cat"}))
def test_session(launcher: Launcher, name: str) -> None:
    found = debug(launcher, name)
    assert found.run.status == 0, found.run.err
    assert found.functions() == PATHS[name]


@pytest.mark.promise("gdb", "docs/gdb.md#sessions")
def test_mm_ends_in_one_backtrace_from_python_to_the_kernel(launcher: Launcher) -> None:
    found = debug(launcher, "mm")
    assert found.run.status == 0, found.run.err
    assert found.functions() == PATHS["mm"]
    frames = [frame["function"] for frame in found.stops[-1]["frames"]]
    assert frames[:11] == [
        "at::native::structured_mm_out_cpu::impl",
        "wrapper_CPU_mm",
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


def test_cat_and_its_report_with_the_program_and_no_folder_of_the_session(launcher: Launcher) -> None:
    found = debug(launcher, "cat")
    assert found.run.status == 0, found.run.err
    assert found.functions() == PATHS["cat"]
    assert "- command: `python" in found.markdown
    assert "## Program\n\n```python\nimport torch\n" in found.markdown
    assert "tracer-gdb-" not in found.markdown
    assert found.stops[0]["python"][-1][0] == "program.py"


def test_gru(launcher: Launcher) -> None:
    found = debug(launcher, "gru")
    assert found.functions()[:2] == [
        "at::_ops::gru_input::call",
        "wrapper_CompositeImplicitAutograd_input_gru",
    ]
    assert found.functions()[2:6] == LINEAR * 2
    assert found.functions()[-2:] == [
        "at::_ops::cat::call",
        "wrapper_CPU_cat",
    ]  # inside stack, below autograd
    assert "aten::linear: " in found.run.err  # the rest is counted and said
    assert "more op calls were not recorded" in found.run.err


@pytest.mark.parametrize("name", COMPARED)
def test_kernel_functions_are_the_hops_of_a_recording(launcher: Launcher, name: str) -> None:
    space = runpy.run_path(str(Path(tracer.__file__).parent / "gdb" / f"{name}.py"))
    launcher.write(space["PROGRAM"])
    assert launcher.record("-o", "run.trace", "script.py").status == 0
    hops = tracer.load(launcher.folder / "run.trace").hops.select(pl.col("op", "key").cast(pl.String))
    wanted = [hop for hop in hops.iter_rows() if hop[0] in space["OPERATORS"]]
    found = debug(launcher, name)
    assert found.run.status == 0, found.run.err
    stops = [stop for stop in found.stops if "kernel" in stop["kind"]]
    assert sorted((stop["op"], stop["key"]) for stop in stops) == sorted(wanted)
    assert {op for op, _ in wanted} == set(space["OPERATORS"])


def test_the_sessions_are_listed_with_a_line_each(launcher: Launcher) -> None:
    listed = launcher.run([str(launcher.tracer), "gdb", "--list"])
    lines = dict(line.split(None, 1) for line in listed.out.splitlines())
    assert list(lines) == [*sorted([*PATHS, "gru", *COMPARED]), "debug_build/nine_stops"]
    assert lines["cat"] == "The path of torch.cat"


def test_the_sessions_are_short_and_listed(launcher: Launcher) -> None:
    folder = Path(tracer.__file__).parent / "gdb"
    scripts = sorted(folder.glob("*.py"))
    assert [script.stem for script in scripts] == sorted([*PATHS, "gru", *COMPARED])
    assert max(len(script.read_text().splitlines()) for script in scripts) <= 40
    listed = launcher.run([str(launcher.tracer), "gdb", "no-such-session", "-b", "aten::mm"])
    assert all(script.stem in listed.err for script in scripts)
