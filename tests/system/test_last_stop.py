"""A child of multiprocessing stops its recording when none of its threads can run an op any more."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """\
import atexit, multiprocessing, os, sys, threading, time
import multiprocessing.util as util
from tracer.recording.children import close_with_multiprocessing
class Recording:
    def __init__(self, name):
        self.name = name
        close_with_multiprocessing(self)
    def stop(self):
        say(self.name)
def say(what):
    os.write(1, f"{what} ".encode())
def ends():
    say("grandchild")
    os._exit(0)
def late(method):
    time.sleep(0.3)
    if method == "fork":  # this process flushes its streams before that
        process = multiprocessing.get_context(method).Process(target=ends)
        process.start()
        process.join()
    say("thread")
def work(method):
    atexit.register(say, "atexit")
    util.Finalize(None, say, ("finalizer",), exitpriority=-5)
    recordings.append(Recording("own"))  # as where the work imports torch
    threading.Thread(target=late, args=(method,)).start()
recordings = [Recording("stop"), Recording("another")]
if __name__ == "__main__":
    process = multiprocessing.get_context(sys.argv[1]).Process(target=work, args=(sys.argv[1],))
    process.start()
    process.join()
"""


STOPS = ["another", "own", "stop"]


@pytest.mark.parametrize(
    ("method", "said", "stops"),
    [
        ("fork", ["finalizer", "grandchild", "thread"], STOPS),
        ("forkserver", ["finalizer", "thread"], STOPS),
        ("spawn", ["finalizer", "thread", "atexit"], []),  # what atexit has stops it
    ],
)
def test_it_stops_behind_the_threads(tmp_path: Path, method: str, said: list[str], stops: list[str]) -> None:
    if sys.version_info >= (3, 13):
        said = [*said[1:], *([] if method == "spawn" else ["atexit"]), "finalizer"]
    (tmp_path / "script.py").write_text(SCRIPT)
    command = [sys.executable, "script.py", method]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    found = done.stdout.split()
    assert (found[: len(said)], sorted(found[len(said) :])) == (said, stops)
