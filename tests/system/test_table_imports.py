"""Recording imports no table library."""

from __future__ import annotations

import subprocess
import sys


def test_recording_needs_no_table_library() -> None:
    code = "import tracer.trace, sys; print(sorted({'polars', 'numpy', 'torch'} & set(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
    code = "from tracer.trace import load; import sys; print('torch' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "False"
