"""Names of torch that csrc uses as text, and where a release shows that it has them.

Private members that csrc names as C++ (dispatch_table.h, arguments.cpp, overrides/registration.cpp) are not
listed: the compiler looks for them. A test compares this list with the texts in csrc.
"""

from __future__ import annotations

import mmap
from pathlib import Path

# In the headers under torch/include: what the mangled names and the names of classes are of.
HEADERS = {
    "ATen/core/dispatch/OperatorEntry.h": ("updateDispatchTableEntry_", "checkInvariants"),
    "ATen/core/dispatch/Dispatcher.h": (
        "callWithDispatchKeySlowPath",
        "callBoxed",
        "redispatchBoxed",
        "runRecordFunction",
    ),
    "ATen/record_function.h": ("getStepCallbacksUnlessEmpty",),
    "ATen/core/boxing/KernelFunction_impl.h": ("callUnboxedKernelFunction",),
    "ATen/core/boxing/impl/WrapFunctionIntoFunctor.h": ("WrapFunctionIntoFunctor_",),
    "ATen/core/boxing/impl/WrapFunctionIntoRuntimeFunctor.h": ("WrapFunctionIntoRuntimeFunctor_",),
    "ATen/ops/mm_ops.h": ("call", "redispatch"),
    "torch/csrc/autograd/python_function.h": ("struct PyNode",),
}

# In the symbols and type names of the libraries: the beginning of one.
LIBRARIES = {
    "libtorch_cpu.so": (
        "_ZN2at4_ops2mm4callE",
        "_ZN2at4_ops2mm10redispatchE",
        "_ZN2at27getStepCallbacksUnlessEmptyE",
        "_ZN3c1010Dispatcher17runRecordFunctionE",
        "_ZN3c1010Dispatcher27callWithDispatchKeySlowPath",
        "_ZN3c1025callUnboxedKernelFunctionI",
        "_ZN3c104impl13OperatorEntry25updateDispatchTableEntry_ERKNS_10DispatcherENS_11DispatchKeyE",
        "_ZNK3c104impl13OperatorEntry15checkInvariantsEv",
        "WrapFunctionIntoFunctor_",
        "WrapFunctionIntoRuntimeFunctor_IPF",
        "21functionalizeFallbackE",
        "_ZZN2at12_GLOBAL__N_121GlobalCallbackManager3getEvE7manager",
    ),
    "libtorch_python.so": ("N5torch8autograd6PyNodeE", "PythonKernelHolder"),
}

# Which compilers inline or leave out, or which only some releases have: csrc goes without.
NOT_EVERYWHERE = {
    "_ZNK3c1010Dispatcher9callBoxedE",
    "_ZNK3c1014OperatorHandle9callBoxedE",
    "_ZNK3c1010Dispatcher15redispatchBoxedE",
    "_ZNK3c1014OperatorHandle15redispatchBoxedE",
    "_ZL17get_local_results",
}


def missing_in_headers(include: Path) -> list[str]:
    missing = []
    for file, names in HEADERS.items():
        text = (include / file).read_text(encoding="utf-8") if (include / file).exists() else ""
        missing += [f"{file} does not name {name}" for name in names if name not in text]
    return missing


def missing_in_libraries(folder: Path) -> list[str]:
    missing = []
    for file, names in LIBRARIES.items():
        with (
            (folder / file).open("rb") as opened,
            mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as content,
        ):
            missing += [f"{file} has no {name}" for name in names if content.find(name.encode()) < 0]
    return missing
