"""Overrides beside a recording: what a trace says of them, and `tracer record --override`."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import polars as pl
import pytest
from doubled_mm import operands
from launching import Launcher
from lazily import torch

import tracer
from tracer.overrides import HandOver, register, registered, unregister, use

KERNELS = """
import torch, tracer

@tracer.overrides.register("aten::mm", "CPU", name="doubled")
def doubled(self, mat2):
    if self.dtype != torch.float32:
        raise tracer.overrides.HandOver("not float32")
    return torch.from_numpy(self.detach().numpy() @ mat2.detach().numpy()) * 2

def loose(self, mat2):
    return self
"""


@pytest.fixture(autouse=True)
def _doubled() -> Iterator[None]:
    @register("aten::mm", "CPU", name="doubled")
    def doubled(self: torch.Tensor, mat2: torch.Tensor) -> torch.Tensor:
        if self.dtype != torch.float32:
            raise HandOver("not float32")
        return torch.from_numpy(self.detach().numpy() @ mat2.detach().numpy()) * 2

    before = torch._C._dispatch_dump_table("aten::mm")
    yield
    unregister("doubled")
    assert torch._C._dispatch_dump_table("aten::mm") == before


def products(trace: tracer.Trace) -> list[tuple[str, str | None]]:
    """(kernel function, override) of each hop of aten::mm at the CPU key."""
    hops = trace.hops.filter(
        (pl.col("op").cast(pl.String) == "aten::mm") & (pl.col("key").cast(pl.String) == "CPU")
    )
    columns = hops.select(pl.col("kernel", "override").cast(pl.String))
    return [(kernel.split(" ")[0].split(".")[-1], override) for kernel, override in columns.iter_rows()]


def said(trace: tracer.Trace) -> list[dict[str, Any]]:
    assert trace.certificate["verdict"].startswith("complete: ")
    return trace.certificate["overrides"]


STOCK = ("wrapper_CPU_mm", None)
OWN = ("doubled", "doubled")


# ---- in the process ----------------------------------------------------------------------------------


@pytest.mark.promise("tracer.record", "docs/overrides.md")
def test_switched_on_while_it_is_recorded(tmp_path: Path) -> None:
    a, b = operands()
    with tracer.record(tmp_path / "x.trace"):
        torch.mm(a, b)
        for _ in range(2):
            with use("doubled"):
                torch.mm(a, b)
                torch.mm(a.double(), b.double())
        torch.mm(a, b)
    trace = tracer.load(tmp_path / "x.trace")
    assert products(trace) == [STOCK, *[OWN] * 4, STOCK]
    (one,) = said(trace)
    assert (one["ran"], one["handed_over"], one["times"], one["hops"]) == (2, {"not float32": 2}, 2, 4)
    inside = trace.hops.filter(pl.col("override").is_not_null())
    first, last = inside["start_ns"].min(), inside["end_ns"].max()
    assert one["from_ns"] <= first <= last <= one["to_ns"]
    assert one["kernel"] == inside["kernel"].cast(pl.String)[0]
    assert one["registered_at"] == inside["registered_at"].cast(pl.String)[0]


def test_switched_on_before_and_off_after_it_is_recorded(tmp_path: Path) -> None:
    a, b = operands()
    with use("doubled"):
        torch.mm(a, b)
        with tracer.record(tmp_path / "x.trace"):
            result = torch.mm(a, b)
        assert torch.equal(torch.mm(a, b), result)
    torch.testing.assert_close(torch.mm(a, b) * 2, result)
    trace = tracer.load(tmp_path / "x.trace")
    assert products(trace) == [OWN]
    (one,) = said(trace)
    assert (one["ran"], one["from_ns"], one["to_ns"], one["times"]) == (1, 0, None, 1)


def test_the_recording_stops_inside_and_begins_inside(tmp_path: Path) -> None:
    a, b = operands()
    stock = torch.mm(a, b)
    first = tracer.record(tmp_path / "1.trace").start()
    with use("doubled"):
        torch.mm(a, b)
        first.stop()
        torch.testing.assert_close(torch.mm(a, b), stock * 2)
        second = tracer.record(tmp_path / "2.trace").start()
        torch.testing.assert_close(torch.mm(a, b), stock * 2)
    assert torch.equal(torch.mm(a, b), stock)
    second.stop()
    assert torch.equal(torch.mm(a, b), stock)
    for number, ended in ((1, False), (2, True)):
        trace = tracer.load(tmp_path / f"{number}.trace")
        assert products(trace) == ([OWN, STOCK] if ended else [OWN])
        (one,) = said(trace)
        assert (one["ran"], one["to_ns"] is not None) == (1, ended)
        assert trace.certificate["lost_entries"] == []


def test_two_at_one_operator(tmp_path: Path) -> None:
    a, b = operands()
    register("aten::mm", "CPU", lambda self, mat2: self.clone(), name="left")
    with tracer.record(tmp_path / "x.trace"), use("doubled"):
        torch.mm(a, b)
        with use("left"), use("left:force"):
            torch.mm(a, b)
    unregister("left")
    trace = tracer.load(tmp_path / "x.trace")
    overrides = trace.hops["override"].cast(pl.String).drop_nulls().to_list()
    assert overrides == ["doubled", "left"]
    ran = {(one["name"], one["mode"]): one for one in said(trace)}
    assert {key: one["ran"] for key, one in ran.items()} == {
        ("doubled", "auto"): 1,
        ("left", "auto"): 0,
        ("left", "force"): 1,
    }
    assert ran["left", "auto"]["never_ran"] is not None


def test_a_function_that_raises_is_in_the_trace(tmp_path: Path) -> None:
    a, b = operands()

    @register("aten::mm", "CPU", name="broken")
    def broken(self: torch.Tensor, mat2: torch.Tensor) -> torch.Tensor:
        raise ValueError("no")

    with tracer.record(tmp_path / "x.trace"), use("broken"), pytest.raises(ValueError, match="no"):
        torch.mm(a, b)
    unregister("broken")
    trace = tracer.load(tmp_path / "x.trace")
    hop = trace.hops.filter(pl.col("override").is_not_null()).row(0, named=True)
    assert (hop["override"], hop["raised"]) == ("broken", True)
    (one,) = said(trace)
    assert one["never_ran"] == "its function raised, or its process was killed before it could count"


def test_each_call_that_was_left_to_stock_says_why(tmp_path: Path) -> None:
    """Also the calls of its own function, and those of two threads at once."""
    a, b = operands()

    @register("aten::mm", "CPU", name="often")
    def often(self: torch.Tensor, mat2: torch.Tensor) -> torch.Tensor:
        if self.dtype == torch.float64:
            raise HandOver("float64")
        return torch.mm(self, mat2)

    def products_of_a_thread() -> None:
        for dtype in (torch.float32, torch.float64, torch.float32):
            torch.mm(a.to(dtype), b.to(dtype))

    try:
        with tracer.record(tmp_path / "x.trace"), use("often"):
            threads = [Thread(target=products_of_a_thread) for _ in range(2)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    finally:
        unregister("often")
    trace = tracer.load(tmp_path / "x.trace")
    mine = trace.hops.filter(pl.col("override").is_not_null())
    by_itself = "called by the override itself"
    for thread in mine["thread"].unique():
        reasons = mine.filter(pl.col("thread") == thread)["handed_over"].to_list()
        assert reasons == [None, by_itself, "float64", None, by_itself]
    assert said(trace)[0]["handed_over"] == {by_itself: 4, "float64": 2}
    assert trace.ranges.is_empty()
    assert trace.tree().count("override often (left to stock: float64)") == 2


def test_why_it_never_ran_under_inductor(tmp_path: Path) -> None:
    a, b = operands()
    compiled = torch.compile(lambda a, b: torch.mm(a, b).relu())
    with tracer.record(tmp_path / "x.trace"), use("doubled"):
        result = compiled(a, b)
    trace = tracer.load(tmp_path / "x.trace")
    (one,) = said(trace)
    torch.testing.assert_close(result, torch.mm(a, b).relu())
    assert one["ran"] == 0
    # what torch.compile calls while it traces is at other keys
    assert one["never_ran"].startswith("aten::mm was never dispatched to CPU, only to ")
    assert re.search(
        r"; aten::mm\.out was; torch\.compile generated its own code for \d+ frames?$", one["never_ran"]
    )


# ---- tracer record --override ------------------------------------------------------------------------

SCRIPT = """
import sys, torch
a = torch.ones(2, 2, requires_grad=True)
torch.mm(a, a).sum().backward()
a = a.detach()
print(float(torch.mm(a, a)[0, 0]), float(torch.mm(a.double(), a.double())[0, 0]))
"""


@pytest.mark.promise("record", "docs/overrides.md")
def test_record_with_a_module_beside_the_script(launcher: Launcher) -> None:
    launcher.write(KERNELS, "my_kernels.py")
    launcher.write(SCRIPT)
    run = launcher.record("-o", "x.trace", "--override", "my_kernels:doubled", "script.py")
    assert (run.status, run.out) == (0, "4.0 2.0\n"), run.err
    assert run.own_err == ""
    assert "tracer: override doubled handed aten::mm over to stock: not float32\n" in run.err
    assert "  override doubled: aten::mm 4 calls, 1 call handed over to stock\n" in run.err
    trace = tracer.load(launcher.folder / "x.trace")
    (one,) = said(trace)
    assert (one["name"], one["ran"], one["hops"], one["from_ns"], one["to_ns"]) == ("doubled", 4, 5, 0, None)
    assert trace.environment["options"]["override"] == ["my_kernels:doubled"]
    tree = launcher.run([str(launcher.tracer), "tree", "x.trace", "--op", "mm"])
    marked = [line for line in tree.out.splitlines() if " override doubled" in line]
    left = [line for line in marked if line.endswith(" override doubled (left to stock: not float32)")]
    assert len(left) == 1
    assert len(marked) > 1
    assert all(line.endswith(" override doubled") for line in marked if line not in left)
    assert all("aten::mm [CPU] my_kernels.doubled (" in line for line in marked)
    report = launcher.run([str(launcher.tracer), "report", "x.trace"])
    assert "## Overrides\n" in report.out
    assert re.search(
        r"- `doubled` for `aten::mm` handed 1 call over to stock: not float32, at `script\.py:\d+`\n",
        report.out,
    )


def test_record_with_a_file_and_in_children(launcher: Launcher) -> None:
    launcher.write(KERNELS, "elsewhere/kernels.py")
    launcher.write(
        "import multiprocessing, os, torch\n"
        "def product(n):\n"
        "    return float(torch.mm(torch.ones(2, 2), torch.ones(2, 2))[0, 0])\n"
        "if __name__ == '__main__':\n"
        "    print(product(0), flush=True)\n"
        "    os.makedirs('deep', exist_ok=True); os.chdir('deep')\n"
        "    for method in ('fork', 'spawn', 'forkserver'):\n"
        "        with multiprocessing.get_context(method).Pool(1) as pool:\n"
        "            print(method, pool.map(product, range(3)))\n"
        "            pool.close(); pool.join()\n"
        "    print(product(0))\n"
    )
    run = launcher.record("-o", "x.trace", "--override", "elsewhere/kernels.py:doubled:force", "script.py")
    assert run.status == 0, run.err
    of_children = "".join(f"{method} [4.0, 4.0, 4.0]\n" for method in ("fork", "spawn", "forkserver"))
    assert run.out == f"4.0\n{of_children}4.0\n"
    (one,) = said(tracer.load(launcher.folder / "x.trace"))
    assert (one["ran"], one["mode"], one["hops"]) == (11, "force", 11)
    assert one["processes"] >= 4


def test_record_of_a_module(launcher: Launcher) -> None:
    launcher.write(KERNELS, "my_kernels.py")
    launcher.write(SCRIPT, "package/__main__.py")
    run = launcher.record("-o", "x.trace", "--override", "my_kernels:doubled", "-m", "package")
    assert (run.status, run.out) == (0, "4.0 2.0\n"), run.err


def test_a_killed_run_says_what_was_on(launcher: Launcher) -> None:
    launcher.write(KERNELS, "my_kernels.py")
    launcher.write(
        "import os, torch\ntorch.mm(torch.ones(2, 2), torch.ones(2, 2))\nos.kill(os.getpid(), 9)\n"
    )
    run = launcher.record("-o", "x.trace", "--override", "my_kernels:doubled", "script.py")
    assert run.status == -signal.SIGKILL
    trace = tracer.load(launcher.folder / "x.trace")
    assert trace.hops["override"].cast(pl.String).drop_nulls().to_list() == ["doubled"]
    (one,) = trace.certificate["overrides"]
    assert (one["hops"], one["ran"]) == (1, 0)
    assert "killed before it could count" in one["never_ran"]


def test_an_override_that_never_ran_is_said_aloud(launcher: Launcher) -> None:
    launcher.write(KERNELS, "my_kernels.py")
    launcher.write("import torch\ntorch.ones(2) + 1\n")
    run = launcher.record("-o", "x.trace", "--override", "my_kernels:doubled", "script.py")
    assert "  override doubled: aten::mm never ran\n" in run.err
    report = launcher.run([str(launcher.tracer), "report", "x.trace"])
    assert "- **`doubled` for `aten::mm` never ran**: aten::mm was never called\n" in report.out


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("nope", "unknown override nope; choose mm, gru, cat, or give your own"),
        ("nope:nothing", "no module nope here for the override nope:nothing; check its name"),
        ("gone.py:f", "no file gone.py for the override gone.py:f"),
        ("my_kernels:doubled,", "'' is not an override name"),
    ],
)
def test_names_are_checked_before_anything_runs(launcher: Launcher, name: str, text: str) -> None:
    launcher.write(KERNELS, "my_kernels.py")
    launcher.write("print('ran')\n")
    run = launcher.record("--override", name, "script.py")
    assert (run.status, run.out) == (2, "")
    assert run.err.startswith(f"tracer: {text}")
    assert len(run.err.splitlines()) == 1
    assert launcher.traces() == []


@pytest.mark.parametrize(
    ("module", "name", "text"),
    [
        (
            KERNELS,
            "my_kernels:loose",
            'write above it: @tracer.overrides.register("NAMESPACE::OPERATOR", "CPU", name="loose")',
        ),
        ("1 / 0\n", "my_kernels:f", "cannot import override my_kernels:f: ZeroDivisionError"),
    ],
)
def test_a_script_does_not_run_without_its_overrides(
    launcher: Launcher, module: str, name: str, text: str
) -> None:
    launcher.write(module, "my_kernels.py")
    launcher.write("import torch\nprint('ran')\n")
    run = launcher.record("--override", name, "script.py")
    assert (run.status, run.out) == (2, "")
    (line,) = (line for line in run.err.splitlines() if line.startswith("tracer: "))
    assert line.startswith("tracer: nothing is recorded: ")
    assert text in line
    if "import" in text:
        assert 'my_kernels.py", line 1' in run.err  # the module's own traceback
    assert launcher.traces() == []


def test_a_child_says_that_it_runs_without(launcher: Launcher) -> None:
    launcher.write("import os\nif os.environ.get('CHILD'): raise ImportError\n" + KERNELS, "my_kernels.py")
    launcher.write(
        "import os, subprocess, sys, torch\n"
        "if len(sys.argv) == 1:\n"
        "    subprocess.run([sys.executable, 'script.py', 'child'], env={**os.environ, 'CHILD': '1'})\n"
        "else: print(float(torch.mm(torch.ones(2, 2), torch.ones(2, 2))[0, 0]))\n"
    )
    run = launcher.record("-o", "x.trace", "--override", "my_kernels:doubled", "script.py")
    assert (run.status, run.out) == (0, "2.0\n")
    assert re.search(
        r"overrides are not enabled in process \d+: cannot import override my_kernels:doubled", run.err
    )


def test_registered_names_do_not_leak_between_tests() -> None:
    assert list(registered()) == ["mm", "gru", "cat", "doubled"]
