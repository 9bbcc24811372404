"""tracer records what PyTorch really ran.

    with tracer.record("run.trace"):
        model(batch)
    tracer.load("run.trace").hops

Importing this package imports nothing else, because every traced script imports it.
"""

from __future__ import annotations

__doc__ = f"{__doc__ or ''}\nPYTEST_DONT_REWRITE\n"  # why: tracer_startup.py
__version__: str

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from tracer import overrides as overrides
    from tracer.analysis.job import Job, JobError
    from tracer.analysis.job.folder import load_job
    from tracer.base.errors import RecordingError
    from tracer.interactive.magic import load_ipython_extension
    from tracer.interactive.trace import Trace, load
    from tracer.recording.dump import dump
    from tracer.recording.recording import Recording, record, start, step, stop
    from tracer.recording.summary import Summary
    from tracer.trace import TraceError

_HOMES = {
    "record": "tracer.recording.recording",
    "start": "tracer.recording.recording",
    "stop": "tracer.recording.recording",
    "step": "tracer.recording.recording",
    "dump": "tracer.recording.dump",
    "Recording": "tracer.recording.recording",
    "RecordingError": "tracer.base.errors",
    "Summary": "tracer.recording.summary",
    "load": "tracer.interactive.trace",
    "load_job": "tracer.analysis.job.folder",
    "Job": "tracer.analysis.job",
    "JobError": "tracer.analysis.job",
    "load_ipython_extension": "tracer.interactive.magic",
    "Trace": "tracer.interactive.trace",
    "TraceError": "tracer.trace",
}
_PACKAGES = ("overrides",)

__all__ = [
    "Job",
    "JobError",
    "Recording",
    "RecordingError",
    "Summary",
    "Trace",
    "TraceError",
    "dump",
    "load",
    "load_ipython_extension",
    "load_job",
    "record",
    "start",
    "step",
    "stop",
]


def __getattr__(name: str) -> object:
    if name in _PACKAGES:
        return _module(f"tracer.{name}")
    if name == "__version__":
        return _module("tracer.base.package").VERSION
    if name not in _HOMES:
        raise AttributeError(f"module 'tracer' has no attribute {name!r}")
    return getattr(_module(_HOMES[name]), name)


def _module(name: str) -> Any:
    """A module of this package. If a script has taken it out of sys.modules, still the one that records."""
    from importlib import import_module

    found: Any = None
    place: Any = globals()
    for part in name.split(".")[1:]:
        found = place.get(part)
        if not hasattr(found, "__spec__"):
            return import_module(name)
        place = vars(found)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES, *_PACKAGES, "__version__"})
