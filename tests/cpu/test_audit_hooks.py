"""A program whose audit hook refuses what tracer asks for lives as without tracer."""

from __future__ import annotations

import polars as pl
import pytest
from launching import Launcher

import tracer

pytestmark = pytest.mark.fresh

REFUSES = """\
import multiprocessing, os, sys, threading

refused = set()

# All in arguments: the interpreter takes the variables of a module away before its last events.
def hook(event, _, here=__file__, asks=threading.local(), frame_of=sys._getframe, kind={kind}):
    if getattr(asks, "now", False):
        return
    asks.now = True
    try:
        frame = frame_of(0).f_back
        while frame is not None and frame.f_code.co_filename != here:
            file = frame.f_code.co_filename
            if "/torch/" in file or file.startswith("<frozen importlib"):
                break
            if "/tracer/" in file:
                refused.add(event)
                raise kind(event)
            frame = frame.f_back
    finally:
        asks.now = False
"""
EARLY = """
sys.addaudithook(hook)
import torch
print(torch.ones(2).neg().tolist())
sys.exit(6)
"""
PARENT = """\
import subprocess, sys, torch
torch.ones(2)
print(subprocess.run([sys.executable, "script.py"]).returncode)
"""
PROGRAM = """
import torch

class Rows(torch.utils.data.Dataset):
    def __len__(self): return 4
    def __getitem__(self, at): return torch.full((2,), float(at))

def child():
    print("child", torch.ones(2).sum().item())

def train():
    model(torch.ones(4, 2)).sum().backward()
    optimizer.step()

model = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
train()
sys.addaudithook(hook)
for _ in range(3):
    train()
adam = torch.optim.Adam(model.parameters())
for parameter in model.parameters():
    parameter.register_post_accumulate_grad_hook(lambda _: adam.step())
train()
for workers in (0, 1):
    print([batch.tolist() for batch in torch.utils.data.DataLoader(Rows(), 2, num_workers=workers)])
print(torch.compile(lambda x: x.sin() + 1, backend="eager")(torch.zeros(2)).tolist())
sys.stdout.flush()
pid = os.fork()
if not pid:
    train()
    sys.exit(3)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
process = multiprocessing.get_context("fork").Process(target=child)
process.start()
process.join()
thread = threading.Thread(target=child)
thread.start()
thread.join()
print(process.exitcode)
open("refused", "w").write(" ".join(refused))
sys.exit(6)
"""


@pytest.mark.parametrize("kind", ["PermissionError", "LookupError"])
def test_each_event_of_tracers_is_refused(launcher: Launcher, kind: str) -> None:
    launcher.write(REFUSES.format(kind=kind) + PROGRAM)
    plain = launcher.python("script.py")
    assert plain.status == 6, plain.err
    run = launcher.record("-o", "run.trace", "script.py")
    assert (run.status, run.out, run.own_err) == (plain.status, plain.out, plain.err)
    assert "complete: nothing dropped" in run.said
    refused = (launcher.folder / "refused").read_text().split()
    assert {"sys._getframe", "object.__getattr__", "builtins.id"} <= set(refused)
    trace = tracer.load(launcher.folder / "run.trace")
    assert trace.hops["process"].n_unique() == 4
    assert "aten::sin" in set(trace.hops["op"].cast(pl.String))


@pytest.mark.parametrize("kind", ["PermissionError", "LookupError"])
def test_a_hook_of_before_the_import_of_torch(launcher: Launcher, kind: str) -> None:
    """Nothing is recorded, by any way to begin, and the program imports torch and ends as it did."""
    launcher.write(REFUSES.format(kind=kind) + EARLY)
    launcher.write(PARENT, "parent.py")
    plain = launcher.python("script.py")
    assert plain.status == 6, plain.err
    run = launcher.record("-o", "run.trace", "script.py")
    assert (run.status, run.out, run.own_err) == (plain.status, plain.out, plain.err)
    assert run.said == "tracer: nothing is recorded: import\n"
    parent = launcher.record("-o", "parent.trace", "parent.py")
    assert (parent.status, parent.out, parent.own_err) == (0, plain.out + "6\n", plain.err)
    launcher.environment["TRACER"] = "switched.trace"
    switched = launcher.python("script.py")
    assert (switched.status, switched.out, switched.own_err) == (plain.status, plain.out, plain.err)
