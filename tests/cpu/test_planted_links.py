"""A recording in a folder whose owner puts something else where its name was taken, until it begins."""

from __future__ import annotations

import os
import re

import pytest
from launching import Launcher

from tracer.trace.bytes import format as fmt

# The script stands for the owner of the folder, who has as long as `import torch` takes.
PLANTS = """\
import os
os.rename("run.trace", "kept")
{}
import torch
torch.ones(2).sin()
print("ran")
"""
LINK = 'os.symlink("theirs", "run.trace")'
HARD_LINK = 'os.link("theirs", "run.trace")'
FIFO = 'os.mkfifo("run.trace")'
NOT_BEGUN = re.compile(r"tracer: nothing is recorded: .*File exists.*\n")


@pytest.mark.parametrize(("planted", "text"), [(LINK, None), (LINK, ""), (HARD_LINK, ""), (FIFO, "")])
def test_a_name_that_was_taken(launcher: Launcher, planted: str, text: str | None) -> None:
    theirs = launcher.folder / "theirs"
    if text is not None:
        theirs.write_text(text)
    launcher.write(PLANTS.format(planted))
    run = launcher.record("-o", "run.trace", "script.py")
    assert (run.status, run.out) == (0, "ran\n")
    assert NOT_BEGUN.fullmatch(run.err), run.err
    assert (theirs.read_text() if theirs.exists() else None) == text


@pytest.mark.parametrize("planted", [LINK, HARD_LINK])
def test_force_replaces_no_other_file_than_it_looked_at(launcher: Launcher, planted: str) -> None:
    theirs = launcher.write("theirs", "theirs")
    (launcher.folder / "run.trace").write_bytes(fmt.MAGIC)
    launcher.write(PLANTS.format(planted))
    run = launcher.record("--force", "-o", "run.trace", "script.py")
    assert (run.status, run.out) == (0, "ran\n")
    assert "run.trace is not a trace, so --force does not overwrite it" in run.err
    assert theirs.read_text() == "theirs"
    assert os.listdir(launcher.folder).count("run.trace") == 1
