// Functors of kernel functions: which class they are of, and what they hold.
#pragma once

#include <ATen/core/boxing/OperatorKernel.h>

#include "python_types.h"

namespace tracer::torch_abi {

// The first word of an object with virtual functions says which class it is of; it does not change while the object lives.
inline const void* vtable_of(const c10::OperatorKernel* functor) { return *reinterpret_cast<const void* const*>(functor); }

// Whether the functor has no state, and so ignores its `this`.
bool is_stateless(const c10::OperatorKernel* functor);
// The function pointer that a functor holds; nullptr if it is of a class that holds none.
void* held_function(const c10::OperatorKernel* functor);
// Whether the kernel function is Python.
bool is_python_kernel(const c10::OperatorKernel* functor);
// Its Python function, borrowed; nullptr if this torch keeps it in another way.
PyObject* python_function(const c10::OperatorKernel* functor);

}  // namespace tracer::torch_abi
