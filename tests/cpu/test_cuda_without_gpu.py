"""tracer built for CUDA on a machine that cannot run it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import tracer
from tracer import _C
from tracer.recording.options import Options
from tracer.recording.recording import Recording

pytestmark = pytest.mark.skipif(not _C.cuda_is_built(), reason="torch has no CUDA")


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
    assert capfd.readouterr().err == f"tracer: CUDA is not recorded: {reason}; hops are\n"
    assert recording.summary.verdict == f"incomplete: no CUDA: {reason}"
    said = tracer.load(tmp_path / "run.trace").certificate["cuda"]
    assert (said["state"], said["why"], said["cupti"]) == ("failed", reason, 0)
