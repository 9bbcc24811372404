"""A small real recording, made like a user's: by `tracer record`, in a temporary folder."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tracer.base import extension
from tracer.base.interpreter import own_command
from tracer.doctor.finding import Finding
from tracer.trace.certificate.verdict import other_signatures_in_words

_SECONDS = 180
_SCRIPT = """\
import torch

a = torch.ones(64, 64, requires_grad=True, device="{device}")
(a @ a).sum().backward()
print(*sorted({{line.split()[-1] for line in open("/proc/self/maps") if "libcupti" in line}}))
"""
_SOURCE_LINE = "doctor.py:4"


@dataclass(frozen=True)
class Trial:
    """`failure`: why there is no trace, "" if there is one. `cupti`: the libraries that were loaded."""

    failure: str
    seconds: float = 0.0
    op_calls: int = 0
    hops: int = 0
    unnamed: int = 0
    source_lines: bool = False
    backward: bool = False
    certificate: dict[str, Any] | None = None
    cupti: tuple[str, ...] = ()

    @property
    def cuda(self) -> dict[str, Any]:
        return (self.certificate or {}).get("cuda") or {}


def record_something(device: str = "cpu") -> Trial:
    """Records one matmul with its backward, in the environment of this process."""
    from tracer.trace import TraceError, load

    with tempfile.TemporaryDirectory(prefix="tracer-doctor-") as folder:
        Path(folder, "doctor.py").write_text(_SCRIPT.format(device=device))
        command = own_command("record", "-o", "doctor.trace", "doctor.py")
        began = time.monotonic()
        try:
            done = subprocess.run(
                command,
                cwd=folder,
                capture_output=True,
                text=True,
                stdin=subprocess.DEVNULL,
                timeout=_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return Trial(f"recording one matmul took longer than {_SECONDS} s")
        except OSError as error:
            return Trial(f"cannot run {sys.executable}: {error.strerror}")
        seconds = time.monotonic() - began
        if done.returncode or not Path(folder, "doctor.trace").exists():
            return Trial(_reason(done.stderr, done.returncode), seconds)
        try:
            trace = load(Path(folder, "doctor.trace"))
        except (TraceError, OSError) as error:
            return Trial(str(error), seconds)
    hops = trace.hops
    mine = hops.filter(hops["op"] == "aten::mm")
    lines = mine["source"].drop_nulls().cast(str).unique().to_list()
    return Trial(
        "" if len(mine) else "the recording has no aten::mm",
        seconds,
        int((hops["kind"] == "call").sum()),
        len(hops),
        int(trace.certificate["unresolved_kernels"]),
        any(line.endswith(_SOURCE_LINE) for line in lines),
        mine["backward_node"].null_count() < len(mine),
        trace.certificate,
        tuple(done.stdout.split()),
    )


def check_recording(trial: Trial) -> Iterator[Finding]:
    """Whether it recorded everything, and knows this torch's dispatch tables (their layout)."""
    if trial.failure or trial.certificate is None:
        what, _, advice = trial.failure.rpartition("; ")
        yield Finding("problem", "recording", what or trial.failure, advice if what else "")
        return
    certificate = trial.certificate
    entries, hooked = certificate["entries"], certificate["hooked"]
    guards = [name for name, works in certificate["guards"].items() if not works]
    text = f"{hooked:,} of {entries:,} entries of the dispatch tables hooked"
    if not hooked:
        yield Finding("problem", "layout", text, "this torch has a different table layout; please report it")
    elif hooked < entries or certificate["not_hooked"] or certificate["lost_entries"]:
        yield Finding("note", "layout", text, "tracer does not record hops at the other entries")
    elif others := certificate["other_signatures"]:
        yield Finding("note", "layout", other_signatures_in_words(others), extension.rebuild())
    elif guards:
        advice = "tracer may miss kernels that are registered during a recording"
        yield Finding("note", "layout", f"{text}; no guard of {', '.join(guards)}", advice)
    else:
        yield Finding("ok", "layout", f"supported: {text}")
    text = f"works: {trial.op_calls} op calls, {trial.hops} hops, {trial.seconds:.1f} s with import torch"
    lacking = [
        what
        for what, there in (
            ("kernel functions have no name", not trial.unnamed),
            ("no source lines", trial.source_lines),
            ("no backward nodes", trial.backward),
        )
        if not there
    ]
    if lacking:
        yield Finding(
            "note", "recording", f"{text}, but {', '.join(lacking)}", "the certificate in the report says why"
        )
    else:
        yield Finding("ok", "recording", text)


def _reason(errors: str, status: int) -> str:
    """Why tracer refused or could not begin, else the last line of the script's own error."""
    lines = [line for line in errors.splitlines() if line.strip()]
    said = [line.removeprefix("tracer: ") for line in lines if line.startswith("tracer: ")]
    if status == 2 and said:
        return said[0]
    begin = [line for line in said if line.startswith("nothing is recorded: ")]
    own = [line for line in lines if not line.startswith(("tracer: ", " "))]  # not indented: no summary
    how = f"was killed by signal {-status}" if status < 0 else f"ended with exit status {status}"
    return (begin or own[-1:] or said or [f"the recorded script {how}"])[0]
