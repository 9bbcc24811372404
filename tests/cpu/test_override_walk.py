"""The walk of docs/overrides.md: each of its commands, in the order of the page."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from launching import Launcher

ROOT = Path(__file__).parents[2]
ON_A_GPU = "mm,gru,cat"
"""The built-in overrides: tests/gpu/test_override_walk_gpu.py runs all commands"""


def commands() -> Iterator[list[str]]:
    page = (ROOT / "docs/overrides.md").read_text()
    walk = page.partition("## A walk of ten minutes\n")[2].partition("\n## ")[0]
    return (shlex.split(line) for line in re.findall(r"^    \$ (.*)$", walk, re.MULTILINE))


def walked(launcher: Launcher, *, on_gpu: bool) -> None:
    for name in (ROOT / "examples/overrides").iterdir():
        if name.is_file():
            shutil.copy(name, launcher.folder)
    for program, *arguments in commands():
        if ON_A_GPU in arguments and not on_gpu:
            continue
        run = launcher.run([str(launcher.tracer) if program == "tracer" else program, *arguments])
        assert run.status == 0, (arguments, run.err)


@pytest.mark.promise("compare", "docs/overrides.md#a-walk-of-ten-minutes")
def test_the_walk(tmp_path: Path) -> None:
    launcher = Launcher(tmp_path)
    walked(launcher, on_gpu=False)
    for name in ("python", "cpp", "triton"):
        page = (tmp_path / f"{name}.md").read_text()
        first = " ".join(page.splitlines()[2].split())
        assert "the overrides computed 5 calls; 1 call handed over to stock; its calls are" in first
        assert re.search(r"; no difference found in \d+ trials of \d+ kinds; stdout is the same", first), (
            first
        )
        assert f"- `silu_{name}` for `aten::silu` handed 1 call over to stock: not float32" in page
        for section in ("Whole runs", "Ops", "Errors, memory and the limit", "Trials", "1. `aten::silu`"):
            assert f"\n## {section}" in page
