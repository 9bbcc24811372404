// Names of kernel functions that are written in Python.
#pragma once

#include <ATen/core/boxing/OperatorKernel.h>
#include <Python.h>

#include <string>

namespace tracer::python {

// `module.qualname (file:line)` of the Python function in a functor (torch_abi::is_python_kernel); leaked, never nullptr.
// The caller holds the GIL.
std::string* kernel_name(c10::OperatorKernel* functor);

// The same of the function that the user gave torch.library.custom_op, which kernel_name does not know yet when the functor is
// registered; nullptr where the functor is of nothing like that. `disabled`: of the one that runs while this one is disabled.
std::string* name_of_custom_op(c10::OperatorKernel* functor, bool disabled);

// Which devices of a custom operator are disabled (CustomOpDef.set_kernel_enabled), and the device of one of its kernels.
// torch asks at each call. The objects are kept for ever.
class KernelSwitch {
 public:
  // With the GIL; nullptr where the functor is of no custom operator.
  static KernelSwitch* of(c10::OperatorKernel* functor);
  // Whether the kernel is disabled now. Takes the GIL only if some device is.
  bool is_off() const;

 private:
  KernelSwitch(PyObject* disabled, PyObject* device) : disabled_(disabled), device_(device) {}
  PyObject *disabled_, *device_;
};

// The same of the __torch_dispatch__ of a class, named after that class: `module.Class.__torch_dispatch__ (file:line)`. Of the
// user's code nothing runs.
std::string* name_of_torch_dispatch(PyTypeObject* type);

}  // namespace tracer::python
