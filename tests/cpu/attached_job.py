"""A seeded training loop, started without tracer, that a test attaches to.

    python attached_job.py FOLDER STEPS [PHASE...]

In step 2, 4, 6... it stays in one PHASE after the other, in Python, until the file FOLDER/go.N appears.
It says so with FOLDER/at.N. It prints a digest of all losses and weights, and whether the dispatch table
is as it was: each word of it, read with FOLDER/table_words.so.
"""

from __future__ import annotations

import atexit
import ctypes
import hashlib
import os
import sys
import threading
import time

import torch
from torch.optim.optimizer import _global_optimizer_post_hooks, register_optimizer_step_post_hook

FOLDER, STEPS, PHASES = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
ROOM = 10_000_000
step = 0
may_stay = False


def stay(phase: str) -> None:
    """If it is this phase's turn, stay here until the test says go."""
    turn = step // 2 - 1
    if not may_stay or step % 2 or not 0 <= turn < len(PHASES) or PHASES[turn] != phase:
        return
    if os.path.exists(f"{FOLDER}/at.{turn}"):
        return
    open(f"{FOLDER}/at.{turn}", "w").close()
    while not os.path.exists(f"{FOLDER}/go.{turn}"):
        time.sleep(0.001)


class Staying(torch.autograd.Function):
    @staticmethod
    def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: object, gradient: torch.Tensor) -> torch.Tensor:
        stay("backward")
        return gradient * 1.0


class Inner(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x).relu()


class Outer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Inner()
        self.scale = torch.nn.Parameter(torch.ones(16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.autograd.profiler.record_function("outer range"):
            x = (x * self.scale).sin()
            stay("forward")
            return Staying.apply(self.inner(x.cos()))


class Adam(torch.optim.Adam):
    def zero_grad(self, set_to_none: bool = True) -> None:
        stay("zero_grad")
        super().zero_grad(set_to_none)


class Data(torch.utils.data.IterableDataset):
    def __iter__(self):
        while True:
            stay("loader")
            yield torch.randn(16)


def stay_in_hook(*_: object) -> None:
    stay("hook")


def table_words() -> bytes:
    library = f"{FOLDER}/table_words.so"
    if not os.path.exists(library):
        return b""
    words = (ctypes.c_uint64 * ROOM)()
    names = ctypes.create_string_buffer(ROOM)
    read = ctypes.CDLL(library).table_words
    read.restype = ctypes.c_uint64
    count = read(words, ctypes.c_uint64(ROOM), names, ctypes.c_uint64(ROOM))
    return bytes(memoryview(words)[:count]) + names.value


def train() -> str:
    global step
    torch.manual_seed(0)
    model, digest = Outer(), hashlib.sha256()
    optimizer = Adam(model.parameters(), lr=0.01)
    optimizer.register_step_pre_hook(lambda *_: stay("optimizer"))
    batches = iter(torch.utils.data.DataLoader(Data(), batch_size=8))
    for number in range(STEPS):
        step = number
        x = next(batches)
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        stay("between")
        optimizer.step()
        digest.update(loss.detach().numpy().tobytes())
    for weight in model.parameters():
        digest.update(weight.detach().numpy().tobytes())
    return digest.hexdigest()


def main() -> None:
    global may_stay
    torch.set_num_threads(1)
    register_optimizer_step_post_hook(stay_in_hook)
    train()  # what torch sets up at its first use is set up
    before, paths, names = table_words(), list(sys.path), set(globals())
    may_stay = True
    open(f"{FOLDER}/ready", "w").close()
    print(train())
    print("table", "same" if table_words() == before else "changed")
    print("path", "same" if sys.path == paths else "changed", "names", sorted(set(globals()) - names))
    until = time.monotonic() + 5
    while len(_global_optimizer_post_hooks) > 1 and time.monotonic() < until:
        time.sleep(0.001)  # tracer takes its own out when no optimizer steps: a moment after the last step
    print("hooks", len(_global_optimizer_post_hooks))
    print("threads", threading.active_count())


if __name__ == "__main__":
    main()
    atexit.register(print, "end")
