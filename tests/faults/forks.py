"""Processes that are forked while a recording begins, runs and ends."""

from __future__ import annotations

import sys

from case import Case, assert_all_calls
from rows import row

WHILE = """
import os, sys, threading, time, torch, tracer
ops = threading.Event()
def run():
    while not ops.is_set(): torch.neg(torch.ones(2))
for turn in range(3):
    recording = tracer.record(f'forks.{{turn}}.trace')
    if {ends}: recording.start()
    thread = threading.Thread(target=recording.stop if {ends} else recording.start)
    thread.start()
    children = []
    while thread.is_alive():
        child = os.fork()
        if child == 0:
            {child}
        children.append(child)
        time.sleep(0.01)
    thread.join()
    if not {ends}: recording.stop()
    for child in children: assert os.waitpid(child, 0)[1] == 0
print('all ended')
"""
CHILDREN = {
    "leaves": "os._exit(0)",
    "exits as Python does": "sys.exit(0)",
    "runs ops": "torch.neg(torch.ones(2)); sys.exit(0)",
    "registers an operator": "torch.library.Library('forked', 'DEF').define('op() -> ()'); os._exit(0)",
}


@row(
    "forked while a recording begins or ends",
    "Each child ends: none is born with a lock whose owner it does not have.",
    {
        f"{when}, {name}": (ends, act)
        for when, ends in (("begins", False), ("ends", True))
        for name, act in CHILDREN.items()
    },
)
def forked_meanwhile(case: Case, variant: tuple[bool, str]) -> None:
    ends, act = variant
    case.write(WHILE.format(ends=ends, child=act))
    run = case.run([sys.executable, "script.py"])
    assert (run.status, run.out) == (0, "all ended\n"), run.err
    assert case.left_over("script.py", *(f"forks.{turn}.trace" for turn in range(3))) == []


BACKWARD = """
import os, threading, torch
rows = torch.ones(100, 100, requires_grad=True)
ended = False
def backward():
    while not ended: (rows @ rows).sum().backward()
threads = [threading.Thread(target=backward) for _ in range(3)]
for thread in threads: thread.start()
x, statuses = torch.ones(2), []
def fork():
    for _ in range(15):
        child = os.fork()
        if child == 0:
            for _ in range(20): torch.neg(x)
            os._exit(0)
        statuses.append(os.waitpid(child, 0)[1])
forking = threading.Thread(target=fork)
forking.start(); forking.join()
ended = True
for thread in threads: thread.join()
print(statuses)
"""
POOL = """
import multiprocessing, torch
def work(number):
    for _ in range(100): torch.neg(torch.ones(2))
    return number
if __name__ == '__main__':
    with multiprocessing.get_context({method!r}).Pool({size}) as pool:
        print(sum(pool.map(work, range({size}), chunksize=1)))
        pool.close()
        pool.join()
"""
BEFORE = """
import os
children = []
for _ in range(4):
    child = os.fork()
    if child == 0:
        import torch
        for _ in range(50): torch.neg(torch.ones(2))
        os._exit(0)
    children.append(child)
import torch
for child in children: print(os.waitpid(child, 0)[1])
for _ in range(100): torch.neg(torch.ones(2))
"""
NESTED = """
import os, torch
def generation(left):
    for _ in range(100): torch.neg(torch.ones(2))
    if left == 0: return
    child = os.fork()
    if child == 0:
        generation(left - 1)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
generation(5)
print('ended')
"""
PROGRAMS = {
    "beside three threads in backward": (BACKWARD, 300),
    "a pool of forks": (POOL.format(method="fork", size=8), 800),
    "a pool of new processes": (POOL.format(method="spawn", size=3), 300),
    "before torch is imported": (BEFORE, None),
    "children of children": (NESTED, 600),
}


@row(
    "forks while it runs",
    "The script runs as without tracer, and the calls of all its processes are there.",
    PROGRAMS,
)
def forks_while_it_runs(case: Case, variant: tuple[str, int | None]) -> None:
    script, ran = variant
    case.write(script)
    traced = case.same("script.py")
    assert traced.status == 0, traced.err
    trace = case.trace("both.trace")
    if ran is not None:
        assert_all_calls(trace, ran)
