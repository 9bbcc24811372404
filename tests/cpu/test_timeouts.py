"""A handler of the program that raises, as one of a timeout does, while a recording begins or ends."""

from __future__ import annotations

from launching import Launcher

SCRIPT = """\
import signal, sys
import torch, tracer

class Timeout(Exception):
    pass

def timeout(*_):
    raise Timeout

def hook(event, arguments):
    global wanted
    if event == wanted and arguments[0] in (b"TRACER_JOIN", "TRACER_JOIN"):
        wanted = None
        signal.raise_signal(signal.SIGALRM)

wanted = None
signal.signal(signal.SIGALRM, timeout)
sys.addaudithook(hook)
for wanted in ("os.putenv", "os.unsetenv"):
    recording = tracer.record("timeout.trace", force=True)
    try:
        with recording:
            torch.ones(2).neg()
    except Timeout:
        assert wanted is None
        print("timeout", recording.summary.complete, recording.summary.op_calls)
    assert signal.getsignal(signal.SIGALRM) is timeout
    with tracer.record("next.trace", force=True) as after:
        torch.ones(2).sin()
    print("after", after.summary.complete, after.summary.op_calls)
"""


def test_a_recording_that_a_timeout_meets_ends(launcher: Launcher) -> None:
    launcher.write(SCRIPT)
    run = launcher.python("script.py")
    assert run.status == 0, run.err
    assert run.out == "timeout False 0\nafter True 4\ntimeout True 4\nafter True 4\n"
