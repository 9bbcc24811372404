"""What collecting the tests costs: each worker of pytest imports every test module."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent


def test_no_test_module_imports_torch() -> None:
    """In a process of its own: other tests of this one have imported it."""
    environment = {name: text for name, text in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "refused_torch", "--collect-only", "-qq", "."],
        cwd=HERE.parent,  # in there, so that the installed tracer is collected, not its source
        env=environment | {"PYTHONPATH": str(HERE)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "is imported" not in done.stdout, done.stdout
    assert done.returncode == 0, done.stdout + done.stderr
