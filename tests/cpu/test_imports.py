"""Imports are rows: what Python imported after the first op of a thread, and how long that took."""

from __future__ import annotations

from pathlib import Path

import polars as pl
from launching import Launcher

import tracer

IMPORTS = """
import importlib, sys
import torch
torch.ones(2) + 1
seen = dict(sys.modules)
sys.path.insert(0, sys.argv[1])
import heavy_package.part
print("heavy_package.other" in sys.modules, heavy_package.part.value)
for _ in range(2):
    try:
        import not_there_at_all
    except ImportError as error:
        print(error, error.__traceback__.tb_next)
importlib.import_module("heavy_package.part")  # asks for it, although it is loaded
torch.ones(2) + 1
"""


def test_an_import_is_a_row_by_its_outermost_module(launcher: Launcher, tmp_path: Path) -> None:
    package = tmp_path / "heavy_package"
    package.mkdir()
    (package / "__init__.py").write_text("import heavy_package.other\n")
    (package / "other.py").write_text("")
    (package / "part.py").write_text("value = 7\n")
    launcher.write(IMPORTS)
    run = launcher.same("script.py", str(tmp_path))
    assert run.out.startswith("True 7\nNo module named 'not_there_at_all' None\n")
    trace = tracer.load(launcher.folder / "both.trace")
    rows = trace.imports.select("module", "source").cast(pl.String).rows()
    here = [row for row in rows if row[0].startswith(("heavy", "not_there"))]
    place = launcher.folder / "script.py"
    assert here == [("heavy_package.part", f"{place}:7"), *[("not_there_at_all", f"{place}:11")] * 2]


def test_a_child_that_only_imports_is_not_in_the_trace(launcher: Launcher) -> None:
    launcher.write(
        "import os, torch\n"
        "torch.ones(2) + 1\n"
        "child = os.fork()\n"
        "if not child:\n"
        "    import this_is_missing\n"
        "os.waitpid(child, 0)\n"
    )
    run = launcher.record("-o", "run.trace", "script.py")
    assert run.status == 0, run.err
    trace = tracer.load(launcher.folder / "run.trace")
    assert len(trace.processes) == 1
    assert trace.certificate["complete"]
