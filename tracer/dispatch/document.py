"""What an operator is, as a document for `--json`."""

from __future__ import annotations

from typing import Any

from tracer.dispatch.declarations import Declaration
from tracer.dispatch.report import Explanation, Traced


def explanation_document(explanation: Explanation) -> dict[str, Any]:
    """`keys` in order of priority, lowest first; null where nothing is known of the torch here.

    `kernel` is the function's name where it is known: from the trace, or from torch's generated kernels.
    """
    table = explanation.table
    keys = table and [
        {
            "key": entry.key,
            "registered_at": entry.registered_at,
            "rule": entry.rule,
            "fallthrough": entry.fallthrough,
            "aliases": list(table.aliases(entry)),
            "replaced": list(table.replaced(entry)),
            "kernel": explanation.kernels.get(entry.registered_at),
        }
        for entry in table.entries
    ]
    return {
        "op": explanation.op,
        "torch": explanation.torch,
        "missing": explanation.missing or None,
        "schema": table and table.schema,
        "tags": table and list(table.tags),
        "keys": keys,
        "keys_without_kernel": table and list(table.without),
        "native_function": _declaration(explanation.function),
        "delegate": _declaration(explanation.delegate),
        "derivative": _declaration(explanation.derivative),
        "ran": explanation.traced and _ran(explanation.traced),
    }


def _declaration(declaration: Declaration | None) -> dict[str, Any] | None:
    if declaration is None:
        return None
    return {
        "file": declaration.file,
        "line": declaration.line,
        "name": declaration.name,
        "text": declaration.text,
    }


def _ran(traced: Traced) -> dict[str, Any]:
    found = traced.decomposition
    return {
        "trace": traced.file,
        "torch": traced.torch,
        "calls": found.calls,
        "keys": found.keys.to_dicts(),
        "called": found.called.to_dicts(),
    }
