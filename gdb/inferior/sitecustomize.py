"""Prepares a debugged Python process; runs in it before the script, which stays Python's own to run.

Python imports this file by its name when it starts, since its folder is first in PYTHONPATH. It
leaves the environment as the user made it, waits for the script's `import torch`, measures the
layouts that gdb needs, and raises SIGTRAP: from there on gdb sets its breakpoints. Standard library
only, Python 3.7 or newer.
"""

import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))


def _restore_environment():
    """Gives the script the variables it would have had; returns the folder of the session."""
    folder = os.environ.pop("TRACER_GDB_SESSION")
    for name in ("PYTHONPATH", "LD_PRELOAD"):
        before = os.environ.pop("TRACER_GDB_" + name, None)
        if before is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = before
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != _HERE]
    return folder


def _run_hidden_sitecustomize():
    """The environment may have its own sitecustomize, which this one hid."""
    this = sys.modules.pop("sitecustomize")
    try:
        import sitecustomize  # noqa: F401
    except ImportError:
        sys.modules["sitecustomize"] = this  # where the import that runs this file looks for it


def _take_terminal():
    """gdb runs the script in a process group of its own, which must be the terminal's to read from it."""
    import signal

    # a background group that takes the terminal gets SIGTTOU
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTTOU})
    try:
        os.tcsetpgrp(0, os.getpgrp())
    except OSError:  # no terminal of this session
        pass
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTTOU})


def _load(path):
    from importlib.util import module_from_spec, spec_from_file_location

    spec = spec_from_file_location("_tracer_gdb_" + os.path.basename(path)[:-3], path)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _measure_and_trap(folder):
    """Writes what gdb needs to know, and hands over to it."""
    import json
    import signal
    import threading

    facts = {}
    for name in ("tensor_layout", "python_layout", "schemas", "dispatch_table"):
        try:
            facts[name] = _load(os.path.join(_HERE, name + ".py")).measure()
        except Exception as error:
            facts[name] = {"error": "{}: {}".format(type(error).__name__, error)}
    path = os.path.join(folder, "facts.json")
    with open(path + ".part", "w") as file:
        json.dump(facts, file)
    os.rename(path + ".part", path)
    signal.pthread_kill(threading.get_ident(), signal.SIGTRAP)


if "TRACER_GDB_SESSION" in os.environ:
    _session = _restore_environment()
    if os.path.exists(os.path.join(_session, "has_terminal")):
        _take_terminal()
    _run_hidden_sitecustomize()
    with open(os.path.join(_session, "import_hook")) as _file:
        _hook = _load(_file.read())
    _hook.TorchImportHook(lambda: _measure_and_trap(_session)).install()
