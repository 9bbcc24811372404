"""`tracer compare --tune`: measures where the built-in overrides win on this GPU, for their mode auto."""

from __future__ import annotations

import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

from tracer.cli.common import USAGE, fail, progress, say, writing
from tracer.cli.output import check_output

FAMILIES = ("mm", "gru", "cat")


def tune_overrides(
    families: list[str],
    patterns: list[str],
    pairs: int | None,
    seconds: float | None,
    output: Path | None,
    force: bool,
) -> None:
    """Prints the table and writes the file. Ends the command with status 1 if a result is wrong."""
    if unknown := [name for name in families if name not in FAMILIES]:
        fail(f"--tune takes {', '.join(FAMILIES)}, not {unknown[0]}", USAGE)
    if output is not None:
        check_output(output, force)
    if find_spec("torch") is None:
        fail("tracer compare --tune needs PyTorch; install torch here first", USAGE)
    from tracer.compare.tuning_cases import tuning_cases
    from tracer.overrides import builtin, measured
    from tracer.overrides.override_errors import OverrideError
    from tracer.report.text import count

    chosen = [name for name in FAMILIES if name in families] or list(FAMILIES)
    cases = [case for family in chosen for case in tuning_cases(family, patterns)]
    if not cases:
        example = tuning_cases(chosen[0])[0].name
        fail(f"no case has {' or '.join(patterns)} in its name; a case is: {example}", USAGE)
    try:
        native = builtin.native_module()
    except OverrideError as error:
        fail(f"cannot tune: {error}", USAGE)
    import torch

    from tracer.compare import tuning

    settings = replace(
        tuning.TUNING,
        pairs=pairs or tuning.TUNING.pairs,
        seconds=tuning.TUNING.seconds if seconds is None else seconds,
    )
    gpu = torch.cuda.get_device_name()
    with progress(f"measuring {len(cases)} cases on {gpu}"):
        tried = tuning.tune(cases, settings)
    with writing():
        sys.stdout.write(tuning.table(tried))
    key = measured.key_of(native, gpu)
    found = tuning.measurements(key, tried)
    path = output or measured.usual_path(key)
    if output is None and path.exists():
        try:
            found = found.merged(measured.read(path))
        except measured.MeasuredError as error:
            say(f"{path} is replaced: {error}")
    try:
        measured.write(path, found)
    except OSError as error:
        fail(f"cannot write {path}: {error.strerror or error}; choose another file with -o")
    used = sum(not each.why_not for each in tried)
    by = f" with {measured.VARIABLE}={path}" if output is not None else ""
    say(f"auto uses the overrides for {used} of {count(len(tried), 'case')}{by}: {path}")
    if wrong := tuning.wrong(tried):
        fail(wrong)
