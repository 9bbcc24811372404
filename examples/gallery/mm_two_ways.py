"""One product traced to its kernel twice: by `tracer record`, and by `tracer gdb` with breakpoints.

    python examples/gallery/mm_two_ways.py
    tracer record examples/gallery/mm_two_ways.py

Look at the pairs of lines in the output: each hop of the recording is a stop of gdb at the same operator,
key and kernel function. gdb also stops where the dispatcher is entered (`at::_ops::mm::call`), before it
has picked a key; a recording has the kernel that was picked, and takes nanoseconds for it instead of a
second process. Both looked only at these two ops (`tracer record --ops 'aten::m*m*'`, and
`tracer gdb -b aten::matmul -b aten::mm`). The tree shows the product that this script makes itself, with the
hops of every op.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

import torch

Hop = tuple[str, str, str]  # operator, key, kernel function


def product() -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    a = torch.ones(8, 8, device=device, requires_grad=True)
    torch.matmul(a, a)


def run(*arguments: str) -> None:
    """`tracer ARGUMENTS`, outside the recording of this script."""
    command = [str(Path(sysconfig.get_path("scripts")) / "tracer"), *arguments, __file__, "product"]
    outside = {name: value for name, value in os.environ.items() if name != "TRACER_JOIN"}
    subprocess.run(command, env=outside, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def by_recording(folder: str) -> list[Hop]:
    import polars as pl

    import tracer

    run("record", "--ops", "aten::m*m*", "-o", f"{folder}/mm.trace")
    hops = tracer.load(f"{folder}/mm.trace").hops
    return hops.select(pl.col("op", "key", "kernel").cast(pl.String)).rows()


def by_breakpoints(folder: str) -> tuple[list[Hop], list[str]]:
    """The kernel functions that gdb stopped at, and where else it did."""
    run("gdb", "-b", "aten::matmul", "-b", "aten::mm", "-o", f"{folder}/mm.jsonl")
    stops = [json.loads(line) for line in Path(f"{folder}/mm.jsonl").read_text().splitlines()]
    kernels = [(stop["op"], stop["key"], stop["function"]) for stop in stops if stop["kind"] == "kernel"]
    return kernels, [stop["function"] for stop in stops if stop["kind"] in ("call", "redispatch")]


def main() -> None:
    product()
    if sys.argv[1:] == ["product"]:
        return
    if not (shutil.which("gdb") or shutil.which("cuda-gdb")):
        print("mm_two_ways.py needs gdb (apt-get install gdb)", file=sys.stderr)
        sys.exit(3)
    with tempfile.TemporaryDirectory() as folder:
        recorded = by_recording(folder)
        stopped, entered = by_breakpoints(folder)
    for hop, stop in itertools.zip_longest(recorded, stopped, fillvalue=("nothing", "", "")):
        for way, (op, key, kernel) in (("recorded", hop), ("gdb", stop)):
            print(f"{way:<9} {op} [{key}] {kernel}")
    print(f"they agree: {recorded == stopped}; gdb also stopped at {', '.join(entered)}")


if __name__ == "__main__":
    main()
