"""Compiled code of installed libraries, and calls of compiled code from inside of one."""

from __future__ import annotations

import pytest
from launching import Launcher

import tracer

pytestmark = pytest.mark.compiler

LIBRARY = """
import torch

class Trainer:
    def __init__(self, function):
        self.function = function

    def compute(self, x):
        return self.function(x)

    def fit(self, x):
        return self.compute(x)

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.mm(x, x)

def product(x):
    return torch.mm(x, x)
"""
USER = """
import sys, torch, tracer
sys.path.insert(0, sys.argv[1])
from library import Model, Trainer, product

def mine(x):  # def mine
    return torch.mm(x, x)

model, x = torch.compile(Model()), torch.ones(4, 4)
for of in (mine, product):
    trainer = Trainer(torch.compile(of))
    trainer.fit(x)
    with tracer.record(f"{of.__name__}.trace", cuda="off"):
        trainer.fit(x)  # fits
model(x)
with tracer.record("model.trace", cuda="off"):
    model(x)  # calls
"""


def test_lines_of_installed_libraries_head_no_table(launcher: Launcher) -> None:
    """The library compiles its own function, calls one of the script, or is called."""
    folder = launcher.folder / "site-packages"
    folder.mkdir()
    (folder / "library.py").write_text(LIBRARY)
    launcher.write(USER)
    run = launcher.python("script.py", str(folder))
    assert run.status == 0, run.err
    lines = {text.partition("# ")[2]: n for n, text in enumerate(USER.splitlines(), 1)}
    for name, called, source in (
        ("mine", "fits", "def mine"),
        ("product", "fits", "fits"),
        ("model", "calls", "calls"),
    ):
        trace = tracer.load(launcher.folder / f"{name}.trace")
        caller, of_op = (f"{launcher.folder / 'script.py'}:{lines[word]}" for word in (called, source))
        assert trace.compiled_calls["called_from"].cast(str).to_list() == [caller]
        products = trace.hops.filter(op="aten::mm.out")
        assert set(products["source"].cast(str)) == {of_op}, name
        assert set(products["called_from"].cast(str)) == {caller}, name
