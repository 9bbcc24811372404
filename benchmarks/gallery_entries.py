"""The entries of the gallery, and what they need of a machine."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sysconfig
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    import tomli as tomllib  # type: ignore[no-redef]

if TYPE_CHECKING:
    import polars as pl

ROOT = Path(__file__).resolve().parent.parent
SCRIPTS = ROOT / "examples" / "gallery"
# The sections of `tracer report` that an entry shows, with those of its `shows`. Trees come first in a
# report, and say most; the whole report is one command away.
SECTIONS = ("summary", "open_hops", "exceptions", "paths")
GPU_PATHS, GPU_ROWS = 1, 10  # if an entry does not say what it wants of a GPU (gpu_report)
DETAILS = 1  # paths and kernels one by one
FEW_PATHS = 2


class GalleryError(Exception):
    """An entry was not recorded or reported; the message says why, in one line."""


@dataclass(frozen=True)
class Entry:
    """A table of entries.toml; `name` is its key. The file says what the fields mean."""

    name: str
    title: str
    teaches: str
    seed_topic: str
    needs: list[str] = field(default_factory=list)
    gpu: bool = False
    record: list[str] = field(default_factory=list)
    report: list[str] = field(default_factory=list)
    trees: list[dict] = field(default_factory=list)
    gpu_report: list[str] | None = None
    gpu_trees: list[dict] | None = None
    shows: list[str] = field(default_factory=list)
    sections: list[str] = field(default_factory=list)
    gpu_says: str = ""

    @property
    def script(self) -> Path:
        return SCRIPTS / f"{self.name}.py"

    @property
    def uses_gpu(self) -> bool:
        return self.gpu or "gpu" in self.needs

    def report_options(self, on_gpu: bool) -> list[str]:
        """Arguments of `tracer report`."""
        options = self.report
        if on_gpu and "gpu" not in self.needs:
            options = narrowed(self.report) if self.gpu_report is None else self.gpu_report
        details = [] if "--details" in options else ["--details", str(DETAILS)]
        sections = self.sections or [*SECTIONS, *self.shows]
        if _paths(options) <= FEW_PATHS:  # the table of one look and the trees have all of them
            sections = [name for name in sections if name != "paths"]
        return [*options, *details, *(word for name in sections for word in ("--section", name))]

    def shown_trees(self, on_gpu: bool) -> list[dict]:
        """The parts of the tree that are shown."""
        return self.trees if not on_gpu or self.gpu_trees is None else self.gpu_trees


def _paths(options: list[str]) -> int:
    """How many paths a report with these options shows: 10 by default."""
    return int(options[options.index("--paths") + 1]) if "--paths" in options else 10


def narrowed(options: list[str]) -> list[str]:
    """Options of a CPU's report for that of a GPU: fewer paths and rows, the rest as it is."""
    most = {"--paths": GPU_PATHS, "--rows": GPU_ROWS}
    return [
        str(min(int(option), most[before])) if before in most else option
        for before, option in zip(["", *options], options, strict=False)
    ]


def read_entries(path: Path = SCRIPTS / "entries.toml") -> list[Entry]:
    """The entries in their order."""
    return [Entry(name, **table) for name, table in tomllib.loads(path.read_text()).items()]


class LackingError(GalleryError):
    """The script said what this machine lacks."""


# ---- what a machine has --------------------------------------------------------------------------


def missing(needs: list[str], has_gpu: bool) -> list[str]:
    """The needs that this machine does not meet, in words."""
    return [words for need in needs if (words := _missing(need, needs, has_gpu))]


def _missing(need: str, needs: list[str], has_gpu: bool) -> str:
    if need == "gpu":
        return "" if has_gpu else "a GPU"
    if need == "gdb":
        return "" if shutil.which("gdb") or shutil.which("cuda-gdb") else "gdb (apt-get install gdb)"
    if need == "compiler":
        if not shutil.which(os.environ.get("CXX", "c++")):
            return "a C++ compiler (apt-get install g++)"
        if not shutil.which("ninja", path=tools_path()):
            return "ninja (pip install ninja)"
        return "nvcc (a CUDA toolkit)" if "gpu" in needs and has_gpu and not _nvcc() else ""
    return "" if importlib.util.find_spec(need) else f"{need} (pip install 'dispatch-tracer[gallery]')"


def tools_path() -> str:
    """PATH with the tools beside this Python in front, ninja among them."""
    return os.pathsep.join([sysconfig.get_path("scripts"), os.environ.get("PATH", "")])


def _nvcc() -> bool:
    from torch.utils.cpp_extension import CUDA_HOME

    return CUDA_HOME is not None


def gpu_is_there() -> bool:
    import torch

    return torch.cuda.is_available()


def gpu_names() -> list[str]:
    """Names of the GPUs of this machine, where a recording without CUDA does not have them."""
    import torch

    return [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]


def names_of(devices: pl.DataFrame) -> list[str]:
    """Names of the devices of a trace, each once: the table has a row for every process that used one."""
    return devices.unique("device", maintain_order=True)["name"].to_list()
