// cat, with its out variant.
#include <ATen/core/IListRef.h>
#include <ATen/ops/empty.h>

#include "../kernels/cat.h"
#include "../kernels/device.h"
#include "../measured_tables.h"
#include "torch_device.h"

namespace tracer::overrides {

namespace {

using at::ITensorListRef;
using at::Tensor;
using c10::DispatchKeySet;

struct Request {
  Cat cat{};
  c10::SmallVector<int64_t, 6> sizes;  // of the result
};

// 1-D tensors without elements are left out, whatever the others' sizes: so cat has always done.
bool is_left_out(const Tensor& tensor) { return tensor.dim() == 1 && tensor.size(0) == 0; }

// The distance between one run and the next, in elements, where a tensor is rows of contiguous runs: dimensions from `dim`
// on lie together, and those before it are one dimension. False: it is not.
bool rows_of(const Tensor& tensor, int64_t dim, int64_t run, int64_t& pitch) {
  int64_t expected = 1;
  for (int64_t i = tensor.dim() - 1; i >= dim; --i) {
    if (tensor.size(i) != 1 && tensor.stride(i) != expected) return false;
    expected *= tensor.size(i);
  }
  pitch = run;
  int64_t next = -1;
  for (int64_t i = dim - 1; i >= 0; --i) {
    if (tensor.size(i) == 1) continue;
    if (next < 0)
      pitch = tensor.stride(i);
    else if (tensor.stride(i) != next)
      return false;
    next = tensor.stride(i) * tensor.size(i);
  }
  return true;
}

// The pieces of the result; or why the kernel does not take it.
const char* describe(const at::MaterializedITensorListRef& tensors, int64_t dim, Request& request) {
  const Tensor* first = nullptr;
  for (const Tensor& tensor : tensors) {
    if (has_names(tensor)) return "named dimensions";
    if (!first && !is_left_out(tensor)) first = &tensor;
  }
  if (!first) return "no elements";
  if (first->dim() == 0) return "sizes that stock refuses";
  if (dim < -first->dim() || dim >= first->dim()) return "sizes that stock refuses";
  if (dim < 0) dim += first->dim();
  if (!first->device().is_cuda()) return "tensors of several devices";
  request.sizes.assign(first->sizes().begin(), first->sizes().end());
  request.sizes[size_t(dim)] = 0;
  int64_t after = int64_t(first->element_size());
  for (int64_t i = dim + 1; i < first->dim(); ++i) after *= first->size(i);
  Cat& cat = request.cat;
  cat.rows = 1;
  for (int64_t i = 0; i < dim; ++i) cat.rows *= first->size(i);
  int64_t taken = 0;
  for (const Tensor& tensor : tensors) {
    if (tensor.scalar_type() != first->scalar_type()) return "mixed dtypes";
    if (tensor.device() != first->device()) return "tensors of several devices";
    if (tensor.layout() != at::kStrided) return "a layout other than strided";
    if (is_left_out(tensor)) continue;
    if (tensor.dim() != first->dim()) return "sizes that stock refuses";
    for (int64_t i = 0; i < tensor.dim(); ++i)
      if (i != dim && tensor.size(i) != first->size(i)) return "sizes that stock refuses";
    if (tensor.suggest_memory_format() != at::MemoryFormat::Contiguous) return "channels-last memory";
    ++taken;
    request.sizes[size_t(dim)] += tensor.size(dim);
    const int64_t bytes = tensor.size(dim) * after;
    if (bytes == 0 || cat.rows == 0) continue;
    if (cat.pieces == kMostPieces) return "more than 64 tensors";
    int64_t pitch;
    if (!rows_of(tensor, dim, bytes / tensor.element_size(), pitch)) return "tensors that are not rows of contiguous runs";
    cat.from[cat.pieces] = static_cast<const char*>(tensor.const_data_ptr());
    cat.pitch[cat.pieces] = pitch * tensor.element_size();
    cat.bytes[cat.pieces++] = bytes;
  }
  if (taken == 1) return "one tensor";
  if (cat.pieces == 0) return "no elements";
  return nullptr;
}

const char* describe_out(const Tensor& out, const at::MaterializedITensorListRef& tensors, const Request& request) {
  for (const Tensor& tensor : tensors) {
    if (tensor.device() != out.device()) return "tensors of several devices";
    if (tensor.scalar_type() != out.scalar_type()) return "mixed dtypes";
    if (tensor.storage().is_alias_of(out.storage())) return "out shares memory with an input";
  }
  if (out.layout() != at::kStrided || has_names(out)) return "a layout other than strided";
  if (out.sizes() != at::IntArrayRef(request.sizes)) return "out of another size";
  return out.is_contiguous() ? nullptr : "out that is not contiguous";
}

const char* why_stock(const Cat& cat, int device) {
  int64_t bytes = 0;
  for (int i = 0; i < cat.pieces; ++i) bytes += cat.bytes[i];
  bytes *= cat.rows;
  return measured_cat.why_stock(device, [&, aligned = is_aligned(cat)](const MeasuredCat& row) {
    return row.aligned == aligned && row.tensors.holds(cat.pieces) && row.bytes.holds(bytes);
  });
}

// Asked last: the result's address counts for what was measured, and torch allocates multiples of 512 bytes.
const char* choose(const Cat& cat, bool forced, int device) {
  if (!architecture_for(device_of(device).capability)) return "a GPU that the kernels were not built for";
  return forced ? nullptr : why_stock(cat, device);
}

Tensor cat(DispatchKeySet keys, const ITensorListRef& tensors, int64_t dim);
Tensor& cat_out(DispatchKeySet keys, const ITensorListRef& tensors, int64_t dim, Tensor& out);

TypedOperator<Tensor(const ITensorListRef&, int64_t)> cat_operator("aten::cat", [](torch::Library& m) { m.impl("cat", TORCH_FN(cat)); });
TypedOperator<Tensor&(const ITensorListRef&, int64_t, Tensor&)> cat_out_operator("aten::cat.out", [](torch::Library& m) {
  m.impl("cat.out", TORCH_FN(cat_out));
});
Override cat_override("cat", {&cat_operator, &cat_out_operator});

Tensor cat(DispatchKeySet keys, const ITensorListRef& tensors, int64_t dim) {
  Request request;
  auto materialized = tensors.materialize();
  const char* reason = describe(materialized, dim, request);
  const Tensor* first = materialized.empty() ? nullptr : &materialized[0].get();
  if (!reason) reason = choose(request.cat, cat_override.forced(), first->device().index());
  if (reason) return cat_operator.hand_over(reason, keys, tensors, dim);
  c10::DeviceGuard guard(first->device());
  Tensor out = at::empty(request.sizes, first->options());
  request.cat.out = static_cast<char*>(out.mutable_data_ptr());
  check_launch(launch_cat(request.cat, out.device().index(), current_stream(out.device())), "aten::cat");
  cat_operator.ran();
  return out;
}

Tensor& cat_out(DispatchKeySet keys, const ITensorListRef& tensors, int64_t dim, Tensor& out) {
  Request request;
  auto materialized = tensors.materialize();
  const char* reason = describe(materialized, dim, request);
  if (!reason) reason = describe_out(out, materialized, request);
  if (!reason) {
    request.cat.out = static_cast<char*>(out.mutable_data_ptr());
    reason = choose(request.cat, cat_override.forced(), out.device().index());
  }
  if (reason) return cat_out_operator.hand_over(reason, keys, tensors, dim, out);
  c10::DeviceGuard guard(out.device());
  check_launch(launch_cat(request.cat, out.device().index(), current_stream(out.device())), "aten::cat.out");
  cat_out_operator.ran();
  return out;
}

}  // namespace

}  // namespace tracer::overrides
