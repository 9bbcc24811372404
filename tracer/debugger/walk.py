"""The interface of session scripts: a program under gdb, its breakpoints, its stops, and their report."""

from __future__ import annotations

import ast
import os
import re
import sys
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tracer.base.package import gdb_folder
from tracer.debugger import breakpoints, overlay
from tracer.debugger.debugger_errors import DebuggerError
from tracer.debugger.findings import Findings, command_line, level
from tracer.debugger.functions import Functions
from tracer.debugger.program import Gdb
from tracer.debugger.session import Session
from tracer.debugger.target import Target


@dataclass(frozen=True)
class Surroundings:
    """The Python, gdb and overlays of a session; `overlays` names operators to build with -g."""

    target: Target
    gdb: Gdb
    overlays: tuple[str, ...] = ()
    source: Path | None = None
    backtrace: int = 64
    preloads: tuple[Path, ...] = ()  # libraries whose functions run in place of torch's


class Walk:
    """One program under gdb. Use as a context manager.

        with Walk(surroundings, ["script.py"]) as walk:
            walk.stop_at("aten::mm")
            walk.go()

    Breakpoints can be set before the program starts, which `go` does, and at every halt.
    """

    def __init__(
        self,
        surroundings: Surroundings,
        command: Sequence[str] = (),
        title: str = "",
        *,
        interactive: bool = False,
    ) -> None:
        self.surroundings = surroundings
        self.command = list(command)
        self.title = title or f"tracer gdb {command_line(command)}"
        self.introduction = ""
        self.folder: str | None = None  # where the program runs; the current folder otherwise
        self.beside: list[dict[str, Any]] = []  # hops of a trace that the last stop is shown beside
        self.records: list[dict[str, Any]] = []
        self.notes: list[str] = []
        self._counts: dict[str, Any] = {}
        self._program = ""  # the text of a program that the session brought
        self._interactive = interactive  # the terminal can be handed to gdb
        self._waiting: list[tuple[str, dict[str, Any]]] = []
        self._session: Session | None = None
        self._began = time.monotonic()
        self._ended = False

    def __enter__(self) -> Walk:
        return self

    def __exit__(self, *_: object) -> None:
        if self._session is not None:
            self._session.close()

    @property
    def session(self) -> Session:
        """The gdb session, made when it is first needed."""
        if self._session is None:
            self._session = Session(
                self.command,
                self.surroundings.target,
                self.surroundings.gdb,
                preloaded=(*self._preloaded(), *self.surroundings.preloads),
                backtrace=self.surroundings.backtrace,
                folder=self.folder,
            )
            self._session.interactive = self._interactive
        return self._session

    @property
    def has_breakpoints(self) -> bool:
        """Whether any breakpoint is set."""
        return bool(self._waiting)

    @property
    def has_cuda(self) -> bool:
        """Whether the debugged torch is a CUDA build, on a machine with a GPU."""
        return (self.surroundings.target.libraries / "libtorch_cuda.so").exists() and _has_gpu()

    def program(self, text: str, *arguments: str) -> None:
        """The program to run, as Python source. For session scripts, which bring their own."""
        path = self.session.folder / "program.py"
        path.write_text(text.lstrip("\n"))
        self._program = text.strip("\n")
        self.command = [str(path), *arguments]
        self.session.command = self.command

    def stop_at(self, spec: str, **wanted: Any) -> None:
        """Records stops at an operator, a function or FILE:LINE; `halt=True` hands them to `go` too.

        `at=3`: the third hit alone. `when="shape(0)[0] > 128"`: a condition. `limit=10`: at most ten.
        """
        if wanted.get("when") is not None:
            breakpoints.check_condition(wanted["when"])
        points = breakpoints.points_of(
            self.session.functions, spec
        )  # a wrong name fails before anything runs
        advice = breakpoints.advice(self.session.functions, spec, points)
        if advice:
            _say(advice)
        if self.session.torch_imported:
            self._place(spec, **wanted)
        else:
            self._waiting.append((spec, wanted))

    def start(self) -> bool:
        """Runs the program up to the end of its `import torch`; False where it ended before."""
        if sys.stderr.isatty():
            _say("starting gdb; it reads torch's symbols for a few seconds")
        if not self.session.start():
            self._ended = True
            self.notes.append(_without_torch(self.session.exit_status))
            return False
        for spec, wanted in self._waiting:
            self._place(spec, **wanted)
        self._waiting.clear()
        return True

    def _place(self, spec: str, **wanted: Any) -> None:
        for line in breakpoints.place(self.session, spec, **wanted):
            _say(line)

    def go(self) -> dict[str, Any] | None:
        """Continues to the next breakpoint with `halt`; returns its stop, or None at the program's end."""
        if self._ended or (not self.session.torch_imported and not self.start()):
            return None
        return self._moved(self.session.run())

    def step(self, times: int = 1) -> dict[str, Any] | None:
        """Steps source lines, into functions that have debug information, and records the new place."""
        self._at_a_stop("step")
        return self._moved(self.session.step(times))

    def next_hop(self) -> dict[str, Any] | None:
        """Runs to the next call or redispatch of any operator in this thread; None at the program's end."""
        self._at_a_stop("next_hop")
        return self._moved(self.session.next_hop())

    def finish_op(self) -> dict[str, Any] | None:
        """Runs to the end of the innermost op call, before it returns; its result is among the arguments."""
        self._at_a_stop("finish_op")
        return self._moved(self.session.finish_op())

    def plumbing(self, shown: bool) -> None:
        """Whether `step` leads into the standard library and the dispatcher's helpers (at first: no)."""
        self.session.call("show_plumbing", wanted=shown)

    def _at_a_stop(self, move: str) -> None:
        if self._ended:
            raise DebuggerError(f"{move}() needs a stop, but the program has ended: go() returned None")
        if not self.session.torch_imported:
            raise DebuggerError(f"{move}() needs a stop, but the program has not started: call go() before")

    def _moved(self, halted: bool) -> dict[str, Any] | None:
        self._collect()
        self._ended = not halted
        return self.records[-1] if halted and self.records else None

    def end(self) -> None:
        """Ends the program at the current stop."""
        self._collect()
        if not self._ended:
            self.session.kill()
            self._ended = True

    def note(self, text: str) -> None:
        """Adds a sentence to the report."""
        self.notes.append(text)

    def findings(self) -> Findings:
        """The findings so far."""
        self._collect()
        session, target = self.session, self.surroundings.target
        overlays = self.surroundings.overlays
        return Findings(
            title=self.title,
            introduction=self.introduction,
            command=self._shown_command(),
            program=self._program,
            python=target.python,
            torch=target.torch_version,
            gdb=self.surroundings.gdb.version,
            level=level(self.records, overlay=overlays, stripped=session.functions.stripped),
            records=self.records,
            beside=self.beside,
            counts=self._counts,
            notes=[*self._preload_notes(), *self.notes, *self._counts.get("notes", [])],
            exit_status=session.exit_status,
            seconds_to_torch=session.seconds_to_torch,
            seconds=time.monotonic() - self._began,
        )

    def _collect(self) -> None:
        self.records += map(self._named_shortly, self.session.records())
        if self.session.alive and self.session.torch_imported:
            self._counts = self.session.call("counts")

    def _preload_notes(self) -> list[str]:
        names = ", ".join(path.name for path in self.surroundings.preloads)
        noted = [f"preloaded: {names}, whose functions run in place of torch's"] if names else []
        return noted + ([_REPLACED] if self.session.replaced else [])

    def _shown_command(self) -> list[str]:
        """As a user would run it, without the folder of a program that the session brought."""
        executable = self.surroundings.target.executable
        if not self._program:
            return [executable, *self.command]
        return [os.path.basename(executable), os.path.basename(self.command[0]), *self.command[1:]]

    def _named_shortly(self, record: dict[str, Any]) -> dict[str, Any]:
        """A record in which the program that the session brought is named without its folder."""
        if self._program:
            folder = f"{self.session.folder}{os.sep}"
            record["python"] = [[file.removeprefix(folder), *rest] for file, *rest in record["python"]]
        return record

    def _preloaded(self) -> tuple[Path, ...]:
        if not self.surroundings.overlays:
            return ()
        known = Functions(self.surroundings.target)
        for name in self.surroundings.overlays:  # torchgen would say so after ten seconds
            operator = f"aten::{name.removeprefix('aten::')}"
            if not known.overloads(operator):
                raise DebuggerError(f"no operator {operator}{known.near_names(operator)}")
        built = overlay.build(
            self.surroundings.target, self.surroundings.overlays, source=self.surroundings.source, say=_say
        )
        how = "from the cache" if built.cached else f"built in {built.seconds:.0f} s"
        self.notes.append(f"overlay of {', '.join(built.operators)}: {how}")
        return built.libraries


_REPLACED = "the process became another program (exec), which tracer did not examine"


def _say(line: str) -> None:
    print(f"tracer: {line}", file=sys.stderr)


def _has_gpu() -> bool:
    return any(Path("/dev").glob("nvidia[0-9]*")) or Path("/dev/dxg").exists()


def _without_torch(status: int | None) -> str:
    how = "ended" if not status else f"ended with status {status}"
    return f"the script {how} without importing torch, so there was nothing to examine"


def session_scripts() -> dict[str, Path]:
    """The session scripts that tracer brings, by name."""
    folder = Path(gdb_folder())
    scripts = {path.stem: path for path in sorted(folder.glob("*.py"))}
    return scripts | {f"{path.parent.name}/{path.stem}": path for path in folder.glob("debug_build/*.py")}


def summary(path: Path) -> str:
    """The first sentence of what a session script says of itself."""
    text = " ".join((ast.get_docstring(ast.parse(path.read_text())) or "").split())
    return re.split(r"[,:.;] ", text)[0].rstrip(".")


def run_script(path: Path, walk: Walk) -> None:
    """Runs a session script: its function `walk`, given a Walk; its docstring introduces the report."""
    space: dict[str, Any] = {"__name__": "session", "__file__": str(path)}
    exec(compile(path.read_text(), str(path), "exec"), space)
    if not callable(space.get("walk")):
        raise DebuggerError(f"{path} has no function walk(gdb), so it is not a session script")
    walk.introduction = " ".join((space.get("__doc__") or "").split())
    try:
        space["walk"](walk)
    except (Exception, SystemExit) as error:
        if not isinstance(error, SystemExit) or error.code:
            raise SessionError(path, error) from error


class SessionError(Exception):
    """A session script raised `error`; the stops until then are still there."""

    def __init__(self, path: Path, error: BaseException) -> None:
        self.traceback = traceback.TracebackException.from_exception(error)
        frames = self.traceback.stack
        own = [number for number, frame in enumerate(frames) if frame.filename == str(path)]
        # below the script are tracer's own frames, which tell nothing if tracer raised the error itself
        end = own[-1] + 1 if isinstance(error, DebuggerError) else len(frames)
        self.traceback.stack = traceback.StackSummary.from_list(list(frames)[own[0] : end])
        line = frames[own[-1]].lineno
        super().__init__(f"{path.name}:{line} raised {type(error).__name__}: {error}")
