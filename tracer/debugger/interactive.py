"""gdb on the user's terminal: at a stop the user types commands, also those of gdb/inside/commands.py."""

from __future__ import annotations

import json
import os
import signal
import socket
import termios
import threading
from typing import Any

from tracer.debugger import terminal
from tracer.debugger.console import Console
from tracer.debugger.debugger_errors import DebuggerError
from tracer.debugger.functions import Functions
from tracer.debugger.session import Session


def hand_over(session: Session) -> None:
    """Gives the user's terminal to gdb at the current stop; returns when gdb has ended.

    `session.interactive` must have been set before its start. At the script's end gdb ends too;
    where the user ends it before, `session.exit_status` stays None.
    """
    console = session.mi
    if not isinstance(console, Console):
        raise DebuggerError("this session is not interactive; start it with --interactive")
    folder = str(session.folder)
    console.execute(f"python import commands; commands.register(tracer_debugger, {folder!r})")
    threading.Thread(target=_serve, args=(session.functions, console.requests), daemon=True).start()
    as_it_was = termios.tcgetattr(0)
    before = signal.signal(signal.SIGINT, lambda *_: None)  # Ctrl-C is gdb's now
    try:
        console.type(f"server python console.take({os.getpgrp()}); commands.greet(tracer_debugger)")
        session.follow()
    finally:
        signal.signal(signal.SIGINT, before)
        terminal.take_back(0)
        termios.tcsetattr(0, termios.TCSADRAIN, as_it_was)


def _serve(functions: Functions, requests: socket.socket) -> None:
    """Answers what gdb's commands ask: a line of JSON each way, until gdb has ended."""
    with requests.makefile("rw") as stream:
        for line in stream:
            stream.write(json.dumps(_answer(functions, **json.loads(line))) + "\n")
            stream.flush()


def _answer(functions: Functions, question: str, arguments: dict[str, str]) -> dict[str, Any]:
    try:
        answer = functions.hops() if question == "hops" else _path(functions, **arguments)
        return {"answer": answer}
    except DebuggerError as error:
        return {"error": str(error)}


def _path(functions: Functions, operator: str) -> list[dict[str, object]]:
    """The points of an operator: where it is called and redispatched, and its kernel functions."""
    name = operator if operator.startswith("aten::") else f"aten::{operator}"
    if not functions.overloads(name):
        raise DebuggerError(f"no operator {name}{functions.near_names(name)}")
    return [point.described() for point in functions.points(name)]
