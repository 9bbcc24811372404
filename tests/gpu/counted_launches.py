"""Launches kernels until it is killed, and counts in a file those begun and those returned.

python counted_launches.py FILE
"""

from __future__ import annotations

import mmap
import os
import sys
import time
from pathlib import Path

SIZE = 4096


class Counts:
    """Words in a shared file, which outlive the process."""

    BEGUN, ENDED = range(2)

    def __init__(self, path: Path) -> None:
        path.touch()
        os.truncate(path, SIZE)
        with path.open("r+b") as file:
            self.words = memoryview(mmap.mmap(file.fileno(), SIZE)).cast("Q")


def main(path: Path) -> None:
    import torch

    x = torch.zeros(1, device="cuda")
    x.add_(1)
    torch.cuda.synchronize()
    words = Counts(path).words
    n = 0
    while True:
        words[Counts.BEGUN] = n + 1
        x.add_(1)
        n += 1
        words[Counts.ENDED] = n
        time.sleep(50e-6)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
