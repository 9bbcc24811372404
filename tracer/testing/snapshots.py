"""Snapshots of tests: dispatch locks in a folder beside the test's file, one file for each snapshot."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tracer.trace import Trace

FOLDER = "__dispatch__"
_UNSAFE = re.compile(r"[^][\w.-]+")
_LONGEST = 100
_SHOWN = 10  # changed lines


def place(test: Path, name: str) -> Path:
    """The file of a snapshot; names that a file cannot have get a number of their own."""
    safe = _UNSAFE.sub("-", name)[:_LONGEST].strip("-.")
    if safe != name:
        safe = f"{safe}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
    return test.parent / FOLDER / test.stem / f"{safe}.lock"


def update(path: Path, test: Path, trace: Trace) -> bool:
    """Writes the snapshot of a trace; False if it was there already, with the same paths."""
    from tracer.analysis.lock import lock_of
    from tracer.analysis.lock_difference import compare_locks
    from tracer.analysis.lock_text import LockError, load, written
    from tracer.base.folder import Folder

    found = lock_of(trace, folder=str(test.parent))
    try:
        if not compare_locks(load(path), found):
            return False
    except (OSError, LockError, UnicodeDecodeError):
        pass  # there is none, or one that cannot be read: it is replaced
    path.parent.mkdir(parents=True, exist_ok=True)
    with Folder(path.parent) as folder:
        folder.write(path.name, written(found).encode())
    return True


def difference(path: Path, test: Path, trace: Trace) -> str:
    """What differs from the snapshot, as a text; "" if nothing does."""
    from tracer.analysis.lock import lock_of
    from tracer.analysis.lock_difference import compare_locks
    from tracer.analysis.lock_text import LockError, load
    from tracer.report.lock_lines import change_lines
    from tracer.report.text import count

    shown = os.path.relpath(path)
    accept = "pytest --dispatch-update writes it again"
    try:
        locked = load(path)
    except FileNotFoundError:
        return f"snapshot: {shown} does not exist; pytest --dispatch-update writes it"
    except LockError as error:
        return f"snapshot: {shown}, {error}; {accept}"
    except (OSError, UnicodeDecodeError) as error:
        return f"snapshot: cannot read {shown}: {error}; {accept}"
    found = lock_of(trace, folder=str(test.parent))
    changes = compare_locks(locked, found)
    if not changes:
        return ""
    torch = "" if locked.torch == found.torch else f" (of torch {locked.torch}; this is {found.torch})"
    lines = [f"snapshot: other paths than in {shown}{torch}; {accept}"]
    for change in changes[:_SHOWN]:
        lines += [f"  {line}".rstrip() for line in change_lines(change)]
    if len(changes) > _SHOWN:
        lines.append(f"  ... {count(len(changes) - _SHOWN, 'more changed line')}")
    return "\n".join(lines)
