"""Ways in which scripts end, and what they do that a recorder could disturb."""

from __future__ import annotations

import ast

from case import SCRIPTS, Case
from rows import SkippedError, row


def functions(script: str) -> dict[str, tuple[str, str]]:
    """(script, function) of each function without arguments in one of scripts/."""
    found = [
        node for node in ast.parse((SCRIPTS / script).read_text()).body if isinstance(node, ast.FunctionDef)
    ]
    names = [node.name for node in found if not node.args.args and not node.name.startswith("_")]
    return {name.replace("_", " "): (script, name) for name in names}


# What tracer says at the end is lost where the script has left its root or its rights.
SAY_LESS = ("changes_its_root", "changes_its_user")


def _same(case: Case, variant: tuple[str, str]) -> None:
    script, function = variant
    case.script("common.py")
    plain, traced = case.both(case.script(script), function)
    if function in SAY_LESS and "PermissionError" in plain.err:
        raise SkippedError("changing the root and the user needs root")
    assert (traced.status, traced.out) == (plain.status, plain.out), traced.err
    if function not in SAY_LESS:
        assert traced.own_err.splitlines() == plain.err.splitlines()
    assert case.left_over("both.trace", "common.py", script, "jail") == []
    certificate = case.trace("both.trace").certificate
    assert certificate["complete"] is certificate["verdict"].startswith("complete"), certificate["verdict"]
    assert certificate["damaged_chunks"] == certificate["undefined_hops"] == 0


@row(
    "ways to end",
    "Exit status, stdout and stderr are those without tracer; the trace is read.",
    functions("ends.py"),
)
def ways_to_end(case: Case, variant: tuple[str, str]) -> None:
    _same(case, variant)


@row(
    "what scripts do",
    "Exit status and output are those without tracer; the trace is read.",
    functions("does.py"),
)
def what_scripts_do(case: Case, variant: tuple[str, str]) -> None:
    _same(case, variant)
