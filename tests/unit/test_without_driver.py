"""Tests pass with a torch that has CUDA on a machine that has no NVIDIA driver."""

import re
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
PATCHED = re.compile(r"""setattr\(\s*(torch\.cuda,\s*"is_available"|"torch\.cuda\.is_available")""")


def test_no_test_says_that_torch_has_a_gpu() -> None:
    """Adam asks is_available(), for one. In a CUDA build the answer True makes it call the driver."""
    assert PATCHED.search('monkeypatch.setattr(torch.cuda, "is_available", lambda: True)')
    assert PATCHED.search('patch.setattr(\n    "torch.cuda.is_available", lambda: True)')
    files = [path for path in TESTS.rglob("*.py") if path != Path(__file__).resolve()]
    assert len(files) > 100
    assert [path.name for path in files if PATCHED.search(path.read_text())] == []
