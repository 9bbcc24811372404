"""Builds programs of cupti_caller.h, which call the recorder of csrc/cuda as CUPTI does, without a GPU."""

from __future__ import annotations

import subprocess
import sysconfig
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[2]
CSRC = ROOT / "csrc"
PARTS = [CSRC / "cuda/api_function.cpp", CSRC / "fork_locks.cpp", *sorted((CSRC / "trace").glob("*.cpp"))]
TORCH_THREAD = (
    "namespace at { struct RecordFunction { static unsigned long currentThreadId() { return 1; } }; }\n"
)
HEADERS = [ROOT / "build/cuda_headers", Path(sysconfig.get_path("purelib"))]


def cuda_headers() -> Path | None:
    """Those that `make cuda-check` fetches, or those of a torch with CUDA."""
    found = (path.parent for folder in HEADERS for path in folder.glob("nvidia/cu*/include/cupti.h"))
    return next(found, None)


def build(source: Path, folder: Path, *options: str, parts: Iterable[Path] = ()) -> Path:
    """The program made of `source`, in `folder`; `options` are the compiler's, `parts` more of csrc."""
    (folder / "ATen").mkdir()
    (folder / "ATen/record_function.h").write_text("#include <cstdint>\n" + TORCH_THREAD)
    program = folder / source.stem
    include = [f"-I{folder}", f"-I{cuda_headers()}"]
    compiled = [
        "g++",
        "-std=c++20",
        *options,
        *include,
        "-o",
        str(program),
        str(source),
        *map(str, [*PARTS, *parts]),
    ]
    subprocess.run([*compiled, "-lpthread"], check=True)
    return program
