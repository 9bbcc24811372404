"""The folder of partial tables: `part/job=J/host=H/rank=R/TABLE.parquet`, with about.json beside them."""

from __future__ import annotations

import io
import json
import os
import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import quote

import polars as pl

from tracer.analysis.fleet.partial import SCHEMAS
from tracer.analysis.fleet.rank_tables import RankTables
from tracer.base.folder import Folder
from tracer.fleet.pages import check_held
from tracer.fleet.traces import TraceFile
from tracer.fleet.work import Part
from tracer.trace.bytes.damage import DamagedError, whole

FORMAT = 10
"""Changes when partial tables do, or what counts as read: parts of another format are made again"""
ABOUT = "about.json"
_LARGEST = 256 << 20
_LONGEST_ABOUT = 1 << 20
_LONGEST = 200
"""Characters of a folder's name, of 255 that file systems take"""
_MOST_RANKS = 1 << 20
"""As trace.bytes.documents: what says which ranks are missing, counts them"""
_TEXT, _NUMBER, _NULL = str, int, type(None)
_FIELDS: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("job", "host", "trace", "version"), (_TEXT,)),
    **dict.fromkeys(("parts", "format"), (_NUMBER,)),
    "rank": (_NUMBER, _NULL),
    "error": (_TEXT, _NULL),
}


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
        """Raises DamagedError if the file is not as `write` wrote it."""
        wanted = pl.lit(True) if first is None else pl.col("number").is_between(first, end, closed="left")
        rows = self._collect(name, lambda rows: rows.filter(wanted))
        try:
            whole(self._check, name, rows)
        except DamagedError as error:
            raise self._damaged(name, error) from None
        return rows

    def _collect(self, name: str, of: Callable[[pl.LazyFrame], pl.LazyFrame]) -> pl.DataFrame:
        """What `of` takes from a table."""
        try:
            return whole(_collected, self._file(name), name, of)
        except (DamagedError, pl.exceptions.PanicException) as error:
            raise self._damaged(name, error) from None

    def _file(self, name: str) -> Path:
        return self.folder / f"{name}.parquet"

    def _damaged(self, name: str, error: BaseException) -> DamagedError:
        return DamagedError(f"{self._file(name)} cannot be read: {error}")

    def _check(self, name: str, rows: pl.DataFrame) -> None:
        """How far readers count must not depend on a number that nobody counted."""
        if name == "ranks" and not 0 <= (rows.row(0, named=True)["ranks"] or 0) <= _MOST_RANKS:
            raise ValueError("no job has that many ranks")
        if name == "groups":
            known = self._collect("calls", lambda calls: calls.select(pl.len())).item()
            if int(rows["calls"].sum()) > known:
                raise ValueError("it has more calls than calls.parquet")


class Parts:
    """The parts in a folder, as they are on disk."""

    def __init__(self, out: Path, named: bool = True) -> None:
        """`named`: the user named the folder, so it may be a link."""
        self._out, self._named = out, named
        self._root = out / "part"

    def all(self) -> list[Kept]:
        """Those of this format, by job, rank (unknown ones last), host and trace."""
        found = [self._read(file.parent) for file in self._root.glob(f"job=*/host=*/rank=*/{ABOUT}")]
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
        """Puts a part in its place, all of it or nothing; what was there is replaced. Raises OSError."""
        folder = self.place(trace, part)
        about = Kept(
            trace.job, part.host, part.rank, trace.path, trace.version, parts, part.error, FORMAT, folder
        )
        document = {name: value for name, value in asdict(about).items() if name != "folder"}
        files = {f"{name}.parquet": data for name, data in part.tables.items()}
        files[ABOUT] = f"{json.dumps(document, indent=1)}\n".encode()
        with self._above(folder, make=True) as above, above.new(folder.name) as new:
            for name, data in files.items():
                new.write(name, data)
        self._index().setdefault(trace.path, {})[folder] = about
        return about

    def forget(self, trace: str) -> None:
        """Deletes the parts of a trace."""
        for folder in self._index().pop(trace, {}):
            about = self._read(folder)
            if about is not None and about.trace == trace:  # another trace may have taken its place
                self._delete(folder)

    def place(self, trace: TraceFile, part: Part) -> Path:
        """Where a part goes. One without a rank has the name of its trace instead."""
        rank = part.rank if part.rank is not None else _nameless(trace)
        return self._host(trace.job, part.host) / f"rank={rank}"

    def _host(self, job: str, host: str) -> Path:
        return self._root / f"job={_quoted(job)}" / f"host={_quoted(host)}"

    def drop(self, part: Kept) -> None:
        """Deletes one part."""
        self._index().get(part.trace, {}).pop(part.folder, None)
        self._delete(part.folder)

    def _delete(self, folder: Path) -> None:
        with suppress(OSError), self._above(folder) as above:
            above.remove(folder.name)

    def _above(self, folder: Path, make: bool = False) -> Folder:
        """Where the folder of a part is; a link there could lead out of the output. Raises OSError."""
        if make:
            self._out.mkdir(parents=True, exist_ok=True)
        with Folder(self._out, named=self._named) as out:
            return out.below(*folder.parent.relative_to(self._out).parts, make=make)

    def _read(self, folder: Path) -> Kept | None:
        """The part in a folder, if it is one of this format, in its own place."""
        try:
            part = whole(_kept, folder)
            is_here = whole(self._is_place, folder, part.job, part.host, part.rank)
        except DamagedError:
            return None
        return part if part.format == FORMAT and is_here else None

    def _is_place(self, folder: Path, job: str, host: str, rank: int | None) -> bool:
        name = folder.name.removeprefix("rank=")
        named = name.startswith("none.") if rank is None else name == str(rank) and 0 <= rank < _MOST_RANKS
        return named and folder.parent == self._host(job, host)

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
    """A name as a folder of a partition: no slash, no `=`; `.` and `..` are no names of folders.

    One that is too long for a folder is cut, and has the check sum of all of it.
    """
    quoted = quote(name, safe=" +@,") if name.strip(".") else name.replace(".", "%2E") or "%00"
    return quoted if len(quoted) <= _LONGEST else f"{quoted[:_LONGEST]}.{zlib.crc32(name.encode()):08x}"


def _kept(folder: Path) -> Kept:
    """What about.json says. The folder may be a stranger's, so it is checked as a trace is."""
    with open(_open_regular(folder / ABOUT), encoding="utf-8") as file:
        about = json.loads(file.read(_LONGEST_ABOUT))
    if about.keys() != _FIELDS.keys():
        raise ValueError("other fields than those of a part")
    if wrong := [name for name, types in _FIELDS.items() if type(about[name]) not in types]:
        raise ValueError(f"{wrong[0]} is of another type")
    return Kept(folder=folder, **about)


def _open_regular(file: Path) -> int:
    """A descriptor of OUT/part/job=J/host=H/rank=R/NAME; no link below OUT is followed."""
    *_, out = file.parents[:5]
    with Folder(out) as whole, whole.below(*file.parent.relative_to(out).parts) as folder:
        return folder.open_regular(file.name)


def _collected(file: Path, name: str, of: Callable[[pl.LazyFrame], pl.LazyFrame]) -> pl.DataFrame:
    with open(_open_regular(file), "rb") as opened:
        if (size := os.fstat(opened.fileno()).st_size) > _LARGEST:
            raise ValueError("it is larger than a part")
        content = opened.read(size)
    check_held(content)
    # Not scanned by its name: polars would map the file, and whoever cuts a mapped file ends this process.
    rows = pl.scan_parquet(io.BytesIO(content), hive_partitioning=False)
    if rows.collect_schema() != pl.Schema(SCHEMAS[name]):
        raise ValueError("it has other columns than a part")
    return of(rows).collect()
