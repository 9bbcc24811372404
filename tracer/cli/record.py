"""`tracer record`: run a script as Python would, and record every dispatcher hop that it makes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from tracer.base import extension, interpreter, kept
from tracer.base.build import build_info, is_wheel
from tracer.base.errors import RecordingError
from tracer.base.package import FOLDER
from tracer.base.say import say
from tracer.base.torch_build import installed_cuda, installed_torch
from tracer.cli.recorded import recording_options, reserved
from tracer.recording import invitation, naming
from tracer.recording import output as outputs
from tracer.recording.cuda import why_unusable
from tracer.recording.options import Options
from tracer.recording.recording import draw_session

# Parsing stops at the script: everything after it belongs to the script.
CONTEXT = {"allow_interspersed_args": False}
LEFT_OUT = "left-out"  # the note, in the user's cache folder, that this was already said


@recording_options("record")
def record(
    script: Annotated[
        list[str] | None,
        typer.Argument(metavar="SCRIPT [ARGS]..."),
    ] = None,
    module: Annotated[bool, typer.Option("-m", help="SCRIPT is a module name, as in python -m.")] = False,
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="The trace (default: SCRIPT.NNNN.trace). %r: rank, %p: process, %h: host. DIR/: one "
            "trace per rank in this folder.",
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite FILE.")] = False,
    **given: Any,
) -> None:
    """Run SCRIPT as python would and record every dispatcher hop.

    A hop is one visit to one kernel of PyTorch's dispatcher: a call of an operator,
    or its redispatch to the next dispatch key. With CUDA, tracer also records CUDA
    calls and what the GPU ran. Put tracer's options before SCRIPT.

    \b
    Examples:
      tracer record train.py --epochs 1
      tracer record -o run.trace --force train.py
      tracer record --stack 4 --cuda off train.py
      tracer record --steps 3:6 train.py
      torchrun --nproc-per-node 2 --no-python tracer record -o job/ train.py
    \f
    \b
    More examples:
      tracer record --ops 'aten::*mm*' --ops 'aten::linear*' train.py
      tracer record --max-size 256M server.py
      tracer record --override gru:force --override my_kernels:my_mm train.py
      tracer record -m torch.distributed.run --nproc-per-node 2 train.py
      srun -n 16 tracer record -o job/ train.py
    """
    try:
        command = _command(script or [], module)
        override = given.pop("override") or []
        options = Options(**given)
        if running := invitation.running(_given_invitation()):
            _run_inside(running, command, output, bool(override))
        options.override = _overrides(override, command[0], module)
        _check_installation()
        unusable = why_unusable(options)
        _say_what_was_left_out()
        stem = outputs.stem(command[0] if not module else command[1])
        request = reserved(output and outputs.of_command(output), stem, force)
    except RecordingError as error:
        _refuse(error)
    request |= {"session": draw_session(), "process": invitation.this_process()}
    request |= {"cupti_unusable": unusable, **options.document()}
    _become(command, request)


def _given_invitation() -> str:
    return "" if sys.flags.ignore_environment else os.environ.get(invitation.NAME, "")


def _run_inside(running: str, command: list[str], output: str | None, overridden: bool) -> NoReturn:
    """Run the script as a part of the recording that is already running; raises RecordingError."""
    name = command[1] if command[0] == "-m" else command[0]
    shown = output or naming.stem_of_script(name) + naming.SUFFIX
    why = f"{shown} will not be written: this process is already being recorded, to {running}"
    if overridden:  # without its overrides the script would be another program
        raise RecordingError(f"{why}; enable overrides in the command that began that recording")
    say(why)
    _become(command, None)


def _say_what_was_left_out() -> None:
    """At the first recording of a build, because pip hides what the build prints."""
    built_for = None if is_wheel() else build_info().TORCH_CUDA  # a wheel is made for CUDA, and runs without
    reason, cuda = build_info().OVERRIDES_MISSING, built_for or installed_cuda()
    if cuda is None or not reason or kept.read(LEFT_OUT, reason) is not None:
        return
    kept.write(LEFT_OUT, reason, "")
    say(
        "this build has no built-in overrides (mm, gru, cat), but everything else: "
        f"{reason} (shown once; tracer doctor shows it again)"
    )


def _command(script: list[str], module: bool) -> list[str]:
    if not script or not script[0]:
        what = "module" if module else "script"
        raise RecordingError(f"give a {what} to run: tracer record [options] SCRIPT [ARGS]")
    if module:
        return ["-m", *script]
    path = script[0]
    if os.path.isdir(path) and not os.path.exists(os.path.join(path, "__main__.py")):
        raise RecordingError(f"{path} is a folder without __main__.py; give a script in it")
    if path != "-" and not os.path.exists(path):
        raise RecordingError(f"no script {path} here; check its name")
    if path != "-" and not os.access(path, os.R_OK):
        raise RecordingError(f"{path} cannot be read: permission denied")
    return script


def _overrides(given: list[str], script: str, module: bool) -> list[str]:
    """The names, as the recorded process will look them up."""
    if not given:
        return []
    from tracer.overrides import OverrideError, names

    folder = os.getcwd() if module else os.path.dirname(os.path.abspath(script))
    try:
        return [names.checked(name, folder) for part in given for name in part.split(",")]
    except OverrideError as error:
        raise RecordingError(str(error)) from None


def _check_installation() -> None:
    extension.check(installed_torch())
    packages = str(Path(FOLDER).resolve().parent)
    startup = os.path.join(packages, "tracer_startup.pth")
    active = {os.path.realpath(folder) for folder in _site_folders()}
    if not os.path.exists(startup):
        raise RecordingError(f"{startup} is missing, so tracer cannot record; {extension.rebuild()}")
    if packages not in active and not _begins_with_python():
        raise RecordingError(
            f"{sys.executable} does not read {startup}, which begins a recording: the folder is on "
            f"sys.path but is not a site folder; {extension.install()}"
        )


def _begins_with_python() -> bool:
    """Whether a new interpreter reads the start-up file; folders of `site.addsitedir` are in no list."""
    asked = "sys.exit('tracer.recording.startup' not in sys.modules)"
    flags = subprocess._args_from_interpreter_flags() + _flag_of_ours()  # type: ignore[attr-defined]
    environment = {**os.environ, invitation.NAME: "{}"}
    try:
        done = subprocess.run(interpreter.helper(asked, flags=flags), env=environment, check=False)
    except OSError:
        return False
    return done.returncode == 0


def _site_folders() -> list[str]:
    import site

    if sys.flags.no_site:
        return []
    return site.getsitepackages() + ([site.getusersitepackages()] if site.ENABLE_USER_SITE else [])


def _become(command: list[str], request: dict[str, object] | None) -> NoReturn:
    ours = {"TRACER_RECORD": json.dumps(request)} if request else {}
    flags = interpreter.options(sys.orig_argv) + _flag_of_ours()
    try:
        os.execve(
            sys.executable, interpreter.script(*command, flags=flags), interpreter.given_environment() | ours
        )
    except OSError as error:
        if request and request["reserved"]:
            naming.remove_if_empty(str(request["path"]))
        _refuse(RecordingError(f"{sys.executable} cannot be run: {error.strerror}"))


def _flag_of_ours() -> list[str]:
    """What tells a Python that ignores the environment that tracer itself has set its variables."""
    return [f"-X{invitation.FLAG}"] if sys.flags.ignore_environment else []


def _refuse(error: RecordingError) -> NoReturn:
    typer.echo(f"tracer: {error}", err=True)
    raise typer.Exit(2)
