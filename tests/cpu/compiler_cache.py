"""A cache of torch.compile's for one test, with no kernel in it."""

from __future__ import annotations

from pathlib import Path

from launching import Launcher
from stored import recorded_once

VARIABLE = "TORCHINDUCTOR_CACHE_DIR"


def use_cache(launcher: Launcher, folder: Path) -> None:
    """What the launcher runs has it in `folder`.

    A first compilation compiles six programs to ask what the processor and g++ can, which takes ten seconds:
    twice as long as the rest. These are copied from a cache that all tests share.
    """
    recorded_once(folder, _ask)
    launcher.environment[VARIABLE] = str(folder)


def _ask(launcher: Launcher) -> None:
    script = "from torch._inductor.cpu_vec_isa import pick_vec_isa\npick_vec_isa()"
    run = launcher.python("-c", script, extra={VARIABLE: str(launcher.folder)})
    assert (run.status, run.err) == (0, "")
