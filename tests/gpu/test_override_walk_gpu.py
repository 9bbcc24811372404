"""The walk of docs/overrides.md with a GPU: the Triton kernel, and tracer's own overrides."""

from __future__ import annotations

from pathlib import Path

import pytest
from launching import Launcher

from tracer.overrides.builtin import missing


@pytest.mark.skipif(missing() is not None, reason=f"no built-in overrides: {missing()}")
def test_the_walk(tmp_path: Path) -> None:
    pytest.importorskip("triton", reason="the walk's kernel is Triton's")
    from test_override_walk import walked

    launcher = Launcher(tmp_path)
    walked(launcher, on_gpu=True)
    triton, builtin = ((tmp_path / f"{name}.md").read_text() for name in ("triton", "builtin"))
    assert "`aten::silu [CUDA]`" in triton
    assert "no difference found in" in triton.splitlines()[2]
    assert "the overrides computed" in builtin.splitlines()[2]
