"""Which operators a replay runs: the trace chooses them, and may be a stranger's."""

from __future__ import annotations

import re
from typing import Any

from tracer.replay.arguments import object_text
from tracer.replay.replay_errors import CannotReplayError

_SPACES = ("aten", "prims")
"""Operators of torch itself that compute, and do nothing else"""
_PLAIN_TEXTS = re.compile(
    "activation|algorithm|api_name|approximate|assert_msg|driver|equation|indexing|interpolation|mode|norm|ord|"
    "p|pad_mode|padding|padding_side|reduce|rounding_mode|side|UPLO"
)
"""Arguments that are a text and choose how to compute; others may be names of files, or code"""


def check_allowed(op: Any, *, imported: bool, unsafe: bool) -> None:
    """Raises CannotReplayError for an operator that may do more than compute.

    imported  the user gave --import, so operators of packages may run
    unsafe    the user gave --unsafe, so every operator may
    """
    if unsafe:
        return
    name = str(op._schema.name)
    if name.partition("::")[0] not in _SPACES and not imported:
        raise CannotReplayError(
            f"{name} is not an operator of {' or '.join(_SPACES)}, so it may do anything; if you trust the "
            "trace: --import PACKAGE with the package that registers it, or --import torch"
        )
    kinds = {one.name: str(one.real_type) for one in op._schema.arguments}
    # A dictionary's content is not recorded, so the trace chooses no text in it.
    texts = [name for name, kind in kinds.items() if re.search(r"\bstr\b", kind) and not object_text(kind)]
    if texts := [name for name in texts if not _PLAIN_TEXTS.fullmatch(name)]:
        raise CannotReplayError(
            f"{name} may do more than compute: its argument {texts[0]!r} is a text that the trace chooses, "
            "such as the name of a file; if you trust the trace: --unsafe"
        )
