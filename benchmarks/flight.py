"""A ring for a long time: does the memory of the process grow, and does the file keep its size?

    python benchmarks/flight.py --minutes 30 --shapes 1000000

Records training steps, and ops on a new shape each time, in a ring of `--max-size`. Each tenth of the time it
prints the resident memory without the pages of the trace (which are the kernel's to drop), and the size of
the file.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path

import torch

import tracer

MIB = 1 << 20


def resident() -> float:
    """MiB of the process's own memory: anonymous pages."""
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(fields["RssAnon"].split()[0]) / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--shapes", type=int, default=1_000_000)
    parser.add_argument("--max-size", default="256M")
    given = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
    optimizer = torch.optim.Adam(model.parameters())
    base = torch.ones(1)

    def step(number: int) -> None:
        loss = model(torch.randn(16, 32)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        for shape in range(100 * number, 100 * number + 100):
            if shape < given.shapes:
                base.expand(shape % 1000 + 1, shape // 1000 + 1).detach()

    for number in range(100):
        step(given.shapes + number)
    with tempfile.TemporaryDirectory(dir=os.getcwd()) as folder:
        path = Path(folder, "flight.trace")
        with tracer.record(path, max_size=given.max_size) as recording:
            for number in range(100):
                step(given.shapes + number)
            first, began, steps, shown = resident(), time.monotonic(), 0, 0
            print(f"begin: {first:.1f} MiB", flush=True)
            while (passed := time.monotonic() - began) < 60 * given.minutes:
                step(steps)
                steps += 1
                if passed > shown * 6 * given.minutes:
                    shown += 1
                    size = path.stat().st_blocks * 512 / MIB
                    print(
                        f"{passed / 60:.1f} min: {resident() - first:+.1f} MiB, file {size:.1f} MiB, "
                        f"{steps:,} steps, {min(100 * steps, given.shapes):,} shapes",
                        flush=True,
                    )
            print(f"end: {resident() - first:+.1f} MiB, file {path.stat().st_blocks * 512 / MIB:.1f} MiB")
        assert recording.summary is not None
        print(recording.summary.text())


if __name__ == "__main__":
    main()
