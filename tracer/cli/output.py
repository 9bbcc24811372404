"""Where a report goes: a file, checked before the work begins and written all or nothing; or stdout."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tracer.base.boundary import new_beside
from tracer.cli.common import USAGE, fail, say, writing

if TYPE_CHECKING:
    from tracer.report.svg.picture import Pictures

HTML = (".html", ".htm")


def check_output(output: Path, force: bool, *, html: bool | None = None) -> None:
    """Ends the command if this file cannot be written, or exists and may not be overwritten.

    `html`: an HTML page is written, not markdown; None: the command has no page.
    """
    if not html and output.suffix.lower() in (*HTML, ".pdf"):
        kinds = ("markdown", ".md") if html is None else ("markdown or HTML", ".md or .html")
        fail(f"{output}: a report is {kinds[0]}; give a file that ends in {kinds[1]}", USAGE)
    check_place(output, force)


def check_place(output: Path, force: bool, trace: Path | None = None, *, folder: bool = False) -> None:
    """Ends the command if `output` cannot be written there, or is the trace itself.

    `folder`: a folder is written.
    """
    from tracer.recording.naming import stream_at

    if output.is_dir() and not folder:
        fail(f"{output} is a folder; give a file in it", USAGE)
    if trace is not None and output.exists() and output.samefile(trace):
        fail(f"{output} is the trace itself; give another file", USAGE)
    if output.exists() and not output.is_dir() and not output.is_file():
        fail(f"{output} is not a regular file; give another one", USAGE)
    if name := stream_at(output):
        fail(f"{output} is {name}; give another file", USAGE)
    if output.exists() and not force:
        fail(f"{output} exists; overwrite it with --force, or give another file", USAGE)
    if not output.parent.is_dir():
        fail(f"folder {output.parent} does not exist; create it first", USAGE)
    replaced = output.parent if trace is not None or not output.exists() else output
    if not os.access(replaced, os.W_OK):
        fail(f"cannot write {output}: permission denied", USAGE)


def check_svg(output: Path, force: bool) -> None:
    """As check_output, of a picture."""
    if output.suffix.lower() != ".svg":
        fail(f"{output}: a picture is SVG; give a file that ends in .svg", USAGE)
    check_place(output, force)


def write_pictures(output: Path, pictures: Pictures) -> None:
    """Writes the pictures of a report beside it, and says so; those of an older report are replaced."""
    for name, svg in pictures.made.items():
        write_output(output.with_name(name), svg)
    if pictures.made:
        say(f"pictures beside it: {', '.join(pictures.made)}")


def write_output(output: Path, text: str) -> None:
    """Writes all or nothing: if the disk is full, the old report survives. Markdown fits GitHub's page."""
    if output.suffix.lower() == ".md":
        from tracer.report.github import for_github

        text = for_github(text)
    partial = None
    try:
        descriptor, partial = new_beside(output)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        partial.replace(output)
    except OSError as error:
        if partial is not None:
            partial.unlink(missing_ok=True)
        fail(f"cannot write {output}: {error.strerror or error}")


def print_report(markdown: str) -> None:
    """Prints it: on a terminal in lines that fit, else as it is."""
    with writing():
        print(for_stdout(markdown), end="")


def for_stdout(markdown: str) -> str:
    """`markdown`, fitted to the terminal if stdout is one."""
    if not sys.stdout.isatty():
        return markdown
    from tracer.report.fitted import fitted

    return fitted(markdown, shutil.get_terminal_size().columns)
