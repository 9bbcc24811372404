"""Builds programs of cupti_caller.h, which call the recorder of csrc/cuda as CUPTI does, without a GPU."""

from __future__ import annotations

import subprocess
import sysconfig
from collections.abc import Iterable
from pathlib import Path

from kept_once import BUILD, compiler, key_of, made_once

ROOT = Path(__file__).parents[2]
CSRC = ROOT / "csrc"
PARTS = [CSRC / "cuda/api_function.cpp", CSRC / "fork_locks.cpp", *sorted((CSRC / "trace").glob("*.cpp"))]
STORE = BUILD / "test-objects"
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
    program = folder / source.stem
    compiled = [*_compiler(folder, options), "-o", program, source, *parts, *_objects(options), "-lpthread"]
    subprocess.run(compiled, check=True)
    return program


def _compiler(folder: Path, options: Iterable[str]) -> list[str]:
    (folder / "ATen").mkdir()
    (folder / "ATen/record_function.h").write_text("#include <cstdint>\n" + TORCH_THREAD)
    return ["g++", "-std=c++20", *options, f"-I{folder}", f"-I{cuda_headers()}"]


def _objects(options: Iterable[str]) -> list[Path]:
    """PARTS, compiled: 14 seconds, so they are kept until a file of csrc or the compiler differs."""
    files = sorted(path for path in CSRC.rglob("*") if path.suffix in (".h", ".cpp"))
    key = key_of(Path(__file__), *files, compiler(), str(cuda_headers()), *options)

    def compile_them(folder: Path) -> None:
        subprocess.run([*_compiler(folder, options), "-c", *PARTS], cwd=folder, check=True)

    return sorted(made_once(STORE, key, compile_them).glob("*.o"))
