"""What a shell offers in place of file names: traces."""

from __future__ import annotations

import re
from pathlib import Path

_SUFFIXES = (".trace", ".trace.xz")
_PLAIN = re.compile(r"[\w./@%+=:,-]*")


def traces(incomplete: str) -> list[str]:
    """The traces whose path begins with `incomplete`, newest first, and the folders, in which more may be.

    A shell reads what it is offered as a command line: other names than plain ones are left to the user.
    """
    folder = incomplete.rpartition("/")[0]
    try:
        there = list(Path(folder or ("/" if incomplete[:1] == "/" else ".")).iterdir())
    except OSError:
        return []
    found = [path for path in there if path.name.endswith(_SUFFIXES) and path.is_file()]
    found.sort(key=lambda path: path.stat().st_mtime_ns, reverse=True)
    folders = sorted(f"{path}/" for path in there if path.is_dir() and path.name[:1] != ".")
    names = [*map(str, found), *folders]
    return [name for name in names if name.startswith(incomplete) and _PLAIN.fullmatch(name)]
