"""Names of torch that csrc uses as text, and where a release shows that it has them.

All of csrc/torch_abi. Private members that it names as C++ are not listed: the compiler looks for them.
A test compares this list with the texts in that folder.
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
    "c10/core/CPUAllocator.h": ("ProfiledCPUMemoryReporter", "New(", "Delete("),
    "c10/core/Allocator.h": ("reportMemoryUsageToProfiler",),
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
        "_ZN3c104impl18BoxedKernelWrapperI",
        "_ZN2at6native12cpu_fallbackE",
        "25pythonTLSSnapshotFallbackE",
        "_ZN3c104impl13OperatorEntry25updateDispatchTableEntry_ERKNS_10DispatcherENS_11DispatchKeyE",
        "_ZNK3c104impl13OperatorEntry15checkInvariantsEv",
        "_ZNK4c10d12ProcessGroup12getGroupNameB5cxx11Ev",
        "WrapFunctionIntoFunctor_",
        "WrapFunctionIntoRuntimeFunctor_IPF",
        "StableIValueBoxedKernel",
        "21functionalizeFallbackE",
        "_ZZN2at12_GLOBAL__N_121GlobalCallbackManager3getEvE7manager",
    ),
    "libc10.so": (
        "_ZN3c1025ProfiledCPUMemoryReporter3NewEPvm",
        "_ZN3c1025ProfiledCPUMemoryReporter6DeleteEPv",
        "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE",
        "_ZN3c1020ThreadLocalDebugInfo3getENS_13DebugInfoKindE",
    ),
    "libtorch_python.so": (
        "N5torch8autograd6PyNodeE",
        "PythonKernelHolder",
        "_ZNK3c104impl13OperatorEntry15checkInvariantsEv",
    ),
}

# In the files of torch's Python part: classes and methods, each in at least one of the files.
PYTHON = {
    "def _call_impl(": ("torch/nn/modules/module.py",),
    "def backend_impl(": ("torch/_library/custom_ops.py",),
    "_backend_fns": ("torch/_library/custom_ops.py",),
    "in self._disabled_kernel:": ("torch/_library/custom_ops.py",),
    "return self._init_fn(": ("torch/_library/custom_ops.py",),
    "class CompiledFxGraph(": ("torch/_inductor/output_code.py",),
    "class CompiledAOTI(": ("torch/_inductor/output_code.py",),
    "class AOTICompiledModel": ("torch/export/pt2_archive/_package.py", "torch/_inductor/package/package.py"),
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


def missing_in_python_files(release: Path) -> list[str]:
    """`release` has the folder torch."""
    missing = []
    for text, files in PYTHON.items():
        there = [release / file for file in files if (release / file).exists()]
        if not any(text in file.read_text(encoding="utf-8") for file in there):
            missing.append(f"{' and '.join(files)} has no {text}")
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
