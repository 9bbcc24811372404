"""Nsight Compute around a replay."""

from __future__ import annotations

import glob
import shutil

_PLACES = ("/usr/local/cuda*/bin/ncu", "/opt/nvidia/nsight-compute/*/ncu")


def find_ncu() -> str | None:
    """The newest one that is installed; that on PATH before others."""
    found = shutil.which("ncu")
    others = sorted(path for pattern in _PLACES for path in glob.glob(pattern))
    return found or (others[-1] if others else None)


def command(ncu: str, script: list[str], output: str) -> list[str]:
    """Profiles the one call that the script marks."""
    profiled = ["--profile-from-start", "off", "--set", "full", "--force-overwrite", "--export", output]
    return [ncu, *profiled, *script]
