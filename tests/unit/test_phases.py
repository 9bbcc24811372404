"""Which phase an op call is of is decided in one place."""

from __future__ import annotations

import re
from pathlib import Path

import polars as pl

import tracer.analysis
from tracer.analysis.phases import BACKWARD, calling_line, of_compiled_backward, phase

PRODUCT = Path(tracer.analysis.__file__).parents[1]
DECIDES = re.compile(
    r'"backward_node"\)\s*\.is_not_null|Optimizer\.["|(]'
    r'|\(("direction"|\.String)\)+ == (BACKWARD|"backward")'
)

HOPS = pl.DataFrame(
    [
        ("a.py:1", None, None, None),
        ("a.py:1", None, "MmBackward0", None),
        ("a.py:1", "a.py:2", "MmBackward0", None),  # the script's own node called it
        (None, "a.py:3", None, "Optimizer.step#SGD.step"),
        (None, "a.py:3", "MmBackward0", "Optimizer.step#LBFGS.step"),
        (None, "a.py:3", None, "my optimizer"),
    ],
    {"source": pl.String, "called_from": pl.String, "backward_node": pl.String, "range": pl.String},
    orient="row",
)


def test_an_op_is_of_the_optimizer_then_of_backward_then_of_forward() -> None:
    found = HOPS.select(phase()).to_series().to_list()
    assert found == ["forward", "backward", "backward", "optimizer", "optimizer", "forward"]


def test_what_a_thread_of_autograd_calls_has_no_line() -> None:
    found = HOPS.select(calling_line()).to_series().to_list()
    assert found == ["a.py:1", BACKWARD, "a.py:2", "a.py:3", "a.py:3", "a.py:3"]


def test_compiled_code_is_of_backward_if_it_says_so() -> None:
    calls = pl.DataFrame({"direction": ["forward", "backward", None, "inference"]})
    assert calls.select(of_compiled_backward()).to_series().to_list() == [False, True, False, False]


def test_no_other_place_decides() -> None:
    files = [each for each in PRODUCT.rglob("*.py") if each.name != "phases.py"]
    assert len(files) > 300
    assert [
        str(each) for each in files if DECIDES.search(each.read_text()) and "recording" not in each.parts
    ] == []
