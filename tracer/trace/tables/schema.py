"""Columns and types of the tables, also where a table is empty."""

from __future__ import annotations

import polars as pl

Schema = dict[str, "pl.DataType | type[pl.DataType]"]

STRING = pl.Categorical
ID = pl.UInt32

HOP_KINDS = ("call", "redispatch")
"""Values of `kind` in hops"""
GPU_KINDS = ("kernel", "memcpy", "memset")
"""Values of `kind` in gpu_activities"""

HOPS: Schema = {
    "id": ID,
    "op": STRING,
    "key": STRING,
    "kernel": STRING,
    "kind": STRING,
    "source": STRING,
    "start_ns": pl.Int64,
    "end_ns": pl.Int64,
    "self_ns": pl.Int64,
    "module": STRING,
    "step": pl.Int64,
    "phase": STRING,
    "parent": ID,
    "process": pl.UInt32,
    "thread": pl.UInt32,
    "registered_at": STRING,
    "rule": STRING,
    "inputs": ID,
    "called_from": STRING,
    "python_stack": ID,
    "range": STRING,
    "sequence_nr": pl.UInt32,
    "backward_node": STRING,
    "forward_hop": ID,
    "raised": pl.Boolean,
    "override": STRING,
    "handed_over": STRING,
    "key_set": ID,
    "thread_keys": ID,
    "open": pl.Boolean,
}
MOST_TENSORS = 64
"""A signature has no more: of a longer list it has the length."""
SIGNATURES: Schema = {
    "id": ID,
    "position": pl.UInt32,
    "shape": pl.List(pl.Int64),
    "stride": pl.List(pl.Int64),
    "dtype": STRING,
    "device": STRING,
    "requires_grad": pl.Boolean,
    "layout": STRING,
    "keys": STRING,
    "list_length": pl.UInt32,
}
DISPATCH_KEYS: Schema = {"priority": pl.UInt32, "key": pl.String, "functionality": pl.String}
KEY_SETS: Schema = {"id": ID, "keys": pl.List(pl.String)}
THREAD_KEYS: Schema = {
    "id": ID,
    "process": pl.UInt32,
    **dict.fromkeys(
        ("included", "excluded", "included_by_default", "excluded_by_default", "modes"), pl.List(pl.String)
    ),
}
PYTHON_STACKS: Schema = {"id": ID, "frames": pl.List(pl.String)}
API_CALLS: Schema = {
    "id": ID,
    "hop": ID,
    "parent": ID,
    "library_call_id": ID,
    "process": pl.UInt32,
    "thread": pl.UInt32,
    "domain": STRING,
    "name": STRING,
    "role": STRING,
    "start_ns": pl.Int64,
    "end_ns": pl.Int64,
    "correlation": pl.UInt32,
    "arguments": pl.String,
    "result": pl.Int64,
    "stack": ID,
    "library": STRING,
    "library_call": STRING,
    "kernel": STRING,
    "captured": pl.Boolean,
    "source": STRING,
    "step": pl.Int64,
    "phase": STRING,
    "open": pl.Boolean,
}
LIBRARY_CALLS: Schema = {
    "id": ID,
    "hop": ID,
    "parent": ID,
    "process": pl.UInt32,
    "thread": pl.UInt32,
    "library": STRING,
    "name": STRING,
    "start_ns": pl.Int64,
    "end_ns": pl.Int64,
    "arguments": pl.String,
    "result": pl.Int64,
    "source": STRING,
    "step": pl.Int64,
    "phase": STRING,
    "open": pl.Boolean,
}
GPU_ACTIVITIES: Schema = {
    "id": ID,
    "api_call": ID,
    "hop": ID,
    "captured_by": ID,
    "process": pl.UInt32,
    "kind": STRING,
    "name": STRING,
    "device": pl.UInt32,
    "context": pl.UInt32,
    "stream": pl.UInt32,
    "start_ns": pl.Int64,
    "end_ns": pl.Int64,
    "grid": pl.List(pl.Int64),
    "block": pl.List(pl.Int64),
    "cluster": pl.List(pl.Int64),
    "registers": pl.Int64,
    "static_shared_bytes": pl.Int64,
    "dynamic_shared_bytes": pl.Int64,
    "shared_bytes": pl.Int64,
    "local_bytes": pl.Int64,
    "bytes": pl.Int64,
    "graph": pl.UInt32,
    "graph_node": pl.UInt64,
    "compiled_kernel": ID,
    "step": pl.Int64,
    "phase": STRING,
    "correlation": pl.UInt32,
}
FRAME = pl.Struct(
    {
        "function": pl.String,
        "module": pl.String,
        "offset": pl.UInt64,
        "file": pl.String,
        "line": pl.UInt32,
    }
)
STACKS: Schema = {"id": ID, "frames": pl.List(FRAME)}
DEVICES: Schema = {
    "process": pl.UInt32,
    "device": pl.UInt32,
    "name": pl.String,
    **dict.fromkeys(
        (
            "computeCapabilityMajor",
            "computeCapabilityMinor",
            "globalMemoryBandwidth",
            "globalMemorySize",
            "constantMemorySize",
            "l2CacheSize",
            "numThreadsPerWarp",
            "coreClockRate",
            "numMemcpyEngines",
            "numMultiprocessors",
            "maxIPC",
            "maxWarpsPerMultiprocessor",
            "maxBlocksPerMultiprocessor",
            "maxSharedMemoryPerMultiprocessor",
            "maxRegistersPerMultiprocessor",
            "maxRegistersPerBlock",
            "maxSharedMemoryPerBlock",
            "maxThreadsPerBlock",
        ),
        pl.Int64,
    ),
}
STEPS: Schema = {
    "process": pl.UInt32,
    "step": pl.Int64,
    "phase": STRING,
    "start_ns": pl.Int64,
    "end_ns": pl.Int64,
    "module": STRING,
    "cpu_ns": pl.Int64,
    "preempted_ns": pl.Int64,
}
MEMORY: Schema = {
    "id": ID,
    "hop": ID,
    "process": pl.UInt32,
    "thread": pl.UInt32,
    "time_ns": pl.Int64,
    "device": STRING,
    "address": pl.Int64,
    "bytes": pl.Int64,
    "allocated_by": ID,
    "source": STRING,
    "step": pl.Int64,
}
VALUES: Schema = {"hop": ID, "hash": pl.UInt64, "nan": pl.Boolean, "infinite": pl.Boolean, "view": pl.Boolean}
TENSORS: Schema = {
    "hop": ID,
    "result": pl.Boolean,
    "signature": ID,
    "number": pl.UInt32,
    "storage": pl.UInt64,
    "version": pl.UInt32,
}
SCALARS: Schema = {"id": ID, "position": pl.UInt16, "value": pl.String}
_IN_A_HOP: Schema = {
    "parent": ID,
    "hop": ID,
    "process": pl.UInt32,
    "thread": pl.UInt32,
    "start_ns": pl.Int64,
    "end_ns": pl.Int64,
    "step": pl.Int64,
    "phase": STRING,
    "open": pl.Boolean,
}
COMPILED_CALLS: Schema = {
    "id": ID,
    "region": ID,
    "function": STRING,
    "defined_at": STRING,
    "called_from": STRING,
    "direction": STRING,
    "compile_id": STRING,
    "graph_id": pl.Int64,
    "cache": STRING,
    "recompiled": pl.String,
    "generated": STRING,
    "artifact": STRING,
    "kernels": pl.UInt32,
    "visible": pl.Boolean,
    "hidden": STRING,
    **_IN_A_HOP,
}
COMPILED_KERNELS: Schema = {
    "id": ID,
    "compiled_call": ID,
    "name": STRING,
    "language": STRING,
    "autotuning": pl.Boolean,
    "fused_ops": pl.List(pl.String),
    "source": STRING,
    "sources": pl.List(pl.String),
    "nodes": pl.List(pl.Struct({"op": pl.String, "source": pl.String})),
    "origin": STRING,
    "generated": STRING,
    "threads": pl.UInt32,
    "bytes": pl.Int64,
    "registers": pl.Int64,
    "spills": pl.Int64,
    "num_warps": pl.Int64,
    "called_from": STRING,
    **_IN_A_HOP,
}
COMPILE_PHASES: Schema = {
    "id": ID,
    "name": STRING,
    "compile_id": STRING,
    "parent": ID,
    "source": STRING,
    "process": pl.UInt32,
    "thread": pl.UInt32,
    "start_ns": pl.Int64,
    "end_ns": pl.Int64,
    "open": pl.Boolean,
}
MODULE_CALLS: Schema = {
    "id": ID,
    "module": STRING,
    "source": STRING,
    "process": pl.UInt32,
    "thread": pl.UInt32,
    "start_ns": pl.Int64,
    "end_ns": pl.Int64,
    "step": pl.Int64,
    "phase": STRING,
    "open": pl.Boolean,
}
IMPORTS = MODULE_CALLS
RANGES: Schema = {
    "id": ID,
    "name": STRING,
    "process": pl.UInt32,
    "thread": pl.UInt32,
    "parent": ID,
    "start_ns": pl.Int64,
    "end_ns": pl.Int64,
    "step": pl.Int64,
    "phase": STRING,
    "open": pl.Boolean,
}
OPTIMIZERS: Schema = {
    "process": pl.UInt32,
    "optimizer": pl.UInt32,
    "class": pl.String,
    "parameters": pl.UInt32,
    "options": pl.String,
}
LOADERS: Schema = {
    "process": pl.UInt32,
    **dict.fromkeys(("num_workers", "batch_size", "prefetch_factor"), pl.Int64),
    **dict.fromkeys(("pin_memory", "persistent_workers"), pl.Boolean),
}
PROCESS_GROUPS: Schema = {
    "process": pl.UInt32,
    "group": pl.String,
    "description": pl.String,
    "ranks": pl.List(pl.Int64),
}
MODULES: Schema = {"module": pl.String, "around": pl.String}
SOURCE_LINES: Schema = {"source": pl.String, "text": pl.String, "cell": pl.String}
PROCESSES: Schema = {
    "process": pl.UInt32,
    "pid": pl.UInt32,
    "how": STRING,
    "command": pl.String,
    "rank": pl.Int64,
    "ranks": pl.Int64,
    "host": pl.String,
    "boot": pl.String,
    "restarts": pl.Int64,
}
THREADS: Schema = {"process": pl.UInt32, "thread": pl.UInt32, "name": pl.String}
