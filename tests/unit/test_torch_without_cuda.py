"""A wheel has its CUDA part also beside a torch that has no CUDA: nothing of CUDA is looked for there."""

from __future__ import annotations

import sys
from importlib import import_module
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
        begin_cuda=lambda wanted, driver, queries, injection, *others: begun.append((wanted, injection)),
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


@pytest.mark.parametrize(
    ("wheel", "torch_cuda", "said"), [(True, None, 0), (True, "13.0", 1), (False, None, 1)]
)
def test_cuda_kernels_are_missed_only_beside_cuda(
    wheel: bool, torch_cuda: str | None, said: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was built here was built for the torch that is here; a wheel for any."""
    record = import_module("tracer.cli.record")
    lines: list[str] = []
    built = SimpleNamespace(OVERRIDES_MISSING="a wheel has no kernels of them", TORCH_CUDA="13.0")
    monkeypatch.setattr(record, "build_info", lambda: built)
    monkeypatch.setattr(record, "is_wheel", lambda: wheel)
    monkeypatch.setattr(record, "installed_cuda", lambda: torch_cuda)
    monkeypatch.setattr(record, "kept", SimpleNamespace(read=lambda *_: None, write=lambda *_: None))
    monkeypatch.setattr(record, "say", lines.append)
    record._say_what_was_left_out()
    assert len(lines) == said
