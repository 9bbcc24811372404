"""`--preload`: functions that were compiled with -O0 -g run in place of the release's, and have lines."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from debugging import debug
from launching import Launcher

pytestmark = pytest.mark.gdb

# Without torch's headers it compiles at once. The release answers False for a zero.
SOURCE = """\
namespace at {
class Tensor;
namespace native {
bool is_nonzero(const Tensor&) {
  bool answer = true;
  return answer;
}
}  // namespace native
}  // namespace at
"""


@pytest.mark.promise("gdb", "docs/gdb.md#a-few-files-of-it")
def test_a_function_that_was_compiled_for_debugging_runs_and_has_its_line(
    launcher: Launcher, tmp_path: Path
) -> None:
    launcher.write(SOURCE, "few.cpp")
    compiler = ["g++", "-O0", "-g", "-shared", "-fPIC", "few.cpp", "-o", "few.so"]
    subprocess.run(compiler, cwd=tmp_path, check=True)
    launcher.write("import torch\nprint(bool(torch.zeros(1)))\n")
    found = debug(launcher, "script.py", "-b", "at::native::is_nonzero", "--preload", "few.so")
    assert (found.run.status, found.run.out) == (0, "True\n"), found.run.err
    (stop,) = found.stops
    assert (Path(stop["file"]).name, stop["line"]) == ("few.cpp", 5)
    assert [Path(file).name for file, _, line in stop["python"]] == ["script.py"]
    assert "- preloaded: few.so" in found.markdown
