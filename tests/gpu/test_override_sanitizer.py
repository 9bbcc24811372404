"""compute-sanitizer finds nothing in the kernels of the overrides."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from override_calls import native

HERE = Path(__file__).parent


def sanitizer() -> str:
    found = shutil.which("compute-sanitizer") or shutil.which(
        "compute-sanitizer", path=os.path.join(os.environ.get("CUDA_HOME", "/usr/local/cuda"), "bin")
    )
    if not found:
        pytest.skip("compute-sanitizer is not installed")
    return found


@pytest.mark.slow
@pytest.mark.parametrize("tool", ["memcheck", "racecheck", "synccheck"])
@pytest.mark.parametrize("name", ["mm", "cat", "gru", "mm_groups", "gru_groups"])
def test_clean(name: str, tool: str) -> None:
    native()
    command = [
        sanitizer(),
        "--tool",
        tool,
        "--error-exitcode",
        "3",
        sys.executable,
        "override_small_shapes.py",
        name,
    ]
    if tool == "synccheck":  # a GRU has barriers in each of its blocks; more than it tracks end the kernel
        command[3:3] = ["--num-cuda-barriers", "65536"]
    environment = dict(os.environ)
    if tool == "memcheck":  # each tensor its own allocation, so that reading beside one is seen
        environment["PYTORCH_NO_CUDA_MEMORY_CACHING"] = "1"
    done = subprocess.run(
        command, cwd=HERE, env=environment, capture_output=True, text=True, timeout=540, check=False
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, f"{said[:6000]}\n...\n{said[-2000:]}"
    assert f"done {name}" in done.stdout
