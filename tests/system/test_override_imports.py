"""Naming overrides imports no torch."""

from __future__ import annotations

import subprocess
import sys


def test_importing_overrides_imports_no_torch() -> None:
    program = (
        "import sys, tracer\nassert 'tracer.overrides' not in sys.modules\ntracer.overrides.use\n"
        "print([name for name in ('torch', 'numpy', 'polars') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
