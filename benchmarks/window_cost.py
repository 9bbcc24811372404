"""What the first step of a recorded window costs, beside torch.profiler: names are met for the first time.

    python benchmarks/window_cost.py               # under a minute
    python benchmarks/window_cost.py --rounds 10   # several processes of each kind, in turns

A transformer block and a GRU train for 12 steps, on the GPU if there is one. Steps 6, 7 and 8 are recorded:
by `tracer record --steps 6:9`, and by torch.profiler with a schedule. A row has the time of step 6, and of
step 7, less the median of steps 3 to 5 of the same process, which nobody records: medians over processes.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path

STEPS, FIRST, END = 12, 6, 9
KINDS = ("bare", "tracer", "profiler")


def run_steps(kind: str) -> list[float]:
    """Milliseconds of each step."""
    import torch
    from torch import nn
    from torch.profiler import ProfilerActivity, profile, schedule

    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    torch.set_num_threads(1)  # so that other work on this machine disturbs less
    layer = nn.TransformerEncoderLayer(256, 4, 512, batch_first=True).to(device)
    gru, head = nn.GRU(256, 256, batch_first=True).to(device), nn.Linear(256, 100).to(device)
    optimizer = torch.optim.AdamW([*layer.parameters(), *gru.parameters(), *head.parameters()])
    profiler = None
    if kind == "profiler":
        activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device == "cuda" else [])]
        plan = schedule(wait=FIRST - 1, warmup=1, active=END - FIRST, repeat=1)
        profiler = profile(activities=activities, schedule=plan, with_stack=True)
        profiler.start()
    times = []
    for _ in range(STEPS):
        began = time.perf_counter()
        batch = torch.randn(8, 32, 256, device=device)
        hidden, _ = gru(layer(batch))
        labels = torch.randint(0, 100, (8,), device=device)
        loss = nn.functional.cross_entropy(head(hidden[:, -1]), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if device == "cuda":
            torch.cuda.synchronize()
        times.append((time.perf_counter() - began) * 1e3)
        if profiler:
            profiler.step()
    if profiler:
        profiler.stop()
    return times


def visit(kind: str, folder: Path) -> list[float]:
    """The same in a process of its own."""
    script = [str(Path(__file__).resolve()), "--steps-of", kind]
    tracer = os.path.join(sysconfig.get_path("scripts"), "tracer")
    steps = f"{FIRST}:{END}"
    recorded = [tracer, "record", "--force", "-o", str(folder / "window.trace"), "--steps", steps]
    command = [*(recorded if kind == "tracer" else [sys.executable]), *script]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    times: list[float] = json.loads(done.stdout.splitlines()[-1])
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description="What the first step of a recorded window costs.")
    parser.add_argument("--rounds", type=int, default=3, help="processes of each kind (default 3)")
    parser.add_argument("--steps-of", choices=KINDS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.steps_of:
        print(json.dumps(run_steps(options.steps_of)))
        return
    visits: dict[str, list[list[float]]] = {kind: [] for kind in KINDS}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(options.rounds):
            for kind in KINDS:
                visits[kind].append(visit(kind, Path(folder)))
    print(f"{'':10} {'first step':>12} {'second step':>12} {'a step before':>14}")
    for kind, runs in visits.items():
        before = [statistics.median(times[3:FIRST]) for times in runs]
        columns = []
        for step in (FIRST, FIRST + 1):
            added = [times[step] - usual for times, usual in zip(runs, before, strict=True)]
            columns.append(f"{statistics.median(added):+.1f} ms")
        print(f"{kind:10} {columns[0]:>12} {columns[1]:>12} {statistics.median(before):>11.1f} ms")


if __name__ == "__main__":
    main()
