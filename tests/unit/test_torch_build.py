"""Which torch an extension runs with that was built with another build, patch or release of it."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import tracer
from tracer.base import extension
from tracer.base.errors import RecordingError
from tracer.base.torch_build import TorchBuild, build_of, facts_in

ONE, OTHER = "1" * 40, "2" * 40


@pytest.mark.promise("docs/versions.md")
@pytest.mark.parametrize(
    ("built", "found", "runs"),
    [
        (("2.13.0+cpu", ONE), ("2.13.0+cpu", ONE), True),
        (("2.13.0+cpu", ONE), ("2.13.0+cu130", ONE), True),
        (("2.13.0+cu130", ONE), ("2.13.0", ONE), True),
        (("2.13.0+cpu", ONE), ("2.13.1+cu126", OTHER), True),
        (("2.13.0+cpu", ONE), ("2.13.0+cpu", None), True),  # it does not say
        (("2.13.0+cpu", ONE), ("2.14.0+cpu", OTHER), False),
        (("2.13.0+cpu", ONE), ("2.12.0+cpu", OTHER), False),
        (("2.13.0+cpu", ONE), ("3.13.0+cpu", OTHER), False),
        # another source under the name of a release
        (("2.13.0+cpu", ONE), ("2.13.0+cpu", OTHER), False),
        (("2.13.0+cpu", ONE), ("2.13.0", OTHER), False),
        # no release, unless tracer was built with exactly this one
        (("2.13.0+cpu", ONE), ("2.13.0a0+gitcf30153", ONE), False),
        (("2.13.0+cpu", ONE), ("2.13.0a0+cf30153+nv25.6", ONE), False),
        (("2.13.0+cpu", ONE), ("2.13.1.dev20260601+cu130", OTHER), False),
        (("2.13.0+cpu", ONE), ("2.13.0+git1111111", ONE), False),
        (("2.13.0a0+gitcf30153", ONE), ("2.13.0+cpu", OTHER), False),
        (("2.13.0a0+gitcf30153", ONE), ("2.13.0a0+gitcf30153", ONE), True),
        (("2.13.0a0+gitcf30153", ONE), ("2.13.0a0+gitcf30153", OTHER), False),
    ],
)
def test_what_runs_with_what(
    built: tuple[str, str], found: tuple[str, str | None], runs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = SimpleNamespace(TORCH_VERSION=built[0], TORCH_GIT=built[1])
    monkeypatch.setitem(sys.modules, "tracer._build_info", info)
    monkeypatch.setattr(tracer, "_build_info", info, raising=False)
    if runs:
        extension.check(TorchBuild(*found))
        return
    with pytest.raises(RecordingError) as raised:
        extension.check(TorchBuild(*found))
    said = str(raised.value)
    assert said.startswith(f"tracer was built with torch {built[0]}")
    assert f", but this is torch {found[0]}" in said
    assert "; rebuild it" in said
    assert "\n" not in said
    assert (ONE[:7] in said and OTHER[:7] in said) == (built[0] == found[0])


@pytest.mark.parametrize("git", [f"'{ONE}'", "'Unknown'", "None", "1", "'\\x1b[31m'"])
def test_a_version_file(git: str, tmp_path: Path) -> None:
    (tmp_path / "version.py").write_text(
        "from typing import Optional\n__version__ = '2.13.0+cpu'\ncuda: Optional[str] = None\n"
        f"git_version = {git}\n"
    )
    assert build_of(facts_in(tmp_path)) == TorchBuild("2.13.0+cpu", ONE if ONE in git else None)
    assert build_of({}).version == "of an unknown version"
