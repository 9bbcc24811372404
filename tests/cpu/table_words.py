"""The function words of the dispatch table, read by a few lines of C++ that are not tracer's extension."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
ROOM = 10_000_000


def build(library: Path) -> None:
    """Compiles the reader, which takes some seconds."""
    import torch

    home = Path(torch.__file__).parent
    subprocess.run(
        [
            "g++",
            *(
                "-std=c++20",
                "-O0",
                "-w",
                "-shared",
                "-fPIC",
                "-o",
                str(library),
                str(HERE / "table_words.cpp"),
            ),
            f"-I{HERE.parents[1] / 'csrc'}",
            *(f"-I{home / 'include' / part}" for part in ("", "torch/csrc/api/include")),
            f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}",
            *(f"-L{home / 'lib'}", "-lc10", "-ltorch_cpu"),
        ],
        check=True,
    )


class TableWords:
    """Reads the words through a library that `build` made."""

    def __init__(self, library: Path) -> None:
        import torch  # noqa: F401  # before the extension and the reader, which need its libraries

        from tracer import _C

        functions = ctypes.CDLL(str(library))
        self._call_otherwise = functions.call_otherwise
        self._read = functions.table_words
        self._read.restype = ctypes.c_uint64
        own = next(part for part in _C.libraries() if part["path"] == _C.__file__)
        self._own = own["base"], own["end"]

    def read(self) -> dict[str, np.ndarray]:
        """By operator: {boxed, unboxed, sym unboxed} of each entry, as uint64[entries, 3]."""
        words = np.empty(ROOM, np.uint64)
        names = ctypes.create_string_buffer(ROOM)
        count = self._read(
            ctypes.c_void_p(words.ctypes.data), ctypes.c_uint64(ROOM), names, ctypes.c_uint64(ROOM)
        )
        assert 0 < count <= ROOM
        operators = names.value.decode().splitlines()
        return dict(zip(operators, words[:count].reshape(len(operators), -1, 3).copy(), strict=True))

    def call_otherwise(self, operator: str) -> None:
        """As if torch called an operator with another C++ signature than its headers say."""
        assert self._call_otherwise(operator.encode())

    def hooked(self) -> int:
        """Entries with a function of tracer's extension in any word."""
        return sum(int(self._ours(entries).any(axis=1).sum()) for entries in self.read().values())

    def typed(self) -> set[str]:
        """Operators with a function of tracer's extension in a word that is called unboxed."""
        return {name for name, entries in self.read().items() if self._ours(entries)[:, 1:].any()}

    def _ours(self, entries: np.ndarray) -> np.ndarray:
        begin, end = map(np.uint64, self._own)
        return (entries >= begin) & (entries < end)


def changed(before: dict[str, np.ndarray], after: dict[str, np.ndarray]) -> list[str]:
    """Operators that came, went, or have another word in an entry."""
    return sorted(
        name
        for name in before.keys() | after.keys()
        if name not in before or name not in after or not np.array_equal(before[name], after[name])
    )
