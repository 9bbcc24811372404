"""The file of a report: what is refused before the work, and how it is written."""

from __future__ import annotations

import os
from pathlib import Path

from tracer.cli.common import USAGE, fail


def check_output(output: Path, force: bool) -> None:
    """Ends the command where this file cannot be written, or is there and not to be overwritten."""
    if output.suffix.lower() in (".html", ".htm", ".pdf"):
        fail(f"{output}: a report is markdown; name a file that ends in .md", USAGE)
    if output.is_dir():
        fail(f"{output} is a folder; name a file in it", USAGE)
    if output.exists() and not force:
        fail(f"{output} exists; overwrite it with --force, or name another file", USAGE)
    if not output.parent.is_dir():
        fail(f"there is no folder {output.parent}; make it first", USAGE)
    if not os.access(output if output.exists() else output.parent, os.W_OK):
        fail(f"{output} cannot be written: permission denied", USAGE)


def write_output(output: Path, text: str) -> None:
    """Writes all or nothing, so that a full disk does not cost the report that was there."""
    partial = output.with_name(f".{output.name}.{os.getpid()}")
    try:
        partial.write_text(text, encoding="utf-8")
        partial.replace(output)
    except OSError as error:
        partial.unlink(missing_ok=True)
        fail(f"cannot write {output}: {error.strerror or error}")
