"""What an experiment measured last of a recording, for the reports of the same recording."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, fields, replace
from typing import TYPE_CHECKING, Any

from tracer.advice.finding import BOUNDED, DROPPED, MEASURED, UNDECIDED, Advice, Gain
from tracer.base import kept
from tracer.base.own import is_own

if TYPE_CHECKING:
    from tracer.trace import Trace

_KIND = "advice"
_TEXTS = {"known", "why_not", "note"}


def remember(trace: Trace, rows: Iterable[Advice]) -> None:
    """Keeps the gains of what was tried, if this user recorded the trace on this machine since its start."""
    if not is_own(trace.environment):
        return
    tried = {_name(row): asdict(row.gain) for row in rows if row.gain.known != BOUNDED or row.gain.note}
    kept.write(_KIND, _key(trace), json.dumps(tried))


def recalled(trace: Trace, rows: list[Advice]) -> list[Advice]:
    """The same rows, those that were measured last with their gains, unless these cannot be measured."""
    text = kept.read(_KIND, _key(trace)) if is_own(trace.environment) else None
    try:
        found = json.loads(text or "{}")
    except ValueError:  # another program wrote there
        return rows
    if not isinstance(found, dict):
        return rows
    known = [None if row.gain.why_not else _gain(found.get(_name(row))) for row in rows]
    return [row if gain is None else replace(row, gain=gain) for row, gain in zip(rows, known, strict=True)]


def _key(trace: Trace) -> str:
    """Two ranks of a job may have begun in the same second."""
    return f"{trace.environment['own']} {len(trace.hops)} {trace.began_ns}"


def _name(row: Advice) -> str:
    return json.dumps([row.rule, row.finding.line, row.finding.do])


def _gain(known: Any) -> Gain | None:
    """None if it is not what `remember` wrote."""
    if not isinstance(known, dict) or known.keys() != {field.name for field in fields(Gain)}:
        return None
    if known["known"] not in (MEASURED, BOUNDED, DROPPED, UNDECIDED):
        return None
    typed = all(
        isinstance(value, str) if name in _TEXTS else value is None or isinstance(value, (int, float))
        for name, value in known.items()
    )
    return Gain(**known) if typed and known["ns"] is not None else None
