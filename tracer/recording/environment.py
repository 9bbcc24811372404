"""Facts about the machine and the run, stored at the start of a recording."""

from __future__ import annotations

import os
import sys
from datetime import datetime, timezone

from tracer.base.own import mark
from tracer.base.package import VERSION
from tracer.base.this_torch import this_torch


def snapshot(options: dict[str, object]) -> dict[str, object]:
    """The "environment" of a trace, ready for JSON."""
    torch = this_torch()
    facts: dict[str, object] = {
        "tracer": VERSION,
        "python": sys.version.split()[0],
        "torch": str(torch.__version__),
        "torch_cuda": torch.version.cuda,
        "platform": _platform(),
        "cpu": _cpu(),
        "cores": len(os.sched_getaffinity(0)),
        "argv": [str(argument) for argument in getattr(sys, "argv", [])],
        "command": [str(part) for part in sys.orig_argv[1:]],
        "cwd": _working_folder(),
        "started_at": datetime.now(timezone.utc).astimezone().isoformat(timespec="seconds"),
        "options": options,
    }
    return facts | {"own": mark(facts)}


def _platform() -> str:
    kernel = os.uname()
    return f"{kernel.sysname} {kernel.release} {kernel.machine}"


def _cpu() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return "unknown"


def _working_folder() -> str:
    try:
        return os.getcwd()
    except OSError:
        return "unknown"  # removed meanwhile
