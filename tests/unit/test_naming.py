"""Names, numbers and reservations of output files."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tracer.base.errors import RecordingError
from tracer.recording.naming import (
    remove_if_empty,
    reserve,
    reserve_numbered,
    reserve_trace,
    stem_of_script,
)
from tracer.trace.bytes.format import MAGIC


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


@pytest.mark.parametrize("begin", [b"", MAGIC, MAGIC + b"of another version"])
def test_force_replaces_a_trace(tmp_path: Path, begin: bytes) -> None:
    path = tmp_path / "run.trace"
    assert reserve_trace(str(path), force=True) is True
    path.write_bytes(begin)
    assert reserve_trace(str(path), force=True) is False
    with pytest.raises(RecordingError, match="already exists"):
        reserve_trace(str(path), force=False)


@pytest.mark.parametrize(
    "begin", [b"x", MAGIC[:-1], b"import torch\n", b"\x7fELF\x02\x01\x01\0\0", bytes(100)]
)
@pytest.mark.parametrize("link", [False, True])
def test_force_replaces_nothing_else(tmp_path: Path, begin: bytes, link: bool) -> None:
    path = tmp_path / "{run}.trace"
    path.write_bytes(begin)
    given = tmp_path / "link.trace" if link else path
    if link:
        given.symlink_to(path)
    with pytest.raises(
        RecordingError, match=r"is not a trace, so --force does not overwrite it; give another"
    ):
        reserve_trace(str(given), force=True)
    assert path.read_bytes() == begin


def test_force_does_not_replace_what_only_proc_names() -> None:
    for path in ("/proc/self/exe", "/proc/self/comm"):
        with pytest.raises(RecordingError, match=r"is not a trace|cannot be read|permission denied"):
            reserve_trace(path, force=True)


@pytest.mark.parametrize(("number", "name"), list(enumerate(("stdin", "stdout", "stderr"))))
def test_force_does_not_take_the_place_of_a_stream(tmp_path: Path, number: int, name: str) -> None:
    """An empty file is not enough: it may be what the script is about to print to."""
    path = tmp_path / "out.txt"
    before = os.dup(number)
    try:
        with path.open("w+") as file:
            os.dup2(file.fileno(), number)
        for given in (str(path), f"/proc/self/fd/{number}", f"/dev/{name}"):
            with pytest.raises(RecordingError, match=f"{given} is {name}, so --force does not"):
                reserve_trace(given, force=True)
    finally:
        os.dup2(before, number)
        os.close(before)


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
