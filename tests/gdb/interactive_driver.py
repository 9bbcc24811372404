"""Starts an interactive session: interactive_driver.py SPEC SCRIPT, halting where SPEC is first called."""

import os
import sys

from tracer.debugger import program, target
from tracer.debugger.interactive import hand_over
from tracer.debugger.session import Session

spec, *command = sys.argv[1:]
with Session(command, target.look(sys.executable), program.find()) as session:
    session.interactive = True
    session.start()
    points = [point for point in session.functions.points(spec) if point.kind in ("call", "function")]
    session.add(spec, points, halt=True, at=1)
    if session.run():
        hand_over(session)
    print(f"foreground: {os.tcgetpgrp(0) == os.getpgrp()}, exit status: {session.exit_status}", flush=True)
