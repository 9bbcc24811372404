"""`tracer compare`: PyTorch's own (stock) kernels and overrides side by side."""

from __future__ import annotations

import os
import sys
import traceback
from contextlib import AbstractContextManager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tracer.cli.common import USAGE, PeakBandwidth, PeakFlops, exclusive, fail, progress, say, writing
from tracer.cli.documents import AsJson, print_json, prints_to_stderr
from tracer.cli.help import MORE
from tracer.cli.output import check_output, write_output, write_pictures
from tracer.cli.tune import FAMILIES, tune_overrides

if TYPE_CHECKING:
    from tracer.compare.model import Comparison
    from tracer.compare.program import ProgramComparison
    from tracer.compare.switch import Switch
    from tracer.compare.trials import Trials
    from tracer.overrides import OverrideError
    from tracer.replay.alone import MakesAgain
    from tracer.report.svg.picture import Pictures

# Options may follow the script; those that tracer does not know go to the script.
CONTEXT = {"ignore_unknown_options": True}
_SHOWN = 60  # characters of a line
_OPERATORS = {"mm": "aten::mm", "gru": "aten::gru.input", "cat": "aten::cat"}
_PAIRS, _SECONDS = 50, 60.0
_QUICK = 10, 2.0
_LEVEL = "TORCH_CPP_LOG_LEVEL"


def compare(
    what: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="mm|gru|cat|SCRIPT [ARGS]...",
            help="Built-in cases, or a script and its arguments.",
            autocompletion=lambda: list(FAMILIES),
        ),
    ] = None,
    override: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAMES",
            help="Overrides: mm,cat, FILE.py:FUNCTION.",
        ),
    ] = None,
    case: Annotated[
        list[str] | None,
        typer.Option(metavar="TEXT", help="Only cases whose name contains TEXT. Repeatable."),
    ] = None,
    tune: Annotated[
        bool,
        typer.Option(
            "--tune",
            help="Measure for mode auto where overrides win here.",
        ),
    ] = False,
    pairs: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=2,
            help="Pairs of samples (stock, override) per case (default 50; --tune 25).",
            rich_help_panel=MORE,
        ),
    ] = None,
    seconds: Annotated[
        float | None,
        typer.Option(
            metavar="S",
            min=0,
            help="Seconds per case, at most (default 60; --tune 0.5).",
            rich_help_panel=MORE,
        ),
    ] = None,
    repeats: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="Run SCRIPT N times a side (default 3; --quick 1).",
        ),
    ] = None,
    peak_bandwidth: PeakBandwidth = None,
    peak_flops: PeakFlops = None,
    details: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="Show N cases one by one (default: all).")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="OUT",
            help="Write to OUT.md (--tune: OUT.json).",
        ),
    ] = None,
    quick: Annotated[
        bool,
        typer.Option("--quick", help="Fewer pairs and trials: a first look."),
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite OUT.")] = False,
    as_json: AsJson = False,
) -> None:
    """Compare PyTorch's kernels with overrides, in markdown.

    An override is your kernel function in place of PyTorch's ("stock"). For each
    built-in case, or each op of SCRIPT that it computed, you see both dispatch
    chains, times with their spread, errors against float64, memory and the device's
    limit. Small calls of twenty kinds follow, in which it must do as stock does.

    The exit status is 1 if a result is wrong, or if SCRIPT prints something else.

    \b
    Examples:
      tracer compare mm
      tracer compare mm --override my_kernels.py:my_mm --quick
      tracer compare --override mm,cat train.py --epochs 1

    \b
    my_kernels.py:
      @tracer.overrides.register("aten::mm", "CPU")
      def my_mm(self, mat2):
          if self.dtype != torch.float32:
              raise tracer.overrides.HandOver("not float32")  # stock computes it
    \f
    Overrides compute every call that they can (mode force). Several overrides for
    one operator are compared one by one, with a summary. SCRIPT runs once more for
    the arguments of its calls, which are then made again alone. Options may follow
    SCRIPT; everything after -- goes to the script.

    --tune measures for some minutes: GPU time in CUDA graphs with cold caches, and
    wall time. Mode auto then uses an override for calls of these sizes only if it
    is faster in both. The measurements go into a file below ~/.cache/tracer, for
    this GPU, this torch and this build of tracer.

    \b
    More examples:
      tracer compare gru --case T1 --case bf16 -o compare_gru.md
      tracer compare mm --override a.py:mm --json | jq '.comparisons[].cases[]'
      tracer compare mm --override a.py:first --override a.py:second -o mm.md
      tracer compare --tune
      tracer compare --tune mm gru --case 8x1536 --case T32
    """
    exclusive(json=as_json, tune=tune)
    exclusive(quick=quick, tune=tune)
    exclusive(json=as_json, output=output)
    exclusive(json=as_json, details=details)
    what = what or []
    if tune:
        if override:
            fail("--tune measures the built-in overrides; remove --override", USAGE)
        tune_overrides(what, case or [], pairs, seconds, output, force)
        return
    if not what:
        fail(
            "nothing to compare; give tracer compare mm|gru|cat, or tracer compare --override NAMES SCRIPT",
            USAGE,
        )
    names = [name for given in override or [] for name in given.split(",") if name]
    if output is not None:
        check_output(output, force)
    from tracer.report.svg.picture import Pictures

    pictures = Pictures(output.stem) if output is not None else None
    if what[0] in FAMILIES:
        if len(what) > 1:
            fail(f"{what[0]} takes no arguments; remove {what[1]} (options begin with --)", USAGE)
        peaks = (peak_bandwidth, peak_flops)
        usual = _QUICK if quick else (_PAIRS, _SECONDS)
        measured = (pairs or usual[0], usual[1] if seconds is None else seconds, quick)
        with prints_to_stderr(as_json):
            comparisons, wrong = _cases(what[0], names, case or [], measured, peaks)
        shown = _document(comparisons, wrong) if as_json else _report(comparisons, details, pictures)
    else:
        if case or details is not None:
            given = "--case" if case else "--details"
            fail(f"{given} applies only to the built-in cases ({', '.join(FAMILIES)}); remove it", USAGE)
        with prints_to_stderr(as_json):
            shown, wrong = _script(
                what, names, repeats or (1 if quick else 3), (peak_bandwidth, peak_flops), quick, as_json
            )
    if isinstance(shown, dict):
        print_json(shown)
    elif output is None:
        with writing():
            print(shown, end="")
    else:
        write_output(output, shown)
        if pictures is not None:
            write_pictures(output, pictures)
    if wrong:
        fail(wrong)


def _cases(
    family: str,
    names: list[str],
    patterns: list[str],
    measured: tuple[int, float, bool],
    peaks: tuple[float | None, float | None],
) -> tuple[list[Comparison], str]:
    """One comparison for each implementation, and in one line what is wrong; "" if nothing is."""
    from tracer.compare.cases import cases_of

    switches = _switches(names or [family], family)
    from tracer.compare.measurement import Settings, compare_cases

    devices = {switch.device for switch in switches}
    if len(devices) > 1:
        fail("the overrides are for different devices; compare those for the CPU and for CUDA apart", USAGE)
    switch = switches[0]
    cases = cases_of(family, switch.device, patterns)
    if not cases:
        listed = "; ".join(known.name for known in cases_of(family, switch.device))
        fail(f"no {family} case has {' or '.join(patterns)} in its name; the cases are: {listed}", USAGE)
    pairs, seconds, quick = measured
    settings = Settings(pairs, seconds, *_per_second(peaks), quick=quick)
    title = f"tracer compare {family}"
    comparisons = [
        compare_cases(title, cases, switch, settings, _watching, not patterns) for switch in switches
    ]
    for comparison in comparisons:
        if not any(result.ran or not result.returned for result in comparison.cases):
            say(f"{', '.join(comparison.overrides)} never ran, so stock was compared with itself")
    wrongs = [
        f"{', '.join(comparison.overrides)}: {why}" if comparisons[1:] else why
        for comparison in comparisons
        if (why := _wrong(comparison))
    ]
    return comparisons, "; ".join(wrongs)


def _document(comparisons: list[Comparison], wrong: str) -> dict[str, Any]:
    from tracer.compare.document import comparisons_document

    return comparisons_document(comparisons, wrong)


def _report(comparisons: list[Comparison], details: int | None, pictures: Pictures | None) -> str:
    from tracer.compare.markdown import render
    from tracer.compare.several import render_several

    if len(comparisons) > 1:
        return render_several(comparisons, details, pictures)
    return render(comparisons[0], details, pictures)


def _wrong(comparison: Comparison) -> str:
    """In one line what is wrong; "" if nothing is."""
    from tracer.compare.markdown import element
    from tracer.report.text import count

    said = []
    if bad := [result for result in comparison.cases if not result.passed]:
        first = bad[0]
        if first.failed:
            why = f"it raised {first.raised}"
        elif first.broken:
            why = first.broken
        else:
            check = first.wrong[0]
            why = f"{check.output}: {check.wrong}. {element(check.worst) if check.worst else ''}".strip()
        said.append(f"wrong in {len(bad)} of {count(len(comparison.cases), 'case')}; {first.name}: {why}")
    return "; ".join(filter(None, [*said, _wrong_trial(comparison.trials)]))


def _wrong_trial(trials: Trials) -> str:
    """In one line the first trial that is wrong; "" if none is."""
    from tracer.report.text import count

    if not trials.wrong:
        return ""
    first = trials.wrong[0]
    made = count(len(trials.results), "trial")
    return f"wrong in {len(trials.wrong)} of {made}; {first.name}: {first.wrong}"


def _switches(names: list[str], family: str) -> list[Switch]:
    """One for each implementation of the same operators."""
    from tracer.overrides import OverrideError
    from tracer.overrides import names as given_names
    from tracer.overrides.meant import UNKNOWN

    folder = os.getcwd()
    try:
        for name in names:
            given_names.checked(name, folder)  # before torch is imported, which takes seconds
    except OverrideError as error:
        fail(_said(error), USAGE)
    _need_torch()
    from tracer.compare.several import implementations
    from tracer.compare.switch import CannotCompareError, Switch

    sys.path.insert(0, folder)  # modules of overrides are found here, as beside a script
    try:
        with _watching(f"loading {', '.join(names)}"):
            return [Switch(group) for group in implementations(names)]
    except OverrideError as error:
        fail(_said(error).replace(UNKNOWN, _OPERATORS[family]), USAGE)
    except CannotCompareError as error:
        fail(str(error), USAGE)
    except Exception as error:
        traceback.print_exc()
        fail(f"cannot import {', '.join(names)}: {type(error).__name__}, see above")


def _need_torch() -> None:
    """Imports it so that C++ does not write to stderr what trials make it warn of, by the hundred."""
    if find_spec("torch") is None:
        fail("tracer compare needs PyTorch; install torch here first", USAGE)
    if _LEVEL in os.environ:
        return
    os.environ[_LEVEL] = "ERROR"
    import torch  # noqa: F401

    del os.environ[_LEVEL]


def _said(error: OverrideError) -> str:
    """The error; if the built-in overrides cannot run, also how to compare your own."""
    from tracer.overrides.override_errors import BuiltinError

    instead = "; to compare your own: --override FILE.py:FUNCTION"
    return f"{error}{instead if isinstance(error, BuiltinError) else ''}"


def _script(
    command: list[str],
    names: list[str],
    repeats: int,
    peaks: tuple[float | None, float | None],
    quick: bool,
    as_json: bool,
) -> tuple[str | dict[str, Any], str]:
    if not names:
        fail("no overrides given; give some: tracer compare --override NAMES SCRIPT", USAGE)
    if not os.path.exists(command[0]):
        known = ", ".join(FAMILIES)
        fail(f"no script {command[0]} here; give a script, or built-in cases: {known}", USAGE)
    _need_torch()
    from tracer.compare.document import program_document
    from tracer.compare.program import ProgramError, compare_program
    from tracer.compare.program_markdown import render
    from tracer.overrides import OverrideError

    try:
        found = compare_program(
            command, names, repeats, _watching, lambda given: _again(command, given, peaks, quick)
        )
    except OverrideError as error:
        fail(_said(error), USAGE)
    except ProgramError as error:
        fail(str(error))
    wrong = "; ".join(filter(None, (_wrong_alone(found), _wrong_trial(found.trials), _other_output(found))))
    return program_document(found, wrong) if as_json else render(found), wrong


def _again(
    command: list[str], names: list[str], peaks: tuple[float | None, float | None], quick: bool
) -> MakesAgain:
    from tracer.replay.alone import MakesAgain

    sys.path.insert(0, os.path.dirname(os.path.abspath(command[0])))  # modules are found as beside the script
    return MakesAgain(names, *_per_second(peaks), quick)


def _per_second(peaks: tuple[float | None, float | None]) -> tuple[float | None, float | None]:
    bandwidth, flops = peaks
    return bandwidth * 1e9 if bandwidth else None, flops * 1e12 if flops else None


def _wrong_alone(found: ProgramComparison) -> str:
    """In one line the first op call whose result is wrong when it is made again alone; "" if none is."""
    if not found.wrong_alone:
        return ""
    first = found.wrong_alone[0]
    assert first.alone is not None
    return f"{first.op} {first.inputs}, called again alone: {first.alone.wrong}"


def _other_output(found: ProgramComparison) -> str:
    """In one line what the script wrote otherwise than with stock; "" if nothing, or if stock varies too."""
    if not found.output or not found.steady_output:
        return ""
    removed = next((line[1:] for line in found.output[2:] if line.startswith("-")), "")
    added = next((line[1:] for line in found.output[2:] if line.startswith("+")), "")
    return f"stdout differs from stock's: {removed[:_SHOWN]!r} became {added[:_SHOWN]!r}"


def _watching(text: str) -> AbstractContextManager[None]:
    return progress(f"comparing: {text}")
