"""How the program set up its optimizers and data loaders."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import polars as pl

from tracer.trace.tables.schema import LOADERS, OPTIMIZERS

Documents = Mapping[int, Mapping[str, Any]]
"""process -> kind -> document"""


def optimizers_table(documents: Documents) -> pl.DataFrame:
    """A row for each kind of group of parameters of each optimizer that took a step; `options` as JSON."""
    rows = [
        (process, number, one.get("class"), group.get("parameters"), json.dumps(group.get("options") or {}))
        for process in sorted(documents)
        for number, one in enumerate(documents[process].get("optimizers") or ())
        for group in one.get("groups") or ()
    ]
    return pl.DataFrame(rows, OPTIMIZERS, orient="row")


def loaders_table(documents: Documents) -> pl.DataFrame:
    """A row for each setup of a data loader that was iterated."""
    rows = [
        {"process": process} | {name: one.get(name) for name in LOADERS if name != "process"}
        for process in sorted(documents)
        for one in documents[process].get("loaders") or ()
    ]
    return pl.DataFrame(rows, LOADERS, orient="row")
