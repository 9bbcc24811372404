"""The CUDA part of a recording."""

from __future__ import annotations

import os
from functools import cache
from types import ModuleType

from tracer.base import say
from tracer.base.errors import RecordingError
from tracer.base.this_torch import this_torch
from tracer.base.torch_build import installed_cuda
from tracer.recording.options import Options

_FAILED = ("not built", "failed", "held", "no driver")


def begin(native: ModuleType, options: Options, unusable: str) -> None:
    """Begin it, now or when the process first uses CUDA. `unusable`: why CUPTI must not be called, or "".

    Raises RecordingError if CUDA must be recorded (`cuda="on"`) and it is already known that it cannot be.
    """
    injection = os.path.join(os.path.dirname(str(native.__file__)), "libtracer_injection.so")
    wanted = options.cuda != "off" and _cuda_of_torch() is not None
    native.begin_cuda(wanted, options.driver, options.queries, injection, unusable, say.is_quiet())
    if options.cuda == "on":
        statement = _statement(native)
        if statement["state"] in _FAILED:
            raise RecordingError(f"cannot record CUDA: {statement['why']}; to record without it: --cuda off")


@cache
def _cuda_of_torch() -> str | None:
    """As the torch says that is loaded. Asked when the recording begins: the script may change it later."""
    cuda: str | None = this_torch().version.cuda
    return cuda


def why_not(native: ModuleType) -> str:
    """Why the recording that has begun records no CUDA although it is wanted; "" if it does, or may yet."""
    statement = native.cuda_statement()
    return str(statement["why"]) if statement["state"] in ("failed", "held") else ""


def why_unusable(options: Options) -> str:
    """Why tracer must not call CUPTI on this machine; "" if it may, or need not."""
    from tracer.recording import cupti_probe

    return "" if options.cuda == "off" else cupti_probe.unusable(installed_cuda())


def certificate(native: ModuleType) -> dict:
    """The certificate of a process, with its part on CUDA."""
    document = native.certificate()
    document["cuda"] = _statement(native)
    return document


def _statement(native: ModuleType) -> dict:
    """What became of it. The CUDA part of a wheel is there also if torch has no CUDA."""
    found = native.cuda_statement()
    return found if _cuda_of_torch() else {**found, "state": "not built", "why": "torch has no CUDA"}
