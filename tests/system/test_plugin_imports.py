"""pytest loads the plugin in every run, so it must cost nothing there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_plugin_imports_neither_torch_nor_polars() -> None:
    code = (
        "import pytest, sys; before = set(sys.modules); import tracer.testing.plugin\n"
        "new = {name.partition('.')[0] for name in set(sys.modules) - before}\n"
        "print(*sorted(new - set(sys.stdlib_module_names)))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)
    assert (run.stdout.split(), run.stderr) == (["tracer"], "")
