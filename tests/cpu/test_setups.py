"""The options of optimizers and the settings of data loaders, as a program set them."""

from __future__ import annotations

import json

import polars as pl
from launching import Launcher

import tracer

PROGRAM = """
import os, torch
from torch.utils.data import DataLoader, TensorDataset
class Mine(torch.optim.SGD):
    pass
m = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 3))
first, other = {"params": [*m[0].parameters()]}, {"params": [m[1].weight], "lr": torch.tensor(0.1)}
adam = torch.optim.AdamW([first, other, {"params": [m[1].bias]}], fused=True, amsgrad=True)
mine = Mine(m.parameters(), lr=0.1, momentum=0.9)
data = TensorDataset(torch.ones(8, 3))
by_worker = DataLoader(data, 2, num_workers=1, persistent_workers=True)
for loader in DataLoader(data, 4), by_worker, DataLoader(data, 4):
    for (x,) in loader:
        m(x).sum().backward()
        adam.step()
        mine.step()
del by_worker, loader
if (child := os.fork()) == 0:
    mine.step()
    list(DataLoader(data, 8))
    os._exit(0)
os.waitpid(child, 0)
for _ in range(3):
    one = Mine(m.parameters(), lr=0.1, momentum=0.9)
    one.step()
"""
BROKEN = """
import torch, traceback
from torch.utils.data import DataLoader
class Sampler:
    def __iter__(self):
        raise ValueError("mine")
    def __len__(self):
        return 3
try:
    list(DataLoader([1, 2, 3], sampler=Sampler(), pin_memory=True, batch_size=None))
except ValueError:
    print(traceback.format_exc())
"""


def test_the_options_of_optimizers_and_loaders(launcher: Launcher) -> None:
    launcher.write(PROGRAM)
    run = launcher.record(
        "-o", "t.trace", "script.py", fresh=True
    )  # of a forked one the folder of its worker stays
    assert run.status == 0, run.err
    trace = tracer.load(launcher.folder / "t.trace")
    root = trace.optimizers.filter(pl.col("process") == 0)
    assert root["class"].to_list() == ["torch.optim.adamw.AdamW"] * 2 + ["__main__.Mine"]
    assert root["parameters"].to_list() == [3, 1, 4]
    first, second, third = (json.loads(options) for options in root["options"])
    assert (first["fused"], first["foreach"], first["amsgrad"], first["lr"]) == (True, None, True, "number")
    assert (second["lr"], third["momentum"], third["fused"]) == ("tensor", 0.9, None)
    assert trace.loaders.filter(pl.col("process") == 0).drop("process").rows() == [
        (0, 4, None, False, False),
        (1, 2, 2, False, True),
    ]
    child = trace.processes["process"].max()  # its own, without those of its parent
    assert trace.loaders.filter(pl.col("process") == child)["batch_size"].to_list() == [8]
    assert trace.optimizers.filter(pl.col("process") == child)["class"].to_list() == ["__main__.Mine"]


def test_an_error_of_a_sampler_reads_as_without_tracer(launcher: Launcher) -> None:
    launcher.write(BROKEN)
    launcher.same("script.py")


STRANGE = """\
import torch
from torch.utils.data import DataLoader, TensorDataset

class Drawing(DataLoader):
    @property
    def prefetch_factor(self):
        return int(torch.randint(2, 5, ()))
    @prefetch_factor.setter
    def prefetch_factor(self, value):
        pass

class Own(torch.optim.SGD):
    @property
    def __dict__(self):
        print("asked for __dict__")
        return {}

class Telling(type):
    def __getattribute__(cls, name):
        if name in ("__qualname__", "__module__"):
            print("asked of the class:", name)
        return super().__getattribute__(name)

class Counting(torch.optim.SGD, metaclass=Telling):
    hashed = 0
    def __hash__(self):
        Counting.hashed += 1
        return 7
    def __eq__(self, other):
        print("compared")
        return self is other

class Group(dict):
    def __getitem__(self, key):
        print("asked of the group:", key)
        return super().__getitem__(key)

class Number(float):
    def __eq__(self, other):
        print("compared a number")
        return float(self) == other
    __hash__ = float.__hash__

torch.manual_seed(0)
rows = TensorDataset(torch.arange(8.0))
for (batch,) in Drawing(rows, batch_size=4, shuffle=True):
    print(batch.tolist())
print(torch.rand(1).item())
weight = torch.nn.Parameter(torch.ones(2))
weight.grad = torch.ones(2)
counting = Counting([weight], lr=0.1)
before = Counting.hashed
for _ in range(2):
    counting.step()
print(Counting.hashed - before)
Own([weight], lr=0.1).step()
of_groups = torch.optim.SGD([weight], lr=0.1)
of_groups.param_groups = [Group(of_groups.param_groups[0])]
of_groups.step()
of_numbers = torch.optim.SGD([weight], lr=0.1)
of_numbers.param_groups[0]["weight_decay"] = Number(0)
of_numbers.param_groups.append(dict(of_numbers.param_groups[0], params=[]))
of_numbers.step()
print(weight.tolist())
"""


def test_nothing_of_the_program_is_asked(launcher: Launcher) -> None:
    """A property may draw a random number; __eq__ and __hash__ may print and count."""
    launcher.write(STRANGE)
    launcher.same("script.py")


ALARMS = """\
import itertools, signal, time, torch
from torch.utils.data import DataLoader, TensorDataset

class Timeout(Exception):
    pass

raised = caught = 0
def handler(*_):
    global raised
    raised += 1
    raise Timeout

signal.signal(signal.SIGALRM, handler)
weight = torch.nn.Parameter(torch.ones(2))
weight.grad = torch.ones(2)
rows = TensorDataset(torch.arange(4.0))
torch.optim.SGD([weight], lr=0.1).step()
end = time.monotonic() + 4
for number in itertools.count(1):
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.0003 + number % 97 * 5e-6)
        for _ in range(20):
            torch.optim.SGD([weight], lr=0.1, weight_decay=number * 1e-9).step()
            iter(DataLoader(rows, batch_size=1 + number % 30))
        wait = time.monotonic() + 0.05
        while time.monotonic() < wait:
            pass
    except Timeout:
        caught += 1
    if time.monotonic() > end:
        break
signal.setitimer(signal.ITIMER_REAL, 0)
print("lost", raised - caught)
"""


def test_a_timeout_of_the_program_is_never_lost(launcher: Launcher) -> None:
    """A signal is handled between any two lines of Python, also those of tracer."""
    launcher.write(ALARMS)
    assert launcher.same("script.py").out == "lost 0\n"
