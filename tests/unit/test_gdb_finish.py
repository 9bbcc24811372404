"""Which instructions of an op call call its kernel function."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest


@pytest.mark.parametrize(
    ("instruction", "calls_kernel"),
    [
        ("call   *%rax", True),
        (
            "call   0x7f00 <_ZN3c1025callUnboxedKernelFunctionIN2at6TensorEJRKS2_EEET_PvPNS_14OperatorE",
            True,
        ),
        (
            "call   0x7f00 <_ZN3c104impl18BoxedKernelWrapperIFN2at6TensorERKS3_EvE4callERKNS_11BoxedKernelE",
            True,
        ),
        ("call   0x7f00 <_ZNK3c1010Dispatcher27callWithDispatchKeySlowPathIN2at6TensorE", True),
        ("call   0x7f00 <_ZNK3c1011BoxedKernel10getFunctorEv$plt>", False),
        ("call   0x7f00 <_ZNK3c1011BoxedKernel10getFunctorEv@plt>", False),
        ("call   *0x2f12(%rip)        # 0x7f00", False),
        ("call   0x7f00 <_ZSt7forwardIRKN2at6TensorEEOT_>", False),
    ],
)
def test_calls_of_a_kernel(monkeypatch: pytest.MonkeyPatch, instruction: str, calls_kernel: bool) -> None:
    monkeypatch.setitem(sys.modules, "gdb", SimpleNamespace(Breakpoint=object))
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "gdb/inside"))
    for name in ("finish", "symbols"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    finish = importlib.import_module("finish")
    for name in ("finish", "symbols"):
        monkeypatch.delitem(sys.modules, name)
    assert bool(finish._CALLS_KERNEL.match(instruction)) is calls_kernel
