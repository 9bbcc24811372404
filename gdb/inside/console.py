"""gdb's own command line, which waits apart until the user's terminal is given to it.

gdb takes its first input and output for good: only there it edits lines, keeps a history, and passes the
terminal to the debugged script and back. So it is started on the terminal, and the machine interface is a
second one. Until the hand-over the command line reads from a pipe, so that nobody sees or types at it.
"""

import json
import os
import signal
import socket

import gdb

_terminal = []  # file descriptors of the user's terminal while it is set aside
_host = None


def set_aside(machine, machine_number, typed, host):
    """Opens the machine interface on the terminal `machine`, and lets the command line read from `typed`.

    `host`: the file descriptor of the socket on which the host answers.
    """
    global _host
    gdb.execute("new-ui mi3 " + machine, to_string=True)
    os.close(machine_number)  # it kept that terminal from hanging up before it was opened
    _host = socket.socket(fileno=host)
    _host.set_inheritable(False)
    _terminal.extend(os.dup(number) for number in (0, 1, 2))
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for source, number in ((typed, 0), (nowhere, 1), (nowhere, 2)):
        os.dup2(source, number)
    os.close(typed)
    os.close(nowhere)


def take(group):
    """Gives the terminal to the command line. `group`: the process group that the shell knows."""
    for number, kept in enumerate(_terminal):
        os.dup2(kept, number)
        os.close(kept)
    os.setpgid(0, group)  # so that Ctrl-Z stops all that the shell would continue
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTTOU})  # which a background group gets for this
    os.tcsetpgrp(0, group)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTTOU})
    gdb.execute(f"set width {os.get_terminal_size(0).columns}")
    gdb.prompt_hook = lambda _prompt: "(tracer) "
    gdb.execute("handle SIGTSTP stop print nopass", to_string=True)
    gdb.events.exited.connect(_end)


def _end(_event):
    """gdb has nothing to do after the script's end. One that gdb killed is not meant: gdb may be quitting."""
    if any(gdb.convenience_variable(name) is not None for name in ("_exitcode", "_exitsignal")):
        gdb.prompt_hook = lambda _prompt: ""
        gdb.post_event(lambda: gdb.execute("quit"))


def ask(question, **arguments):
    """What the host answers; raises gdb.GdbError with its complaint."""
    _host.sendall((json.dumps({"question": question, "arguments": arguments}) + "\n").encode())
    with _host.makefile("rb") as stream:
        line = stream.readline()
    answer = json.loads(line) if line else {"error": "tracer has ended, and only it knows the functions"}
    if "error" in answer:
        raise gdb.GdbError(answer["error"])
    return answer["answer"]
