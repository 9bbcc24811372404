"""Codes in the name of an output, folders, and ranks."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tracer.base.errors import RecordingError
from tracer.recording import naming, output, ranks

VARIABLES = [
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
]


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for names in VARIABLES:
        for name in names:
            monkeypatch.delenv(name, raising=False)


@pytest.fixture
def rank_3_of_16(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "16")


@pytest.mark.parametrize("names", VARIABLES)
def test_the_rank_is_read_from_what_starts_jobs(names: tuple[str, str]) -> None:
    rank = ranks.of_this_process(dict(zip(names, ("2", "8"), strict=True)))
    assert rank is not None
    assert (rank.number, rank.ranks, rank.name) == (2, 8, "rank2")


@pytest.mark.parametrize(
    "values", [("0", "1"), ("8", "8"), ("x", "8"), ("", "8"), ("-1", "8"), ("²", "8"), ("1" * 5000, "8")]
)
def test_what_is_no_rank_of_a_job_is_none(values: tuple[str, str]) -> None:
    assert ranks.of_this_process({"RANK": values[0], "WORLD_SIZE": values[1]}) is None
    assert ranks.of_this_process({"RANK": "0"}) is None


def test_torchrun_within_srun_is_what_counts() -> None:
    rank = ranks.of_this_process({"RANK": "5", "WORLD_SIZE": "8", "SLURM_PROCID": "1", "SLURM_NTASKS": "2"})
    assert rank is not None
    assert rank.number == 5


def test_a_process_alone_keeps_the_name(tmp_path: Path) -> None:
    assert output.filled("run.trace") == "run.trace"
    assert output.filled("50% of it.trace") == "50% of it.trace"
    assert output.filled("100%%.trace") == "100%.trace"
    assert output.filled("%p.trace") == f"{os.getpid()}.trace"
    assert output.filled("%h/run") == f"{os.uname().nodename}/run"
    assert output.filled(f"{tmp_path}/new/job/") == f"{tmp_path}/new/job/"
    assert (tmp_path / "new" / "job").is_dir()
    assert output.stem("a/train.py") == "train"


@pytest.mark.usefixtures("rank_3_of_16")
def test_the_name_has_the_rank(tmp_path: Path) -> None:
    assert output.filled("run.trace") == "run.rank03.trace"
    assert output.filled("run") == "run.rank03"
    assert output.filled("run.%r.trace") == "run.3.trace"
    assert output.filled("run.%p.trace") == f"run.{os.getpid()}.trace"
    assert output.filled(f"{tmp_path}/job/") == f"{tmp_path}/job/rank03.trace"
    assert output.stem("a/train.py") == "train.rank03"


def test_a_rank_that_is_not_known_is_an_error() -> None:
    with pytest.raises(RecordingError, match=r"run\.%r\.trace: this process has no rank, as RANK and WORLD"):
        output.filled("run.%r.trace")


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RecordingError, match=r"cannot make the folder .*file/job/: Not a directory; give an"):
        output.filled(f"{tmp_path}/file/job/")


@pytest.mark.usefixtures("rank_3_of_16")
def test_a_link_is_followed_only_if_the_user_named_it(tmp_path: Path) -> None:
    """The folder may be a stranger's, and --force replaces the trace that a link leads to."""
    for name in ("job/rank03.trace", "run.rank03.trace", "run.3.trace"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).symlink_to(tmp_path / "mine.trace")
    for given in ("job/", "run.trace", "run.%r.trace"):
        with pytest.raises(
            RecordingError, match=r"3\.trace is a link, which is not followed; delete it, or giv"
        ):
            output.of_command(f"{tmp_path}/{given}")
    assert output.of_command(f"{tmp_path}/new.trace").endswith("/new.rank03.trace")


def test_a_link_that_the_user_named_is_followed(tmp_path: Path) -> None:
    (tmp_path / "run.trace").symlink_to(tmp_path / "mine.trace")
    assert output.of_command(f"{tmp_path}/run.trace") == f"{tmp_path}/run.trace"


def test_a_path_that_is_not_utf_8_is_refused_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / os.fsdecode(b"\x1b\xff")
    folder.mkdir()
    monkeypatch.chdir(folder)
    for path in ("", "run.trace"):
        with pytest.raises(
            RecordingError, match=r"^cannot write '[ -~]*\\x1b\\udcff[ -~]*the path is not UTF-8; giv"
        ):
            naming.absolute(path)
    assert naming.absolute("/tmp/caf\xe9.trace") == "/tmp/caf\xe9.trace"
