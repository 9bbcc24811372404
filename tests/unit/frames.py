"""Builds the tables of a trace from nested calls, for tests of what reads them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import polars as pl

from tracer.trace.tables import schema

CATEGORICAL = [name for name, kind in schema.HOPS.items() if kind == schema.STRING]


@dataclass
class Hop:
    """A hop to be laid out in time: `self_ns` of its own, then its children."""

    op: str
    key: str
    children: tuple[Hop, ...] = ()
    self_ns: int = 1000
    columns: dict[str, Any] = field(default_factory=dict)


def hop(op: str, key: str, *children: Hop, self_ns: int = 1000, **columns: Any) -> Hop:
    return Hop(op, key, children, self_ns, columns)


@dataclass
class FakeTrace:
    """What tracer.trace.load returns, as far as analysis and reports read it."""

    hops: pl.DataFrame
    signatures: pl.DataFrame
    environment: dict[str, Any]
    certificate: dict[str, Any]
    processes: pl.DataFrame
    threads: pl.DataFrame
    api_calls: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=schema.API_CALLS))
    library_calls: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=schema.LIBRARY_CALLS))
    gpu_activities: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=schema.GPU_ACTIVITIES))
    stacks: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=schema.STACKS))
    path: str = "run.trace"
    only_ops: list[str] = field(default_factory=list)
    whole_run: bool = True
    owner: int = -1
    devices: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=schema.DEVICES))
    python_stacks: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=schema.PYTHON_STACKS))
    source_lines: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=schema.SOURCE_LINES))
    ranges: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=schema.RANGES))
    optimizers: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=schema.OPTIMIZERS))
    loaders: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=schema.LOADERS))
    process_groups: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=schema.PROCESS_GROUPS))
    modules: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=schema.MODULES))
    compiled_calls: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=schema.COMPILED_CALLS))
    compiled_kernels: pl.DataFrame = field(
        default_factory=lambda: pl.DataFrame(schema=schema.COMPILED_KERNELS)
    )
    compile_phases: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=schema.COMPILE_PHASES))
    module_calls: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=schema.MODULE_CALLS))
    imports: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=schema.IMPORTS))
    memory: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=schema.MEMORY))
    steps: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=schema.STEPS))
    values: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=schema.VALUES))
    tensors: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=schema.TENSORS))
    scalars: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=schema.SCALARS))


class TraceBuilder:
    """Lays calls out one after the other on each thread, 100 ns apart."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self.tensors: list[dict[str, Any]] = []
        self.signature_ids: dict[Any, int] = {}
        self.clock: dict[tuple[int, int], int] = {}

    def signature(self, *tensors: tuple[list[int] | None, str], device: str = "cpu") -> int:
        """The id of a signature: (shape, dtype) a tensor."""
        key = (str(tensors), device)
        if key not in self.signature_ids:
            self.signature_ids[key] = len(self.signature_ids)
            for position, (shape, dtype) in enumerate(tensors):
                self.tensors.append(
                    {
                        "id": self.signature_ids[key],
                        "position": position,
                        "shape": shape,
                        "stride": None,
                        "dtype": dtype,
                        "device": device,
                        "requires_grad": False,
                        "layout": "torch.strided",
                    }
                )
        return self.signature_ids[key]

    def calls(self, *roots: Hop, process: int = 0, thread: int = 100, times: int = 1) -> TraceBuilder:
        """Adds outermost hops to a thread; columns that are inherited go down from each root."""
        for _ in range(times):
            for root in roots:
                self._enter(root, None, process, thread, {})
        return self

    def hops(self) -> pl.DataFrame:
        rows = sorted(self.rows, key=lambda row: (row["process"], row["thread"], row["id"]))
        renumbered = {row["id"]: number for number, row in enumerate(rows)}
        for row in rows:
            for name in ("id", "parent", "forward_hop"):
                row[name] = renumbered.get(row[name])
        strings = {**schema.HOPS, **dict.fromkeys(CATEGORICAL, pl.String)}
        return pl.DataFrame(rows, schema=strings).cast(dict(schema.HOPS))

    def trace(self, **certificate: Any) -> FakeTrace:
        hops = self.hops()
        threads = hops.group_by("process", "thread", maintain_order=True).agg(
            name=pl.format("worker{}", pl.col("thread").first())
        )
        processes = hops.select(pl.col("process").unique().sort()).with_columns(
            pid=pl.col("process") + 4000,
            how=pl.when(pl.col("process") == 0).then(pl.lit("root")).otherwise(pl.lit("forked")),
            command=pl.lit("python train.py"),
            rank=pl.lit(None, pl.Int64),
            ranks=pl.lit(None, pl.Int64),
            host=pl.lit(None, pl.String),
            boot=pl.lit(None, pl.String),
        )
        return FakeTrace(
            hops,
            pl.DataFrame(self.tensors, schema=schema.SIGNATURES),
            {
                "tracer": "0.1.0",
                "python": "3.11.7",
                "torch": "2.13.0+cpu",
                "torch_cuda": None,
                "platform": "Linux-6.1-x86_64",
                "cpu": "Example CPU",
                "cores": 2,
                "argv": ["train.py", "--epochs", "1"],
                "cwd": "/home/user/project",
                "started_at": "2026-01-02T03:04:05+00:00",
                "options": {"shapes": True, "source": True},
            },
            {
                "complete": len(hops) > 0,
                "verdict": f"complete: {len(hops)} hops, nothing dropped"
                if len(hops)
                else "incomplete: 0 hops; nothing was recorded: no op ran",
                "processes": hops["process"].n_unique(),
                "threads": len(threads),
                "hops": len(hops),
                "op_calls": int((hops["kind"] == "call").sum()),
                "open_hops": int(hops["open"].sum()),
                "damaged_chunks": 0,
                "lost_hops": 0,
                "lost_entries": [],
                "not_hooked": [],
                "rearmed": 0,
                "closed_in_order": {0: True},
                "not_visible": ["kernels taken by get_kernel"],
                "why": [],
                "unresolved_kernels": 0,
                **certificate,
            },
            processes,
            threads,
        )

    def _enter(
        self, hop: Hop, parent: dict[str, Any] | None, process: int, thread: int, inherited: dict[str, Any]
    ) -> None:
        where = (process, thread)
        start = self.clock.get(where, 0)
        row: dict[str, Any] = dict.fromkeys(schema.HOPS)
        row.update(
            id=len(self.rows),
            parent=parent["id"] if parent else None,
            process=process,
            thread=thread,
            kind="redispatch" if parent and parent["op"] == hop.op else "call",
            op=hop.op,
            key=hop.key,
            kernel=f"{hop.op.split('::')[-1]}_{hop.key}",
            registered_at=f"/build/Register{hop.key}.cpp:7",
            rule="kernel",
            start_ns=start,
            self_ns=hop.self_ns,
            raised=False,
            open=False,
        )
        row.update(inherited)
        row.update(hop.columns)
        self.rows.append(row)
        self.clock[where] = start + hop.self_ns
        passed_on = {
            name: row[name]
            for name in ("source", "called_from", "backward_node", "forward_hop", "range")
            if row[name] is not None
        }
        for child in hop.children:
            self._enter(child, row, process, thread, passed_on)
        row["end_ns"] = self.clock[where]
        if parent is None:
            self.clock[where] += 100
