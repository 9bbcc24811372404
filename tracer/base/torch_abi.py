"""What tracer's Python part knows of torch beyond its public interface: the twin of csrc/torch_abi.

docs/versions.md has a table with a row for each of these: where it is used, what happens when a release
changes it, and which check sees that.
"""

from __future__ import annotations

import re

PRIVATE_FUNCTIONS = {
    "torch/_C/__init__.pyi": (
        "_current_graph_task_id",
        "_dispatch_dump",
        "_dispatch_dump_table",
        "_dispatch_get_all_op_names",
        "_dispatch_has_computed_kernel_for_dispatch_key",
        "_dispatch_has_kernel_for_dispatch_key",
        "_dispatch_is_alias_key",
        "_dispatch_is_included_in_alias",
        "_dispatch_key_name",
        "_dispatch_keyset_full",
        "_dispatch_keyset_to_string",
        "_dispatch_library",
        "_get_cudnn_allow_tf32",
        "_get_operation_overload",
        "_get_privateuse1_backend_name",
        "_get_schema",
        "_get_warnAlways",
        "_set_cudnn_allow_tf32",
        "_set_warnAlways",
    ),
    "torch/optim/optimizer.py": ("register_optimizer_step_post_hook",),
}
"""Functions that no documentation promises, and the file of the wheel that declares them"""

COMPILER_FUNCTIONS = {
    "torch._inductor.output_code": ("CompiledFxGraph.post_compile",),
    "torch._inductor.compile_fx": ("compile_fx",),
    "torch._inductor.debug": ("set_kernel_post_grad_provenance_tracing",),
    "torch._dynamo.output_graph": ("GraphCompileReason.__post_init__",),
    "torch._dynamo.guards": ("get_and_maybe_log_recompilation_reasons",),
    "torch._dynamo.utils": (
        "ChromiumEventLogger._log_timed_event",
        "ChromiumEventLogger.log_instant_event",
    ),
    "torch._inductor.runtime.triton_heuristics": ("CachingAutotuner.run", "CachingAutotuner.bench"),
    "triton.runtime.jit": ("JITFunction.run",),
    "triton.runtime.autotuner": ("Autotuner._bench",),
}
"""Functions of the compiler that a recording wraps, by module"""
COMPILER_FRAMES = "torch._dynamo.eval_frame"
"""The module with `skip_code`, which says that Dynamo does not compile a function"""

PROCESS_GROUPS_MODULE = "torch.distributed.distributed_c10d"
NEW_PROCESS_GROUP = "_new_process_group_helper"
"""Function that makes a process group; its third argument lists its ranks, and is empty for all of them"""

LOADERS_MODULE = "torch.utils.data.dataloader"
LOADER_BEGINS = "_get_distributed_settings"
"""Function without arguments that a new iterator of a data loader calls; its caller has `loader`"""

CAPTURES_MODULE = "torch.cuda.graphs"
CAPTURES = ("CUDAGraph.capture_begin", "CUDAGraph.capture_end")
"""Functions that a recording of some steps wraps: they begin and end the capture of a CUDA graph"""

# `_dispatch_dump_table`: a line a key. csrc/torch_abi/computed_table.cpp reads the same text.
TABLE_ENTRY = re.compile(
    r"(?P<key>\w+): (?P<fallthrough>fallthrough )?(?P<where>.*?)(?: \[(?P<rule>[^\]]*)\])?"
)
# `_dispatch_dump`: facts of the operator, and a line for each kernel that was registered.
REGISTRATION = re.compile(
    r"(?P<key>\w+)(?P<alias>\[alias\])?(?P<inactive> \(inactive\))?: (?P<where>.*) :: .* \[ (?P<flags>.*) \]"
)
OPERATOR_FACT = re.compile(r"(name|schema|debug|alias analysis kind): (?P<value>.*)")
REGISTERED_AT = "registered at "
OVERRIDING_WARNING = "(?s)Warning only once for all operators.*"
"""The dispatcher's warning that a kernel replaces another one"""

# Parts of mangled names in torch's libraries.
OPERATOR_CLASSES = b"_ZN2at4_ops"
OPERATOR_CLASS = re.compile(r"_ZN2at4_ops\d+(\w+?)4callE")
OPERATOR_FUNCTION = re.compile(r"_ZN2at4_ops\d+(\w+?)(?:4|10)(call|redispatch)E[^.]*$")
BOXED_CALLER, INVOKED = b"21createOperatorFromC10", "_M_invoke"
"""The function that torch.ops calls for every operator: a lambda, which holds the operator's handle"""
UNBOXED_WRAPPERS = b"28wrap_kernel_functor_unboxed_"
ANONYMOUS = "12_GLOBAL__N_1"
# The same names demangled.
UNBOXED_WRAPPER = "c10::impl::wrap_kernel_functor_unboxed_<"
BOXED_WRAPPER = "c10::impl::make_boxed_from_unboxed_functor<"
# Of each kind of file that torchgen writes, the namespace of its kernel functions, as shown and as mangled.
GENERATED_NAMESPACES = {
    "VariableType": ("torch::autograd::VariableType::", f"12VariableType{ANONYMOUS}"),
    "ADInplaceOrViewType": ("torch::ADInplaceOrView::", f"15ADInplaceOrView{ANONYMOUS}"),
    "TraceType": ("torch::TraceType::", f"9TraceType{ANONYMOUS}"),
    "RegisterFunctionalization": ("at::functionalization::", "17functionalization"),
}
