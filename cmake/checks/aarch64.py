"""Compiles the extension for aarch64, and runs what differs between processors on this one and under qemu.

    python cmake/checks/aarch64.py --cuda-headers build/cuda_headers/nvidia/cu13/include

The headers are those of the installed torch and of this Python: they are the same text on both processors but
for pyconfig.h, whose sizes are compared. Without qemu-aarch64 the aarch64 program is built and not run.
"""

from __future__ import annotations

import argparse
import importlib.util
import platform
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path

from compiling import (
    CSRC,
    CUDA_FOLDERS,
    FOLDERS,
    ROOT,
    Compiler,
    default_jobs,
    extension_sources,
    problems,
    show_progress,
    typed_hops,
)

HERE = Path(__file__).resolve().parent
CROSS = "aarch64-linux-gnu-g++"
INCLUDE = Path(sysconfig.get_path("include"))
MULTIARCH = sysconfig.get_config_var("MULTIARCH")
SIGNED = "-mbranch-protection=standard"
LIBRARIES = Path("/usr/aarch64-linux-gnu")  # where Debian and Ubuntu have those of the cross compiler
PROCESSOR_SOURCES = (
    "dispatch/call_sites.cpp",
    "native/code_before.cpp",
    "native/elf.cpp",
    "native/stack.cpp",
    "torch_abi/function_names.cpp",
)


class ProgramError(Exception):
    """The program for one processor could not be built, or found something wrong; one line."""


def torch_include() -> Path:
    """Torch's headers, without importing it. Raises SystemExit where there is no torch."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        sys.exit(f"{sys.executable} has no torch, whose headers are needed: make install")
    return Path(spec.origin).parent / "include"


def python_headers(output: Path, include: Path = INCLUDE, multiarch: str | None = MULTIARCH) -> list[Path]:
    """Folders of this Python's headers. Debian's pyconfig.h wants one for each processor and has one.

    /usr/include/python3.11/pyconfig.h                     includes <aarch64-linux-gnu/python3.11/pyconfig.h>
    /usr/include/x86_64-linux-gnu/python3.11/pyconfig.h    gets that name too, in `output`
    """
    own = include.parent / (multiarch or "") / include.name
    if own == include or not (own / "pyconfig.h").exists():
        return [include]
    link = output / "aarch64-linux-gnu" / include.name
    link.parent.mkdir(parents=True, exist_ok=True)
    link.unlink(missing_ok=True)
    link.symlink_to(own)
    return [include, output]


def compile_extension(
    compiler: Compiler, output: Path, cuda: Path | None, jobs: int
) -> tuple[int, list[str]]:
    """How many files were compiled, and what is wrong, a line a file."""
    sources = [
        HERE / "python_sizes.cpp",
        *typed_hops(compiler.headers[0], output / "typed_hops", max(jobs, 2)),
    ]
    folders = FOLDERS
    if cuda is not None:
        folders = CUDA_FOLDERS
        compiler = Compiler(compiler.command, [*compiler.headers, cuda])
    sources += extension_sources(folders)
    return len(sources), problems(compiler, sources, jobs, "aarch64")


def build_program(compiler: Compiler, output: Path) -> Path:
    """Build processor.cpp, which says itself what it checks. Raises ProgramError."""
    output.mkdir(parents=True, exist_ok=True)
    library, program = output / "libtorch_cpu.so", output / "processor"
    line = compiler.line("-O2", "-fPIC")
    # Of Python only an address is named, in a function that is not called.
    link = [f"-L{output}", "-ltorch_cpu", "-Wl,-rpath,$ORIGIN", "-Wl,--unresolved-symbols=ignore-all"]
    sources = [str(HERE / "processor.cpp"), *(str(CSRC / name) for name in PROCESSOR_SOURCES)]
    _run([*line, "-shared", str(HERE / "operators.cpp"), "-o", str(library)])
    _run([*line, *sources, "-o", str(program), *link])
    return program


def check_program(processor: str, compiler: Compiler, runner: Sequence[str] | None, output: Path) -> str:
    """Build the program for a processor, and run it where there is something to run it. ProgramError."""
    show_progress(f"{processor}: the program is built")
    try:
        program = build_program(compiler, output)
        if runner is None:
            return f"{processor}: builds, NOT RUN: apt-get install qemu-user"
        return f"{processor}{' (qemu)' if runner else ''}: {_run([*runner, str(program)])}"
    finally:
        show_progress("")


def _run(command: Sequence[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    except subprocess.TimeoutExpired:
        raise ProgramError(f"{Path(command[0]).name} did not end within 300 s") from None
    if done.returncode != 0:
        said = (done.stdout + done.stderr).strip().splitlines()
        raise ProgramError(
            next(
                (line for line in said if "error" in line),
                said[0] if said else f"exit status {done.returncode}",
            )
        )
    return done.stdout.strip()


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--cuda-headers", type=Path, help="those of CUPTI and CUDA, for the CUDA part")
    parser.add_argument("--folder", type=Path, default=ROOT / "build/aarch64", help="for what is built")
    parser.add_argument("--jobs", type=int, default=default_jobs(), help="files at a time")
    arguments = parser.parse_args()
    cross = "g++" if platform.machine() == "aarch64" else CROSS
    if shutil.which(cross) is None:
        sys.exit(f"{cross} is missing: apt-get install g++-aarch64-linux-gnu")
    include = torch_include()
    python = python_headers(arguments.folder / "python")
    headers = [include, include / "torch/csrc/api/include", *python]
    compiler = Compiler([cross], headers)
    count, wrong = compile_extension(compiler, arguments.folder, arguments.cuda_headers, arguments.jobs)
    for problem in wrong:
        print(f"aarch64: FAILED: {problem}")
    if not wrong:
        part = "with the CUDA part" if arguments.cuda_headers else "without the CUDA part"
        print(f"aarch64: {count} files compile, {part}", flush=True)
    emulator = shutil.which("qemu-aarch64")
    native = Compiler(["g++"], headers)
    programs: list[tuple[str, Compiler, Sequence[str] | None]] = [(platform.machine(), native, [])]
    if cross == CROSS:
        runner = [emulator, "-L", str(LIBRARIES)] if emulator else None
        programs.append(("aarch64", compiler, runner))
        # As distributions compile, on a processor with pointer authentication: return addresses are signed.
        signed = Compiler([cross, SIGNED], headers)
        programs.append(("aarch64-signed", signed, runner and [*runner, "-cpu", "max"]))
    for processor, its_compiler, runner in programs:
        try:
            print(check_program(processor, its_compiler, runner, arguments.folder / processor), flush=True)
        except ProgramError as error:
            print(f"{processor}: FAILED: {error}")
            wrong.append(processor)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
