"""What a gdb session costs: the first stop, a hit, a command, memory. Run: python benchmarks/gdb_sessions.py

Prints the goals and whether they are met. Wall times on a machine that does nothing else.
"""

from __future__ import annotations

import platform
import statistics
import sys
import tempfile
import time
from datetime import date
from pathlib import Path

from pygdbmi.gdbcontroller import GdbController

from tracer.debugger import breakpoints, program, target
from tracer.debugger.session import Session

RUNS = 5
FRAMES = 30
COMMANDS = 1_000
MATMUL = """
import torch
a, b = torch.ones(64, 64, requires_grad=True), torch.ones(64, 64)
torch.matmul(a, b)
"""
MANY = """
import torch
a, b, c = torch.ones(8, 8, requires_grad=True), torch.ones(8, 8), torch.ones(8)
def work(_):
    torch.matmul(a, b)
    torch.cat([a, b])
    torch.nn.functional.linear(a, b, c)
def through_c(depth):  # so that every stack is deeper than thirty native frames
    return work if depth == 0 else lambda _: list(map(through_c(depth - 1), [0]))
for _ in range(100):
    through_c(6)(0)
"""
FUNCTIONS = (
    *(f"at::_ops::{op}::{kind}" for op in ("mm", "cat", "addmm", "t") for kind in ("call", "redispatch")),
    *(f"VariableType::{op}" for op in ("mm", "cat", "addmm", "t")),
    "at::_ops::matmul::call",
    "at::_ops::linear::call",
    "at::native::matmul",
    "at::native::_matmul_impl",
    "at::native::linear",
    "at::native::structured_mm_out_cpu::impl",
    "at::native::structured_cat_out_cpu::impl",
    "at::native::structured_addmm_out_cpu::impl",
)


def first_stop(script: Path) -> tuple[float, float, float]:
    """(seconds to the first stop, of it to `import torch`, gdb's largest resident size in MiB)."""
    began = time.perf_counter()
    with Session([str(script)], target.look(sys.executable), program.find()) as session:
        session.start()
        breakpoints.place(session, "at::_ops::mm::call", halt=True)
        assert session.run(), "mm was never called"
        seconds = time.perf_counter() - began
        return seconds, session.seconds_to_torch, peak_mib(session.mi.process.pid)


def hits(script: Path) -> tuple[float, int]:
    """(milliseconds a hit, hits) with twenty functions and backtraces of thirty frames."""
    with Session([str(script)], target.look(sys.executable), program.find(), backtrace=FRAMES) as session:
        session.start()
        for function in FUNCTIONS:
            assert not breakpoints.place(session, function), function
        session.run()
        records = list(session.records())
        assert len(records) >= 100 * (len(FUNCTIONS) - 1), len(records)
        assert min(len(record["frames"]) for record in records) == FRAMES
        return (records[-1]["milliseconds"] - records[0]["milliseconds"]) / (len(records) - 1), len(records)


def command_ms(script: Path) -> float:
    """Milliseconds of one MI command of ours."""
    with Session([str(script)], target.look(sys.executable), program.find()) as session:
        session.start()
        began = time.perf_counter()
        for _ in range(COMMANDS):
            session.mi.command("-data-evaluate-expression 1")
        return 1e3 * (time.perf_counter() - began) / COMMANDS


def stock_command_ms() -> float:
    """The same through pygdbmi's own `write`."""
    controller = GdbController([program.find().path, "--nx", "--quiet", "--interpreter=mi3"])
    controller.get_gdb_response()
    began = time.perf_counter()
    for _ in range(5):
        controller.write("-data-evaluate-expression 1")
    seconds = time.perf_counter() - began
    controller.exit()
    return 1e3 * seconds / 5


def peak_mib(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("the kernel tells no VmHWM")


def goal(name: str, value: float, unit: str, bound: float, note: str = "") -> None:
    verdict = "met" if value <= bound else "MISSED"
    print(f"{name:<48} {value:8.2f} {unit:<4} goal <= {bound:g} {unit}: {verdict}{note}")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        matmul, many = Path(folder) / "matmul.py", Path(folder) / "many.py"
        matmul.write_text(MATMUL)
        many.write_text(MANY)
        runs = [first_stop(matmul) for _ in range(RUNS)]
        seconds = sorted(run[0] for run in runs)
        per_hit, number = hits(many)
        ours, stock = command_ms(matmul), stock_command_ms()
    found = target.look(sys.executable)
    print(f"{date.today()}, {platform.machine()}, Python {found.python}, torch {found.torch_version}")
    print(program.find().version)
    spread = f"  ({RUNS} runs: {seconds[0]:.1f} to {seconds[-1]:.1f} s)"
    goal("first stop in a matmul script", statistics.median(seconds), "s", 10, spread)
    print(f"  of it to `import torch` {statistics.median(run[1] for run in runs):.1f} s")
    goal(
        f"a hit: {len(FUNCTIONS)} functions, {FRAMES} frames, tensors, Python",
        per_hit,
        "ms",
        1,
        f"  ({number:,} hits)",
    )
    goal("an MI command", ours, "ms", 1, f"  (pygdbmi's write: {stock:.0f} ms)")
    goal("gdb's memory", max(run[2] for run in runs), "MiB", 1024)


if __name__ == "__main__":
    main()
