"""The sessions that tracer brings run from any folder and walk the path that they describe."""

from __future__ import annotations

import functools
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import readings
from debugging import Debugged, debug
from launching import Launcher, cache_folder

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


OTHERS = [
    "autocast",
    "conv2d",
    "custom_operator",
    "layer_norm",
    "raises",
    "scaled_dot_product_attention",
    "vmap",
]
FOLDER = Path(tracer.__file__).parent / "gdb"

Walked = Callable[[str], tuple[Launcher, Debugged]]


@pytest.fixture(scope="module")
def walked(tmp_path_factory: pytest.TempPathFactory) -> Walked:
    """Runs a session; one that ran is not run again."""
    cache_folder()  # which tests do not leave behind

    @functools.cache
    def run(name: str) -> tuple[Launcher, Debugged]:
        launcher = Launcher(tmp_path_factory.mktemp(name))
        found = debug(launcher, name)
        assert found.run.status == 0, found.run.err
        return launcher, found

    return run


@pytest.mark.parametrize("name", sorted(PATHS))
def test_session(walked: Walked, name: str) -> None:
    assert walked(name)[1].functions() == PATHS[name]


class Asked:
    """What a session asks for."""

    def __init__(self, name: str) -> None:
        self.specs: list[str] = []
        runpy.run_path(str(FOLDER / f"{name}.py"))["walk"](self)

    def program(self, text: str) -> None:
        self.text = text

    def stop_at(self, spec: str, **_: Any) -> None:
        self.specs.append(spec)

    def go(self) -> None:
        pass


@pytest.mark.parametrize("name", sorted([*PATHS, *OTHERS]))
def test_stops_are_the_hops_of_a_recording_and_read_what_torch_tells(walked: Walked, name: str) -> None:
    launcher, found = walked(name)
    asked = Asked(name)
    launcher.write(asked.text)
    operators = {spec for spec in asked.specs if spec.count("::") == 1}
    row = readings.row(launcher, name, found.stops, operators)
    print(row.text())
    assert row.stops == row.hops
    assert {op for op, _ in row.hops} == operators
    assert row.differences == []
    assert row.compared >= len(row.stops)


@pytest.mark.promise("gdb", "docs/gdb.md#sessions")
def test_mm_ends_in_one_backtrace_from_python_to_the_kernel(walked: Walked) -> None:
    found = walked("mm")[1]
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


def test_a_report_has_the_program_and_no_folder_of_the_session(walked: Walked) -> None:
    found = walked("cat")[1]
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


def test_the_sessions_are_listed_with_a_line_each(launcher: Launcher) -> None:
    listed = launcher.run([str(launcher.tracer), "gdb", "--list"])
    lines = dict(line.split(None, 1) for line in listed.out.splitlines())
    assert list(lines) == [*sorted([*PATHS, "gru", *OTHERS]), "debug_build/nine_stops"]
    assert lines["cat"] == "The path of torch.cat"


def test_the_sessions_are_short_and_listed(launcher: Launcher) -> None:
    scripts = sorted(FOLDER.glob("*.py"))
    assert [script.stem for script in scripts] == sorted([*PATHS, "gru", *OTHERS])
    assert max(len(script.read_text().splitlines()) for script in scripts) <= 40
    listed = launcher.run([str(launcher.tracer), "gdb", "no-such-session", "-b", "aten::mm"])
    assert all(script.stem in listed.err for script in scripts)
