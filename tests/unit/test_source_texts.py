"""Which texts of lines a recording keeps."""

from __future__ import annotations

import linecache
import os
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from tracer.recording import source_texts as module
from tracer.recording.source_texts import source_texts


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text(
        "# -*- coding: latin-1 -*-\n\n    y = net(x)  # \xe9\n" + "z" * 1000 + "\n", encoding="latin-1"
    )
    os.utime(path, (0, 0))
    return path


def lines_of(path: object, *numbers: int, began: float = 1.0) -> dict[str, str]:
    found = source_texts([(str(path), number) for number in numbers], began)
    return found.get(str(path), {}).get("lines", {})  # type: ignore[return-value]


def test_lines_of_a_file(script: Path) -> None:
    assert lines_of(script, 3, 3, 2, 5, 0) == {"3": "y = net(x)  # \xe9"}, (
        "not an empty line, or one beyond the end"
    )


def test_a_long_line_is_cut(script: Path) -> None:
    assert len(lines_of(script, 4)["4"]) == 300


def test_a_file_that_was_written_after_the_beginning_is_left_out(script: Path) -> None:
    os.utime(script, (0, 2.0))
    assert lines_of(script, 3, began=1.0) == {}


def test_code_that_only_this_process_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(linecache.cache, "<generated>", (8, None, ["a = 1\n", "b = a\n"], "<generated>"))
    assert lines_of("<generated>", 2) == {"2": "b = a"}


def test_a_cell_of_a_notebook_has_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    file = "/tmp/ipykernel_24922/2547611662.py"
    monkeypatch.setitem(linecache.cache, file, (5, None, ["a @ b\n"], file))
    shell = SimpleNamespace(compile=SimpleNamespace(_filename_map={file: 2}))
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    assert source_texts([(file, 1)], 0) == {file: {"lines": {"1": "a @ b"}, "cell": "In[2]"}}
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: None))
    assert source_texts([(file, 1)], 0) == {file: {"lines": {"1": "a @ b"}}}


def test_what_is_no_python_source_has_no_text(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00\n" * 3)
    (tmp_path / "large").write_bytes(b"a\n" * 10)
    os.truncate(tmp_path / "large", 17 << 20)
    began = time.time() + 10
    for name in ("pipe", "binary", "large", "missing", "."):
        assert lines_of(tmp_path / name, 1, began=began) == {}, name
    assert source_texts([("<string>", 1), ("train.py", 1), ("/a\0b", 1)], began) == {}


def test_texts_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_BYTES", 1000)
    files = [tmp_path / f"{number}.py" for number in range(20)]
    for file in files:
        file.write_text("x" * 100)
        os.utime(file, (0, 0))
    found = source_texts([(str(file), 1) for file in files], 1.0)
    assert 0 < len(found) < 10
