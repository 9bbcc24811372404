// What of a tensor has no public function that is cheap enough, or that runs no Python.
#pragma once

#include <c10/core/TensorImpl.h>
#include <torch/csrc/autograd/variable.h>

#include <memory>

#include "private_member.h"

namespace tracer::torch_abi {

namespace layout {
TRACER_PRIVATE_MEMBER(AutogradState, c10::TensorImpl, std::unique_ptr<c10::AutogradMetaInterface>, autograd_meta_);
}

// TensorImpl::requires_grad() without calls into two libraries, but for views, which ask their base. The state is of this
// class, as all of autograd takes for granted (torch::autograd::impl::get_autograd_meta). Static, for g++ writes an inline
// function out in the signature of each tensor: 16 more instructions there.
[[maybe_unused]] static bool requires_grad(const c10::TensorImpl& tensor) {
  auto* state = static_cast<const torch::autograd::AutogradMeta*>((tensor.*member(layout::AutogradState{})).get());
  return state && (state->requires_grad_ || state->grad_fn_ || (state->is_view_ && state->requires_grad()));
}

// What of a tensor a Python subclass answers itself. The bits are protected, and torch's own functions run that Python.
struct AnsweredByPython : c10::TensorImpl {
  static const AnsweredByPython& of(const c10::TensorImpl& tensor) { return static_cast<const AnsweredByPython&>(tensor); }
  bool sizes() const { return python_custom_sizes_strides_ != 0; }
  bool device() const { return python_custom_device_; }
  bool layout() const { return python_custom_layout_; }
};

// The Python object of a tensor, which stays as long as the tensor does; nullptr of one that Python has not seen.
template <class Tensor>
PyObject* python_object(const Tensor& tensor) {
  if constexpr (requires { tensor.pyobj_slot()->load_pyobj(); })
    return tensor.pyobj_slot()->load_pyobj();
  else
    return tensor.pyobj_slot()->_unchecked_untagged_pyobj();
}

}  // namespace tracer::torch_abi
