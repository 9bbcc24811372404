"""tracer built for CUDA on a machine that cannot run it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from launching import Launcher
from lazily import torch

import tracer
from tracer import _build_info
from tracer.recording.options import Options
from tracer.recording.recording import Recording

pytestmark = pytest.mark.skipif(_build_info.CUDA_HEADERS is None, reason="torch has no CUDA")


STUB = """\
int cuDriverGetVersion(int* version) { return 34; }
int cuDeviceGetCount(int* count) { return 34; }
int cuInit(unsigned flags) { return 34; }
"""


@pytest.mark.parametrize("loaded", [False, True])
def test_the_stub_of_a_toolkit_is_no_driver(launcher: Launcher, loaded: bool) -> None:
    """Images for builds have it under the driver's name; each of its functions answers 34."""
    if shutil.which("gcc") is None:
        pytest.skip("there is no gcc to make a library with")
    command = ["gcc", "-w", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-x", "c", "-"]
    path = launcher.folder / "libcuda.so.1"
    subprocess.run([*command, "-o", str(path)], input=STUB.encode(), check=True)
    load = "import ctypes; ctypes.CDLL('libcuda.so.1', mode=ctypes.RTLD_GLOBAL)\n" if loaded else ""
    launcher.write(load + "import torch\nprint((torch.ones(2, 2) @ torch.ones(2, 2)).sum().item())\n")
    run = launcher.record("script.py", extra={"LD_LIBRARY_PATH": str(launcher.folder)})
    assert (run.status, run.out) == (0, "8.0\n"), run.err
    assert "complete: nothing dropped" in run.said


@pytest.mark.promise("tracer.record", "docs/cuda.md")
@pytest.mark.parametrize("cuda", ["auto", "off"])
def test_recordings_begin_and_end_without_calling_cupti(tmp_path: Path, cuda: str) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with tracer.record(tmp_path / "run.trace", cuda=cuda) as recording:
        torch.ones(2, 2) @ torch.ones(2, 2)
    said = tracer.load(tmp_path / "run.trace").certificate["cuda"]
    assert recording.summary.verdict == "complete: nothing dropped"
    assert said["state"] == ("off" if cuda == "off" else "no driver")
    assert said["cupti"] == 0


def test_a_cupti_that_must_not_be_called_is_not(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    reason = "cuptiSubscribe of libcupti.so.13 crashed (signal 11)"
    recording = Recording(str(tmp_path / "run.trace"), options=Options(), unusable=reason)
    with recording:
        torch.ones(2, 2) @ torch.ones(2, 2)
    said = f"tracer: CUDA will not be recorded: {reason}. Dispatcher hops are still recorded.\n"
    assert capfd.readouterr().err == said
    assert recording.summary.verdict == f"incomplete: no CUDA: {reason}"
    said = tracer.load(tmp_path / "run.trace").certificate["cuda"]
    assert (said["state"], said["why"], said["cupti"]) == ("failed", reason, 0)
