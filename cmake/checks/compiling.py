"""Compiles C++ files for what the compiler says of them, several at a time; nothing is written."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CSRC = ROOT / "csrc"
# Of the extension; the modules beside it, which need more than torch, are not.
FOLDERS = ("", "dispatch", "native", "python", "torch_abi", "trace")
CUDA_FOLDERS = (*FOLDERS, "cuda")
# Of the module with overrides, what uses csrc/torch_abi; the rest needs CUDA's headers.
FILES = ("overrides/registration.cpp",)


@dataclass(frozen=True)
class Compiler:
    """A command, and the folders of headers that are not the product's own."""

    command: Sequence[str]
    headers: Sequence[Path]

    def line(self, *options: str) -> list[str]:
        line = [*self.command, "-std=c++20", f"-I{CSRC}", "-DTORCH_EXTENSION_NAME=_C", *options]
        for folder in self.headers:
            line += ["-isystem", str(folder)]
        return line

    def problem_of(self, source: Path) -> str | None:
        """The first error in a file; templates are instantiated and asserts are seen."""
        done = subprocess.run([*self.line("-fsyntax-only"), str(source)], capture_output=True, text=True)
        if done.returncode == 0:
            return None
        said = done.stderr.splitlines()
        errors = [line for line in said if ": error: " in line or ": fatal error: " in line]
        first = [*errors, *said, f"{self.command[0]} failed"][0]
        return first.replace(f"{ROOT}{os.sep}", "")


def problems(compiler: Compiler, sources: Sequence[Path], jobs: int, what: str) -> list[str]:
    """What is wrong, a line a file, in the order of the files. Progress goes to a terminal on stderr."""
    found: list[str] = []
    with ThreadPoolExecutor(jobs) as pool:
        for done, problem in enumerate(pool.map(compiler.problem_of, sources), start=1):
            if problem:
                found.append(problem)
            show_progress(f"{what}: {done} of {len(sources)} files compiled")
    show_progress("")
    return found


def show_progress(text: str) -> None:
    """On a line that the next one takes."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def default_jobs() -> int:
    """As many as there are processors, or as MAX_JOBS says."""
    return int(os.environ.get("MAX_JOBS") or len(os.sched_getaffinity(0)))


def extension_sources(folders: Sequence[str] = FOLDERS) -> list[Path]:
    found = [file for folder in folders for file in sorted((CSRC / folder).glob("*.cpp"))]
    return found + [CSRC / file for file in FILES]


def torch_abi_headers() -> list[Path]:
    """Each compiled alone: what it knows of torch is seen whoever includes it."""
    return sorted((CSRC / "torch_abi").glob("*.h"))


def typed_hops(include: Path, output: Path, parts: int) -> list[Path]:
    """The files that are generated from torch's headers. Raises OSError where none are made."""
    shutil.rmtree(output, ignore_errors=True)  # another number of parts would stay
    generator = CSRC / "dispatch" / "generate_typed_hops.py"
    command = [sys.executable, str(generator), "--include", str(include), "--output", str(output)]
    done = subprocess.run([*command, "--parts", str(parts)], capture_output=True, text=True)
    if done.returncode != 0:
        raise OSError((done.stderr.strip().splitlines() or ["no typed hops were made"])[-1])
    return [output / f"typed_hops_{part}.cpp" for part in range(parts)]
