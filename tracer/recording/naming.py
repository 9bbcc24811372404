"""Output files of recordings: names, numbers, and reservations."""

from __future__ import annotations

import errno
import os

from tracer.base.errors import RecordingError
from tracer.base.numerals import number_of

SUFFIX = ".trace"


def absolute(path: str | os.PathLike[str]) -> str:
    """The whole path. Raises RecordingError if the current folder was deleted, or is no text."""
    try:
        whole = os.path.abspath(path)
        whole.encode()  # the recorder takes nothing else
        return whole
    except UnicodeEncodeError:
        raise RecordingError(
            f"cannot write {whole!a}: the path is not UTF-8; give another one with -o"
        ) from None
    except FileNotFoundError:
        raise RecordingError(
            "the current folder was deleted; change to another one, or give -o a whole path"
        ) from None


def stem_of_script(script: str) -> str:
    """The name that traces of a script begin with: `runs/train.py` -> `train`."""
    name = os.path.basename(os.path.normpath(script)) if script else ""
    stem = name[:-3] if name.endswith((".py", ".pyw")) else name
    if stem in ("", ".", "..", "-", "-c", "-m", "/"):
        return "python"
    return "notebook" if stem in ("ipykernel_launcher", "colab_kernel_launcher") else stem


def numbered(path: str, number: int) -> str:
    """`runs/step.0002.trace` of `runs/step.trace` and 2."""
    stem = path[: -len(SUFFIX)] if path.endswith(SUFFIX) else path
    return f"{stem}.{number:04d}{SUFFIX}"


def reserve_numbered(folder: str, stem: str) -> str:
    """Make the empty file `stem.NNNN.trace`, one above the highest number there, and return its path.

    Two recordings that start at once get two names. Raises RecordingError if the folder cannot be
    written to.
    """
    number = 1 + max(_numbers(folder, stem), default=0)
    while True:
        path = os.path.join(folder, f"{stem}.{number:04d}{SUFFIX}")
        try:
            _create(path)
        except FileExistsError:
            number += 1
        else:
            return path


def reserve_free(path: str) -> str:
    """Make the empty file `path`, or if that exists the first free `PATH.NNNN.trace`; returns which.

    Raises RecordingError if neither can be written.
    """
    number, free = 1, path
    while True:
        try:
            _create(free)
        except FileExistsError:
            number += 1
            free = numbered(path, number)
        else:
            return free


def reserve(path: str, force: bool) -> bool:
    """Make the empty file `path`, which must not be there yet unless `force`.

    Returns whether a file was made: an existing one is left as it is until the recording really
    begins. Raises RecordingError if the file exists, or cannot be written.
    """
    try:
        _create(path)
    except FileExistsError:
        if os.path.isdir(path):
            raise RecordingError(f"{path} is a folder; give a file in it") from None
        if not force:
            raise RecordingError(
                f"{path} already exists; give another file or overwrite it (--force)"
            ) from None
        if not os.path.isfile(path):
            raise RecordingError(f"{path} is not a regular file; give another one") from None
        folder = os.path.dirname(os.path.realpath(path))
        if not os.access(path, os.W_OK) or not os.access(folder, os.W_OK):
            raise RecordingError(f"cannot overwrite {path}: permission denied; give another file") from None
        return False
    return True


def reserve_trace(path: str, force: bool) -> bool:
    """As reserve; what `force` replaces must be a trace or an empty file, and not where the script prints."""
    made = reserve(path, force)
    why = "" if made else _why_kept(path)
    if why:
        raise RecordingError(f"{path} {why}, so --force does not overwrite it; give another file")
    return made


def _why_kept(path: str) -> str:
    # Not at the top: this module is imported before the script runs.
    from tracer.base.boundary import open_regular
    from tracer.trace.bytes.format import MAGIC

    try:
        with open(path, "rb", buffering=0, opener=open_regular) as file:
            begin = file.read(len(MAGIC))
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    if name := stream_at(path):
        return f"is {name}"
    return "" if begin in (b"", MAGIC) else "is not a trace"


def stream_at(path: str | os.PathLike[str]) -> str:
    """`stdout` if the file at `path` is open as that; "" if it is no such stream."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            if os.path.samestat(os.fstat(number), os.stat(path)):
                return name
        except OSError:
            pass  # the stream is closed, or there is no file
    return ""


def remove_if_empty(path: str) -> None:
    """Remove a reserved file that nothing was written to."""
    try:
        if os.stat(path).st_size == 0:
            os.unlink(path)
    except OSError:
        pass


def _create(path: str) -> None:
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666))
    except FileExistsError:
        raise
    except OSError as error:
        folder = os.path.dirname(path) or "."
        if error.errno in (errno.ENOENT, errno.ENOTDIR) and not os.path.isdir(folder):
            raise RecordingError(
                f"cannot write {path}: folder {folder} does not exist; create it first"
            ) from None
        raise RecordingError(f"cannot write {path}: {error.strerror}; give another place with -o") from None


def _numbers(folder: str, stem: str) -> list[int]:
    try:
        names = os.listdir(folder)
    except OSError:
        return []  # creating the file will say what is wrong
    prefix = stem + "."
    middles = [
        name[len(prefix) : -len(SUFFIX)]
        for name in names
        if name.startswith(prefix) and name.endswith(SUFFIX)
    ]
    return [number for middle in middles if (number := number_of(middle)) is not None]
