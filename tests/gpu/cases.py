"""Programs of cases, each run between two readings of the clock. A program ends with `main()`:

    python PROGRAM.py OUT.json [CASE...]

A case is a function that prepares its tensors and returns what is to be run: one callable, run twice as the
parts "first" and "warm", or callables by part. OUT.json says when each part ran (CLOCK_MONOTONIC), with a
digest of what it returned; a case that raised has its traceback there, and the next one goes on.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path

import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
APART_SECONDS = 0.002  # between parts: the clocks of host and GPU may differ by microseconds

Run = Callable[[], object]
CASES: dict[str, Callable[[], Run | dict[str, Run]]] = {}


def case(prepare: Callable[[], Run | dict[str, Run]]) -> Callable[[], Run | dict[str, Run]]:
    CASES[prepare.__name__] = prepare
    return prepare


def main() -> None:
    out, *names = sys.argv[1:]
    noted = {name: run_case(CASES[name]) for name in names or CASES}
    Path(out).write_text(json.dumps({"cases": noted, "facts": facts()}, indent=1))


def run_case(prepare: Callable[[], Run | dict[str, Run]]) -> dict[str, object]:
    parts: dict[str, object] = {}
    try:
        runs = prepare()
        for part, run in ({"first": runs, "warm": runs} if callable(runs) else runs).items():
            parts[part] = timed(run)
    except Exception:
        return {"parts": parts, "error": traceback.format_exc()}
    return {"parts": parts, "error": None}


def timed(run: Run) -> dict[str, object]:
    """`host`: when the calls of the part were made; `done`: when the GPU had ended as well."""
    settle()
    begin = time.monotonic_ns()
    result = run()
    end = time.monotonic_ns()
    time.sleep(APART_SECONDS)  # what follows is no call of the part, nor an activity of it
    synchronize()
    done = time.monotonic_ns()
    time.sleep(APART_SECONDS)
    return {"host": [begin, end], "done": done, "digest": digest(result)}


def settle() -> None:
    synchronize()
    time.sleep(APART_SECONDS)


def synchronize() -> None:
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def digest(result: object) -> str:
    """Of the bytes of every tensor in `result`."""
    total = hashlib.sha256()
    for leaf in leaves(result):
        if isinstance(leaf, torch.Tensor):
            host = leaf.detach().cpu().contiguous()
            total.update(
                host.view(torch.uint8).numpy().tobytes() if host.dim() else repr(host.item()).encode()
            )
        else:
            total.update(repr(leaf).encode())
    return total.hexdigest()


def leaves(result: object) -> Iterable[object]:
    if isinstance(result, (tuple, list)):
        for item in result:
            yield from leaves(item)
    else:
        yield result


def facts() -> dict[str, object]:
    """What this machine is, for messages of tests."""
    known: dict[str, object] = {"torch": torch.__version__, "device": DEVICE}
    if DEVICE == "cuda":
        known |= {
            "gpu": torch.cuda.get_device_name(),
            "cuda": torch.version.cuda,
            "cudnn": torch.backends.cudnn.version(),
        }
    return known
