"""Libraries of operators that tests build with debug information and without optimisation."""

from __future__ import annotations

import subprocess
from pathlib import Path

from lazily import torch


def build(folder: Path, name: str, source: str, *flags: str) -> Path:
    """lib{name}.so from the C++ text, as {name}.cpp in `folder`."""
    (folder / f"{name}.cpp").write_text(source)
    torch_folder = Path(torch.__file__).parent
    command = [
        "g++", "-std=c++20", "-g", "-O0", "-shared", "-fPIC", f"{name}.cpp", "-o", f"lib{name}.so",
        f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}",
        f"-I{torch_folder / 'include'}", f"-L{torch_folder / 'lib'}", "-ltorch_cpu", "-lc10", *flags,
    ]  # fmt: skip
    subprocess.run(command, cwd=folder, check=True)
    return folder / f"lib{name}.so"
