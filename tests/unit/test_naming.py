"""Names, numbers and reservations of output files."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tracer.base.errors import RecordingError
from tracer.recording.naming import remove_if_empty, reserve, reserve_numbered, stem_of_script


@pytest.mark.parametrize(
    ("script", "stem"),
    [
        ("train.py", "train"),
        ("/home/me/runs/train.py", "train"),
        ("train", "train"),
        ("train.v2.py", "train.v2"),
        ("app/", "app"),
        ("package.module", "package.module"),
        ("", "python"),
        ("-", "python"),
        ("-c", "python"),
        (".", "python"),
        (".py", "python"),
        ("/x/ipykernel_launcher.py", "notebook"),
    ],
)
def test_stem(script: str, stem: str) -> None:
    assert stem_of_script(script) == stem


def test_numbers_go_on_after_the_highest(tmp_path: Path) -> None:
    for name in ("run.0002.trace", "run.0007.trace", "run.x.trace", "run.²2.trace", "running.0099.trace"):
        (tmp_path / name).touch()
    assert reserve_numbered(str(tmp_path), "run") == str(tmp_path / "run.0008.trace")
    (tmp_path / "run.9999.trace").touch()
    assert reserve_numbered(str(tmp_path), "run") == str(tmp_path / "run.10000.trace")
    assert reserve_numbered(str(tmp_path), "run") == str(tmp_path / "run.10001.trace")


def test_many_at_once_get_as_many_names(tmp_path: Path) -> None:
    with ThreadPoolExecutor(16) as pool:
        paths = list(pool.map(lambda _: reserve_numbered(str(tmp_path), "run"), range(64)))
    assert len(set(paths)) == 64


def test_reserve(tmp_path: Path) -> None:
    path = tmp_path / "run.trace"
    assert reserve(str(path), force=False) is True
    assert path.stat().st_size == 0
    with pytest.raises(RecordingError, match="already exists"):
        reserve(str(path), force=False)
    path.write_text("kept")
    assert reserve(str(path), force=True) is False
    assert path.read_text() == "kept"


def test_refusals(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="is a folder"):
        reserve(str(tmp_path), force=True)
    with pytest.raises(RecordingError, match="does not exist; create it first"):
        reserve(str(tmp_path / "no" / "run.trace"), force=False)
    with pytest.raises(RecordingError, match="does not exist; create it first"):
        reserve_numbered(str(tmp_path / "no"), "run")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(RecordingError, match="not a regular file"):
        reserve(str(tmp_path / "pipe"), force=True)


def test_only_an_empty_file_is_removed(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    (tmp_path / "full").write_text("x")
    for name in ("empty", "full", "missing"):
        remove_if_empty(str(tmp_path / name))
    assert [path.name for path in tmp_path.iterdir()] == ["full"]
