"""Registry of export formats."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tracer.trace import Trace


@dataclass(frozen=True)
class Format:
    """`module` has write(trace, path), and check() if it needs an optional package."""

    module: str
    suffix: str
    folder: bool = False
    hops_only: bool = False
    """Whether it has only hops and their self times, and no points in time"""

    def check(self) -> None:
        """Raises ExportError if this format cannot be written here."""
        check: Callable[[], None] | None = getattr(self._load(), "check", None)
        if check:
            check()

    def write(self, trace: Trace, path: Path, **options: str) -> list[str]:
        """Writes the file, returns remarks. If it raises ExportError or OSError, it has written nothing.

        `options` are those of the module's write() beyond these two.
        """
        remarks: list[str] = self._load().write(trace, path, **options)
        return remarks

    def default_path(self, trace: Path) -> Path:
        """The path beside the trace: run.pftrace for run.trace and for run.trace.xz."""
        name = trace.name
        for suffix in (".xz", ".trace"):
            name = name.removesuffix(suffix) or name
        return trace.with_name(name + self.suffix)

    def _load(self) -> ModuleType:
        return import_module(f"tracer.export.{self.module}")


FORMATS = {
    "perfetto": Format("perfetto", ".pftrace"),
    "chrome": Format("chrome", ".chrome.json"),
    "parquet": Format("parquet", ".parquet", folder=True),
    "speedscope": Format("speedscope", ".speedscope.json", hops_only=True),
}
