"""Native stacks: the functions of their program counters, and the library call that they show."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from functools import cache

import numpy as np
import polars as pl

from tracer.trace.bytes.definitions import Definitions, ProgramCounters
from tracer.trace.names.demangle import demangle
from tracer.trace.names.kernels import short_kernel_name
from tracer.trace.names.libraries import Libraries, LoadedLibraries
from tracer.trace.tables.schema import FRAME, STACKS
from tracer.trace.tables.series import grouped, in_order, texts

# Libraries whose functions an op calls for its work; those of longer names come first.
_VENDORS = (
    "libcublasLt",
    "libcublas",
    "libcudnn",
    "libcusparseLt",
    "libcusparse",
    "libcufft",
    "libcusolver",
    "libnccl",
    "libcurand",
    "libnvrtc",
    "libnvJitLink",
)
_VENDOR = re.compile(rf"({'|'.join(_VENDORS)})(Mg|w|_\w+)?(-\w+)?\.so\b")
# The libraries between an API call and its caller.
_PLUMBING = re.compile(r"lib(cuda|cudart|cupti|nvidia-[\w-]+)(-\w+)?\.so\b")


@dataclass(frozen=True)
class Frame:
    function: str | None
    module: str | None
    """Path of the library"""
    offset: int
    """From the start of the function, else of the library, else of memory"""

    @property
    def file(self) -> str:
        return os.path.basename(self.module or "")

    @property
    def vendor(self) -> str | None:
        """The vendor library that it is in, without version: libcublas."""
        return _vendor(self.file)

    @property
    def text(self) -> str:
        place = self.file or "unknown code"
        return f"{self.function} ({place})" if self.function else f"{place}+{self.offset:#x}"


class Stacks:
    """The distinct stacks of a recording; a stack's id is its row."""

    def __init__(self, stacks: list[tuple[int, ProgramCounters]], definitions: Definitions) -> None:
        self._frames: list[Frame] = []
        numbers: dict[tuple[int, int], int] = {}
        libraries = Libraries(definitions)
        self._rows: list[list[int]] = []
        for process, counters in stacks:
            row = []
            for counter in counters:
                number = numbers.setdefault((process, counter), len(numbers))
                if number == len(self._frames):
                    self._frames.append(_frame(definitions, libraries.of(process), process, counter))
                row.append(number)
            self._rows.append(row)
        self._is_vendor = [frame.vendor is not None for frame in self._frames]
        self._is_plumbing = [_is_plumbing(frame.file) for frame in self._frames]

    def table(self) -> pl.DataFrame:
        frames = pl.DataFrame(
            {
                "function": texts(frame.function for frame in self._frames),
                "module": texts(frame.module for frame in self._frames),
                "offset": [frame.offset for frame in self._frames],
                "file": [None] * len(self._frames),
                "line": [None] * len(self._frames),
            },
            schema=FRAME.to_schema(),
        ).to_struct("frames")
        lengths = np.array([len(row) for row in self._rows], np.int64)
        flat = np.fromiter((number for row in self._rows for number in row), np.int64, int(lengths.sum()))
        ids = np.arange(len(self._rows), dtype=np.uint32)
        table = pl.DataFrame({"id": ids, "frames": grouped(frames.gather(flat), lengths)})
        return in_order(table.with_columns(pl.col("frames").fill_null([])), STACKS)

    def library_calls(self) -> list[tuple[str | None, str | None]]:
        """For each stack the vendor library that made the API call, and its function that was called.

        Of the vendor frames next to the call that is the outermost one with a name: what code
        outside of vendor libraries called.
        """
        found: list[tuple[str | None, str | None]] = []
        for row in self._rows:
            start = next((at for at, number in enumerate(row) if not self._is_plumbing[number]), len(row))
            stop = start
            while stop < len(row) and self._is_vendor[row[stop]]:
                stop += 1
            frames = [self._frames[number] for number in row[start:stop]]
            named = [frame for frame in frames if frame.function]
            frame = named[-1] if named else frames[-1] if frames else None
            found.append((frame.vendor, frame.function) if frame else (None, None))
        return found

    def callers(self) -> list[str | None]:
        """For each stack the function that called the API, as text."""
        found: list[str | None] = []
        for row in self._rows:
            frames = [self._frames[number] for number in row if not self._is_plumbing[number]]
            found.append(next((frame.text for frame in frames if frame.function or frame.module), None))
        return found


def library_of_function(name: str) -> str | None:
    """The vendor library of one of its functions: cublasSgemm_v2 -> libcublas."""
    for library in _VENDORS:
        if name.startswith(library.removeprefix("lib")):
            return library
    return None


@cache
def _vendor(file: str) -> str | None:
    found = _VENDOR.match(file)
    return found[1] if found else None


@cache
def _is_plumbing(file: str) -> bool:
    return bool(_PLUMBING.match(file))


def _frame(definitions: Definitions, libraries: LoadedLibraries, process: int, counter: int) -> Frame:
    known = definitions.symbol(process, counter)
    if known and known.symbol:
        return Frame(short_kernel_name(demangle(known.symbol)), known.library or None, known.offset)
    if known and known.library:
        return Frame(None, known.library, known.offset)
    library = libraries.find(counter)
    if library is None:
        return Frame(None, None, counter)
    return Frame(None, library["path"], counter - library["base"])
