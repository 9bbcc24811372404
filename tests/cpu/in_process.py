"""Runs a command of tracer that only reads traces in this process, as a shell would run it."""

from __future__ import annotations

import functools
import os
import sys
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO
from unittest import mock

import pytest
import typer.main
from forked import text

import tracer_startup

# Of the options of all commands, which are the same each time: as long as `tracer tree` of a small trace.
typer.main.get_command = functools.cache(typer.main.get_command)


def run(arguments: list[str], folder: Path, environment: dict[str, str], stdin: str) -> tuple[int, str, str]:
    """The exit status, stdout and stderr of `tracer ARGUMENTS`."""
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        given.write(stdin.encode())
        given.seek(0)
        with (
            _streams(given, out, err),
            mock.patch.dict(os.environ, environment, clear=True),
            pytest.MonkeyPatch.context() as here,
        ):
            here.chdir(folder)
            here.setattr(sys, "argv", ["tracer", *arguments])
            status = _status()
        return status, _written(out), _written(err)


def _status() -> int:
    try:
        tracer_startup.main()
    except SystemExit as asked:
        if isinstance(asked.code, str):
            print(asked.code, file=sys.stderr)
        return asked.code if isinstance(asked.code, int) else int(asked.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


@contextmanager
def _streams(*files: IO[bytes]) -> Iterator[None]:
    """Descriptors 0 to 2 are these files, and Python's streams are on them."""
    names = ("stdin", "stdout", "stderr")
    before = {name: getattr(sys, name) for name in (*names, *(f"__{name}__" for name in names))}
    for name in names[1:]:
        before[name].flush()
    descriptors = [os.dup(number) for number in range(3)]
    try:
        for number, (file, name) in enumerate(zip(files, names, strict=True)):
            os.dup2(file.fileno(), number)
            errors = "backslashreplace" if name == "stderr" else "strict"
            mode = "r" if name == "stdin" else "w"
            stream = open(number, mode, encoding="utf-8", errors=errors, closefd=False)  # noqa: SIM115
            setattr(sys, name, stream)
            setattr(sys, f"__{name}__", stream)
        yield
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        for name, stream in before.items():
            setattr(sys, name, stream)
        for number, descriptor in enumerate(descriptors):
            os.dup2(descriptor, number)
            os.close(descriptor)


def _written(file: IO[bytes]) -> str:
    file.seek(0)
    return text(file.read())
