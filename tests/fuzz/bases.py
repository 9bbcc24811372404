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

from tracer.trace.bytes import format as fmt  # noqa: E402

# What rules of advice look at, in more steps than they need: workers, a table, an optimizer, attention.
_ADVISED = """
import torch
from torch import nn
table, query, out = nn.Embedding(64, 8), nn.Linear(8, 8), nn.Linear(8, 2).double()
parameters = [*table.parameters(), *query.parameters(), *out.parameters()]
optimizer = torch.optim.SGD(parameters, lr=0.1, momentum=0.9, foreach=False)
rows = torch.utils.data.TensorDataset(torch.arange(64).reshape(32, 2))
for (batch,) in torch.utils.data.DataLoader(rows, batch_size=4):
    optimizer.zero_grad()
    asked = query(table(batch))
    weights = (asked @ asked.transpose(-2, -1) / 8**0.5).softmax(-1)
    for row in weights @ asked:
        out(row.double()).sum().backward(retain_graph=True)
    optimizer.step()
"""
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
_RECORDED = (
    ("cpu", _PROGRAM),
    ("stacks", _PROGRAM, "--stack", "4"),
    ("ring", _PROGRAM, "--max-size", "64M"),
    ("advised", _ADVISED, "--values", "scalars"),
)


def bases(*, recorded: bool = False) -> list[Base]:
    """`recorded`: also some that the installed tracer records here."""
    found = [
        read_base("gpu", (TESTS / "data" / "gpu.trace.xz").read_bytes()),
        Base("written", written(closed=True).data()),
        Base("killed", written(closed=False).data()),
        Base("slots", _with_slots()),
    ]
    return found + (_recorded() if recorded else [])


def _with_slots() -> bytes:
    """A ring that was not trimmed: slots first, and definitions behind them."""
    parts = Base("", written(closed=True, hop_chunk_bytes=1 << 14).data()).parts()
    definitions = [part for part in parts if part[0].stream == fmt.DEFINITIONS]
    others = [part for part in parts if part[0].stream != fmt.DEFINITIONS]
    first = 2 * fmt.HEADER_BYTES
    head = written(closed=True).data()[: fmt.HEADER_BYTES]
    header = fmt.unpack_file_header(head)._replace(header_bytes=first, ring_slots=len(others))
    head = fmt.FILE_HEADER.pack(*header) + head[fmt.FILE_HEADER.size :]
    owners = b"".join((1 << 30 | part[0].process).to_bytes(4, "little") for part in others)
    data = head + owners.ljust(fmt.HEADER_BYTES, b"\0")
    for chunk, body in others:
        whole = chunk._replace(capacity=fmt.SLOT_BYTES)
        data += (fmt.CHUNK_HEADER.pack(*whole) + body).ljust(fmt.SLOT_BYTES, b"\0")
    return data + b"".join(fmt.pack_chunk(chunk, body) for chunk, body in definitions)


def _recorded() -> list[Base]:
    """Of this torch, with and without stacks, as a ring, and one that advice is given on."""
    found = []
    with tempfile.TemporaryDirectory(prefix="fuzz") as folder:
        for name, program, *options in _RECORDED:
            Path(folder, "program.py").write_text(program)
            command = ["record", *options, "-o", f"{name}.trace", "program.py"]
            subprocess.run(
                [sys.executable, "-m", "tracer", *command], cwd=folder, check=True, capture_output=True
            )
            found.append(Base(name, Path(folder, f"{name}.trace").read_bytes()))
    return found
