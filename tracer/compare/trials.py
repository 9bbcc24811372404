"""What an override must keep beside values: small calls with unusual inputs, judged by what stock returns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tracer.compare import reference
from tracer.compare.accuracy import check
from tracer.compare.bounds import Bound, bound_of
from tracer.compare.cases import STRICT, Case
from tracer.compare.kept import INPUT, TWICE, Inputs, same_bytes, shared_memory
from tracer.compare.switch import Switch
from tracer.compare.workload import precision, without_warnings

Make = Callable[[Any, str], "list[Any]"]
"""torch and the device -> the operands"""


@dataclass(frozen=True)
class Trial:
    """One call. `call` takes the operands that `make` gives and returns a tensor or several.

    exact   the float64 result and its scale by output; None: the bytes must be stock's
    """

    name: str
    operator: str
    make: Make
    call: Callable[..., Any]
    exact: Callable[..., Any] | None = None
    case: Case | None = None


@dataclass(frozen=True)
class TrialResult:
    """`wrong`: in a phrase, or "". `skipped`: stock itself raises. `ran`: it was not handed over to stock."""

    name: str
    wrong: str = ""
    skipped: bool = False
    ran: bool = False


def run_trials(family: str, switch: Switch) -> list[TrialResult]:
    """Every trial of a family whose operator the overrides have; of gru where they have any RNN."""
    names = {operator.partition(".")[0] for operator, _ in switch.operators}
    if any("gru" in name or "rnn" in name for name in names):
        names.add("aten::gru")
    with without_warnings():
        return [_tried(trial, switch) for trial in trials_of(family) if trial.operator in names]


def _tried(trial: Trial, switch: Switch) -> TrialResult:
    import torch

    def operands(seed: int) -> list[Any]:
        torch.manual_seed(seed)
        return trial.make(torch, switch.device)

    with precision(Case("mm", "mm", (), mode=STRICT)):
        try:
            stock = _tensors(trial.call(*operands(0)))
            exact = trial.exact(*operands(0)) if trial.exact else None
        except Exception:
            return TrialResult(trial.name, skipped=True)
        with switch.on():
            before = switch.counts()
            try:
                wrong = _judged(trial, operands, stock, exact)
            except (Exception, SystemExit) as error:
                wrong = (
                    f"it raised {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
                )
            ran, _ = switch.counts().since(before)
    return TrialResult(trial.name, wrong.rstrip(": "), ran=bool(ran))


def _judged(trial: Trial, operands: Callable[[int], list[Any]], stock: list[Any], exact: Any) -> str:
    """Runs the override: twice, with other values, while the first results are alive."""
    first = operands(0)
    inputs = Inputs(first)
    results = _tensors(trial.call(*first))
    if wrong := inputs.changed():
        return wrong
    if len(results) != len(stock):
        return f"it returns {len(results)} tensors, but stock {len(stock)}"
    for name, theirs, ours in zip(_names(len(stock)), stock, results, strict=True):
        if wrong := _form(theirs, ours, first) or _values(trial, name, theirs, ours, exact):
            return wrong
    kept = [result.detach().clone() for result in results]
    again = _tensors(trial.call(*operands(1)))
    for ours, copy, later in zip(results, kept, again, strict=True):
        if shared_memory(ours, [later]):
            return TWICE
        if not same_bytes(ours.detach(), copy):
            return "a later call changes an earlier result"
    return ""


def _form(stock: Any, override: Any, inputs: Sequence[Any]) -> str:
    """What a user of the result would notice before its values."""
    for name, theirs, ours in (
        ("shape", tuple(stock.shape), tuple(override.shape)),
        ("dtype", stock.dtype, override.dtype),
        ("device", stock.device, override.device),
        ("strides", stock.stride(), override.stride()),
        ("storage offset", stock.storage_offset(), override.storage_offset()),
        ("requires_grad", stock.requires_grad, override.requires_grad),
    ):
        if theirs != ours:
            return f"{name} {ours}, but stock has {theirs}"
    sizes = [tensor.untyped_storage().nbytes() for tensor in (stock, override)]
    if sizes[1] > sizes[0]:
        return f"the result is a part of {sizes[1]:,} bytes, but stock's has {sizes[0]:,}"
    return INPUT if shared_memory(override, inputs) else ""


def _values(trial: Trial, name: str, stock: Any, override: Any, exact: Any) -> str:
    if exact is None:
        return "" if same_bytes(stock.detach(), override.detach()) else "other values than stock's"
    wide, scale = exact[name]
    bound = bound_of(trial.case, name) if trial.case else Bound(relative=1e-5)
    found = check(name, bound, stock, override, wide, scale)
    return found.wrong


def _names(count: int) -> tuple[str, ...]:
    return ("result",) if count == 1 else ("output", "h_n")


def _tensors(result: Any) -> list[Any]:
    return list(result) if isinstance(result, (tuple, list)) else [result]


# What is tried


def trials_of(family: str) -> list[Trial]:
    """All trials of mm (and addmm), gru or cat."""
    return list({"mm": _products, "cat": _cats, "gru": _grus}[family]())


def _products() -> Iterator[Trial]:
    for name, case, make in _matrices():
        yield Trial(f"mm, {name}", "aten::mm", make, _mm, _exact_product if case else None, case)

        def with_bias(torch: Any, device: str, make: Make = make) -> list[Any]:
            a, b = make(torch, device)
            bias = torch.ones(b.shape[1], device=device).to(a.dtype)
            return [bias, a, b]

        yield Trial(
            f"addmm, {name}", "aten::addmm", with_bias, _addmm, _exact_product if case else None, case
        )


def _mm(a: Any, b: Any) -> Any:
    import torch

    return torch.mm(a, b)


def _addmm(bias: Any, a: Any, b: Any) -> Any:
    import torch

    return torch.addmm(bias, a, b)


def _exact_product(*operands: Any) -> dict[str, tuple[Any, Any]]:
    return {"result": reference.product(*operands)}


_M, _K, _N = 24, 32, 40


def _matrices() -> Iterator[tuple[str, Case | None, Make]]:
    """Name, case (for the bound; None: the bytes must be stock's) and the two matrices."""

    def of(dtype: str) -> Case:
        return Case("mm", "mm", ((_M, _K), (_K, _N)), dtype, mode=STRICT if dtype == "float32" else "")

    def random(torch: Any, device: str, *shape: int, dtype: str = "float32") -> Any:
        return torch.randn(shape, device=device).to(getattr(torch, dtype))

    def plain(dtype: str) -> Make:
        return lambda t, d: [random(t, d, _M, _K, dtype=dtype), random(t, d, _K, _N, dtype=dtype)]

    single = of("float32")
    for dtype in ("float32", "float64", "bfloat16", "float16"):
        yield dtype, of(dtype), plain(dtype)
    yield "transposed self", single, lambda t, d: [random(t, d, _K, _M).t(), random(t, d, _K, _N)]
    yield "transposed mat2", single, lambda t, d: [random(t, d, _M, _K), random(t, d, _N, _K).t()]
    yield "both transposed", single, lambda t, d: [random(t, d, _K, _M).t(), random(t, d, _N, _K).t()]
    yield (
        "every other row and column",
        single,
        lambda t, d: [random(t, d, 2 * _M, 2 * _K)[::2, ::2], random(t, d, 2 * _K, 2 * _N)[::2, ::2]],
    )
    yield (
        "a part of wider matrices",
        single,
        lambda t, d: [random(t, d, _M + 3, _K + 5)[3:, 5:], random(t, d, _K + 1, _N + 7)[1:, 7:]],
    )
    yield (
        "expanded self, of stride 0",
        single,
        lambda t, d: [random(t, d, 1, _K).expand(_M, _K), random(t, d, _K, _N)],
    )
    yield "one row", single, lambda t, d: [random(t, d, 1, _K), random(t, d, _K, _N)]
    yield "one column", single, lambda t, d: [random(t, d, _M, _K), random(t, d, _K, 1)]
    yield "no rows", single, lambda t, d: [random(t, d, 0, _K), random(t, d, _K, _N)]
    yield "no columns", single, lambda t, d: [random(t, d, _M, _K), random(t, d, _K, 0)]
    yield "nothing to add up", single, lambda t, d: [random(t, d, _M, 0), random(t, d, 0, _N)]
    for value in ("nan", "inf"):

        def with_value(torch: Any, device: str, value: str = value) -> list[Any]:
            a, b = random(torch, device, _M, _K), random(torch, device, _K, _N)
            a[3, 5], b[7, 2] = float(value), -float(value)
            return [a, b]

        yield f"{value} in both", single, with_value
    for dtype in ("int64", "int32", "uint8"):
        yield dtype, None, _integers(dtype)


def _integers(dtype: str) -> Make:
    def make(torch: Any, device: str) -> list[Any]:
        kind = getattr(torch, dtype)
        return [torch.randint(0, 9, shape, device=device, dtype=kind) for shape in ((_M, _K), (_K, _N))]

    return make


def _cats() -> Iterator[Trial]:
    def tensors(torch: Any, device: str, dtype: str = "float32") -> list[Any]:
        made = [torch.randn((6, 8, 4, 5), device=device) * 50 for _ in range(2)]
        return [tensor.to(getattr(torch, dtype)) for tensor in made]

    def trial(name: str, make: Make, dim: int = 1) -> Trial:
        return Trial(f"cat, {name}", "aten::cat", make, lambda *given: _cat(given, dim))

    def strange(torch: Any, device: str) -> list[Any]:
        left, right = tensors(torch, device)
        left[0, 0, 0, :3] = torch.tensor([float("nan"), float("inf"), -0.0])
        return [left, right]

    for dtype in (
        "float32",
        "float64",
        "bfloat16",
        "float16",
        "int64",
        "int32",
        "uint8",
        "bool",
        "complex64",
    ):
        yield trial(dtype, lambda t, d, dtype=dtype: tensors(t, d, dtype))  # type: ignore[misc]
    for dim in (0, 2, 3, -1):
        yield trial(f"dim {dim}", tensors, dim)
    yield trial("transposed", lambda t, d: [one.transpose(1, 3) for one in tensors(t, d)])
    yield trial(
        "channels last", lambda t, d: [one.to(memory_format=t.channels_last) for one in tensors(t, d)]
    )
    yield trial("every other row", lambda t, d: [one[::2] for one in tensors(t, d)])
    yield trial(
        "expanded, of stride 0", lambda t, d: [one[:, :1].expand(6, 8, 4, 5) for one in tensors(t, d)]
    )
    yield trial("one tensor", lambda t, d: tensors(t, d)[:1])
    yield trial("the same tensor twice", lambda t, d: tensors(t, d)[:1] * 2)
    yield trial("other sizes", lambda t, d: [tensors(t, d)[0], tensors(t, d)[1][:, :3]])
    yield trial("an empty one", lambda t, d: [tensors(t, d)[0], tensors(t, d)[1][:, :0]])
    yield trial("all empty", lambda t, d: [one[:0] for one in tensors(t, d)])
    yield trial("other dtypes", lambda t, d: [tensors(t, d)[0], tensors(t, d, "float64")[1]])
    yield trial("nan, inf and -0.0", strange)


def _cat(given: Sequence[Any], dim: int) -> Any:
    import torch

    return torch.cat(given, dim)


def _grus() -> Iterator[Trial]:
    case = Case("gru", "gru", ((5, 3, 8), (16,)), mode=STRICT)

    def operands(torch: Any, device: str, **options: Any) -> list[Any]:
        module = torch.nn.GRU(8, 16, **options).to(device)
        x = torch.randn((5, 3, 8), device=device)
        h = torch.randn((1, 3, 16), device=device) * 0.5
        weights = [weight.detach().clone() for _, weight in module.named_parameters()]
        return [x, h, *weights]

    def with_x(change: Callable[[Any, Any], Any]) -> Make:
        def make(torch: Any, device: str) -> list[Any]:
            x, *rest = operands(torch, device)
            return [change(torch, x), *rest]

        return make

    def call(x: Any, h: Any, *weights: Any) -> Any:
        import torch

        return torch._VF.gru(x, h, list(weights), bool(weights[2:]), 1, 0.0, False, False, False)

    def exact(x: Any, h: Any, *weights: Any) -> Any:
        names = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
        return reference.gru(dict(zip(names, weights, strict=False)), x, h, 1, False)

    def trial(name: str, make: Make) -> Trial:
        return Trial(f"gru, {name}", "aten::gru", make, call, exact, case)

    yield trial("float32", operands)
    yield trial("without bias", lambda t, d: operands(t, d, bias=False))
    yield trial("transposed input", with_x(lambda t, x: x.transpose(0, 1).contiguous().transpose(0, 1)))
    yield trial("every other feature", with_x(lambda t, x: x.repeat_interleave(2, -1)[..., ::2]))
    yield trial("one step", with_x(lambda t, x: x[:1]))
    yield trial(
        "nan in the input", with_x(lambda t, x: x.index_fill(0, t.tensor([3], device=x.device), float("nan")))
    )
