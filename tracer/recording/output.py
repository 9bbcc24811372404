"""The path of a trace from what the user gives: %r, %p and %h, folders, the rank of a job."""

from __future__ import annotations

import os
import re

from tracer.base.errors import RecordingError
from tracer.recording import naming, ranks

_CODE = re.compile("%[rph%]")


def filled(output: str) -> str:
    """As `of_process`, for this one; its rank is put into a name that has neither %r nor %p."""
    rank = ranks.of_this_process()
    codes = set(_CODE.findall(output))
    path = of_process(output, rank, os.getpid())
    return path if rank is None or output.endswith(os.sep) or codes & {"%r", "%p"} else _with_rank(path, rank)


def of_command(output: str) -> str:
    """As `filled`. Raises RecordingError if that is a link: --force follows only one that the user named."""
    path = filled(output)
    if path != output and os.path.islink(path):
        raise RecordingError(
            f"{path} is a link, which is not followed; delete it, or give another file with -o"
        )
    return path


def of_process(output: str, rank: ranks.Rank | None, pid: int) -> str:
    """`output` with its codes filled in for a process.

    %r is the rank, %p the process id, %h the host, %% a percent sign. `DIR/` is a folder, which is made: the
    trace in it has the name of the rank. Raises RecordingError if %r has no value or the folder cannot be
    made.
    """
    if "%r" in _CODE.findall(output) and rank is None:
        do = "leave %r out" if "%p" in _CODE.findall(output) else "use %p or leave %r out"
        raise RecordingError(f"{output}: this process has no rank, as RANK and WORLD_SIZE are not set; {do}")
    values = {
        "%r": str(rank.number) if rank else "",
        "%p": str(pid),
        "%h": os.uname().nodename.replace(os.sep, "_"),
        "%%": "%",
    }
    path = _CODE.sub(lambda code: values[code[0]], output)
    if path.endswith(os.sep):
        _make_folder(path)
        return path + rank.name + naming.SUFFIX if rank else path
    return path


def stem(script: str) -> str:
    """What the numbered traces of a script are called: `train`, or `train.rank3` in a job."""
    rank = ranks.of_this_process()
    return naming.stem_of_script(script) + (f".{rank.name}" if rank else "")


def _with_rank(path: str, rank: ranks.Rank) -> str:
    name = path.removesuffix(naming.SUFFIX)
    return f"{name}.{rank.name}{path[len(name) :]}"


def _make_folder(path: str) -> None:
    try:
        os.makedirs(path, exist_ok=True)
    except OSError as error:
        raise RecordingError(f"cannot make the folder {path}: {error.strerror}; give another one") from None
