"""What a recording costs once, in a fresh process: arming, and bytes in the file. Prints JSON.

python benchmarks/once.py FOLDER
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import torch

import tracer

LATER = 5  # armings after the first


def main(folder: Path) -> None:
    a = torch.randn(4, 4)
    path = folder / "once.trace"

    def record(calls: int, **options: bool) -> tuple[float, tracer.Summary]:
        """Seconds that `start` took, and the summary of `calls` times torch.mm."""
        path.unlink(missing_ok=True)
        recording = tracer.record(path, **options)
        began = time.perf_counter()
        recording.start()
        seconds = time.perf_counter() - began
        for _ in range(calls):
            torch.mm(a, a)
        return seconds, recording.stop()

    first, one_mm = record(1)
    later = [record(1)[0] for _ in range(LATER)]
    _, few = record(1_000, shapes=False, source=False)
    _, many = record(41_000, shapes=False, source=False)
    path.unlink()
    figures = {
        "first_arming_s": first,
        "later_armings_s": later,
        "one_mm_bytes": one_mm.size,
        "bytes_per_hop": (many.size - few.size) / (many.hops - few.hops),
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
