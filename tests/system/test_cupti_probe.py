"""A CUPTI that must not be called: tried in a process of its own, and what was found is kept."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from tracer.base import kept
from tracer.recording import cupti_probe

FUNCTIONS = ("cuptiGetVersion", "cuptiGetResultString", "cuptiSubscribe", "cuptiEnableDomain")
FUNCTIONS += ("cuptiActivityEnable", "cuptiActivityDisable", "cuptiUnsubscribe")

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no gcc to make libraries with")


def library(path: Path, **bodies: str) -> Path:
    """A libcupti whose functions do what `bodies` say; a libcuda.so.1 beside it."""
    source = "#include <unistd.h>\nunsigned calls;\n"
    for name in FUNCTIONS:
        source += f"int {name}(void** out) {{ {bodies.get(name, '')}; return 0; }}\n"
    driver = f"int cuInit(int flags) {{ {bodies.get('cuInit', '')}; return 0; }}\n"
    for made, text in ((path, source), (path.parent / "libcuda.so.1", driver)):
        command = ["gcc", "-w", "-O0", "-shared", "-fPIC", "-x", "c", "-", "-o", str(made)]
        subprocess.run(command, input=text.encode(), check=True)
    return path


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_a_cupti_that_answers_is_usable(tmp_path: Path) -> None:
    path = library(tmp_path / "libcupti.so.13", cuptiSubscribe="*out = &calls")
    assert cupti_probe.attempt(str(path)) == ("", True)


def test_a_missing_library_is_left_to_the_recording(tmp_path: Path) -> None:
    assert cupti_probe.attempt(str(tmp_path / "libcupti.so.13")) == ("", True)


@pytest.mark.parametrize("function", [*FUNCTIONS, "cuInit"])
def test_the_function_that_crashed_is_named(tmp_path: Path, function: str) -> None:
    bodies = {"cuptiSubscribe": "*out = &calls", function: "*(volatile int*)8 = 1"}
    path = library(tmp_path / "libcupti.so.13", **bodies)
    assert cupti_probe.attempt(str(path)) == (f"{function} of {path} crashed (signal 11)", True)


def test_a_crash_is_known_where_children_are_not_waited_for(tmp_path: Path) -> None:
    path = library(tmp_path / "libcupti.so.13", cuptiGetVersion="*(volatile int*)8 = 1")
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        assert cupti_probe.attempt(str(path)) == (f"cuptiGetVersion of {path} crashed", False)
    finally:
        signal.signal(signal.SIGCHLD, before)


def test_a_function_that_does_not_return(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cupti_probe, "_SECONDS", 3)
    path = library(tmp_path / "libcupti.so.13", cuptiSubscribe="for (;;) pause()")
    assert cupti_probe.attempt(str(path)) == (f"cuptiSubscribe of {path} did not return within 3 s", False)


def test_it_is_tried_once_for_each_library_and_driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver, path = tmp_path / "version", tmp_path / "nvidia" / "cu13" / "lib" / "libcupti.so.13"
    path.parent.mkdir(parents=True)
    path.write_text("one")
    driver.write_text("NVRM version: 580\n")
    monkeypatch.setattr(cupti_probe, "_DRIVER", (str(driver),))
    monkeypatch.syspath_prepend(str(tmp_path))
    tried: list[str] = []
    lasts = [True]
    monkeypatch.setattr(
        cupti_probe, "attempt", lambda library: tried.append(library) or (f"no {len(tried)}", lasts[0])
    )
    again = "; to try again: tracer doctor"
    assert [cupti_probe.unusable("13.0") for _ in range(3)] == ["no 1" + again] * 3
    assert tried == [str(path)]
    assert cupti_probe.unusable("13.0", again=True) == "no 2" + again
    assert cupti_probe.unusable("13.0") == "no 2" + again
    path.write_text("another")
    assert cupti_probe.unusable("13.0") == "no 3" + again
    driver.write_text("NVRM version: 590\n")
    assert cupti_probe.unusable("13.0") == "no 4" + again
    lasts[0] = False
    driver.write_text("NVRM version: 600\n")
    said = [cupti_probe.unusable("13.0") for _ in range(2)]
    assert said == ["no 5" + again, "no 6" + again], "what another try may find better is not kept"
    assert cupti_probe.unusable(None) == ""
    monkeypatch.setattr(cupti_probe, "_DRIVER", (str(tmp_path / "none"),))
    assert cupti_probe.unusable("13.0") == "", "without a driver nothing is tried, and nothing is called"


def test_what_cannot_be_kept_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cache").write_text("a file")
    kept.write("kind", "key", "text")
    assert kept.read("kind", "key") is None
    monkeypatch.chdir(tmp_path)
    for relative in ("cache-here", "~"):  # one that the specification ignores, a user without a home folder
        monkeypatch.setenv("XDG_CACHE_HOME", relative)
        monkeypatch.setenv("HOME", relative)
        kept.write("kind", "key", "text")
        assert kept.read("kind", "key") is None
    assert os.listdir(tmp_path) == ["cache"]
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "other"))
    kept.write("kind", "key", "text\nof two lines")
    assert kept.read("kind", "key") == "text\nof two lines"
    assert kept.read("kind", "another key") is None
    (name,) = os.listdir(tmp_path / "other" / "tracer")
    (tmp_path / "other" / "tracer" / name).write_text("another key\nof the same checksum")
    assert kept.read("kind", "key") is None
