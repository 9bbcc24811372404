"""When the process that an invitation names has ended."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

from tracer.recording.invitation import lives

ASK = "from tracer.recording.invitation import this_process; print(this_process(), flush=True); input()"


def test_a_process_lives_until_it_ends_or_is_a_zombie(tmp_path: Path) -> None:
    path = str(tmp_path)
    child = subprocess.Popen([sys.executable, "-c", ASK], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdin is not None
    assert child.stdout is not None
    process = json.loads(child.stdout.readline())
    assert process[0] == child.pid
    assert lives(process, path)
    child.stdin.write(b"\n")
    child.stdin.close()
    child.stdout.close()
    while lives(process, path):  # nobody waits for it: what is left is a zombie
        time.sleep(0.01)
    child.wait()
    assert not lives(process, path)
