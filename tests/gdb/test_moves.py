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
    try:
        gdb.finish_op()
    except Exception as error:
        gdb.note(f"{type(error).__name__}: {error}")
    seen[0]["no such field"]
"""


def test_next_hop_and_finish_op(launcher: Launcher) -> None:
    """And finish_op at the end of a call says that it is over. What the script raises loses no stop."""
    launcher.write(HOPS, "hops.py")
    found = debug(launcher, "--session", "hops.py")
    assert found.run.status == 1, found.run.err
    assert 'Traceback (most recent call last):\n  File "hops.py", line 20, in walk\n' in found.run.err
    assert "the session ended early: hops.py:20 raised KeyError: 'no such field'" in found.markdown
    assert "DebuggerError: finish_op: aten::mm is at its end" in found.run.err
    assert [(stop["kind"], stop["op"]) for stop in found.stops] == [
        ("function", None),
        ("call", "aten::mm"),
        ("redispatch", "aten::mm"),
        ("end", "aten::mm"),
    ]
    result = found.stops[3]["arguments"][-1]
    assert (result["name"], result["value"]["shape"]) == ("result", [3, 5])


SOURCE = """\
#include <torch/library.h>
#include <vector>

namespace own {

at::Tensor inner(const at::Tensor& input) {
  return input;
}

at::Tensor computed(const at::Tensor& input) {
  std::vector<int64_t> sizes = input.sizes().vec();
  return inner(input.sym_size(0) > c10::SymInt(1) ? input : input.t());
}

}  // namespace own

TORCH_LIBRARY(own, library) {
  library.def("outer(Tensor input) -> Tensor", own::computed);
}
"""
STEPS = """
def walk(gdb):
    gdb.program("import torch\\ntorch.ops.load_library('LIBRARY')\\n" + 2 * CALL)
    gdb.stop_at("own::computed", halt=True)
    gdb.go()
    for _ in range(3):
        gdb.step()
    gdb.plumbing(True)
    gdb.go()
    for _ in range(3):
        gdb.step()
"""


@pytest.mark.compiler
def test_steps_pass_over_plumbing(launcher: Launcher) -> None:
    """Those in the first call; in the second one it is shown."""
    steps = STEPS.replace("LIBRARY", str(build("own_steps", SOURCE)))
    launcher.write(f"CALL = 'torch.ops.own.outer(torch.ones(2, 3))\\n'\n{steps}", "steps.py")
    found = debug(launcher, "--session", "steps.py")
    assert found.run.status == 0, found.run.err
    first, second = found.stops[:4], found.stops[4:]
    assert [first[0]["function"], second[0]["function"]] == ["own::computed"] * 2
    places = [Path(stop["file"]).name for stop in first]
    assert places[0] == "own_steps.cpp"
    assert not {"stl_vector.h", "SymInt.h", "intrusive_ptr.h", "ArrayRef.h"} & set(places), places
    assert "own::inner" in [stop["function"] for stop in first]
    assert len(second) == 4
    assert "own::inner" not in [stop["function"] for stop in second]
