// Names of kernel functions that are written in Python.
#pragma once

#include <ATen/core/boxing/OperatorKernel.h>
#include <Python.h>

#include <string>

namespace tracer::python {

// `module.qualname (file:line)` of the Python function in a functor (torch_abi::is_python_kernel); leaked, never nullptr.
// The caller holds the GIL.
std::string* kernel_name(c10::OperatorKernel* functor);

}  // namespace tracer::python
