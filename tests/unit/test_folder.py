"""Below a folder that one writes into no link is followed, and what is written is whole or not there."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from deep import deep

from tracer.base.folder import Folder


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """A folder of a stranger, with links to a file and a folder of the reader."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").write_text("precious")
    out = tmp_path / "out"
    (out / "real").mkdir(parents=True)
    (out / "link").symlink_to(tmp_path / "mine")
    (out / "file").symlink_to(tmp_path / "mine" / "file")
    return out


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_the_folder_itself_may_be_a_link_if_the_user_named_it(out: Path) -> None:
    with Folder(out / "link") as folder:
        folder.write("new", b"1")
    assert (out.parent / "mine" / "new").read_bytes() == b"1"
    with pytest.raises(OSError, match="link is a link, which is not followed"):
        Folder(out / "link", named=False)
    with pytest.raises(FileNotFoundError):
        Folder(out / "none", named=False)


@pytest.mark.parametrize("make", [True, False])
@pytest.mark.parametrize("path", ["link", "link/below", "real/../link", "file"])
def test_no_link_below_it_is_followed(out: Path, path: str, make: bool) -> None:
    with Folder(out) as folder, pytest.raises(OSError, match="is a link, which is not followed"):
        folder.below(*path.split("/"), make=make)
    with Folder(out) as folder, pytest.raises(OSError, match="not a regular file"):
        folder.open_regular("file")
    with Folder(out) as folder, folder.below("real", "new", "newer", make=True) as below:
        below.write("x", b"2")
    assert (out / "real" / "new" / "newer" / "x").read_bytes() == b"2"


def test_what_is_written_replaces_a_link(out: Path) -> None:
    for link in (
        out / f".file.{os.getpid()}",
        out / f".real.{os.getpid()}",
        out / f".real.{os.getpid()}.old",
    ):
        link.symlink_to(out.parent / "mine")
    with Folder(out) as folder:
        folder.write("file", b"report")
        for name in ("link", "real"):
            with folder.new(name) as new:
                new.write("table", b"1")
    assert (out / "file").read_bytes() == b"report"
    assert not (out / "link").is_symlink()
    assert names(out) == ["file", "link", "real"]
    assert [names(out / name) for name in ("link", "real")] == [["table"], ["table"]]
    assert (out.parent / "mine" / "file").read_text() == "precious"


def test_a_folder_that_is_swapped_for_a_link_is_still_the_same(out: Path) -> None:
    with Folder(out) as folder, folder.below("real") as below:
        (out / "real").rename(out / "moved")
        (out / "real").symlink_to(out.parent / "mine")
        below.write("file", b"1")
        below.remove("file")
        folder.remove("link")
        folder.remove("real")
    assert names(out) == ["file", "moved"]
    assert (out.parent / "mine" / "file").read_text() == "precious"


def test_a_folder_that_was_not_filled_leaves_the_old_one(out: Path) -> None:
    (out / "real" / "old").touch()
    with Folder(out) as folder:
        with pytest.raises(FileNotFoundError), folder.new("real") as new:
            new.write("no/table", b"1")
        with pytest.raises(IsADirectoryError):
            folder.write("real", b"1")
    assert (names(out), names(out / "real")) == (["file", "link", "real"], ["old"])


def test_no_descriptor_is_left_open(out: Path) -> None:
    before = os.listdir("/proc/self/fd")
    with Folder(out) as folder:
        for path in ("real", "link", "none", "file"):
            try:
                with folder.below(path, "a", make=path == "real") as below:
                    below.write("x", b"")
            except OSError:
                pass
    shutil.rmtree(out)
    assert os.listdir("/proc/self/fd") == before


def test_a_thousand_folders_in_each_other_are_no_hindrance(out: Path) -> None:
    with deep(out / "real", 1200):
        with Folder(out) as folder, folder.new("real") as new:
            new.write("table", b"1")
        assert names(out / "real") == ["table"]
