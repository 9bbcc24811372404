#include "functors.h"

#include <ATen/core/boxing/KernelFunction.h>
#include <torch/csrc/PyInterpreter.h>

#include <cstring>
#include <typeinfo>

namespace tracer::torch_abi {
namespace {

bool is_of_class(const c10::OperatorKernel* functor, const char* part_of_name) {
  return strstr(typeid(*functor).name(), part_of_name) != nullptr;
}

// What a functor has behind the members that all have.
template <class Members>
Members members_of(const c10::OperatorKernel* functor) {
  Members members;
  memcpy(&members, reinterpret_cast<const char*>(functor) + sizeof(c10::OperatorKernel), sizeof members);
  return members;
}

using FunctionHolder = c10::impl::detail::WrapFunctionIntoRuntimeFunctor_<void (*)(), void, c10::guts::typelist::typelist<>>;
static_assert(sizeof(FunctionHolder) == sizeof(c10::OperatorKernel) + sizeof(void*), "such a functor holds one pointer");

// torch::impl::dispatch::PythonKernelHolder begins with a c10::SafePyObject: the function, then its interpreter.
struct PythonKernelMembers {
  PyObject* function;
  c10::impl::PyInterpreter* interpreter;
};
static_assert(sizeof(c10::SafePyObject) == sizeof(PythonKernelMembers), "a Python object and its interpreter");

}  // namespace

bool is_stateless(const c10::OperatorKernel* functor) { return is_of_class(functor, "WrapFunctionIntoFunctor_"); }

// One of the stable ABI (STABLE_TORCH_LIBRARY_IMPL) holds the extension's function of TORCH_BOX.
void* held_function(const c10::OperatorKernel* functor) {
  bool holds = is_of_class(functor, "WrapFunctionIntoRuntimeFunctor_IPF") || is_of_class(functor, "StableIValueBoxedKernel");
  return holds ? members_of<void*>(functor) : nullptr;
}

bool is_python_kernel(const c10::OperatorKernel* functor) { return is_of_class(functor, "PythonKernelHolder"); }

PyObject* python_function(const c10::OperatorKernel* functor) {
  auto kernel = members_of<PythonKernelMembers>(functor);
  // Another layout shows in the second word.
  return kernel.interpreter == getPyInterpreter() ? kernel.function : nullptr;
}

}  // namespace tracer::torch_abi
