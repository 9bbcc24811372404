"""The options of what is recorded, which several commands take."""

from __future__ import annotations

from typing import Annotated

import typer

from tracer.recording.options import MOST_DUMPS, MOST_LINES

Shapes = Annotated[bool, typer.Option("--shapes/--no-shapes", help="Record shapes and dtypes of tensors.")]
Source = Annotated[bool, typer.Option("--source/--no-source", help="Record Python source lines.")]
Stack = Annotated[
    int,
    typer.Option(metavar="N", min=1, max=MOST_LINES, help="Record the N innermost Python frames."),
]
TorchFrames = Annotated[
    bool,
    typer.Option("--torch-frames/--no-torch-frames", help="With --stack: keep frames of torch itself."),
]
Modules = Annotated[
    bool, typer.Option("--modules/--no-modules", help="Record the nn.Module that each op was called in.")
]
Memory = Annotated[
    bool,
    typer.Option("--memory/--no-memory", help="Record each block of memory that torch allocates or frees."),
]
Why = Annotated[
    bool,
    typer.Option(
        "--why/--no-why",
        help="Record the dispatch keys that threads add or hide: tracer explain OP --from FILE --hop ID.",
    ),
]
Values = Annotated[
    str,
    typer.Option(
        metavar="none|hash|scalars|all",
        help="hash: record of what each op call returns a hash of the values, and whether it has a NaN "
        "(on the CPU): tracer diff then names the first op call whose result differs. scalars: record "
        "arguments that are no tensors: tracer replay needs them. all: both.",
    ),
]
Ops = Annotated[
    list[str] | None,
    typer.Option(
        metavar="PATTERN",
        help="Record only operators whose name matches, e.g. 'aten::*mm*'. Repeatable.",
    ),
]
MaxSize = Annotated[
    str | None,
    typer.Option(
        metavar="SIZE",
        help="Limit the file to SIZE, e.g. 256M or 1G: new hops overwrite the oldest ones.",
    ),
]
ThenStop = Annotated[
    bool, typer.Option("--then-stop", help="At --max-size, stop recording and keep the oldest hops.")
]
MaxDumps = Annotated[
    int,
    typer.Option(
        metavar="N",
        min=0,
        max=MOST_DUMPS,
        help="Keep N dumps of a process: its first one and the newest ones. 0: all.",
    ),
]
Cuda = Annotated[
    str,
    typer.Option(
        metavar="auto|on|off",
        help="Record CUDA calls and GPU work. auto: if possible. on: if CUDA cannot be recorded, "
        "record nothing. off: hops only.",
    ),
]
Driver = Annotated[
    str,
    typer.Option(
        metavar="launches|all|none",
        help="CUDA driver calls to record. launches: calls that do work and are made outside "
        "runtime calls. all: every driver call. none.",
    ),
]
