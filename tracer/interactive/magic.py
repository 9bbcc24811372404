"""`%load_ext tracer`: the cell magic `%%tracer`."""

from __future__ import annotations

import asyncio
import os
import shlex
import tempfile
from argparse import ArgumentParser, BooleanOptionalAction
from typing import Any, NoReturn

from tracer.base.errors import RecordingError
from tracer.interactive.trace import Trace, load
from tracer.recording.options import options_of
from tracer.recording.recording import record

USAGE = "%%tracer [FILE.trace] [options of tracer record, e.g. --memory]"
_AWAITS = "%%tracer cannot record a cell that awaits: write `with tracer.record(FILE):` in the cell"


def load_ipython_extension(shell: Any) -> None:
    """IPython calls this for `%load_ext tracer`."""

    def tracer(line: str, cell: str) -> Trace | None:
        """Run the cell, record it, and return the trace: %%tracer [FILE.trace] [--memory ...].

        FILE is overwritten. The options are those of tracer record.
        """
        return _record(shell, line, cell)

    shell.register_magic_function(tracer, "cell", "tracer")


def _record(shell: Any, line: str, cell: str) -> Trace | None:
    from IPython.core.error import UsageError  # it fails the cell: those after it are not run without it

    try:
        options = vars(_parser().parse_args(shlex.split(line)))
        if _awaits_in_a_loop(shell, cell):
            raise RecordingError(_AWAITS)
        file = options.pop("file")
        with tempfile.TemporaryDirectory() as folder:
            path = file or os.path.join(folder, "cell.trace")
            with record(path, force=True, **options):
                result = _run(shell, line, cell)
            trace = load(path)
    except (RecordingError, ValueError) as error:
        raise UsageError(f"tracer: {error}") from None
    if result.success:
        return trace
    _fail(shell, result.error_before_exec or result.error_in_exec)
    return None


def _awaits_in_a_loop(shell: Any, cell: str) -> bool:
    """A kernel has a running loop, and run_cell can start no second one; in a terminal it starts its own."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return bool(shell.should_run_async(cell, transformed_cell=shell.transform_cell(cell)))


def _fail(shell: Any, error: BaseException) -> None:
    """The cell of the magic fails with this error, which IPython has shown: cells after it are not run."""

    def fail(result: Any) -> None:
        shell.events.unregister("post_run_cell", fail)
        result.error_in_exec = error

    shell.events.register("post_run_cell", fail)


def _run(shell: Any, line: str, cell: str) -> Any:
    """Runs the cell under its own number, with a line for that of the magic, so that lines have their names.

    IPython has counted further already: `In` has the cells that began.
    """
    before = shell.execution_count
    shell.execution_count = len(shell.user_ns["In"]) - 1
    try:
        return shell.run_cell(cell if cell.startswith("%%") else f"# %%tracer {line}\n{cell}")
    finally:
        shell.execution_count = before


class _Parser(ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise RecordingError(f"{message}; give {USAGE}")


def _parser() -> ArgumentParser:
    """Takes the options of tracer.record, as `tracer record` spells them; only those that are given."""
    parser = _Parser(add_help=False, allow_abbrev=False)
    parser.add_argument("file", nargs="?")
    for option in options_of("python"):
        default = [] if option.default == () else option.default  # `append` appends to it
        how: dict[str, Any] = {"type": type(default)}
        if isinstance(default, bool):
            how = {"action": BooleanOptionalAction}
        elif default in (None, []):
            how = {"action": "append"} if default == [] else {}
        parser.add_argument("--" + option.name.replace("_", "-"), default=default, **how)
    return parser
