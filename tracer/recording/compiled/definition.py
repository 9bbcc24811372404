"""Where a function is defined: the line of its `def`. Python's own first line is a decorator's."""

from __future__ import annotations

import re
import time
from types import CodeType

from tracer.recording.source_texts import content


def place_of(code: CodeType) -> str:
    """`file:line` of the `def`; of the first decorator if the file does not say.

    The rest of a function after a graph break begins at the line of the break.
    """
    return f"{code.co_filename}:{_def_line(code)}"


def first_place_of(code: CodeType) -> str:
    """`file:line` of the first decorator, or of the `def`: the one line of code that Dynamo generated."""
    return f"{code.co_filename}:{code.co_firstlineno}"


def _def_line(code: CodeType) -> int:
    first = code.co_firstlineno
    form = re.compile(rf"\s*(?:async\s+)?def\s+{re.escape(code.co_name)}\b")
    body = min((line for *_, line in code.co_lines() if line and line > first), default=first)
    texts = content(code.co_filename, time.time())[first - 1 : body]
    return next((line for line, text in enumerate(texts, first) if form.match(text)), first)
