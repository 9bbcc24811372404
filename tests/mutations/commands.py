"""Commands with a time limit that leave nothing running, however they end."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

_PATIENCE = 20  # seconds in which pytest ends what its tests have started


def run(
    command: Sequence[str], folder: Path, environment: Mapping[str, str], log: Path, seconds: float
) -> int | None:
    """The exit status; None if the command was stopped after `seconds`. Its output goes to `log`.

    An exception while it runs, such as KeyboardInterrupt, stops it too.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])  # until there is somebody to stop

    def receive_interrupts() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

    try:
        with log.open("wb") as output:
            # In a group of its own, so that Ctrl-C reaches it once and from here.
            process = subprocess.Popen(
                command,
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=receive_interrupts,
            )
    except BaseException:
        receive_interrupts()
        raise
    try:
        receive_interrupts()
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        return None
    finally:
        _stop(process)


def _stop(process: subprocess.Popen[bytes]) -> None:
    """pytest ends its tests' processes if it is interrupted; then whatever is left of the group is killed."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            pass
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()
