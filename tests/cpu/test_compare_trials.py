"""Trials of `tracer compare`: overrides that are right in every case and break what else stock keeps."""

from __future__ import annotations

import json
import os
import re
import signal
import time
import warnings
from collections.abc import Callable, Iterator

import pytest
from launching import Launcher
from lazily import torch

from tracer import overrides
from tracer.compare.several import implementations
from tracer.compare.switch import Switch
from tracer.compare.trial_runs import Missing, result_of
from tracer.compare.trial_samples import Sample
from tracer.compare.trial_stories import ON_A_GPU, ONCE, WAYS
from tracer.compare.trials import Trials, run_trials, trials_of
from tracer.compare.verdict import of_trials


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    before = torch._C._dispatch_dump_table("aten::mm")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # small products wait for each other's threads on a busy machine
    yield
    torch.set_num_threads(threads)
    for name in set(overrides.registered()) & {"tested", "other"}:
        overrides.unregister(name)
    assert torch._C._dispatch_dump_table("aten::mm") == before


def tried(function: Callable, operator: str = "aten::mm", *, quick: bool = True) -> Trials:
    overrides.register(operator, "CPU", function, name="tested")
    return run_trials(Switch(["tested"]), quick=quick)


def wrong(trials: Trials) -> dict[tuple[str, str], str]:
    return {(result.kind, result.name): result.wrong for result in trials.wrong}


def stock(self: torch.Tensor, mat2: torch.Tensor) -> torch.Tensor:
    return torch.mm(self, mat2)


def other_for_strided_self(self: torch.Tensor, mat2: torch.Tensor) -> torch.Tensor:
    if not self.is_contiguous():
        self = self.contiguous().flip(0)
    return torch.mm(self, mat2)


def transposed_strides(self: torch.Tensor, mat2: torch.Tensor) -> torch.Tensor:
    return torch.mm(mat2.t(), self.t()).t()


def part_of_a_buffer(self: torch.Tensor, mat2: torch.Tensor) -> torch.Tensor:
    result = torch.mm(self, mat2)
    buffer = torch.empty(result.numel() + 16, dtype=result.dtype)
    return buffer[: result.numel()].view(result.shape).copy_(result)


_BUFFERS: dict[tuple, torch.Tensor] = {}


def the_same_buffer(self: torch.Tensor, mat2: torch.Tensor) -> torch.Tensor:
    result = torch.mm(self, mat2)
    buffer = _BUFFERS.setdefault((result.shape, result.dtype), torch.empty_like(result))
    return buffer.copy_(result)


def requires_grad(self: torch.Tensor, mat2: torch.Tensor) -> torch.Tensor:
    return torch.mm(self, mat2).detach().requires_grad_(self.is_floating_point())


def other_for_integers(self: torch.Tensor, mat2: torch.Tensor) -> torch.Tensor:
    result = torch.mm(self, mat2)
    return result if self.is_floating_point() else result + 1


def other_for_empty(self: torch.Tensor, mat2: torch.Tensor) -> torch.Tensor:
    return (
        torch.ones(len(self), mat2.shape[1], dtype=self.dtype) if not self.shape[1] else torch.mm(self, mat2)
    )


def without_nan(self: torch.Tensor, mat2: torch.Tensor) -> torch.Tensor:
    clean = (lambda tensor: tensor.nan_to_num(0)) if self.is_floating_point() else (lambda tensor: tensor)
    return torch.mm(clean(self), clean(mat2))


def one_ulp_more(self: torch.Tensor, mat2: torch.Tensor) -> torch.Tensor:
    result = torch.mm(self, mat2)
    if self.dtype == torch.float32 and self.is_contiguous() and self.numel():
        self.view(torch.int32).view(-1)[0] += 1  # of the input, after it was used
    return result


def written_and_put_back(self: torch.Tensor, mat2: torch.Tensor) -> torch.Tensor:
    torch.autograd.graph.increment_version(self)  # as ops in place do above the override
    return torch.mm(self, mat2)


def raising(self: torch.Tensor, mat2: torch.Tensor) -> torch.Tensor:
    if self.stride() != (1, 1) and not self.is_contiguous():
        raise ValueError("contiguous tensors only\nand more")
    return torch.mm(self, mat2)


LAYOUTS, VALUES, DTYPES, SIZES = "layouts", "special values", "dtypes", "sizes"
USUAL = "usual calls", "mm, usual"
TRANSPOSED = LAYOUTS, "mm, transposed"


@pytest.mark.parametrize(
    ("function", "trial", "said"),
    [
        (other_for_strided_self, TRANSPOSED, "an element is"),
        (transposed_strides, USUAL, "strides (1, 24), but stock has (40, 1)"),
        (part_of_a_buffer, USUAL, "the result is a part of 3,904 bytes, but stock's has 3,840"),
        (the_same_buffer, USUAL, "two calls return the same memory"),
        (requires_grad, USUAL, "requires_grad True, but stock has False"),
        (other_for_integers, (DTYPES, "mm, int64"), "other values than stock's"),
        (other_for_empty, (SIZES, "mm, nothing to add up"), "an element is"),
        (without_nan, (VALUES, "mm, nan in it"), "other NaN or infinity than stock's"),
        (one_ulp_more, USUAL, "it changes input 0"),
        (written_and_put_back, USUAL, "it writes to input 0: its version counter rose"),
        (raising, TRANSPOSED, "it raised ValueError: contiguous tensors only"),
    ],
)
def test_each_wrong_override_is_found(function: Callable, trial: tuple[str, str], said: str) -> None:
    found = wrong(tried(function))
    assert found[trial].startswith(said), found


# Each is stock in all calls but those of one kind.
def differs_where_memory_is_shared(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    result = torch.mm(a, b)
    shared = a.numel() and a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()
    return result.neg_() if shared and result.is_floating_point() else result


def ignores_conjugates(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.mm(a.conj() if a.is_conj() else a, b)


def by_way_of_doubles(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    if a.dtype != torch.int64 or b.dtype != torch.int64:
        return torch.mm(a, b)
    return torch.mm(a.double(), b.double()).long()


def draws(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    torch.randint(9, (1,))
    return torch.mm(a, b)


def flushes(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    torch.set_flush_denormal(True)
    return torch.mm(a, b)


def cuts(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    if a.dim() == b.dim() == 2 and a.shape[1] > b.shape[0]:
        a = a[:, : b.shape[0]]
    return torch.mm(a, b)


def another_exception(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    if a.dim() != 2:
        raise TypeError("matrices only")
    return torch.mm(a, b)


_KNOWN: dict[tuple, tuple[torch.Tensor, torch.Tensor]] = {}


def remembers(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """By address and version, so that only a write that no version counts is missed."""
    key = (*((t.data_ptr(), t._version, t.shape, t.stride(), t.dtype) for t in (a, b)), a.device)
    if key not in _KNOWN:
        _KNOWN[key] = (torch.mm(a, b), a)
    return _KNOWN[key][0].clone()


_SCRATCH: dict[tuple, torch.Tensor] = {}


def not_for_two_threads(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    if a.dtype != torch.float32 or b.dtype != a.dtype or a.dim() != 2 or b.dim() != 2 or a.shape[1] != len(b):
        return torch.mm(a, b)
    scratch = _SCRATCH.setdefault((len(a), b.shape[1]), torch.empty(len(a), b.shape[1]))
    torch.mm(a, b, out=scratch)
    time.sleep(0.0002)  # another thread's turn
    return scratch.clone()


def of_the_default_dtype(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    result = torch.mm(a, b)
    return torch.empty(result.shape).copy_(result) if result.dtype == torch.float32 else result


def warns(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    if a.dtype == torch.float16:
        warnings.warn("slow for halves", stacklevel=1)
    return torch.mm(a, b)


@pytest.mark.parametrize(
    ("function", "kinds", "said"),
    [
        (other_for_strided_self, {LAYOUTS, "gradients", "gradcheck"}, "an element is"),
        (differs_where_memory_is_shared, {"shared memory"}, "an element is"),
        (ignores_conjugates, {LAYOUTS}, "an element is"),
        (by_way_of_doubles, {VALUES}, "other values than stock's"),
        (draws, {"usual calls", "errors"}, "it changes the generator of the CPU"),
        (flushes, {"usual calls"}, "it changes how denormal numbers are treated"),
        (cuts, {"errors"}, "it returned a result, but stock raises RuntimeError"),
        (another_exception, {"errors"}, "it raised TypeError, but stock raises RuntimeError"),
        (remembers, {"inputs changed in place"}, "the values of result after its inputs changed by another"),
        (not_for_two_threads, {"two threads"}, ""),
        (of_the_default_dtype, {"another default dtype"}, "dtype torch.float64, but stock has torch.float32"),
        (warns, {DTYPES}, "it warns: UserWarning: slow for halves"),
    ],
)
def test_a_difference_of_one_kind_is_found(function: Callable, kinds: set[str], said: str) -> None:
    found = tried(function).wrong
    assert kinds <= {result.kind for result in found}
    assert any(result.wrong.startswith(said) for result in found), found
    at_all = {"usual calls", *kinds} if "usual calls" in kinds else kinds
    assert ("usual calls" in {result.kind for result in found}) == ("usual calls" in at_all)


_KEPT: list[torch.Tensor] = []
_COUNT = [0]


def leaks(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    result = torch.mm(a, b)
    _KEPT.append(result.clone())
    return result


def wrong_in_a_late_call(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    _COUNT[0] += 1
    result = torch.mm(a, b)
    return result.neg_() if _COUNT[0] % 700 == 0 and result.is_floating_point() else result


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (leaks, "1,000 calls kept "),
        (wrong_in_a_late_call, "the same bits in all calls False, but stock True"),
    ],
)
def test_many_calls_find_what_one_does_not(function: Callable, said: str) -> None:
    found = wrong(tried(function, quick=False))
    _KEPT.clear()
    assert found["1,000 calls", "mm, usual"].startswith(said), found


@pytest.mark.parametrize(
    ("end", "said"),
    [
        (lambda: os.kill(os.getpid(), signal.SIGSEGV), "by signal 11 (Segmentation fault)"),
        (os.abort, "by signal 6 (Aborted)"),
        (lambda: os._exit(0), "with status 0"),
    ],
)
def test_an_override_that_ends_the_process_is_wrong_in_these_trials(end: Callable, said: str) -> None:
    def ends(self: torch.Tensor, mat2: torch.Tensor) -> torch.Tensor:
        if self.dtype == torch.int64 and self.shape == (0, 3):
            end()
        return torch.mm(self, mat2)

    def empty_integers() -> tuple[list[torch.Tensor], dict]:
        return [torch.ones(0, 3, dtype=torch.int64), torch.ones(3, 2, dtype=torch.int64)], {}

    overrides.register("aten::mm", "CPU", ends, name="tested")
    sample = Sample("calls of the script", "0x3, 3x2", empty_integers, torch.ops.aten.mm.default)
    trials = run_trials(Switch(["tested"]), quick=True, of_script={"aten::mm": [sample]})
    found = wrong(trials)
    assert set(found.values()) == {f"the override ended the process {said}"}
    assert ("calls of the script", "mm, 0x3, 3x2") in found
    assert len(trials.results) > 2 * len(found)


def test_what_there_was_no_time_for_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = tried(stock)
    overrides.unregister("tested")
    monkeypatch.setattr("tracer.compare.trials.QUICK_SECONDS", 0.2)
    trials = tried(stock)
    assert not whole.cut
    assert trials.cut > 50
    reasons = [why for _, why in trials.not_tried if "more than 0.2 seconds" in why]
    assert sum(int(why.split()[0]) for why in reasons) == trials.cut
    assert f"; {trials.cut} trials not made, as there was no time" in of_trials(trials)


def test_other_work_on_the_machine_takes_no_trial_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second by the clock of each call is not one of the processor."""
    monkeypatch.setattr("tracer.compare.trials.QUICK_SECONDS", 20.0)

    def waits(self: torch.Tensor, mat2: torch.Tensor) -> torch.Tensor:
        time.sleep(0.006)
        return torch.mm(self, mat2)

    assert tried(waits).cut == 0


def test_each_kind_of_each_usual_call_is_early() -> None:
    """A limit is an argument of the second usual call of clamp: the first has none."""
    trials = trials_of("aten::clamp", "cpu", Missing(), quick=False)
    place = next(n for n, one in enumerate(trials) if one.sample.name == "all arguments, nan in it")
    assert place < len(WAYS) + 40


def test_an_override_that_does_as_stock_differs_in_nothing() -> None:
    trials = tried(stock, quick=False)
    assert wrong(trials) == {}
    assert {result.kind for result in trials.results if result.ran} >= {
        *(WAYS.keys() - {"vmap"}),  # of mm it calls bmm
        *ONCE,
        "samples of torch",
        SIZES,
    }
    assert sum(result.refused for result in trials.results) > 20
    assert dict(trials.not_tried) == dict.fromkeys(ON_A_GPU, "the override is for the CPU")


def differs(function: Callable, operator: str) -> set[str]:
    found = tried(function, operator)
    overrides.unregister("tested")
    return {result.kind for result in found.wrong}


def test_other_operators_are_tried_too() -> None:
    def cat(tensors: list[torch.Tensor], dim: int = 0) -> torch.Tensor:
        return torch.cat(tensors, dim)

    def without_sign(tensors: list[torch.Tensor], dim: int = 0) -> torch.Tensor:
        result = torch.cat(tensors, dim)
        return result + 0.0 if result.is_floating_point() else result

    def of_the_first_dtype(tensors: list[torch.Tensor], dim: int = 0) -> torch.Tensor:
        return torch.cat(tensors, dim).to(tensors[0].dtype) if tensors else torch.cat(tensors, dim)

    assert differs(cat, "aten::cat") == set()
    assert differs(without_sign, "aten::cat") == {VALUES}
    assert DTYPES in differs(of_the_first_dtype, "aten::cat")
    # One that has no list of its own: by its schema.
    assert differs(lambda self, *rest, **named: torch.neg(self), "aten::neg") == set()
    assert {"usual calls"} <= differs(lambda self: torch.neg(self) + 1, "aten::neg")
    overrides.register(
        "aten::addmm", "CPU", lambda *given, **named: torch.addmm(*given, **named), name="tested"
    )
    switch = Switch(["tested"])
    trials = trials_of("aten::gru.input", "cpu", Missing(), quick=True)
    results = [result_of(trial, switch, "gru", bytearray(1))[0] for trial in trials]
    assert [result for result in results if result and result.wrong] == []  # gru itself is composite


def test_only_operators_of_the_override_are_tried() -> None:
    assert {result.name.partition(",")[0] for result in tried(stock).results} == {"mm"}


def test_a_trial_keeps_its_name_where_values_of_stock_are_unsettled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tracer.compare.trial_runs._unsettled", lambda *_: {"the values of result"})
    overrides.register("aten::mm", "CPU", stock, name="tested")
    (trial, *_) = trials_of("aten::mm", "cpu", Missing(), quick=True)
    result, _ = result_of(trial, Switch(["tested"]), "mm, usual", bytearray(1))
    assert result is not None
    assert (result.name, result.wrong) == ("mm, usual", "")


def test_overrides_of_one_operator_are_apart_and_others_together() -> None:
    overrides.register("aten::mm", "CPU", stock, name="tested")
    overrides.register("aten::mm", "CPU", requires_grad, name="other")
    assert implementations(["tested", "other"]) == [["tested"], ["other"]]
    overrides.unregister("other")
    overrides.register("aten::neg", "CPU", lambda self: torch.neg(self), name="other")
    assert implementations(["tested", "other"]) == [["tested", "other"]]


KERNELS = """\
import torch
from tracer.overrides import register

@register("aten::mm", "CPU", name="fine")
def fine(self, mat2):
    return torch.mm(self, mat2)

@register("aten::mm", "CPU", name="leaky")
def leaky(self, mat2):
    return torch.mm(self, mat2).detach().requires_grad_(self.is_floating_point())

@register("aten::mm", "CPU", name="crashes")
def crashes(self, mat2):
    import os
    if self.dtype == torch.float64:
        os.abort()
    return torch.mm(self, mat2)
"""


@pytest.fixture
def launcher(tmp_path) -> Launcher:
    made = Launcher(tmp_path)
    made.write(KERNELS, "kernels.py")
    return made


def compare(launcher: Launcher, *arguments: str):
    return launcher.run([str(launcher.tracer), "compare", *arguments])


def test_a_wrong_trial_ends_with_status_1_and_one_line(launcher: Launcher) -> None:
    run = compare(launcher, "mm", "--override", "kernels.py:leaky", "--quick", "--details", "0")
    assert run.status == 1
    said = r"tracer: wrong in (\d+) of (\d+) trials; mm, usual: requires_grad True, but stock has False\n"
    found = re.fullmatch(said, run.err)
    assert found, run.err
    text = " ".join(run.out.split())
    assert (
        f"**WRONG in 0 of 9 cases and {found[1]} of {found[2]} trials of 20 kinds; the override ran" in text
    )
    assert "## Trials" in run.out
    fine = compare(launcher, "mm", "--override", "kernels.py:fine", "--quick", "--json")
    assert (fine.status, fine.err) == (0, "")
    (comparison,) = json.loads(fine.out)["comparisons"]
    assert not any(result["wrong"] for result in comparison["trials"]["results"])
    assert ["samples of torch", "--quick"] in comparison["trials"]["not_tried"]


def test_a_case_in_which_the_override_ends_the_process_is_wrong(launcher: Launcher) -> None:
    run = compare(launcher, "mm", "--override", "kernels.py:crashes", "--quick", "--case", "64x64")
    assert run.status == 1
    said = "tracer: wrong in 1 of 3 cases; mm fp64 64x64 64x64: the override ended the process by signal 6"
    assert run.err.splitlines()[-1] == f"{said} (Aborted)"
    assert "**WRONG in 1 of 3 cases;" in run.out
    assert "**Wrong**: the override ended the process by signal 6" in run.out


def test_several_implementations_have_a_summary_and_a_picture(launcher: Launcher) -> None:
    both = (
        "--override",
        "kernels.py:fine",
        "--override",
        "kernels.py:leaky",
        "--quick",
        "--details",
        "0",
    )
    run = compare(launcher, "mm", *both, "-o", "mm.md")
    assert run.status == 1
    assert "leaky: wrong in " in run.err
    text = (launcher.folder / "mm.md").read_text()
    assert text.startswith("# tracer compare mm: stock beside `fine`, `leaky`\n")
    assert "- `fine`: no difference found in 9 cases and" in text
    assert "- `leaky`: WRONG in 0 of 9 cases and" in text
    assert text.count("\n# tracer compare mm: stock beside") == 2
    assert "mm.ratios.svg" in text
    picture = (launcher.folder / "mm.ratios.svg").read_text()
    assert "fine" in picture
    assert "leaky" in picture


SCRIPT = """\
import sys, torch
print("before")
print((torch.ones(2, 3) @ torch.ones(3, 2)).requires_grad)
"""


def test_a_script_that_writes_otherwise_ends_with_status_1(launcher: Launcher) -> None:
    launcher.write(SCRIPT, "train.py")
    run = compare(launcher, "--override", "kernels.py:leaky", "--quick", "--repeats", "2", "train.py")
    assert run.status == 1
    assert re.fullmatch(r"tracer: wrong in .*; stdout differs from stock's: 'False' became 'True'\n", run.err)
    assert compare(launcher, "--override", "kernels.py:fine", "--quick", "train.py").status == 0


def test_a_script_that_never_writes_the_same_is_not_judged(launcher: Launcher) -> None:
    launcher.write(SCRIPT + "import time\nprint(time.time_ns())\n", "train.py")
    run = compare(launcher, "--override", "kernels.py:fine", "--quick", "--repeats", "2", "train.py")
    assert (run.status, run.err) == (0, "")
    assert "It differs between runs of stock, too." in run.out
