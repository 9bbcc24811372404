"""`tracer replay`: run one op call of a trace again, alone, as it was and changed."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tracer.base import interpreter
from tracer.cli.common import (
    USAGE,
    SourceFrom,
    TraceFile,
    analysing,
    chosen_trace,
    exclusive,
    fail,
    one_of,
    progress,
    say,
    writing,
)
from tracer.cli.documents import AsJson, print_json, prints_to_stderr
from tracer.cli.help import MORE
from tracer.cli.imports import import_modules
from tracer.cli.output import check_output, write_output

if TYPE_CHECKING:
    from tracer.analysis.recorded_call import RecordedCall
    from tracer.compare.chains import Chain
    from tracer.replay.call import Call
    from tracer.replay.change import Change


STRIDES = ("channels_last", "contiguous")
DTYPES = ("float16", "bfloat16", "float32", "float64")


def replay(
    file: TraceFile = None,
    hop: Annotated[
        int, typer.Option(metavar="N", show_default=False, help="The hop, from tracer tree --ids.")
    ] = -1,
    step: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=0, help="Count hops within this step, as tree --step does.", rich_help_panel=MORE
        ),
    ] = None,
    override: Annotated[
        list[str] | None, typer.Option(metavar="NAMES", help="Compare with these overrides. Repeatable.")
    ] = None,
    tf32: Annotated[str | None, one_of("--tf32", ("on", "off"), "Compare with TF32 on or off.")] = None,
    key: Annotated[
        str | None,
        typer.Option("--key", metavar="KEY", help="Compare with the kernel at this key: CPU, Meta."),
    ] = None,
    threads: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Compare with this number of CPU threads.")
    ] = None,
    strides: Annotated[
        str | None, one_of("--strides", STRIDES, "Compare with tensors of these strides.")
    ] = None,
    dtype: Annotated[str | None, one_of("--dtype", DTYPES, "Compare with numbers of this dtype.")] = None,
    pad: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=2, help="Compare with matrices padded to multiples of N.", rich_help_panel=MORE
        ),
    ] = None,
    arg: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Give an argument: stride=[1,1], self=@FILE.pt."),
    ] = None,
    imported: Annotated[
        list[str] | None,
        typer.Option("--import", metavar="PACKAGE", help="Import this first: it registers the operator."),
    ] = None,
    script: Annotated[
        Path | None, typer.Option(metavar="OUT.py", help="Write the call as a Python file.")
    ] = None,
    ncu: Annotated[
        Path | None,
        typer.Option(metavar="OUT", help="Profile one call with Nsight Compute.", rich_help_panel=MORE),
    ] = None,
    unsafe: Annotated[
        bool, typer.Option("--unsafe", help="Run it even if it may open files or run code.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite OUT.py.")] = False,
    as_json: AsJson = False,
    source_from: SourceFrom = None,
) -> None:
    """Run one op call of a trace again, alone, as it was and changed.

    tracer makes the arguments from the trace: shapes, strides, dtypes and devices of
    tensors, with random values. Numbers, lists and flags need a recording with
    --values scalars. It prints both times, the errors from float64 and both chains.

    It refuses operators outside aten and prims unless you give --import, and those
    that may open files or run code unless you give --unsafe.

    \b
    Examples:
      tracer replay run.trace --hop 17 --threads 1
      tracer replay run.trace --hop 17 --override mine.py:kernel
      tracer replay run.trace --hop 17 --script repro.py
    \f
    --script writes a file of about 30 lines that needs torch only, and the packages
    of --import, to send to somebody.

    The exit status is 1 if the call cannot be rebuilt or raises, and 2 if an option
    is wrong or the trace has something else where a dtype, a device or a value must
    be. The message names the argument, and why.

    \b
    More examples:
      tracer replay run.trace --hop 17 --threads 1 --json | jq .times.wall.ratio
      tracer replay gpu.trace --hop 17 --tf32 on
      tracer replay run.trace --hop 17 --strides channels_last
      tracer replay gpu.trace --hop 17 --key CPU --arg stride=[1,1]
      tracer replay run.trace --hop 17 --arg weight=@weight.pt
    """
    if hop < 0:
        fail("give the hop: --hop N; to see the numbers: tracer tree --ids", USAGE)
    exclusive(json=as_json, script=script)
    exclusive(json=as_json, ncu=ncu)
    given = _given(arg or [])
    if script is not None:
        _check_script(script, force)
    file = chosen_trace(file)
    with analysing(file, step) as trace:
        from tracer.analysis.recorded_call import NoSuchHopError, recorded_call

        try:
            recorded = recorded_call(trace, hop)
        except NoSuchHopError as error:
            fail(f"{error}; to see the ids: tracer tree {file} --ids", USAGE)
    _import_torch()
    import_modules(imported or [], USAGE)
    from tracer.base.boundary import NotInTorchError, StrangeTextError
    from tracer.overrides import OverrideError
    from tracer.replay.change import Change, check_key, override_names
    from tracer.replay.fitting import rebuilt
    from tracer.replay.memory import limited
    from tracer.replay.replay_errors import CannotReplayError, WrongOptionError

    try:
        with limited():
            call = rebuilt(recorded, progress, given, imported=bool(imported), unsafe=unsafe)
            with prints_to_stderr(as_json):
                names = override_names(override or [])
            change = Change(names, None if tf32 is None else tf32 == "on", key, threads, strides, dtype, pad)
            if key is not None:
                check_key(key, recorded.op)
            if script is not None or ncu is not None:
                _check_as_recorded("--script" if script is not None else "--ncu", change)
            if script is not None:
                _write_script(script, recorded, call, imported or [])
            elif ncu is not None:
                _profile(ncu, recorded, call)
            else:
                _compare(file if as_json else None, recorded, call, change, _recorded_chain(trace, recorded))
    except (WrongOptionError, OverrideError) as error:
        fail(str(error), USAGE)
    except (CannotReplayError, NotInTorchError) as error:
        fail(str(error))
    except StrangeTextError as error:
        fail(str(error), USAGE)


def _check_as_recorded(option: str, change: Change) -> None:
    if change.title:
        fail(f"{option} takes the call as it was recorded; leave out what changes it ({change.title})", USAGE)


def _given(arguments: list[str]) -> dict[str, str]:
    pairs = [argument.partition("=") for argument in arguments]
    for name, sign, _ in pairs:
        if not sign or not name:
            fail(f"--arg {name}: give NAME=VALUE, such as --arg dim=1", USAGE)
    return {name: value for name, _, value in pairs}


def _check_script(script: Path, force: bool) -> None:
    if script.suffix != ".py":
        fail(f"{script}: a script is Python; give a file that ends in .py", USAGE)
    check_output(script, force)


def _import_torch() -> None:
    try:
        import torch as _  # noqa: F401
    except ImportError:
        fail("tracer replay runs the op call, and torch is not installed here", USAGE)


def _recorded_chain(trace: object, recorded: RecordedCall) -> Chain | None:
    """None: the trace is of another torch, whose kernel functions have other names."""
    import torch

    from tracer.compare.chains import ChainTables

    if recorded.torch != torch.__version__:
        return None
    return ChainTables(trace).of_hop(recorded.call)  # type: ignore[arg-type]


def _compare(
    json_of: Path | None, recorded: RecordedCall, call: Call, change: Change, chain: Chain | None
) -> None:
    import torch

    from tracer.base.visible import visible
    from tracer.replay.run import replay as run

    with prints_to_stderr(json_of is not None):
        found = run(call, change, recorded.result)
    if json_of is not None:
        from tracer.replay.document import replay_document

        print_json(replay_document(str(json_of), recorded, call, torch.__version__, found, chain))
        return
    from tracer.replay.text import compared, heading

    with writing():
        for line in (*heading(recorded, call, torch.__version__), *compared(found, chain)):
            print(visible(line))


def _write_script(script: Path, recorded: RecordedCall, call: Call, modules: list[str]) -> None:
    from tracer.replay.call import missing_package
    from tracer.replay.script import script_of

    if why := missing_package(call):
        fail(why)
    write_output(script, script_of(recorded, call, modules))
    say(f"{script}; next: python {script}")


def _profile(output: Path, recorded: RecordedCall, call: Call) -> None:
    from tracer.replay.call import why_not_here
    from tracer.replay.ncu import command, find_ncu
    from tracer.replay.script import script_of

    ncu = find_ncu()
    if ncu is None:
        fail(
            "--ncu: Nsight Compute is not installed here; to profile elsewhere: --script OUT.py, then ncu",
            USAGE,
        )
    if not any(device.startswith("cuda") for device in call.devices):
        fail("--ncu: this call runs on the CPU; Nsight Compute profiles GPU kernels", USAGE)
    if why := why_not_here(call):
        fail(f"--ncu: {why}")
    with tempfile.TemporaryDirectory(prefix="tracer-replay-") as folder:
        path = os.path.join(folder, "replay.py")
        Path(path).write_text(script_of(recorded, call, profiled=True), encoding="utf-8")
        status = subprocess.run(
            command(ncu, interpreter.script(path), os.fspath(output)), check=False
        ).returncode
    if status:
        fail(f"--ncu: {ncu} ended with status {status}; its own message is above")
    say(f"{output}.ncu-rep; next: ncu --import {output}.ncu-rep")
