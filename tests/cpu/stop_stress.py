"""Five threads run ops, backward in two of them, while recordings start and stop. Run as a script:

python stop_stress.py LIBRARY STARTS RECORDINGS ARMINGS

Prints how often each thread came round. Any wrong result, changed table word or crash ends it badly.
"""

from __future__ import annotations

import itertools
import sys
import threading
from pathlib import Path

import torch
from table_words import TableWords, changed

import tracer
from tracer import _C


def forward() -> torch.Tensor:
    a = torch.arange(16.0).view(4, 4)
    return torch.cat([a @ a.T, a.relu().add(1)]).sum(0)


turns = itertools.count(1)


def new_shapes() -> torch.Tensor:
    """Each call writes signatures that no call before it had."""
    number = next(turns)
    return torch.empty_strided((1, 1), (number % 30_011 + 1, number)).fill_(number % 7).neg().sum() * 0


def backward() -> torch.Tensor:
    weight = torch.full((4, 4), 0.5, requires_grad=True)
    (torch.arange(16.0).view(4, 4) @ weight).sigmoid().sum().backward()
    return weight.grad


class Worker(threading.Thread):
    """Repeats a function whose result is known until it is told to end."""

    def __init__(self, run, end: threading.Event) -> None:
        super().__init__()
        self._run, self._end, self._expected = run, end, run()
        self.rounds = 0
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            while not self._end.is_set():
                assert torch.equal(self._run(), self._expected), "another result than without a recording"
                self.rounds += 1
        except BaseException as error:
            self.error = error


def main(library: str, starts: int, recordings: int, armings: int) -> None:
    torch.set_num_threads(1)
    words = TableWords(Path(library))
    before = words.read()
    end = threading.Event()
    workers = [Worker(run, end) for run in (forward, new_shapes, new_shapes, backward, backward)]
    for worker in workers:
        worker.start()
    try:
        Path("starts.trace").unlink(missing_ok=True)
        _C.create("starts.trace", 1, True, True)
        _C.arm()
        for _ in range(starts):
            _C.start()
            _C.pause()
        _C.stop()
        _C.restore()
        _C.close()
        for _ in range(armings):
            _C.arm()
            _C.restore()
        for _ in range(recordings):
            with tracer.record("again.trace", force=True) as recording:
                torch.ones(1)
            assert recording.summary.verdict == "complete: nothing dropped", recording.summary.verdict
        rounds = [worker.rounds for worker in workers]
        while any(
            worker.rounds == old and worker.error is None for worker, old in zip(workers, rounds, strict=True)
        ):
            pass  # each thread must come round once more after the last stop
    finally:
        end.set()
        for worker in workers:
            worker.join()
    for worker in workers:
        if worker.error is not None:
            raise worker.error
    torch._C._dispatch_check_all_invariants()
    assert words.hooked() == 0
    assert changed(before, words.read()) == []
    print("rounds", *(worker.rounds for worker in workers))


main(sys.argv[1], *map(int, sys.argv[2:]))
