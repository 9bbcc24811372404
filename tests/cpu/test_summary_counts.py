"""The counts that a recording prints at its end are those of the tables that are read from the file later."""

from __future__ import annotations

import re

import pytest
from launching import Launcher

import tracer

WORK = """
import os, signal, sys, threading, torch
from torch import nn

def work(times):
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.Linear(4, 4))
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(times):
        model(torch.ones(3, 4)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        with torch.autocast("cpu"):
            torch.ones(2, 2).add_(1).mm(torch.ones(2, 2))
"""
FORK = (
    WORK
    + """
work(5)
child = os.fork()
if child == 0:
    work(5)
    os.{ending}
os.waitpid(child, 0)
work(5)
"""
)
SCRIPTS = {
    "one thread": ([], WORK + "work(20)\n"),
    "threads one after the other": (
        [],
        WORK + "for _ in range(4):\n    t = threading.Thread(target=work, args=(3,)); t.start(); t.join()\n",
    ),
    "threads at once": (
        [],
        WORK + "ts = [threading.Thread(target=work, args=(20,)) for _ in range(4)]\n"
        "for t in ts: t.start()\nfor t in ts: t.join()\n",
    ),
    "several chunks": ([], WORK + "work(250)\n"),
    "a forked child": ([], FORK.format(ending="_exit(0)")),
    "a killed child": ([], FORK.format(ending="kill(os.getpid(), signal.SIGKILL)")),
    "a killed child that has filled chunks": (
        [],
        FORK.replace("    work(5)\n    os", "    work(200)\n    os").format(
            ending="kill(os.getpid(), signal.SIGKILL)"
        ),
    ),
    "a child that joins": (
        [],
        WORK + "work(3)\nimport subprocess\n"
        "if sys.argv[1:] != ['child']: subprocess.run([sys.executable, __file__, 'child'], check=True)\n",
    ),
    "steps": (["--steps", "3:6"], WORK + "work(10)\n"),
    "some operators": (["--ops", "aten::*mm*"], WORK + "work(10)\n"),
    "a ring": (["--max-size", "16M"], WORK + "work(900)\n"),
    "a ring and a killed child": (
        ["--max-size", "16M"],
        FORK.replace("work(5)", "work(300)").format(ending="kill(os.getpid(), signal.SIGKILL)"),
    ),
    "a largest size": (["--max-size", "4M", "--then-stop"], WORK + "work(250)\n"),
    "left inside of hops": (
        [],
        WORK + "work(2)\n"
        "class Leaves(torch.autograd.Function):\n"
        "    @staticmethod\n    def forward(context, x): return x * 2\n"
        "    @staticmethod\n    def backward(context, x):\n"
        "        import tracer\n        tracer.stop()\n        return x\n"
        "Leaves.apply(torch.ones(2, requires_grad=True)).sum().backward()\n",
    ),
}


def number(said: str, noun: str) -> int:
    found = re.search(rf"([\d,]+) {noun}", said)
    return int(found[1].replace(",", "")) if found else 0


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_counts_at_the_end_are_those_of_the_tables(launcher: Launcher, name: str) -> None:
    options, script = SCRIPTS[name]
    launcher.write(script)
    run = launcher.record("-o", "t.trace", *options, "script.py")
    said = " ".join(run.said.split())
    trace = tracer.load(launcher.folder / "t.trace")
    hops, certificate = trace.hops, trace.certificate
    assert len(hops) > 30, run.err
    assert number(said, "hops?,") == len(hops)
    assert number(said, "op calls?,") == (hops["kind"] == "call").sum()
    assert number(said, "threads?,") == certificate["threads"]
    assert number(said, "process(?:es)?,") == certificate["processes"]
    assert number(said, "hops? still open") == certificate["open_hops"] == hops["open"].sum()
    assert number(said, "hops? overwritten") == certificate["overwritten_hops"]
