"""Session scripts that move by op calls and by lines."""

from __future__ import annotations

from pathlib import Path

import pytest
from debugging import debug
from launching import Launcher
from libraries import build

pytestmark = pytest.mark.gdb

HOPS = """
\"\"\"From matmul to the next hops, and out of mm.\"\"\"
PROGRAM = '''
import torch
w = torch.ones(4, 5, requires_grad=True)
torch.matmul(torch.ones(3, 4), w)
'''

def walk(gdb):
    gdb.program(PROGRAM)
    gdb.stop_at("at::_ops::matmul::call", halt=True, limit=1)
    gdb.go()
    seen = [gdb.next_hop(), gdb.next_hop(), gdb.finish_op()]
    names = [(stop["kind"], stop["op"]) for stop in seen]
    gdb.note(f"hops: {names}")
"""


def test_next_hop_and_finish_op(launcher: Launcher) -> None:
    launcher.write(HOPS, "hops.py")
    found = debug(launcher, "--session", "hops.py")
    assert found.run.status == 0, found.run.err
    assert [(stop["kind"], stop["op"]) for stop in found.stops] == [
        ("function", None),
        ("call", "aten::mm"),
        ("redispatch", "aten::mm"),
        ("end", "aten::mm"),
    ]
    result = found.stops[3]["arguments"][-1]
    assert (result["name"], result["value"]["shape"]) == ("result", [3, 5])


WITHOUT = """
def walk(gdb):
    gdb.program("import torch\\ntorch.ones(3)")
    gdb.stop_at("at::_ops::ones::call", halt=True)
    gdb.go()
    gdb.finish_op()
    gdb.finish_op()
"""


def test_finish_op_twice_says_that_the_call_is_over(launcher: Launcher) -> None:
    launcher.write(WITHOUT, "twice.py")
    found = debug(launcher, "--session", "twice.py")
    assert found.run.status == 1
    assert "finish_op: aten::ones is at its end" in found.run.err


SOURCE = """\
#include <torch/library.h>
#include <vector>

namespace own {

at::Tensor inner(const at::Tensor& input) {
  return input;
}

at::Tensor outer(const at::Tensor& input) {
  std::vector<int64_t> sizes = input.sizes().vec();
  return inner(input.sym_size(0) > c10::SymInt(1) ? input : input.t());
}

}  // namespace own

TORCH_LIBRARY(own, library) {
  library.def("outer(Tensor input) -> Tensor", own::outer);
}
"""
STEPS = """
def walk(gdb):
    gdb.program("import torch\\ntorch.ops.load_library('LIBRARY')\\ntorch.ops.own.outer(torch.ones(2, 3))")
    gdb.stop_at("own::outer", halt=True)
    gdb.go()
    PLUMBING
    for _ in range(3):
        gdb.step()
"""


@pytest.mark.compiler
def test_steps_pass_over_plumbing(launcher: Launcher, tmp_path: Path) -> None:
    library = build(tmp_path, "own", SOURCE)
    steps = STEPS.replace("LIBRARY", str(library))
    launcher.write(steps.replace("PLUMBING", "pass"), "steps.py")
    found = debug(launcher, "--session", "steps.py")
    places = [Path(stop["file"]).name for stop in found.stops]
    assert places[0] == "own.cpp"
    assert not {"stl_vector.h", "SymInt.h", "intrusive_ptr.h", "ArrayRef.h"} & set(places), places
    assert "own::inner" in found.functions(), found.functions()
    launcher.write(steps.replace("PLUMBING", "gdb.plumbing(True)"), "steps.py")
    deep = debug(launcher, "--session", "steps.py")
    assert "own::inner" not in deep.functions()
