"""A wheel has its CUDA part also beside a torch that has no CUDA: nothing of CUDA is looked for there."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from tracer.base.errors import RecordingError
from tracer.recording import cuda
from tracer.recording.options import Options


def native(begun: list[tuple]) -> Any:
    """An extension whose CUDA part finds no libcupti."""
    state = {"state": "failed", "why": "libcupti.so.13 was not found"}
    return SimpleNamespace(
        __file__="/site-packages/tracer/_native/torch2.13/_C.so",
        begin_cuda=lambda wanted, driver, injection, *others: begun.append((wanted, injection)),
        cuda_statement=lambda: dict(state),
        certificate=dict,
    )


@pytest.mark.parametrize(
    ("version", "wanted", "why"),
    [(None, False, "torch has no CUDA"), ("13.0", True, "libcupti.so.13 was not found")],
)
def test_what_is_said_of_cuda_asks_the_torch_that_is_there(
    version: str | None, wanted: bool, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cuda._cuda_of_torch.cache_clear()  # of the test before
    loaded = SimpleNamespace(version=SimpleNamespace(cuda=version))
    monkeypatch.setitem(sys.modules, "torch", loaded)
    begun: list[tuple] = []
    cuda.begin(native(begun), Options(), "")
    beside = "/site-packages/tracer/_native/torch2.13/libtracer_injection.so"
    assert begun == [(wanted, beside)], "pip install -e . has both, and not the package, in site-packages"
    found = cuda.certificate(native(begun))["cuda"]
    assert (found["state"], found["why"]) == ("failed" if wanted else "not built", why)
    with pytest.raises(RecordingError, match=f"cannot record CUDA: {why}; to record without it: --cuda off"):
        cuda.begin(native(begun), Options(cuda="on"), "")
    cuda._cuda_of_torch.cache_clear()
