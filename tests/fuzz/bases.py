"""The good traces that mutations begin with."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

TESTS = Path(__file__).parents[1]
sys.path.insert(0, str(TESTS / "unit"))

from every_kind import written  # noqa: E402
from mutations import Base, read_base  # noqa: E402

# A training loop with modules and a child that is killed: what a CPU records.
_PROGRAM = """
import os, torch
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(4):
    optimizer.zero_grad()
    model(torch.ones(4, 8)).sum().backward()
    optimizer.step()
if os.fork() == 0:
    torch.mm(torch.ones(2, 2), torch.ones(2, 2))
    os._exit(0)
os.wait()
"""


def bases(*, recorded: bool = False) -> list[Base]:
    """`recorded`: also some that the installed tracer records here."""
    found = [
        read_base("gpu", (TESTS / "data" / "gpu.trace.xz").read_bytes()),
        Base("written", written(closed=True).data()),
        Base("killed", written(closed=False).data()),
    ]
    return found + (_recorded() if recorded else [])


def _recorded() -> list[Base]:
    """Of this torch, with and without stacks, and as a ring."""
    found = []
    with tempfile.TemporaryDirectory(prefix="fuzz") as folder:
        Path(folder, "program.py").write_text(_PROGRAM)
        for name, options in (("cpu", []), ("stacks", ["--stack", "4"]), ("ring", ["--max-size", "64M"])):
            command = ["record", *options, "-o", f"{name}.trace", "program.py"]
            subprocess.run(
                [sys.executable, "-m", "tracer", *command], cwd=folder, check=True, capture_output=True
            )
            found.append(Base(name, Path(folder, f"{name}.trace").read_bytes()))
    return found
