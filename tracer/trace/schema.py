"""Columns and types of the tables, also where a table is empty."""

from __future__ import annotations

import polars as pl

Schema = dict[str, "pl.DataType | type[pl.DataType]"]

STRING = pl.Categorical
ID = pl.UInt32

HOPS: Schema = {
    "id": ID,
    "parent": ID,
    "process": pl.UInt32,
    "thread": pl.UInt32,
    "kind": STRING,
    "op": STRING,
    "key": STRING,
    "kernel": STRING,
    "registered_at": STRING,
    "rule": STRING,
    "start_ns": pl.Int64,
    "end_ns": pl.Int64,
    "self_ns": pl.Int64,
    "inputs": ID,
    "source": STRING,
    "called_from": STRING,
    "module": STRING,
    "range": STRING,
    "sequence_nr": pl.Int64,
    "backward_node": STRING,
    "forward_hop": ID,
    "raised": pl.Boolean,
    "override": STRING,
    "step": pl.Int64,
    "phase": STRING,
    "open": pl.Boolean,
}
SIGNATURES: Schema = {
    "id": ID,
    "position": pl.UInt32,
    "shape": pl.List(pl.Int64),
    "stride": pl.List(pl.Int64),
    "dtype": STRING,
    "device": STRING,
    "requires_grad": pl.Boolean,
    "layout": STRING,
}
API_CALLS: Schema = {
    "id": ID,
    "hop": ID,
    "process": pl.UInt32,
    "thread": pl.UInt32,
    "domain": STRING,
    "name": STRING,
    "role": STRING,
    "start_ns": pl.Int64,
    "end_ns": pl.Int64,
    "correlation": pl.UInt64,
    "arguments": pl.Struct({}),
    "result": pl.Int64,
    "stack": ID,
    "library": STRING,
    "library_call": STRING,
}
GPU_ACTIVITIES: Schema = {
    "id": ID,
    "api_call": ID,
    "hop": ID,
    "kind": STRING,
    "name": STRING,
    "device": pl.UInt32,
    "stream": pl.UInt32,
    "start_ns": pl.Int64,
    "end_ns": pl.Int64,
    "grid": pl.List(pl.Int64),
    "block": pl.List(pl.Int64),
    "registers": pl.Int64,
    "shared_bytes": pl.Int64,
    "bytes": pl.Int64,
    "graph_node": pl.UInt64,
}
STACKS: Schema = {
    "id": ID,
    "frames": pl.List(
        pl.Struct(
            {
                "function": pl.String,
                "module": pl.String,
                "offset": pl.UInt64,
                "file": pl.String,
                "line": pl.UInt32,
            }
        )
    ),
}
PROCESSES: Schema = {"process": pl.UInt32, "pid": pl.UInt32, "how": STRING, "command": pl.String}
THREADS: Schema = {"process": pl.UInt32, "thread": pl.UInt32, "name": pl.String}
