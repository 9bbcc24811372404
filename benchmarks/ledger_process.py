"""Runs a script and writes when each optimizer step ended: a process of ledger.py."""

from __future__ import annotations

import json
import runpy
import sys
import time
from pathlib import Path

from torch.optim.optimizer import register_optimizer_step_post_hook


def main() -> None:
    out, *sys.argv = sys.argv[1:]
    ends: list[int] = []
    register_optimizer_step_post_hook(lambda *_: ends.append(time.perf_counter_ns()))
    runpy.run_path(sys.argv[0], run_name="__main__")
    Path(out).write_text(json.dumps(ends))


if __name__ == "__main__":
    main()
