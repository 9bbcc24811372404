"""Which of a wheel's extensions serves the torch that is there, and how tracer was built."""

from __future__ import annotations

import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

import tracer
from tracer.base import build, extension
from tracer.base.errors import RecordingError
from tracer.base.torch_build import TorchBuild

ONE = "1" * 40


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """As if tracer had come as a wheel for 2.9, 2.13 and 2.15, and for another Python also 2.14."""
    for minor, suffix in (("2.9", 0), ("2.13", 0), ("2.15", 0), ("2.14", None)):
        folder = tmp_path / f"torch{minor}"
        folder.mkdir()
        (folder / "_build_info.py").write_text(f"TORCH_VERSION = '{minor}.0'\nTORCH_GIT = '{ONE}'\n")
        (folder / ("_C.so" if suffix is None else f"_C{EXTENSION_SUFFIXES[suffix]}")).write_text("no library")
    monkeypatch.setitem(sys.modules, "tracer._build_info", None)  # as if it were not there
    monkeypatch.delattr(tracer, "_build_info", raising=False)
    monkeypatch.setattr(build, "NATIVE", str(tmp_path))
    monkeypatch.setattr(build, "_native", None)
    return tmp_path


@pytest.mark.parametrize(
    ("version", "minor"), [("2.13.0+cpu", "2.13"), ("2.13.2+cu126", "2.13"), ("2.15.0", "2.15")]
)
def test_a_wheel_has_an_extension_for_each_minor(wheel: Path, version: str, minor: str) -> None:
    found = extension.check(TorchBuild(version, ONE))
    assert found.__file__ == str(wheel / f"torch{minor}" / "_build_info.py")
    with pytest.raises(ImportError, match="torch" + minor):  # this very file is loaded
        build.native(found)


@pytest.mark.parametrize("version", ["2.14.0+cpu", "2.16.0", "2.13.0a0+git1234567"])
def test_another_torch_is_refused_with_what_to_do(wheel: Path, version: str) -> None:
    with pytest.raises(RecordingError) as raised:
        extension.check(TorchBuild(version, ONE))
    said = str(raised.value)
    assert said.startswith(
        f"tracer was built with torch 2.9.0 and 2.13.0 and 2.15.0, but this is torch {version}; build it: "
    )
    assert said.endswith(
        "--no-build-isolation --force-reinstall --no-deps --no-binary dispatch-tracer dispatch-tracer"
    )
    assert "\n" not in said


@pytest.mark.parametrize("receipt", ["pipx_metadata.json", "uv-receipt.toml"])
def test_an_environment_of_tracer_alone_names_the_one_of_the_script(
    receipt: str, wheel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There `pip install torch` would bring a torch that the script does not use."""
    mine = wheel / "bin" / "python"
    mine.parent.mkdir()
    mine.symlink_to(sys.executable)
    monkeypatch.setenv("PATH", str(mine.parent))
    monkeypatch.setattr(sys, "prefix", str(wheel))
    missing = f"torch is not installed in {sys.executable}; "
    assert extension.no_torch().startswith(f"{missing}install it: ")
    (wheel / receipt).touch()
    there = f"to record, install tracer where your script runs: {mine} -m pip install "
    assert extension.no_torch() == f"{missing}{there}dispatch-tracer"
    monkeypatch.setattr(build, "NATIVE", str(wheel / "gone"))
    assert extension.no_torch().startswith(f"{missing}{there}scikit-build-core cmake ninja && {mine} -m pip ")


def test_a_wheel_is_installed_again_without_its_source(wheel: Path) -> None:
    found = extension.install()
    assert found.startswith("install it here: ")
    assert found.endswith("-m pip install dispatch-tracer")


def test_what_was_built_is_said_of_the_torch_that_is_there(
    wheel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert [found.TORCH_VERSION for found in build.builds()] == ["2.9.0", "2.13.0", "2.15.0"]
    monkeypatch.setattr(build, "installed_torch", lambda: None)
    assert build.build_info().TORCH_VERSION == "2.15.0"
    monkeypatch.setattr(build, "installed_torch", lambda: TorchBuild("2.13.0+cpu", ONE))
    assert build.build_info().TORCH_VERSION == "2.13.0", "the one that runs here"


def test_nothing_built_is_an_import_error(wheel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "NATIVE", str(wheel / "gone"))
    assert build.builds() == []
    with pytest.raises(ImportError):
        build.build_info()
