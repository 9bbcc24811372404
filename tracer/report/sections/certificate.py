"""What was captured, and what was dropped and why, in numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tracer.report.cells import code, prose, table
from tracer.report.page import Page, details, paragraphs
from tracer.report.reading import Reading

title = "Certificate"
level = 2

_NOT_COUNTS = (
    *("complete", "verdict", "why", "not_stopped", "outlived", "overrides", "steps", "max_size", "only_ops"),
    "compiled",  # a section of its own
)
_OF_A_LIMIT = (
    "stopped_at_max_size",
    "overwritten_hops",
    "overwritten_calls",
    "overwritten_activities",
    "other_definitions",
)
"""What a certificate counts only if the file had a largest size"""
_VERSIONS = ("cupti", "driver_version")
_ROWS = {
    "library_calls": "library calls at their hooks",
    "in_a_hop": "kernels in a hop",
    "captured_in_a_hop": "kernels captured in a hop",
    "outside_ops": "kernels outside ops",
    "outside_ops_by": "kernels outside ops by",
}
"""Names that say more than those of the certificate: library calls that only a native stack names are not
among those at their hooks"""
_MOST_ITEMS = 10


@dataclass(frozen=True)
class Certificate:
    """`counts` and `cuda` as the trace has them; None: not a part of this report, or not in the trace."""

    counts: dict[str, Any] | None
    cuda: dict[str, Any] | None


def wanted(reading: Reading) -> bool:
    return reading.only is None or isinstance(reading.trace.certificate.get("cuda"), dict)


def data(reading: Reading) -> Certificate:
    found = reading.trace.certificate
    cuda = found.get("cuda")
    return Certificate(None if reading.only else found, cuda if isinstance(cuda, dict) else None)


def markdown(data: Certificate, page: Page) -> str:
    counts = details("What was captured and what was dropped", *_of_all(data.counts)) if data.counts else ""
    return paragraphs(counts, details("The CUDA part", *_of_cuda(data.cuda)) if data.cuda else "")


def _of_all(found: dict[str, Any]) -> list[str]:
    left_out = [*_NOT_COUNTS, *(() if found.get("max_size") else _OF_A_LIMIT)]
    return [_counts({name: value for name, value in found.items() if name not in left_out}), _items(found)]


def _of_cuda(facts: dict[str, Any]) -> list[str]:
    """A sentence, the counts, and the items of lists."""
    texts = {
        name.replace("_", " "): value for name, value in facts.items() if isinstance(value, str) and value
    }
    versions = {name: value for name, value in facts.items() if name in _VERSIONS and value}
    said = [f"{prose(name)}: {prose(text)}" for name, text in texts.items()]
    said += [f"{name.replace('_', ' ')} {prose(number)}" for name, number in versions.items()]
    counted = {
        name: value for name, value in facts.items() if name not in versions and not isinstance(value, str)
    }
    has_any = any(value for value in counted.values() if value is not True)
    return ["; ".join(said) + ".", _counts(counted) if has_any else "", _items(facts)]


def _counts(facts: dict[str, Any]) -> str:
    rows = [
        [_ROWS.get(name) or prose(name.replace("_", " ")), shown]
        for name, value in facts.items()
        if (shown := _counted(value)) is not None
    ]
    return table(["captured or dropped", "count:"], rows)


def _counted(value: Any) -> str | None:
    """How a certificate's value reads as a count; None if it is not one."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.1f}"
    if isinstance(value, dict) and value and all(isinstance(v, bool) for v in value.values()):
        return f"{sum(value.values())} of {len(value)}"
    return f"{len(value):,}" if isinstance(value, list) else None


def _items(facts: dict[str, Any]) -> str:
    """An item a line for what is listed under a name, at most ten of each."""
    lines = []
    for name, value in facts.items():
        items = value if isinstance(value, list) and name not in ("why", "overrides") else []
        shown = prose(name.replace("_", " "))
        for item in items[:_MOST_ITEMS]:
            lines.append(f"- {shown}: {prose(item) if not isinstance(item, dict) else _reason(item)}")
        if len(items) > _MOST_ITEMS:
            lines.append(f"- {shown}: {len(items) - _MOST_ITEMS:,} more")
    return "\n".join(lines)


def _reason(item: dict[str, Any]) -> str:
    if item.keys() == {"what", "count"}:
        return f"{code(item['what'])} ({item['count']:,})"
    op, key = item.get("op"), item.get("key")
    head = f"{code(f'{op} [{key}]' if key else op)} " if op else ""
    return head + prose(", ".join(str(v) for k, v in item.items() if k not in ("op", "key")))
