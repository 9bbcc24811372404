"""The tables of `make fresh` and `make matrix`, and the index that they give the CPU builds from."""

from __future__ import annotations

import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

CHECKS = Path(__file__).resolve().parents[2] / "cmake" / "checks"
sys.path.insert(0, str(CHECKS))
import systems  # noqa: E402
from wheel_index import WheelIndex  # noqa: E402

TESTED = systems.Result(
    systems.Row("bookworm", "torch==2.10.0", "cuda", systems.SELECTION),
    commit="abc1234",
    day="2026-11-23",
    python="3.11.2",
    torch="2.10.0+cu128",
    outcomes={
        "make demo": (0, "next: tracer tree", 185.0),
        f"make test TESTS='{systems.SELECTION}'": (2, "1 failed, 250 passed, 3 skipped in 10.0s", 600.0),
    },
    megabytes=5530,
)


def test_rows_do_not_share_a_folder() -> None:
    rows = {*systems.fresh_rows(systems.SUITES), *systems.matrix_rows(systems.SUITES)}
    assert len({row.name for row in rows}) == len(rows)
    tested = {(row.suite, row.torch) for row in rows if row.tests == ""}
    assert tested >= {(s, t) for s in systems.SUITES for t in (systems.DEFAULT, systems.NEWEST)}


def test_the_matrix_has_the_fresh_rows_too() -> None:
    fresh, matrix = (systems.rows_of(what, systems.SUITES) for what in ("fresh", "matrix"))
    assert {row for row in fresh if row.tests is not None} < set(matrix)
    untested = [[row.name for row in rows if row.tests is None] for rows in (fresh, matrix)]
    assert untested == [
        ["sid-torch-2.13.0-cuda-demo", "sid-torch-2.13.0-auto-demo"],
        ["sid-torch-2.13.0-auto-demo"],
    ]


def test_a_failure_is_seen_in_the_table_and_in_the_verdict() -> None:
    assert not TESTED.passed
    assert systems.table([TESTED]).splitlines()[2] == (
        "| bookworm | 3.11.2 | 2.10.0+cu128 | ok, 3 min "
        "| **failed**: 1 failed, 250 passed, 3 skipped (12 files) | 5.4 GiB | abc1234 |"
    )
    assert not systems.Result(TESTED.row, "abc1234", "2026-11-23").passed, "nothing ran"


def test_the_newest_versions_have_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (row,) = systems.rows_of("newest", ["bookworm"])
    assert (row.suite, row.torch, row.tests) == ("sid", "torch", "")
    page = tmp_path / "versions.md"
    head = "\nRun on one day:\n\n| system | Python | torch | tests |\n|---|---|---|---|\n"
    old, other = "| sid | 3.14.10 | 2.15.0 | 1 passed |", "| trixie | 3.13.5 | 2.15.0 | 2 passed |"
    page.write_text(f"above\n{systems.BEGIN}{head}{old}\n{other}\n{systems.END}\nbelow\n")
    monkeypatch.setattr(systems, "VERSIONS", page)
    for new in ("| sid | 3.14.10 | 2.15.0 | 3 passed |", "| sid | 3.15.0 | 2.16.0 | 4 passed |"):
        systems.write_row(new)
    text = page.read_text()
    rows = f"{other}\n| sid | 3.14.10 | 2.15.0 | 3 passed |\n| sid | 3.15.0 | 2.16.0 | 4 passed |\n"
    assert text == f"above\n{systems.BEGIN}{head}{rows}{systems.END}\nbelow\n"


def test_last_words_are_pytests_counts() -> None:
    text = "...\n== 2 failed, 300 passed in 12.3s ==\nmake: *** [Makefile:48: test] Error 1\n\n"
    assert systems._last_words(text) == "2 failed, 300 passed in 12.3s"
    assert systems._last_words("a\nb\n\n") == "b"


def test_the_selected_files_exist() -> None:
    assert all((CHECKS.parents[1] / name).exists() for name in systems.SELECTION.split())


def test_the_index_has_wheels_of_torch_and_sends_on_for_the_rest(tmp_path: Path) -> None:
    (tmp_path / "torch-2.13.0+cpu-cp311-cp311-linux_x86_64.whl").write_bytes(b"a wheel")
    (tmp_path / "numpy-2.0-py3-none-any.whl").write_bytes(b"")
    with WheelIndex([tmp_path]) as index:
        assert index.has("cp311", "2.13.0")
        assert not index.has("cp312", "2.13.0")
        page = urllib.request.urlopen(f"{index.url}/torch/").read().decode()
        assert page.count("<a ") == 1
        name = page.partition('href="')[2].partition('"')[0]
        assert urllib.request.urlopen(f"{index.url}/torch/{name}").read() == b"a wheel"
        command = [sys.executable, "-c", "import http.client, sys\n"
                   "c = http.client.HTTPConnection(sys.argv[1]); c.request('GET', '/whl/cpu/numpy/')\n"
                   "print(c.getresponse().getheader('Location'))"]  # fmt: skip
        host = index.url.split("/")[2]
        done = subprocess.run([*command, host], capture_output=True, text=True, check=True)
        assert done.stdout == "https://pypi.org/simple/numpy/\n"
        with pytest.raises(urllib.error.HTTPError):
            urllib.request.urlopen(f"{index.url}/torch/another.whl")
