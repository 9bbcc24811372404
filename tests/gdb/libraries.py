"""Libraries of operators that tests build with debug information and without optimisation.

Each takes a compiler ten seconds, so they are kept in build/test-libraries. One is built again if its text,
the compiler or torch differs.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import shutil
import subprocess
from pathlib import Path

from lazily import torch

STORE = Path(__file__).resolve().parents[2] / "build" / "test-libraries"


def build(name: str, source: str, *flags: str) -> Path:
    """lib{name}.so from the C++ text. It and {name}.cpp are in a folder that tests do not change."""
    kept = STORE / "-".join([name, *(flag.strip("-") for flag in flags if flag.startswith("-f"))])
    kept.mkdir(parents=True, exist_ok=True)
    folder = kept / _key(source, flags)
    library = folder / f"lib{name}.so"
    with open(kept / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another worker may be building it
        if not library.exists():
            for other in kept.iterdir():
                if other.is_dir():
                    shutil.rmtree(other)
            folder.mkdir()
            _compile(folder, name, source, flags)
    return library


def _compile(folder: Path, name: str, source: str, flags: tuple[str, ...]) -> None:
    (folder / f"{name}.cpp").write_text(source)
    torch_folder = Path(torch.__file__).parent
    command = [
        "g++", "-std=c++20", "-g", "-O0", "-shared", "-fPIC", f"{name}.cpp", "-o", "unfinished.so",
        f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}",
        f"-I{torch_folder / 'include'}", f"-L{torch_folder / 'lib'}", "-ltorch_cpu", "-lc10", *flags,
    ]  # fmt: skip
    subprocess.run(command, cwd=folder, check=True)
    (folder / "unfinished.so").rename(folder / f"lib{name}.so")


def _key(source: str, flags: tuple[str, ...]) -> str:
    parts = [Path(__file__).read_text(), source, *flags, torch.__file__, torch.__version__, _compiler()]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


@functools.cache
def _compiler() -> str:
    return subprocess.run(["g++", "--version"], capture_output=True, text=True, check=True).stdout
