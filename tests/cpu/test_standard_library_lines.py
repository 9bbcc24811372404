"""Lines of Python's standard library, and code without a file, count only where the program has no line."""

from __future__ import annotations

import threading

import polars as pl
import pytest
from launching import Launcher

import tracer

SCRIPT = """\
import contextlib, copy, functools, torch
from dataclasses import dataclass, field

x = torch.ones(3)
linear = torch.nn.Linear(2, 2)

@dataclass
class Made:
    value: torch.Tensor = field(default_factory=functools.partial(torch.full, (2,), 3.0))

copy.deepcopy(linear)  # clone
stack = contextlib.ExitStack()
stack.callback(torch.sinh, x)
stack.close()  # sinh
Made()  # full
exec("def neg(x):\\n    return torch.neg(x)")
neg(x)  # neg
"""
LINES = {
    line.partition("# ")[2]: number for number, line in enumerate(SCRIPT.splitlines(), 1) if "  # " in line
}


def sources(launcher: Launcher) -> dict[str, str]:
    hops = tracer.load(launcher.folder / "run.trace").hops.filter(pl.col("parent").is_null())
    named = hops.select(
        pl.col("op").cast(pl.String).str.extract(r"^aten::([^.]+)"), pl.col("source").cast(str)
    )
    return dict(named.rows())


@pytest.mark.parametrize("how", [[], ["--stack", "2"]], ids=["line", "stack"])
def test_the_line_is_outside_torch_and_the_standard_library(launcher: Launcher, how: list[str]) -> None:
    launcher.write(SCRIPT)
    launcher.record("-o", "run.trace", *how, "script.py")
    found = sources(launcher)
    script = launcher.folder / "script.py"
    expected = {op: f"{script}:{line}" for op, line in LINES.items()}
    assert {op: found[op] for op in expected} == expected


THREADS = """\
import threading, torch
from torch.optim.swa_utils import AveragedModel

thread = threading.Thread(target=AveragedModel, args=(torch.nn.Linear(2, 2),))
thread.start()
thread.join()
"""


def test_without_a_line_of_the_program_it_is_the_one_that_called_torch(launcher: Launcher) -> None:
    """AveragedModel copies the model by the standard library: that line is not the one that runs torch."""
    launcher.write(THREADS)
    launcher.record("-o", "run.trace", "script.py")
    assert sources(launcher)["clone"].rpartition(":")[0] == threading.__file__


def test_code_of_the_command_line_has_lines(launcher: Launcher) -> None:
    code = """\
import copy, torch, tracer
with tracer.record("run.trace"):
    copy.deepcopy(torch.nn.Linear(2, 2))
"""
    launcher.python("-c", code, fresh=True)
    assert sources(launcher)["clone"] == "<string>:3"
