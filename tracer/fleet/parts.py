"""The folder of partial tables: `part/job=J/host=H/rank=R/TABLE.parquet`, with about.json beside them."""

from __future__ import annotations

import json
import os
import shutil
import zlib
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import quote

import polars as pl

from tracer.analysis.fleet.rank_tables import RankTables
from tracer.fleet.traces import TraceFile
from tracer.fleet.work import Part
from tracer.trace.bytes.damage import DamagedError, whole

FORMAT = 7
"""Changes when partial tables do, or what counts as read: parts of another format are made again"""
ABOUT = "about.json"


@dataclass(frozen=True)
class Kept(RankTables):
    """A part in the folder; `parts` is how many the trace has."""

    trace: str
    version: str
    parts: int
    error: str | None
    format: int
    folder: Path

    def table(self, name: str, first: int | None = None, end: int | None = None) -> pl.DataFrame:
        file = self.folder / f"{name}.parquet"
        if first is None:
            return pl.read_parquet(file, hive_partitioning=False)
        rows = pl.scan_parquet(file, hive_partitioning=False)
        return rows.filter(pl.col("number").is_between(first, end, closed="left")).collect()


class Parts:
    """The parts in a folder, as they are on disk."""

    def __init__(self, out: Path) -> None:
        self._root = out / "part"

    def all(self) -> list[Kept]:
        """Those of this format, by job, rank (unknown ones last), host and trace."""
        found = [_read(file) for file in self._root.glob(f"job=*/host=*/rank=*/{ABOUT}")]
        kept = [part for part in found if part is not None]
        return sorted(
            kept, key=lambda of: (of.job, of.rank is None, of.rank or 0, of.host, of.trace, str(of.folder))
        )

    def made(self, trace: TraceFile) -> list[Kept]:
        """The parts of this trace as it is now; empty where one is missing or the trace could not be read."""
        parts = [of for of in self._of(trace.path) if of.version == trace.version and of.job == trace.job]
        whole = parts and len(parts) == parts[0].parts and all(part.error is None for part in parts)
        return parts if whole else []

    def write(self, trace: TraceFile, part: Part, parts: int) -> Kept:
        """Puts a part in its place, all of it or nothing; what was there is replaced."""
        folder = self.place(trace, part)
        about = Kept(
            trace.job, part.host, part.rank, trace.path, trace.version, parts, part.error, FORMAT, folder
        )
        partial = folder.with_name(f".{folder.name}.{os.getpid()}")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        for name, data in part.tables.items():
            (partial / f"{name}.parquet").write_bytes(data)
        document = {name: value for name, value in asdict(about).items() if name != "folder"}
        (partial / ABOUT).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        shutil.rmtree(folder, ignore_errors=True)
        partial.rename(folder)
        self._index().setdefault(trace.path, {})[folder] = about
        return about

    def forget(self, trace: str) -> None:
        """Deletes the parts of a trace."""
        for folder in self._index().pop(trace, {}):
            about = _read(folder / ABOUT)
            if about is not None and about.trace == trace:  # another trace may have taken its place
                shutil.rmtree(folder, ignore_errors=True)

    def place(self, trace: TraceFile, part: Part) -> Path:
        """Where a part goes. One without a rank has the name of its trace instead."""
        rank = part.rank if part.rank is not None else _nameless(trace)
        return self._root / f"job={_quoted(trace.job)}" / f"host={_quoted(part.host)}" / f"rank={rank}"

    def drop(self, part: Kept) -> None:
        """Deletes one part."""
        self._index().get(part.trace, {}).pop(part.folder, None)
        shutil.rmtree(part.folder, ignore_errors=True)

    def _of(self, trace: str) -> list[Kept]:
        return list(self._index().get(trace, {}).values())

    def _index(self) -> dict[str, dict[Path, Kept]]:
        """trace -> its parts, read once: a look at every part for each trace would take ranks x ranks."""
        if not hasattr(self, "_known"):
            self._known: dict[str, dict[Path, Kept]] = {}
            for part in self.all():
                self._known.setdefault(part.trace, {})[part.folder] = part
        return self._known


def _nameless(trace: TraceFile) -> str:
    """`none.NAME.CODE`: two folders of a job may have a trace of one name."""
    return f"none.{_quoted(trace.name[:80])}.{zlib.crc32(trace.path.encode()):08x}"


def _quoted(name: str) -> str:
    """A name as a folder of a partition: no slash, no `=`; `.` and `..` are no names of folders."""
    return quote(name, safe=" +@,") if name.strip(".") else name.replace(".", "%2E") or "%00"


def _read(file: Path) -> Kept | None:
    try:
        part = whole(lambda: Kept(folder=file.parent, **json.loads(file.read_text(encoding="utf-8"))))
    except DamagedError:
        return None
    return part if part.format == FORMAT else None
