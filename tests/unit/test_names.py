"""Names of kernel functions as a reader wants them."""

from __future__ import annotations

import io
import resource
import sys
import time

import pytest

from tracer.trace.names.demangle import DEMANGLER, demangle, kernel_name
from tracer.trace.names.kernels import implements, node_name, short_kernel_name

_SIGNATURE = "at::Tensor (c10::DispatchKeySet, at::Tensor const&, std::optional<long>)"
_REST = (
    "at::Tensor, c10::guts::typelist::typelist<c10::DispatchKeySet, at::Tensor const&> >, "
    f"{_SIGNATURE}>::call(c10::OperatorKernel*, c10::DispatchKeySet, at::Tensor const&)"
)


def unboxed(target: str) -> str:
    return (
        "c10::impl::wrap_kernel_functor_unboxed_<c10::impl::detail::WrapFunctionIntoFunctor_<"
        f"c10::CompileTimeFunctionPointer<{_SIGNATURE}, {target}>, {_REST}"
    )


def run_time(functor: str) -> str:
    return (
        "c10::impl::wrap_kernel_functor_unboxed_<c10::impl::detail::WrapFunctionIntoRuntimeFunctor_<"
        f"{functor}, {_REST}"
    )


def boxed(function: str) -> str:
    return (
        f"void c10::BoxedKernel::make_boxed_function<{function}>(c10::OperatorKernel*, "
        "c10::OperatorHandle const&, c10::DispatchKeySet, "
        "std::vector<c10::IValue, std::allocator<c10::IValue> >*)"
    )


def boxed_functor(functor: str) -> str:
    called = (
        "c10::OperatorKernel*, c10::OperatorHandle const&, c10::DispatchKeySet, std::vector<c10::IValue>*"
    )
    made_of = f"std::unique_ptr<{functor}, std::default_delete<{functor}> >"
    return f"c10::BoxedKernel::makeFromFunctor<{functor}>({made_of})::{{lambda({called})#1}}::_FUN({called})"


def stable(function: str) -> str:
    boxer = f"torch::stable::detail::boxer<torch::stable::Tensor (torch::stable::Tensor), {function}>"
    return f"{boxer}::boxed_fn(unsigned long*, unsigned long, unsigned long)"


@pytest.mark.parametrize(
    ("name", "short"),
    [
        (unboxed("&at::(anonymous namespace)::(anonymous namespace)::wrapper_CPU_mm"), "wrapper_CPU_mm"),
        (
            unboxed("&torch::autograd::VariableType::(anonymous namespace)::mm"),
            "torch::autograd::VariableType::mm",
        ),
        (
            unboxed("&torch::ADInplaceOrView::(anonymous namespace)::add_") + " [clone .cold]",
            "torch::ADInplaceOrView::add_",
        ),
        (
            unboxed("&(at::Tensor at::native::(anonymous namespace)::qcat<false>(at::Tensor const&, long))"),
            "at::native::qcat<false>",
        ),
        (unboxed("&(set__functionalize(at::Tensor&, at::Tensor const&))"), "set__functionalize"),
        (
            unboxed(
                "&(at::functorch::mm_generated_plumbing<at::Tensor (*)(at::Tensor const&), "
                "&at::functorch::mm_batch_rule>(at::Tensor const&))"
            ),
            "at::functorch::mm_generated_plumbing<at::functorch::mm_batch_rule>",
        ),
        (
            unboxed(
                "&at::autocast::WrapFunction_<(at::autocast::CastPolicy)0, (c10::DeviceType)0, "
                "at::Tensor (at::Tensor const&), &at::_ops::mm::call, "
                "c10::guts::typelist::typelist<at::Tensor const&> >::call"
            ),
            "at::autocast::WrapFunction_<(at::autocast::CastPolicy)0, (c10::DeviceType)0, "
            "at::_ops::mm::call>::call",
        ),
        (
            run_time(
                "at::native::TORCH_LIBRARY_IMPL_init_quantized_QuantizedCPU_1(torch::Library&)"
                "::{lambda(at::Tensor, long)#1}"
            ),
            "at::native::TORCH_LIBRARY_IMPL_init_quantized_QuantizedCPU_1::{lambda#1}",
        ),
        (
            run_time("at::Tensor (*)(c10::ArrayRef<at::Tensor>)"),
            "function pointer at::Tensor (*)(c10::ArrayRef<at::Tensor>)",
        ),
        (boxed("&(anonymous namespace)::pythonFallback"), "pythonFallback"),
        (boxed("&at::native::negationFallback"), "at::native::negationFallback"),
        (
            boxed(
                "&(void at::functorch::boxed_all_tensors_have_optional_bdim<3l, 2l>"
                "(c10::OperatorHandle const&, std::vector<c10::IValue, std::allocator<c10::IValue> >*))"
            ),
            "at::functorch::boxed_all_tensors_have_optional_bdim<3l, 2l>",
        ),
        (boxed_functor("shop::(anonymous namespace)::Negate"), "shop::Negate"),
        (boxed_functor("shop::Times<2>"), "shop::Times<2>"),
        (stable("&shop::(anonymous namespace)::zeroed"), "shop::zeroed"),
        (stable("&(shop::filled<2>(torch::stable::Tensor, double))"), "shop::filled<2>"),
        ("my::Functor::operator()(at::Tensor const&) const", "my::Functor::operator()"),
        ("std::vector<int>& my::f<int>(std::vector<int>&)", "my::f"),
        ("my::operator<<(std::ostream&, int)", "my::operator<<"),
        ("plain_c_function", "plain_c_function"),
        ("", ""),
        ("broken<(", "broken"),
    ],
)
def test_short_names(name: str, short: str) -> None:
    assert short_kernel_name(name) == short


def test_demangling() -> None:
    assert demangle("_ZN2at2mmERKNS_6TensorE") == "at::mm(at::Tensor const&)"
    assert demangle("_ZN2at") == "_ZN2at"
    assert demangle("mkl_sgemm") == "mkl_sgemm"


@pytest.mark.parametrize("slower", [1, 10])
def test_the_limit_of_demangling_is_of_work_not_of_time(slower: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow or emulated processor finds the same names: its seconds are as many more."""
    limits: dict[int, tuple[int, int]] = {}
    times = iter([0.1 * slower, 0.12 * slower])
    monkeypatch.setattr(time, "process_time", lambda: next(times))
    monkeypatch.setattr(resource, "setrlimit", limits.__setitem__)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))
    exec(DEMANGLER, {})
    assert limits[resource.RLIMIT_AS] == (1 << 29, 1 << 29)
    assert limits[resource.RLIMIT_CPU] == {1: (3, 3), 10: (22, 22)}[slower]


def test_fallbacks_say_so() -> None:
    symbol = "_ZN2at6native16negationFallbackEv"
    assert kernel_name(symbol, "backend fallback") == "fallback: at::native::negationFallback"
    assert kernel_name(symbol, "kernel") == "at::native::negationFallback"


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("torch::autograd::generated::MmBackward0", "MmBackward0"),
        ("torch::autograd::AccumulateGrad", "AccumulateGrad"),
        ("torch::autograd::PyNode DoubleBackward", "DoubleBackward"),
        ("MmBackward0", "MmBackward0"),
    ],
)
def test_node_names_are_those_that_python_shows(name: str, shown: str) -> None:
    assert node_name(name) == shown


IMPLEMENTED = {
    "aten::mm": ["wrapper_CPU_mm", "wrapper_CPU__mm", "wrapper_mm", "torch::autograd::VariableType::mm"],
    "aten::mm.out": [
        "wrapper_CPU_mm_out_out",
        "wrapper_CPU_out_mm_out",
        "torch::ADInplaceOrView::mm_out_out",
    ],
    "aten::_int_mm": ["wrapper_CPU___int_mm", "torch::autograd::VariableType::_int_mm"],
    "aten::add.Tensor": ["wrapper_CPU_add_Tensor", "wrapper_MkldnnCPU_Tensor_add"],
    "aten::sum.dim_IntList": ["wrapper_CPU_sum_dim_IntList", "torch::TraceType::sum_dim_IntList"],
    "aten::convolution": ["torch::autograd::VariableType::convolution"],
    "aten::_convolution": ["torch::autograd::VariableType::_convolution"],
}


@pytest.mark.parametrize("operator", IMPLEMENTED)
def test_a_generated_name_belongs_to_one_operator(operator: str) -> None:
    for owner, kernels in IMPLEMENTED.items():
        for kernel in kernels:
            assert implements(kernel, operator) == (owner == operator), kernel
