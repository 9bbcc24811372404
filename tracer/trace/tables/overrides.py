"""Which hops ran an override, and what each enabled override did."""

from __future__ import annotations

from typing import Any

import polars as pl

from tracer.trace.bytes.definitions import Definitions, HopDefinition

_DOCUMENT = "overrides"


class OverrideNames:
    """The override whose kernel function a hop is."""

    def __init__(self, definitions: Definitions) -> None:
        self._definitions = definitions
        self._by_operator: dict[int, dict[str, list[dict[str, Any]]]] = {}
        for process, documents in definitions.documents.items():
            for entry in _entries(documents):
                of_process = self._by_operator.setdefault(process, {})
                of_process.setdefault(entry["operator"], []).append(entry)

    def name(self, process: int, hop: HopDefinition) -> str | None:
        """Found by the place of its registration, or, where that was not recorded, by its Python name."""
        if not self._by_operator:
            return None
        for owner in self._definitions.lineage(process):
            for entry in self._by_operator.get(owner, {}).get(hop.op, ()):
                wanted = entry.get("registered_at") if hop.registered_at else entry.get("kernel")
                if wanted and wanted == (hop.registered_at or hop.python_kernel):
                    return str(entry["name"])
        return None


def overrides_of(
    definitions: Definitions, hops: pl.DataFrame, begin_ns: int, only: str
) -> list[dict[str, Any]]:
    """One entry per override, mode, operator and key that was enabled in any process.

    Its fields are those of the document that `tracer.overrides.journal` writes, over all processes
    (times since the recording began at `begin_ns` of CLOCK_MONOTONIC; `from_ns` 0: before the first
    hop, `to_ns` null: to the end), and
    `processes` in which it was on, `hops` that ran its kernel function, `handed_over_hops` of these that say
    why they left the call to stock, `never_ran`: why not, null where it ran. `only`: what left
    hops out of the table.
    """
    found: dict[tuple[str, str, str, str], dict[str, Any]] = {}
    compiled = 0
    for process in sorted(definitions.documents):
        compiled += _compiled_frames(definitions.documents[process])
        for entry in _entries(definitions.documents[process]):
            key = (entry["name"], entry.get("mode") or "", entry["operator"], entry["key"])
            _merge(found.setdefault(key, _nothing(*key)), entry, process, begin_ns)
    if not found:
        return []
    ran = hops.filter(pl.col("override").is_not_null()).group_by("override", "op")
    counts = ran.agg(pl.len(), pl.col("handed_over").count().alias("left"))
    counted = {(str(name), str(op)): (hops, left) for name, op, hops, left in counts.iter_rows()}
    first = hops["start_ns"].min()
    for one in found.values():
        one["from_ns"] *= isinstance(first, int) and one["from_ns"] > first
        one["processes"] = len(one["processes"])
        one["hops"], one["handed_over_hops"] = counted.get((one["name"], one["operator"]), (0, 0))
        one["never_ran"] = None if one["ran"] else _why_not(one, hops, compiled, only)
    return list(found.values())


def _nothing(name: str, mode: str, operator: str, key: str) -> dict[str, Any]:
    return {
        "name": name,
        "mode": mode,
        "operator": operator,
        "key": key,
        "kernel": None,
        "registered_at": None,
        "from_ns": None,
        "to_ns": 0,
        "times": 0,
        "ran": 0,
        "handed_over": {},
        "processes": set(),
    }


def _merge(into: dict[str, Any], entry: dict[str, Any], process: int, begin_ns: int) -> None:
    began = max(int(entry.get("from_ns") or 0) - begin_ns, 0)
    into["from_ns"] = began if into["from_ns"] is None else min(into["from_ns"], began)
    ended = entry.get("to_ns")
    if into["to_ns"] is not None:
        into["to_ns"] = None if ended is None else max(into["to_ns"], int(ended) - begin_ns)
    for name in ("kernel", "registered_at"):
        into[name] = into[name] or entry.get(name)
    for name in ("times", "ran"):
        into[name] += int(entry.get(name) or 0)
    for reason, calls in (entry.get("handed_over") or {}).items():
        into["handed_over"][reason] = into["handed_over"].get(reason, 0) + calls
    into["processes"].add(process)


def _why_not(one: dict[str, Any], hops: pl.DataFrame, compiled: int, only: str) -> str:
    operator, key = one["operator"], one["key"]
    if handed_over := sum(one["handed_over"].values()):
        return f"it handed over every call to stock ({handed_over:,})"
    if one["registered_at"] is None:
        return "another override was in its place"
    if one["hops"]:
        return "its function raised, or its process was killed before it could count"
    op = pl.col("op").cast(pl.String)
    calls = hops.select(op=op, key=pl.col("key").cast(pl.String)).filter(
        pl.col("op").str.split(".").list.first() == operator.split(".")[0]
    )
    keys = calls.filter(pl.col("op") == operator)["key"].unique().sort().to_list()
    if key in keys:
        return f"{operator} was dispatched to {key} only while it was disabled"
    if only:
        return f"no call of {operator} at {key} was recorded, but not every call was recorded ({only})"
    if keys:
        reason = f"{operator} was never dispatched to {key}, only to {', '.join(filter(None, keys))}"
    else:
        reason = f"{operator} was never called"
    if others := calls.filter(pl.col("key") == key)["op"].unique().sort().to_list():
        reason += f"; {' and '.join(others)} {'was' if len(others) == 1 else 'were'}"
    if compiled:
        reason += f"; torch.compile generated its own code for {compiled:,} frame{'s' * (compiled != 1)}"
    return reason


def _entries(documents: dict[str, Any]) -> list[dict[str, Any]]:
    document = documents.get(_DOCUMENT)
    entries = document.get("overrides") if isinstance(document, dict) else None
    return [
        entry
        for entry in (entries if isinstance(entries, list) else [])
        if isinstance(entry, dict)
        and all(isinstance(entry.get(name), str) for name in ("name", "operator", "key"))
    ]


def _compiled_frames(documents: dict[str, Any]) -> int:
    document = documents.get(_DOCUMENT)
    frames = document.get("compiled_frames") if isinstance(document, dict) else 0
    return frames if isinstance(frames, int) else 0
