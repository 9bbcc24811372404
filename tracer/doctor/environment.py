"""Environment variables and interpreter flags that change what tracer can record."""

from __future__ import annotations

import site
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from tracer.base.package import FOLDER
from tracer.doctor.finding import Finding
from tracer.overrides import measured
from tracer.recording import invitation

_NAME, _COMPILED = "environment", "compiled"
_PROVENANCE = "INDUCTOR_PROVENANCE"


def check_environment(variables: Mapping[str, str], *, no_site: bool | None = None) -> Iterator[Finding]:
    """One line per variable that matters, or one line if none is set. `no_site`: as if under `python -S`."""
    findings = [*_of_tracer(variables), *_of_python(variables, no_site), *_of_libraries(variables)]
    if not findings:
        findings = [Finding("ok", _NAME, "no variable is set that affects recording")]
    yield from findings


def check_provenance(variables: Mapping[str, str]) -> Finding:
    """Whether torch.compile keeps the lines of its kernels for a recording that begins later."""
    value = variables.get(_PROVENANCE, "")
    if value not in ("", "0"):
        text = f"{_PROVENANCE}={value}: kernels of torch.compile keep their lines"
        return Finding("ok", _COMPILED, text)
    text = "kernels that torch.compile makes in a recording have their lines"
    advice = f"those from before it (--steps, attach): {_PROVENANCE}=1, which compiles all of them once more"
    return Finding("ok", _COMPILED, text, advice)


def _of_tracer(variables: Mapping[str, str]) -> Iterator[Finding]:
    for name in sorted(variables):
        if name == invitation.NAME and invitation.running(variables[name]):
            text = f"{name} is set: this shell runs inside a recording, which includes what you record here"
            yield Finding("problem", _NAME, text, f"leave the recorded program, or: unset {name}")
        elif name in (invitation.NAME, "TRACER_RECORD"):
            text = f"{name} is left over from an earlier recording; tracer ignores it"
            yield Finding("note", _NAME, text, f"unset {name}")
        elif name == measured.VARIABLE:
            yield _of_measurements(variables[name])
        elif name.startswith("TRACER_") and name != "TRACER_PAGER":
            yield Finding("note", _NAME, f"{name}={variables[name]}", "tracer does not read it")


def _of_measurements(value: str) -> Finding:
    name, reader = measured.VARIABLE, "mode auto of the built-in overrides"
    if measured.is_off(value):
        return Finding("ok", _NAME, f"{name}={value}: {reader} reads no measurements")
    if not value:
        text = f"{name} is empty: {reader} reads the usual file of measurements, if there is one"
        return Finding("note", _NAME, text, f"to read none: {name}={measured.OFF}")
    try:
        measured.read(Path(value))
    except measured.MeasuredError as error:
        text = f"{name}={value}: {reader} cannot use this file, as {error}"
        return Finding("note", _NAME, text, f"name another file, or measure: {measured.TUNE}")
    return Finding("ok", _NAME, f"{name}={value}: {reader} reads it")


def _of_python(variables: Mapping[str, str], no_site: bool | None) -> Iterator[Finding]:
    if sys.flags.no_site if no_site is None else no_site:
        advice = "record without -S and -I: a file in site-packages starts the recording"
        yield Finding("problem", _NAME, "this Python reads no site-packages (-S)", advice)
    if variables.get("PYTHONNOUSERSITE"):
        user = Path(site.getusersitepackages())
        if user in Path(FOLDER, "file").parents:
            advice = "unset it, or install tracer where all users' packages are"
            yield Finding("problem", _NAME, f"PYTHONNOUSERSITE is set, and tracer is in {user}", advice)
        else:
            yield Finding("ok", _NAME, "PYTHONNOUSERSITE is set; tracer is not in the user's packages")
    if home := variables.get("PYTHONHOME"):
        advice = "scripts find tracer only if it is installed there"
        yield Finding("note", _NAME, f"PYTHONHOME={home}", advice)


def _of_libraries(variables: Mapping[str, str]) -> Iterator[Finding]:
    if preloaded := variables.get("LD_PRELOAD"):
        missing = [
            path for path in preloaded.replace(":", " ").split() if "/" in path and not Path(path).exists()
        ]
        advice = "these libraries are loaded before torch's in every recorded process"
        if missing:
            advice = f"{missing[0]} does not exist: unset LD_PRELOAD"
        yield Finding("note", _NAME, f"LD_PRELOAD={preloaded}", advice)
    if injected := variables.get("CUDA_INJECTION64_PATH"):
        advice = "another tool uses CUPTI, so tracer cannot record CUDA: unset it"
        yield Finding("note", _NAME, f"CUDA_INJECTION64_PATH={injected}", advice)
