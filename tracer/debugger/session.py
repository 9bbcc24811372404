"""One script under gdb, from start to end. What gdb sees comes back as records."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tracer.base.package import FOLDER, gdb_folder
from tracer.debugger import terminal
from tracer.debugger.console import Console
from tracer.debugger.debugger_errors import DebuggerError
from tracer.debugger.functions import Functions, Point
from tracer.debugger.mi import GdbError, MachineInterface
from tracer.debugger.program import Gdb
from tracer.debugger.target import Target

_PACKAGE = Path(FOLDER)
_INSIDE = Path(gdb_folder(), "inside")
_INFERIOR = Path(gdb_folder(), "inferior")
_SETTINGS = (
    "set confirm off",
    "set pagination off",
    "set width 0",
    "set debuginfod enabled off",
    "set breakpoint pending on",
    "set print thread-events off",
    "set print frame-arguments all",  # the printers make them short
    "set disable-randomization off",  # as it runs without gdb
    "handle all nostop noprint pass",
    "handle SIGSEGV SIGBUS SIGFPE SIGILL SIGABRT stop print pass",
    "handle SIGTRAP SIGINT stop print nopass",
)
_SIGNALS_SEEN = ("SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGABRT", "SIGTRAP", "SIGINT")
_OURS = ("PYTHONPATH", "LD_PRELOAD")  # variables that the session changes and the script gets back
_FROM_KERNEL, _FROM_USER = 0x80, 0  # si_code of a signal: the terminal's, another process's
_HALT_SECONDS = 5.0
_START_SECONDS = 600.0  # a debug build reads its symbols for minutes


class Session:
    """A debugged script. Use as a context manager: leaving it ends gdb and the script.

    `command` is what follows `python`: a script and its arguments, or `-m module ...`. `preloaded`
    libraries are loaded before torch's own. `backtrace` is the number of native frames of a record.
    """

    def __init__(
        self,
        command: Sequence[str],
        target: Target,
        gdb: Gdb,
        *,
        preloaded: Sequence[Path] = (),
        backtrace: int = 64,
        folder: str | None = None,
    ) -> None:
        self.command = list(command)
        self.target = target
        self.gdb = gdb
        self.functions = Functions(target, preloaded)
        self.preloaded = tuple(preloaded)
        self.exit_status: int | None = None  # of the script; minus the signal that ended it
        self.interactive = False  # set before the start: interactive.hand_over is wanted
        self.torch_imported = False
        self.interrupted = False  # by Ctrl-C
        self.replaced = False  # by exec: what runs now is not looked at
        self.seconds_to_torch: float | None = None
        self._backtrace = backtrace
        self._working_folder = folder or os.getcwd()
        self._folder = Path(tempfile.mkdtemp(prefix="tracer-gdb-"))
        self._records = self._folder / "stops.jsonl"
        self._read = 0  # bytes of the records that were returned
        self._mi: MachineInterface | None = None
        self._delivered: str | None = None  # the signal that the script gets when it goes on
        self._standard = tuple(os.dup(number) for number in (0, 1, 2))
        self._terminal = terminal.is_ours(0)
        self._began = time.monotonic()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def mi(self) -> MachineInterface:
        """The conversation with gdb, for what this class does not offer."""
        assert self._mi is not None
        return self._mi

    @property
    def folder(self) -> Path:
        """Where the session keeps its files until it is closed."""
        return self._folder

    def start(self) -> bool:
        """Runs the script until it has imported torch; False where it ended before."""
        self._write_files()
        environment = {name: value for name, value in os.environ.items() if not _confuses_gdb(name)}
        environment["SHELL"] = "/bin/sh"
        if self.interactive and not self._terminal:
            raise DebuggerError("--interactive needs a terminal on standard input")
        self._mi = (Console if self.interactive else MachineInterface)(
            [self.gdb.path, "--nx", "--quiet", self.target.executable],
            inherited=self._standard,
            environment=environment,
        )
        for setting in _SETTINGS:
            self._try(setting)
        wrapper = [self.target.executable, "-I", "-S", str(_INFERIOR / "launch.py"), str(self._folder)]
        self.mi.execute(f"set exec-wrapper {shlex.join(wrapper)}")
        self._launch()
        while (reason := self._wait()) is not None:
            if reason == "SIGTRAP" and (self._folder / "facts.json").exists():
                self.seconds_to_torch = time.monotonic() - self._began
                self._begin()
                return True
            self._answer(reason)
            self._resume()
        return False

    def add(self, spec: str, points: Sequence[Point], **wanted: Any) -> list[str]:
        """Sets a breakpoint; returns what it cannot stop at. `wanted` as in gdb/inside/wanted.py."""
        group = {"spec": spec, **wanted}
        said: list[str] = self.call("add", group=group, points=[point.described() for point in points])
        return said

    def run(self) -> bool:
        """Lets the script run on until a breakpoint that halts; False where it has ended."""
        while True:
            self._resume()
            reason = self._wait()
            if reason is None:
                return False
            if reason in _SIGNALS_SEEN:
                self._answer(reason)
            elif self.call("leave"):
                self.replaced = True
            elif not self.call("learn"):
                return True

    def step(self, times: int = 1) -> bool:
        """Steps `times` source lines at a halt and records the new place; False if the script has ended."""
        for _ in range(times):
            self.mi.command("-exec-step")
            if self._wait() is None:
                return False
        self.call("step_stop")
        return True

    def next_hop(self) -> bool:
        """Runs to the next call or redispatch in this thread and records it; False at the script's end."""
        self.call("begin_hop", offsets=self.functions.hops())
        ran = self.run()
        if ran:
            self.call("end_hop")
        return ran

    def finish_op(self) -> bool:
        """Runs to the end of the innermost op call and records it; False if the script ended before.

        Raises DebuggerError if there is none, it raises an exception, or another breakpoint stops first.
        """
        begun = self.call("begin_finish")
        if "error" in begun:
            raise DebuggerError(f"finish_op: {begun['error']}")
        operator = begun["operator"]
        if not self.run():
            return False
        end = self.call("end_finish", operator=operator)
        if not end["ended"]:
            why = f"raised {end['raised']}" if end["raised"] else "was stopped before its end"
            raise DebuggerError(f"finish_op: {operator} {why}")
        return True

    def follow(self) -> None:
        """Watches a script that the user drives from gdb's own command line, until gdb has ended."""
        try:
            while True:
                self._wait()
        except GdbError:  # gdb has ended
            pass

    def kill(self) -> None:
        """Ends the script at a halt; `exit_status` stays None."""
        self.mi.execute("kill")

    @property
    def alive(self) -> bool:
        """Whether gdb can still be asked."""
        return self._mi is not None and self._mi.process.poll() is None

    def records(self) -> Iterator[dict[str, Any]]:
        """The stops that were recorded since this was last asked."""
        if not self._records.exists():
            return
        with self._records.open("rb") as file:
            file.seek(self._read)
            for line in file:
                if not line.endswith(b"\n"):
                    break  # gdb was killed while it wrote
                self._read += len(line)
                yield json.loads(line)

    def call(self, method: str, **arguments: Any) -> Any:
        """Calls a method of the part inside gdb. Raises GdbError with the last line of its traceback."""
        (self._folder / "call.json").write_text(json.dumps({"method": method, "arguments": arguments}))
        try:
            said = self.mi.execute(f"python debugger.call(tracer_debugger, {str(self._folder)!r})")
        except GdbError as error:
            raise GdbError(f"{error}: {''.join(self.mi.log).strip().splitlines()[-1]}") from None
        return json.loads(said[said.index("result:") + len("result:") :])

    def close(self) -> None:
        """Ends gdb and the script, and removes what the session made."""
        if self._mi is not None:
            self._mi.close()
            self._mi = None
        if self._terminal:
            terminal.take_back(0)
        for number in self._standard:
            os.close(number)
        self._standard = ()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _launch(self) -> None:
        try:
            self.mi.command("-exec-run", _START_SECONDS)
        except GdbError as error:
            said = "".join(self.mi.log)
            if "ptrace" in said:
                raise DebuggerError(
                    "gdb needs ptrace, which is not permitted here; in a container: --cap-add=SYS_PTRACE"
                ) from None
            raise GdbError(f"cannot run {self.target.executable} under gdb: {error}") from None

    def _begin(self) -> None:
        options = {"backtrace": self._backtrace}
        names = str(_PACKAGE / "trace" / "names" / "kernels.py")
        self.mi.execute(f"python import sys; sys.path.insert(0, {str(_INSIDE)!r}); import debugger")
        made = f"debugger.Debugger({str(self._folder)!r}, {names!r}, {options!r})"
        self.mi.execute(f"python tracer_debugger = {made}")
        self.torch_imported = True

    def _resume(self) -> None:
        delivered, self._delivered = self._delivered, None
        if delivered:
            self.mi.execute(f"signal {delivered}")
        else:
            self.mi.command("-exec-continue")

    def _wait(self) -> str | None:
        """Why the script stopped: a signal's name or gdb's reason; None where it has ended."""
        stop = None
        while stop is None:
            try:
                stop = self.mi.wait_for_stop()
            except KeyboardInterrupt:
                # where the script does not own the terminal, Ctrl-C comes here instead
                if self.interrupted or self.mi.inferior is None:
                    self._halt()
                    raise
                os.kill(self.mi.inferior, signal.SIGINT)
        reason = stop.get("reason", "")
        if reason == "signal-received":
            return str(stop["signal-name"])
        if reason == "exited-signalled":
            self.exit_status = -int(signal.Signals[stop["signal-name"]])
            return None
        if reason.startswith("exited"):
            self.exit_status = int(stop.get("exit-code", "0"), 8)
            return None
        return reason

    def _halt(self) -> None:
        """Stops the script, so that gdb answers."""
        try:
            if self.mi.inferior is not None:
                os.kill(self.mi.inferior, signal.SIGINT)
                self.mi.wait_for_stop(_HALT_SECONDS)
        except (OSError, TimeoutError, GdbError):  # it ended by itself
            pass

    def _answer(self, reason: str) -> None:
        """Handles a stop that is not at one of tracer's breakpoints, before the script continues."""
        if reason == "SIGINT":
            if self._is_typed():
                if self.interrupted:
                    raise KeyboardInterrupt  # the second time it is meant for us
                self.interrupted = True
            self._delivered = "SIGINT"
        elif reason == "SIGTRAP" and self._handles(signal.SIGTRAP):
            self._delivered = "SIGTRAP"
        elif reason in _SIGNALS_SEEN and self.torch_imported:
            self.call("signal_stop", name=reason)

    def _is_typed(self) -> bool:
        """Whether the SIGINT that stopped the script is a Ctrl-C: sent by the terminal, or by us."""
        code, sender = (
            int(self.mi.command(f"-data-evaluate-expression $_siginfo.{name}")["value"])
            for name in ("si_code", "_sifields._kill.si_pid")
        )
        return code == _FROM_KERNEL or (code == _FROM_USER and sender == os.getpid())

    def _handles(self, number: signal.Signals) -> bool:
        """Whether the script has a handler of its own for a signal."""
        for line in Path(f"/proc/{self.mi.inferior}/status").read_text().splitlines():
            if line.startswith("SigCgt:"):
                return bool(int(line.split()[1], 16) >> (number - 1) & 1)
        return False

    def _write_files(self) -> None:
        """What the parts in the script's process read."""
        (self._folder / "import_hook").write_text(str(_PACKAGE / "recording" / "import_hook.py"))
        if self._terminal:
            (self._folder / "has_terminal").touch()
        launch = {
            "streams": self._standard,
            "folder": self._working_folder,
            "command": [self.target.executable, *self.command],
            "environment": self._environment(),
        }
        (self._folder / "launch.json").write_text(json.dumps(launch))

    def _environment(self) -> dict[str, str]:
        """The user's, with what leads Python to our part; that part takes it out again."""
        environment = dict(os.environ)
        environment |= {f"TRACER_GDB_{name}": os.environ[name] for name in _OURS if name in os.environ}
        environment["PYTHONPATH"] = os.pathsep.join(
            filter(None, [str(_INFERIOR), environment.get("PYTHONPATH")])
        )
        environment["TRACER_GDB_SESSION"] = str(self._folder)
        if self.preloaded:
            before = environment.get("LD_PRELOAD")
            environment["LD_PRELOAD"] = ":".join(filter(None, [*map(str, self.preloaded), before]))
        return environment

    def _try(self, setting: str) -> None:
        try:
            self.mi.execute(setting)
        except GdbError:  # a setting that this gdb does not know is not needed by it
            pass


def _confuses_gdb(name: str) -> bool:
    """gdb has a Python of its own, which these variables would reach."""
    return name.startswith("PYTHON") or name == "LD_PRELOAD"
