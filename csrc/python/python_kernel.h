// Names of kernel functions that are written in Python.
#pragma once

#include <ATen/core/boxing/OperatorKernel.h>
#include <Python.h>

#include <string>

namespace tracer::python {

bool is_python_kernel(c10::OperatorKernel* functor);

// `module.qualname (file:line)` of the Python function in such a functor; leaked, never nullptr.
// The caller holds the GIL.
std::string* kernel_name(c10::OperatorKernel* functor);

}  // namespace tracer::python
