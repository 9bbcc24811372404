"""Why a hop ran at its dispatch key, in about ten lines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tracer.analysis.why import Why
from tracer.report.text import registration

_WIDTH = 14
WITHOUT = "which keys the thread added and hid was not recorded; to record it: tracer record --why SCRIPT"


def why_lines(why: Why, shapes: str, line: str, names: Mapping[int, str]) -> Iterator[str]:
    """`shapes` are the inputs, `line` is the source line with its text, `names` those of the arguments."""
    hop, above = why.hop, why.above
    yield f"hop {hop['id']}: {hop['op']} [{hop['key'] or '?'}]{f'  {shapes}' if shapes else ''}"
    yield _line("line", line or "not known")
    if above is not None:
        yield _line(
            "called by", f"hop {above['id']}, the same op [{above['key']}]: it redispatched to lower keys"
        )
    yield from _arguments(why, names)
    if why.adds is None or why.hides is None:
        yield _line("thread", WITHOUT)
    else:
        yield _line("thread adds", ", ".join(why.adds) or "no key beside its defaults")
        yield _line("thread hides", ", ".join(map(_keys, why.hides)) or "no key beside its defaults")
        for key, reason in why.passed.items():
            yield _line("not", f"{key}: {reason}")
        bringers = _some([names.get(position, str(position)) for position in why.bringers])
        reasons = [f"brought by {bringers}"] * bool(bringers) + [why.brought] * bool(why.brought)
        yield _line("key", f"{hop['key']}: {'; '.join(reasons)}")
    yield _line("kernel", _kernel(why))
    if why.following[1:]:
        yield _line("next key", f"{why.following[1]}, if the kernel of {why.following[0]} redispatches")
    elif why.following:
        yield _line("next key", "none: this is the last one")


def _arguments(why: Why, names: Mapping[int, str]) -> Iterator[str]:
    """Arguments with the same keys are one line."""
    having: dict[str, list[str]] = {}
    for position, keys in why.arguments.items():
        having.setdefault(", ".join(keys), []).append(names.get(position, str(position)))
    for shared, positions in having.items():
        what = "argument" if len(positions) == 1 else "arguments"
        yield _line(what, f"{_some(positions)}: {shared or 'no keys (undefined)'}")


def _keys(group: str) -> str:
    """`all Autograd keys` for the group `Autograd...`."""
    return f"all {group.removesuffix('...')} keys" if group.endswith("...") else group


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:4]) + (", ..." if len(names) > 4 else "")


def _kernel(why: Why) -> str:
    hop = why.hop
    words = [hop["kernel"] or "not known"]
    if hop["registered_at"]:
        words.append(f"registered at {registration(hop['registered_at'])}")
    if hop["rule"]:
        words.append(str(hop["rule"]))
    if hop["override"]:
        words.append(f"override {hop['override']}")
    return "; ".join(words)


def _line(what: str, text: str) -> str:
    return f"  {what:<{_WIDTH}}{text}"
