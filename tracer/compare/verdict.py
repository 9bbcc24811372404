"""What a comparison says in one sentence, and what was tried."""

from __future__ import annotations

from tracer.compare.cases import CPU
from tracer.compare.model import Comparison
from tracer.compare.roof import BYTES, Limit
from tracer.compare.spread import ratio_text
from tracer.compare.trial_samples import OF_SCRIPT
from tracer.compare.trials import Trials
from tracer.report.cells import prose, table, wrapped
from tracer.report.text import count

_MOST_WRONG = 40


def verdict(comparison: Comparison) -> str:
    """One sentence: what differs from stock, in how many calls that was looked for, and the speed."""
    cases = comparison.cases
    looked = [(sum(not case.passed for case in cases), count(len(cases), "case"))]
    said = [found(*looked, *_looked(comparison.trials)), *_cut(comparison.trials)]
    ran = [case for case in cases if case.ran]
    ended = [case for case in cases if case.broken and not case.checks]
    if len(ran) + len(ended) < len(cases):
        said.append(f"the override ran in {count(len(ran), 'case')}")
    if ratios := sorted(case.limited.ratio.value for case in ran if case.limited):
        middle = ratios[len(ratios) // 2]
        spread_of = f" ({ratio_text(ratios[0])} to {ratio_text(ratios[-1])})" if ratios[1:] else ""
        said.append(f"{ratio_text(middle)} times as fast as stock{spread_of}")
    return "; ".join([*said, *_too_fast(comparison)])


def found(*looked: tuple[int, str]) -> str:
    """`no difference found in 9 cases and 8 trials`, of how many are wrong and what was looked at."""
    if any(bad for bad, _ in looked):
        return f"WRONG in {' and '.join(f'{bad} of {made}' for bad, made in looked)}"
    return f"no difference found in {' and '.join(made for _, made in looked)}"


def of_trials(trials: Trials) -> str:
    """The verdict of trials alone; "" if none was made.

    `WRONG in 78 of 457 trials of 22 kinds (calls of the script: 0 of 11)`
    """
    if not trials.results:
        return ""
    own = [trial for trial in trials.results if trial.kind == OF_SCRIPT]
    bad = sum(bool(trial.wrong) for trial in own)
    among = f" ({OF_SCRIPT}: {bad} of {len(own)})" if trials.wrong and own else ""
    return "; ".join([found(*_looked(trials)) + among, *_cut(trials)])


def _cut(trials: Trials) -> list[str]:
    said = [f"{count(trials.cut, 'trial')} not made, as there was no time"] if trials.cut else []
    return [*said, f"none made after {trials.lost}: the GPU answered no more"] if trials.lost else said


def _looked(trials: Trials) -> list[tuple[int, str]]:
    kinds = f"{count(len(trials.results), 'trial')} of {count(len(trials.kinds), 'kind')}"
    return [(len(trials.wrong), kinds)] if trials.results else []


def _too_fast(comparison: Comparison) -> list[str]:
    """A warning of the case that is the farthest above what the device can do."""
    shares = [
        (100 * case.limit.ns / case.limited.override.median, number)
        for number, case in enumerate(comparison.cases, 1)
        if case.ran and case.limit and case.limited and case.limited.override.median
        if not is_no_bound(case.limit)
    ]
    most, number = max(shares, default=(0.0, 0))
    if round(most) <= 100:
        return []
    known = "what stock reached at its best" if comparison.device == CPU else "the device's limit"
    return [
        f"WARNING: {most:.0f} % of {known} in case {number}: it may not compute each call, or that is too low"
    ]


def trial_tables(trials: Trials) -> list[str]:
    """What was tried by kind, and what is wrong; nothing where no trial was made."""
    if not trials.results:
        return []
    rows = []
    for kind in trials.kinds:
        of = [trial for trial in trials.results if trial.kind == kind]
        figures = len(of), sum(t.ran for t in of), sum(t.refused for t in of), sum(bool(t.wrong) for t in of)
        rows.append([*map(str, figures), prose(kind)])
    rows += [["", "", "", "", f"{prose(kind)}: not tried, {prose(why)}"] for kind, why in trials.not_tried]
    text = (
        "Small calls, each with stock and with the override. What is compared: exceptions by their type, "
        "shapes, dtypes, strides, storage, aliasing and values of results, what became of the inputs, "
        "generators and settings, warnings, a second call. **refused**: stock raises, so the override must."
    )
    wrong = _same_together(trials)
    shown = table(["kind", "trial", "what is wrong"], wrong[:_MOST_WRONG])
    more = f"{count(len(wrong) - _MOST_WRONG, 'more row')}: `--json`." if len(wrong) > _MOST_WRONG else ""
    return [
        "## Trials",
        wrapped(text),
        table(["trials:", "override ran:", "refused:", "wrong:", "kind"], rows),
        *([shown] if wrong else []),
        more,
    ]


def _same_together(trials: Trials) -> list[list[str]]:
    """Trials of a kind that are wrong in the same words are one row, which names the first."""
    names: dict[tuple[str, str], list[str]] = {}
    for trial in trials.wrong:
        names.setdefault((trial.kind, trial.wrong), []).append(trial.name)
    return [
        [prose(kind), prose(first) + (f" and {count(len(rest), 'more trial')}" if rest else ""), prose(wrong)]
        for (kind, wrong), (first, *rest) in names.items()
    ]


def is_no_bound(limit: Limit) -> bool:
    """The inputs are the same in every call, so that they come from the L2 cache if they fit in."""
    return limit.by == BYTES and limit.in_cache
