"""`tracer fleet` looks for traces in a stranger's folder: any number of folders and names."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from deep import deep
from hypothesis import given
from hypothesis import strategies as st

from tracer.fleet.traces import _short, find


def test_a_thousand_folders_in_each_other(tmp_path: Path) -> None:
    with deep(tmp_path / "job" / "deep", 1200):
        (tmp_path / "job" / "rank0.trace").touch()
        assert [trace.name for trace in find([str(tmp_path)])] == ["rank0.trace"]


def test_a_folder_is_called_as_a_trace(tmp_path: Path) -> None:
    """One that has traces is a folder, one without is said to be none by its reader."""
    for name in ("a.trace/b.trace/c.trace", "d.trace/e", "f.trace.xz/g.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "a.trace" / "circle").symlink_to(tmp_path)
    found = sorted(Path(trace.path).relative_to(tmp_path).as_posix() for trace in find([str(tmp_path)]))
    assert found == ["a.trace/b.trace/c.trace", "d.trace", "f.trace.xz"]


def seconds_of(folder: Path, files: int) -> float:
    for number in range(files):
        (folder / f"{number}").mkdir(parents=True)
        (folder / f"{number}" / "rank0.trace").touch()
    began = time.process_time()
    assert len(find([str(folder)])) == files
    return time.process_time() - began


def test_ten_times_the_files_take_ten_times_as_long(tmp_path: Path) -> None:
    """A hundred times before."""
    few, many = seconds_of(tmp_path / "few", 200), seconds_of(tmp_path / "many", 2000)
    assert many < 30 * few


@given(
    st.sets(st.text("ab/", max_size=7).map(lambda text: "/" + text.strip("/").replace("//", "/")), max_size=8)
)
def test_names_have_as_many_parents_as_it_takes(folders: set[str]) -> None:
    names = _short(sorted(folders))
    assert names.keys() == folders
    for folder, name in names.items():
        same = [other for other in folders if f"/{other.rstrip('/')}".endswith(f"/{name.rstrip('/')}")]
        assert folder.endswith(name)
        assert same == [folder] or name == (folder.rstrip("/") or "/")
        shorter = name.partition("/")[2]
        same = [other for other in folders if f"/{other.rstrip('/')}".endswith(f"/{shorter}")]
        assert not shorter or len(same) > 1


@pytest.mark.parametrize("pattern", ["no.trace", "no"])
def test_names_that_are_no_traces(tmp_path: Path, pattern: str) -> None:
    (tmp_path / f"{pattern}s").touch()
    (tmp_path / "rank0.trace").touch()
    assert len(find([str(tmp_path)])) == 1
