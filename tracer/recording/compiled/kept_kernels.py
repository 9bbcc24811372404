"""What kernels were made of, kept for the runs that load them from Inductor's cache, which does not tell."""

from __future__ import annotations

import json
from typing import Any

from tracer.base import kept
from tracer.base.this_torch import this_torch

_KIND = "compiled"

Uses = dict[str, list[dict[str, Any]]]
"""Name of a kernel -> for each place where the region runs it: nodes, bytes"""


def keep(artifact: str, uses: Uses) -> None:
    kept.write(_KIND, _key(artifact), json.dumps(uses))


def read(artifact: str) -> Uses | None:
    """The kernels of an artifact of Inductor's cache; None: the run that compiled it was not recorded."""
    text = kept.read(_KIND, _key(artifact))
    try:
        uses = json.loads(text) if text else None
    except ValueError:
        return None
    return uses if _is_whole(uses) else None


def _key(artifact: str) -> str:
    return f"torch {this_torch().__version__} {artifact}"


def _is_whole(uses: object) -> bool:
    return isinstance(uses, dict) and all(
        isinstance(several, list)
        and all(isinstance(use, dict) and isinstance(use.get("nodes"), list) for use in several)
        for several in uses.values()
    )
