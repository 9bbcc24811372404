"""A real notebook, executed by a real kernel: the magic, the names of cells, what a trace looks like."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

CELLS = [
    "%load_ext tracer\nimport torch, tracer",
    "weight = torch.ones(4, 4, requires_grad=True)",
    "%%tracer run.trace\nproduct = torch.ones(3, 4) @ weight\n(product * 2).sum().backward()",
    "trace = _\nprint(trace.tree(depth=1))",
    "trace.flat('source')",
    "%%tracer\nraise ValueError('the cell failed')",
    "%%tracer a b\nprint('never')",
    "%%tracer --max-size 1K\nprint('never')",
    "%%tracer --memry\nprint('never')",
    "recording = tracer.record('block.trace')\nwith recording:\n    torch.neg(weight)\nprint(recording)",
    "print(tracer.load('block.trace').tree())",
    "%%tracer --memory --no-shapes --stack 2\n# a comment\nx = torch.ones(3).neg()",
    "print(_.tree(), *[_.environment['options'][name] for name in ('memory', 'shapes', 'stack')])",
    "%%tracer\n%%time\ntorch.ones(3)",
    "for number in (1,):\n    with tracer.record('last.trace', force=True):\n        torch.abs(weight)",
    "print(tracer.load('last.trace').tree())",
    "%%tracer\nimport asyncio\nawait asyncio.sleep(0)\nprint('never')",
]


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> list[list[dict]]:
    pytest.importorskip("nbclient", reason="needs nbclient and ipykernel")
    nbformat = pytest.importorskip("nbformat")
    folder = tmp_path_factory.mktemp("notebook")
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text) for text in CELLS])
    executed(notebook, folder, allow_errors=True)
    return [list(cell.outputs) for cell in notebook.cells]


def executed(notebook: Any, folder: Path, *, allow_errors: bool) -> None:
    import nbclient

    kernel = nbclient.NotebookClient(
        notebook, timeout=300, allow_errors=allow_errors, resources={"metadata": {"path": str(folder)}}
    )
    kernel.km = kernel.create_kernel_manager()
    kernel.km.kernel_spec.argv[0] = sys.executable
    kernel.execute(env=os.environ | {"PYDEVD_DISABLE_FILE_VALIDATION": "1"})


def text(cell: list[dict]) -> str:
    return "".join(output.get("text", "") for output in cell)


@pytest.mark.promise("%%tracer", "docs/api.md#in-a-notebook-and-in-a-repl")
def test_the_magic_records_the_cell_and_shows_the_trace(outputs: list[list[dict]]) -> None:
    (result,) = [output for output in outputs[2] if output["output_type"] == "execute_result"]
    assert result["data"]["text/plain"].startswith("<Trace run.trace: complete")
    assert result["data"]["text/html"].startswith("<p><b>run.trace</b>: complete")
    assert len(result["data"]["text/html"].encode()) < 20_000


def test_lines_are_named_after_their_cells(outputs: list[list[dict]]) -> None:
    tree = text(outputs[3])
    assert "product = torch.ones(3, 4) @ weight" in tree, outputs
    assert "In[3]:2  " in tree.splitlines()[1], "the magic is its line 1"
    assert "aten::matmul [" in tree
    block = text(outputs[10])
    assert "In[10]:3  " in block, block
    assert "torch.neg(weight)" in block


def test_each_cell_has_its_own_number_after_a_magic(outputs: list[list[dict]]) -> None:
    assert re.search(r"In\[12\]:3  .* x = torch.ones\(3\).neg\(\)", text(outputs[12])), text(outputs[12])
    assert "In[15]:3  " in text(outputs[15]), text(outputs[15])


def test_a_magic_may_be_below_it(outputs: list[list[dict]]) -> None:
    assert "Wall time" in text(outputs[13])


def test_options_of_the_magic_are_those_of_record(outputs: list[list[dict]]) -> None:
    assert text(outputs[12]).rstrip().endswith("True False 2")
    for cell, said in ((7, "max-size 1K is too small"), (8, "unrecognized arguments: --memry")):
        assert text(outputs[cell]).startswith(f"UsageError: tracer: {said}"), outputs[cell]
        assert text(outputs[cell]).count("\n") == 1


def test_a_table_and_a_recording_look_like_something(outputs: list[list[dict]]) -> None:
    table = outputs[4][0]["data"]["text/html"]
    assert "In[3]:2  product = torch.ones(3, 4) @ weight" in table
    assert "ipykernel" not in table
    assert text(outputs[9]).strip().endswith("block.trace: ended>")


def test_errors_are_those_of_the_cell(outputs: list[list[dict]]) -> None:
    (error,) = [output for output in outputs[5] if output["output_type"] == "error"]
    assert (error["ename"], error["evalue"]) == ("ValueError", "the cell failed")
    said = "give %%tracer [FILE.trace] [options of tracer record, e.g. --memory]"
    assert text(outputs[6]) == f"UsageError: tracer: unrecognized arguments: b; {said}\n"


def test_a_cell_that_awaits_is_refused(outputs: list[list[dict]]) -> None:
    said = "UsageError: tracer: %%tracer cannot record a cell that awaits: write `with tracer.record(FILE):`"
    assert text(outputs[16]) == f"{said} in the cell\n"


@pytest.mark.parametrize(
    ("cell", "said"),
    [
        ("%%tracer a b\nready = True", "unrecognized arguments: b"),
        ("%%tracer\nraise ValueError('the body failed')", "the body failed"),
        ("%%tracer\n1 +", "invalid syntax"),
        ("%%tracer\n%%tracer a b\nready = True", "unrecognized arguments: b"),
    ],
)
def test_a_notebook_ends_at_a_cell_that_failed(cell: str, said: str, tmp_path: Path) -> None:
    nbclient = pytest.importorskip("nbclient", reason="needs nbclient and ipykernel")
    nbformat = pytest.importorskip("nbformat")
    cells = ["%load_ext tracer", cell, "print('after it')"]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text) for text in cells])
    with pytest.raises(nbclient.exceptions.CellExecutionError, match=said):
        executed(notebook, tmp_path, allow_errors=False)
    assert not notebook.cells[2].outputs


IN_A_TERMINAL = """
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
shell.run_cell("%load_ext tracer")
shell.run_cell("%%tracer\\nimport asyncio, torch\\nawait asyncio.sleep(0)\\nnumber = torch.ones(1).neg()")
print(shell.user_ns["number"], shell.user_ns["_"])
"""


def test_a_cell_that_awaits_is_recorded_in_a_terminal(tmp_path: Path) -> None:
    """No loop runs there beside it."""
    pytest.importorskip("IPython")
    run = subprocess.run(
        [sys.executable, "-P", "-c", IN_A_TERMINAL], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert "tensor([-1.]) <Trace" in run.stdout, run.stdout
    assert "complete" in run.stdout
