"""Libraries of operators that tests build with debug information and without optimisation.

Each takes a compiler ten seconds, so they are kept in build/test-libraries. One is built again if its text,
the compiler or torch differs.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from kept_once import BUILD, compiler, key_of, made_once
from lazily import torch

STORE = BUILD / "test-libraries"


def build(name: str, source: str, *flags: str) -> Path:
    """lib{name}.so from the C++ text. It and {name}.cpp are in a folder that tests do not change."""
    kept = STORE / "-".join([name, *(flag.strip("-") for flag in flags if flag.startswith("-f"))])
    key = key_of(Path(__file__), source, *flags, torch.__file__, torch.__version__, compiler())
    return made_once(kept, key, lambda folder: _compile(folder, name, source, flags)) / f"lib{name}.so"


def _compile(folder: Path, name: str, source: str, flags: tuple[str, ...]) -> None:
    (folder / f"{name}.cpp").write_text(source)
    torch_folder = Path(torch.__file__).parent
    command = [
        "g++", "-std=c++20", "-g", "-O0", "-shared", "-fPIC", f"{name}.cpp", "-o", f"lib{name}.so",
        f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}",
        f"-I{torch_folder / 'include'}", f"-L{torch_folder / 'lib'}", "-ltorch_cpu", "-lc10", *flags,
    ]  # fmt: skip
    subprocess.run(command, cwd=folder, check=True)
