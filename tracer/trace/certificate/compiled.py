"""What the certificate says of compiled code: which of it is recorded, and what its kernels lead back to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from tracer.trace.certificate.counts import count_in, in_words


@dataclass(frozen=True)
class CompiledFindings:
    """The tables that the certificate counts."""

    calls: pl.DataFrame
    kernels: pl.DataFrame
    activities: pl.DataFrame


def compiled_calls(
    documents: Mapping[int, dict[str, Any]], stated: Mapping[int, dict[str, Any]]
) -> tuple[int, bool]:
    """How often processes called code of torch.compile or AOTInductor, and whether that is all of them.

    `documents` are those of each process, `stated` the certificates of those that stopped in order; another
    process left only a note of its first call.
    """
    calls = sum(count_in(certificate, "compiled_calls") for certificate in stated.values())
    noted = [process for process, of_process in documents.items() if "compiled" in of_process]
    killed = [process for process in noted if process not in stated]
    return calls + len(killed), not killed


def counted(
    findings: CompiledFindings | None, calls: int, stated: Mapping[int, dict[str, Any]]
) -> dict[str, Any] | None:
    """The figures of the certificate; None where no compiled code ran and none was compiled.

    calls, regions
    calls_not_visible     calls whose kernels are not recorded; why_not_visible: the reasons
    kernel_runs           runs of kernels, without those of autotuning; of these
    from_nodes, with_line     their nodes of the graph are known, and also a Python line
    by_name, unknown          known is only what the kernel's name says; nothing
    kernels               on the GPU, of the whole recording; of these
    kernels_of_ops, kernels_of_nodes      an op launched them; nodes of compiled code with a Python line did
    kernels_of_neither    neither is known
    breaks                where Dynamo ended a graph or gave up a whole function (not_compiled), and why
    missing, errors       functions that this torch does not have; errors of tracer's own
    """
    documents = [d["compiled"] for d in stated.values() if isinstance(d.get("compiled"), dict)]
    breaks = [one for document in documents for one in document.get("breaks") or ()]
    table = findings.calls if findings else pl.DataFrame()
    calls = max(calls, len(table))
    if not calls and not breaks:
        return None
    if table.is_empty():
        hidden, why = calls, []
    else:
        of_hidden = table.filter(~pl.col("visible").fill_null(False))
        hidden = len(of_hidden)
        why = of_hidden["hidden"].cast(pl.String).drop_nulls().unique(maintain_order=True).to_list()
    result: dict[str, Any] = {
        "calls": calls,
        "regions": table.select("process", "region").n_unique() if len(table) else 0,
        "calls_not_visible": hidden,
        "why_not_visible": why,
        "breaks": breaks,
        "missing": sorted({name for document in documents for name in document.get("missing") or ()}),
        "errors": [error for document in documents for error in document.get("errors") or ()],
    }
    return result | (_of_kernels(findings) if findings and len(table) else {})


def _of_kernels(findings: CompiledFindings) -> dict[str, int]:
    runs = findings.kernels.filter(~pl.col("autotuning"))
    by_name = runs["origin"] == "name"
    known = runs["origin"].is_not_null() & ~by_name
    on_gpu = findings.activities.filter(pl.col("kind").cast(pl.String) == "kernel")
    lines = findings.kernels["source"].is_not_null()
    with_line = lines.gather(on_gpu["compiled_kernel"].cast(pl.Int64)).fill_null(False)
    of_ops = on_gpu["hop"].is_not_null()
    return {
        "kernel_runs": len(runs),
        "from_nodes": int(known.sum()),
        "with_line": int((known & runs["source"].is_not_null()).sum()),
        "by_name": int(by_name.sum()),
        "unknown": int(runs["origin"].is_null().sum()),
        "kernels": len(on_gpu),
        "kernels_of_ops": int(of_ops.sum()),
        "kernels_of_nodes": int((with_line & ~of_ops).sum()),
        "kernels_of_neither": int((~with_line & ~of_ops).sum()),
    }


def in_a_sentence(code: Mapping[str, Any], all_of_them: bool) -> str:
    """The sentence about calls whose kernels are not in the trace."""
    times = f"{'' if all_of_them else 'at least '}{in_words(code['calls_not_visible'], 'call')}"
    why = f" ({'; '.join(code['why_not_visible'])})" if code["why_not_visible"] else ""
    return f"{times} of code compiled by torch.compile or AOTInductor: its kernels are not recorded{why}"
