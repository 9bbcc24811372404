"""The folder of parts may be a stranger's: what is not as `fleet` writes it is not read."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from rank_traces import write_rank

from tracer.analysis.fleet.merge import merge
from tracer.fleet.gather import Gathered, gather
from tracer.fleet.pages import check_held
from tracer.fleet.parts import Kept, Parts
from tracer.fleet.processes import Processes
from tracer.fleet.traces import TraceFile, find
from tracer.trace.bytes.damage import DamagedError

HOSTILE = "\x1b]0;x\x07\n# title"


@pytest.fixture
def out(tmp_path: Path) -> Path:
    for rank in range(2):
        write_rank(tmp_path / "job" / f"rank{rank}.trace", rank, 2)
    read(tmp_path / "out")
    return tmp_path / "out"


def read(out: Path) -> Gathered:
    return gather(Parts(out), find([str(out.parent / "job")]), Processes(1))


def part_of(out: Path) -> Path:
    return out / "part" / "job=job" / "host=a" / "rank=1"


def ranks(out: Path) -> list[int | None]:
    return [part.rank for part in Parts(out).all()]


@pytest.mark.parametrize("field", ["job", "host", "rank", "trace", "version", "parts", "error", "format"])
def test_fields_of_another_type_are_no_part(out: Path, field: str) -> None:
    about = part_of(out) / "about.json"
    known = json.loads(about.read_text())
    others: list[object] = ["x", HOSTILE, "\ud800", None, -1, 1 << 70, 1.5, True, [1], {"a": 1}]
    for value in others:
        about.write_text(json.dumps({**known, field: value}))
        parts = Parts(out).all()
        assert len(merge(parts)["ranks"]) == len(parts) >= 1  # raises nothing
        assert Parts(out).made(TraceFile(str(value), "job", "")) == []
        assert all(type(getattr(part, field)) is type(known[field]) for part in parts if field != "error")


@pytest.mark.parametrize("text", ["", "[]", "1", "{}", '{"a": 1}', "[" * 100_000, "\ud800"])
def test_other_documents_are_no_part(out: Path, text: str) -> None:
    (part_of(out) / "about.json").write_bytes(text.encode("utf-8", "surrogatepass"))
    assert ranks(out) == [0]
    assert read(out) == Gathered(read=1, known=1)


def test_a_part_in_another_place_is_none(out: Path) -> None:
    """Two parts of one rank would be merged, and the folder of a part is deleted with it."""
    shutil.copytree(part_of(out), out / "part" / "job=job" / "host=b" / "rank=1")
    shutil.copytree(part_of(out), out / "part" / "job=job" / "host=a" / "rank=2")
    elsewhere = out.parent / "host=c"
    shutil.copytree(part_of(out), elsewhere / "rank=3")
    about = elsewhere / "rank=3" / "about.json"
    about.write_text(json.dumps({**json.loads(about.read_text()), "host": "c", "rank": 3}))
    (out / "part" / "job=job" / "host=c").symlink_to(elsewhere)
    assert ranks(out) == [0, 1]
    (out.parent / "job" / "rank1.trace").unlink()
    write_rank(out.parent / "job" / "rank3.trace", 3, 4, host="c")
    with pytest.raises(OSError, match="host=c is a link, which is not followed"):
        read(out)
    assert json.loads(about.read_text())["trace"].endswith("rank1.trace")


@pytest.mark.parametrize(
    "link", ["part", "part/job=job", "part/job=job/host=a", "part/job=job/host=a/rank=1"]
)
def test_parts_are_not_kept_elsewhere(out: Path, link: str) -> None:
    """A stranger's link leads to the reader's parts of the same traces."""
    mine = out.parent / "mine"
    shutil.move(out, mine)
    (out / link).parent.mkdir(parents=True)
    (out / link).symlink_to(mine / link)
    before = {file: file.read_bytes() for file in mine.rglob("*") if file.is_file()}
    write_rank(out.parent / "job" / "rank1.trace", 1, 2, ops=3)
    parts = Parts(out)
    assert parts.all() == []
    parts.forget(str(out.parent / "job" / "rank1.trace"))
    for kept in Parts(mine).all():
        parts.drop(replace(kept, folder=out / kept.folder.relative_to(mine)))
    with suppress(OSError):
        read(out)
    assert {file: file.read_bytes() for file in mine.rglob("*") if file.is_file()} == before


def other_columns(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.with_columns(more=1)


def other_types(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.with_columns(pl.all().cast(pl.String))


def no_rows(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.clear()


def endless(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.with_columns(pl.lit(1 << 62).cast(rows.schema[name]).alias(name) for name in counted(rows))


def bomb(rows: pl.DataFrame) -> pl.DataFrame:
    return rows[[0] * 200_000]


def long_list(rows: pl.DataFrame) -> pl.DataFrame:
    return with_list(rows, ["x"] * 1_000_000)


def long_text(rows: pl.DataFrame) -> pl.DataFrame:
    return with_list(rows, ["x" * 10_000_000])


def with_list(rows: pl.DataFrame, value: list[str]) -> pl.DataFrame:
    name = next(name for name, kind in rows.schema.items() if kind == pl.List)
    return rows.with_columns(pl.Series(name, [value] * rows.height))


def counted(rows: pl.DataFrame) -> list[str]:
    return [name for name in ("ranks", "calls") if name in rows.columns]


@pytest.mark.parametrize(
    ("name", "change"),
    [
        *(("ops", change) for change in (other_columns, other_types)),
        *(("ranks", change) for change in (no_rows, endless, long_list, long_text)),
        *(("groups", change) for change in (endless, bomb)),
    ],
)
def test_tables_that_no_trace_gives_are_one_line(
    out: Path, name: str, change: Callable[[pl.DataFrame], pl.DataFrame]
) -> None:
    file = part_of(out) / f"{name}.parquet"
    change(pl.read_parquet(file)).write_parquet(file)
    with pytest.raises(DamagedError, match=f"rank=1/{name}.parquet cannot be read: "):
        merge(Parts(out).all())


def test_files_that_are_no_tables_are_one_line(out: Path) -> None:
    part = next(part for part in Parts(out).all() if part.rank == 1)
    for name, content in {"ops": b"PAR1junkPAR1", "lines": b"", "steps": b"PAR1" + b"\xff" * 64}.items():
        (part.folder / f"{name}.parquet").write_bytes(content)
        with pytest.raises(DamagedError, match=f"{name}.parquet cannot be read: "):
            part.table(name)
    (part.folder / "groups.parquet").unlink()
    with pytest.raises(DamagedError, match=r"groups\.parquet cannot be read: "):
        part.table("groups")


def test_a_table_that_is_cut_while_it_is_read_is_read_as_it_was(out: Path) -> None:
    part = next(part for part in Parts(out).all() if part.rank == 1)
    known = part.table("ops")

    def cut(rows: pl.LazyFrame) -> pl.LazyFrame:
        os.truncate(part.folder / "ops.parquet", 0)
        return rows

    assert part._collect("ops", cut).equals(known)
    os.truncate(part.folder / "ops.parquet", 1 << 40)
    with pytest.raises(DamagedError, match="it is larger than a part"):
        part.table("ops")


def test_each_table_is_read_as_it_was_written(out: Path) -> None:
    part: Kept = Parts(out).all()[1]
    files = sorted(part.folder.glob("*.parquet"))
    assert len(files) == 11
    for file in files:
        assert part.table(file.stem).equals(pl.read_parquet(file))
    assert part.table("calls", 1, 3)["number"].to_list() == [1, 2]


@pytest.mark.parametrize("name", ["ranks", "calls"])
def test_any_bytes_are_counted_or_refused(out: Path, name: str) -> None:
    """Counts and places of a footer and of the headers of its pages, each as any number."""
    part: Kept = Parts(out).all()[1]
    file = part.folder / f"{name}.parquet"
    data = file.read_bytes()
    for place in range(0, len(data), 3):
        changed = bytearray(data)
        changed[place : place + 2] = (0xFF, 0x7F) if place % 2 else (0x00, 0xFF)
        with suppress(ValueError, LookupError, TypeError, OverflowError):
            check_held(bytes(changed))


def integer(number: int) -> bytes:
    """As Thrift's compact protocol writes it: zigzag, 7 bits a byte."""
    number = number << 1 ^ number >> 63
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes([*found, number])


@pytest.mark.parametrize("rows", [(-(1 << 40), 1 << 40), (1 << 40, -(1 << 40)), (-1, 0)])
def test_a_negative_count_makes_up_for_none(rows: tuple[int, int]) -> None:
    """The sums of two groups of rows were small: one was as much too large as the other was negative."""
    # RowGroup: 1 list of 1 ColumnChunk {3: ColumnMetaData {5 values, 6 bytes, 7 packed, 9 place}}, 3 rows
    column = b"\x3c\x56\x00\x16\x00\x16\x00\x26\x00\x00\x00"
    groups = b"".join(b"\x19\x1c" + column + b"\x26" + integer(count) + b"\x00" for count in rows)
    footer = b"\x49\x2c" + groups + b"\x00"
    with pytest.raises(ValueError, match="fewer than no rows"):
        check_held(footer + len(footer).to_bytes(4, "little") + b"PAR1")
