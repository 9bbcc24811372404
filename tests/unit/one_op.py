"""A trace of one op call, as a stranger may make it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from synthetic import BACKENDS, CPU, ENUMS, TraceWriter, tensor

ENVIRONMENT = {
    "torch": "2.13.0+cpu",
    "argv": ["train.py"],
    "command": ["train.py"],
    "cwd": "/home/m",
    "cores": 4,
    "started_at": "2026-01-02T03:04:05+00:00",
    "options": {"shapes": True, "source": True, "ops": [], "steps": None, "max_size": None},
}


def one_op(
    path: Path,
    op: str = "aten::mm",
    *,
    key: str = "CPU",
    below: str = "",
    dtype: str = "torch.float32",
    device: str = "cpu",
    shape: tuple[int, ...] = (2, 2),
    stride: tuple[int, ...] = (2, 1),
    tensors: int = 2,
    scalars: bytes = b"",
    file: str = "/home/m/train.py",
    line: int = 3,
    header: dict[str, int] | None = None,
    environment: dict[str, Any] | None = None,
) -> Path:
    """`below`: the key of a redispatch in the call, if there is one."""
    writer = TraceWriter(header=header or {})
    writer.process()
    writer.json(0, "environment", ENVIRONMENT | (environment or {}))
    names = {"dtypes": {"6": dtype}, "device_types": {"0": device, "1": "cuda"}}
    writer.json(0, "enums", {**ENUMS, **names, "keys": [*ENUMS["keys"], key, below]})
    writer.hop(0, op, key=key)
    writer.hop(1, op, key=below or key)
    lane = writer.lane()
    lane.name_thread(1, "main")
    lane.define_source(1, file, line)
    arguments = [tensor(shape, stride, position=position) for position in range(tensors)]
    lane.define_signature(1, *arguments, scalars=scalars)
    lane.enter(0, CPU if key == "CPU" else 1 << (BACKENDS + 2) | CPU, source=1, signature=1)
    if below:
        lane.enter(1, 1 << (BACKENDS + 3) | CPU, source=1, signature=1, call_site=2)
        lane.exit()
    lane.exit()
    return writer.write(path)
