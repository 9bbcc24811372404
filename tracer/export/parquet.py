"""Writes the tables of a trace as Parquet files, one per table, into a folder."""

from __future__ import annotations

import io
import json
from pathlib import Path

from tracer.base.folder import Folder
from tracer.export.about import about
from tracer.trace import Trace

TABLES = (
    "hops",
    "signatures",
    "api_calls",
    "library_calls",
    "gpu_activities",
    "stacks",
    "python_stacks",
    "devices",
    "memory",
    "values",
    "tensors",
    "scalars",
    "ranges",
    "modules",
    "optimizers",
    "loaders",
    "process_groups",
    "compiled_calls",
    "compiled_kernels",
    "compile_phases",
    "module_calls",
    "imports",
    "steps",
    "source_lines",
    "dispatch_keys",
    "key_sets",
    "thread_keys",
    "processes",
    "threads",
)
ABOUT = "about.json"
NAMES = frozenset({ABOUT, *(f"{name}.parquet" for name in TABLES)})


def write(trace: Trace, path: Path) -> list[str]:
    """Fills the folder `path`: the tables, and about.json with environment and certificate.

    Column types are those of the tables. Replaces an existing folder. Raises OSError.
    """
    with Folder(path.parent) as above, above.new(path.name) as folder:
        for name in TABLES:
            # Polars says "transport error" where it meets a full disk itself.
            table = io.BytesIO()
            getattr(trace, name).write_parquet(table)
            folder.write(f"{name}.parquet", table.getbuffer())
        facts = about(trace) | {"environment": trace.environment, "certificate": trace.certificate}
        folder.write(ABOUT, f"{json.dumps(facts, indent=2, default=str)}\n".encode())
    return []
