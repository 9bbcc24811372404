"""tracer imports torch once in a process: another import crashes, and scripts change sys.modules."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace

import polars  # noqa: F401  (it looks for torch, which no test here may)
import pytest

import tracer
from tracer.base import build, this_torch
from tracer.base.errors import RecordingError
from tracer.recording import cuda, overrides, settings, setups, source_texts

FOLDER = Path(tracer.__file__).parent
IN_THE_PROGRAM = ("recording", "overrides", "attach", "testing")
"""Rooms whose code runs in the process of the program, and modules that it calls there"""
CALLED = ("base/extension.py", "base/build.py", "dispatch/operators.py", "dispatch/table.py")


def imports() -> Iterator[tuple[str, str]]:
    rooms = [file for room in IN_THE_PROGRAM for file in (FOLDER / room).rglob("*.py")]
    for file in [*rooms, *(FOLDER / name for name in CALLED)]:
        for node in ast.walk(ast.parse(file.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [str(node.module)] if isinstance(node, ast.ImportFrom) else []
            yield from ((str(file.relative_to(FOLDER)), name) for name in names)


def test_one_module_imports_it() -> None:
    every = list(imports())
    assert sum(name == "tracer.base.this_torch" for _, name in every) > 15
    assert [one for one in every if one[1].partition(".")[0] == "torch"] == []


def test_it_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = ModuleType("torch")
    monkeypatch.setitem(sys.modules, "torch", loaded)
    assert this_torch.this_torch() is loaded
    monkeypatch.delitem(sys.modules, "torch")
    assert this_torch.this_torch() is loaded
    monkeypatch.setitem(sys.modules, "torch", ModuleType("torch"))
    assert this_torch.this_torch() is loaded


def test_what_was_taken_out_before_is_not_imported_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(this_torch, "_is_loaded", lambda: True)
    with pytest.raises(RecordingError, match=r"^the script has removed torch from sys.modules, and .* begin"):
        this_torch.this_torch()


def test_a_library_that_is_loaded_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(this_torch, "_LIBRARY", "/libtorch_of_nobody.so")
    assert not this_torch._is_loaded()
    lines = Path("/proc/self/maps").read_text().splitlines()
    library = next(line for line in lines if "/libc.so" in line or "/libc-" in line)
    monkeypatch.setattr(this_torch, "_LIBRARY", f"/{library.rpartition('/')[2]}")
    assert this_torch._is_loaded()


def test_the_end_asks_the_one_of_the_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    cudnn = SimpleNamespace(allow_tf32=True, benchmark=False, deterministic=False)
    asked = dict.fromkeys(
        (
            "get_num_threads",
            "get_num_interop_threads",
            "get_float32_matmul_precision",
            "are_deterministic_algorithms_enabled",
        ),
        lambda: 3,
    )
    version = SimpleNamespace(cuda=None)
    kept = SimpleNamespace(**asked, backends=SimpleNamespace(cudnn=cudnn), version=version, Tensor=list)
    monkeypatch.setattr(this_torch, "_seen", kept)
    cuda._cuda_of_torch.cache_clear()
    assert settings.settings()["threads"] == 3
    assert cuda._cuda_of_torch() is None
    assert setups._option("lr", []) == "tensor"
    cuda._cuda_of_torch.cache_clear()


def test_the_extension_is_loaded_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    loads: list[str] = []

    def load(name: str, *_: str) -> ModuleType:
        loads.append(name)
        return ModuleType(name)

    monkeypatch.setitem(sys.modules, "tracer._C", ModuleType("what was there"))
    monkeypatch.setattr(build, "_native", None)
    monkeypatch.setattr(build, "NATIVE", str(tmp_path))
    monkeypatch.setattr(build, "_loaded", load)
    monkeypatch.setattr(tracer, "_C", None, raising=False)
    account = SimpleNamespace(__file__=str(tmp_path / "torch2.13" / "_build_info.py"))
    assert build.loaded_native() is None
    found = build.native(account)
    monkeypatch.delitem(sys.modules, "tracer._C")
    assert build.native(account) is found is build.loaded_native()
    assert loads == ["_C"]


def test_tracer_is_the_one_that_records(monkeypatch: pytest.MonkeyPatch) -> None:
    from tracer.overrides import switch
    from tracer.recording import recording

    for name in [name for name in sys.modules if name.startswith("tracer.")]:
        monkeypatch.delitem(sys.modules, name)
    assert tracer.step is recording.step
    assert tracer.Recording is recording.Recording
    assert overrides._switch() is switch
    assert tracer.__version__
    assert not [name for name in sys.modules if name.startswith("tracer.")]


def test_every_name_is_that_of_its_module() -> None:
    from importlib import import_module

    for name, home in tracer._HOMES.items():
        assert getattr(tracer, name) is getattr(import_module(home), name), name


def test_the_texts_of_lines_need_no_import() -> None:
    functions = ast.walk(ast.parse(Path(source_texts.__file__).read_text()))
    inside = [node for one in functions if isinstance(one, ast.FunctionDef) for node in ast.walk(one)]
    assert not [node for node in inside if isinstance(node, (ast.Import, ast.ImportFrom))]
