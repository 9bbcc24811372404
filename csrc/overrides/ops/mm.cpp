// mm and addmm, with their out variants: products with at most 128 rows or columns on one side.
#include "mm_tuning.h"

#include <ATen/Context.h>
#include <ATen/ops/empty.h>

#include <atomic>

#include "../kernels/mm.h"
#include "../measured_tables.h"
#include "torch_device.h"

namespace tracer::overrides {

namespace {

using at::Scalar;
using at::Tensor;
using c10::DispatchKeySet;

std::atomic<const std::string*> pinned{nullptr};

struct Product {
  Mm mm{};
  bool weight_is_b = true;  // out is then written as its transpose
  Plan plan{};
};

// By the guard under which torch computes what TF32 would spoil; its question has two names.
template <class Guard>
bool tf32_is_disabled() {
  if constexpr (requires { Guard::should_disable_tf32(); })
    return Guard::should_disable_tf32();
  else
    return Guard::should_disable_fp32_reduced_precision();
}

// Sizes, strides and addresses of a @ b in the terms of the kernels; or why the kernels do not take it.
const char* describe(const Tensor& a, const Tensor& b, Product& product) {
  Mm& mm = product.mm;
  mm.alpha = 1;
  if (!a.device().is_cuda() || a.device() != b.device()) return "tensors of several devices";
  if (a.scalar_type() != b.scalar_type()) return "mixed dtypes";
  switch (a.scalar_type()) {
    case at::kFloat:
      mm.element = Element::kFloat;
      break;
    case at::kBFloat16:
      mm.element = Element::kBfloat16;
      break;
    case at::kHalf:
      mm.element = Element::kHalf;
      break;
    default:
      return "a dtype other than float32, bfloat16 and float16";
  }
  if (a.layout() != at::kStrided || b.layout() != at::kStrided) return "a layout other than strided";
  if (a.dim() != 2 || b.dim() != 2 || a.size(1) != b.size(0)) return "sizes that stock refuses";
  if (has_names(a) || has_names(b)) return "named dimensions";
  const int64_t m = a.size(0), n = b.size(1);
  mm.inner = a.size(1);
  if (m == 0 || n == 0 || mm.inner == 0) return "an empty matrix";
  if (std::min(m, n) > kMostColumns) return "large: both sides above 128";

  // The longer side is the weight, if it has a stride of 1.
  auto weight_is = [&](const Tensor& weight, int outer) {
    int64_t rows = weight.size(outer);
    mm.weight_row = weight.stride(outer), mm.weight_inner = weight.stride(1 - outer);
    if (mm.weight_inner == 1 || mm.weight_row == 1) return true;
    if (mm.inner == 1)
      mm.weight_inner = 1;
    else if (rows == 1)
      mm.weight_row = 1;
    else
      return false;
    return true;
  };
  bool weight_is_b = m <= n;
  if (!(weight_is_b ? weight_is(b, 1) : weight_is(a, 0))) {
    weight_is_b = !weight_is_b;
    if (std::max(m, n) > kMostColumns || !(weight_is_b ? weight_is(b, 1) : weight_is(a, 0))) return "a matrix with no stride of 1";
  }
  product.weight_is_b = weight_is_b;
  const Tensor& weight = weight_is_b ? b : a;
  const Tensor& input = weight_is_b ? a : b;
  mm.rows = weight_is_b ? n : m, mm.columns = weight_is_b ? m : n;
  mm.input_column = input.stride(weight_is_b ? 0 : 1), mm.input_inner = input.stride(weight_is_b ? 1 : 0);
  mm.weight = weight.const_data_ptr(), mm.input = input.const_data_ptr();
  mm.tf32 = mm.element == Element::kFloat && !tf32_is_disabled<at::NoTF32Guard>() &&
            at::globalContext().float32Precision(at::Float32Backend::CUDA, at::Float32Op::MATMUL) == at::Float32Precision::TF32;
  return nullptr;
}

// self as [m, n]; dimensions of size 1 are broadcast.
const char* describe_self(const Tensor& self, const Tensor& a, const Tensor& b, Product& product) {
  if (self.device() != a.device()) return "tensors of several devices";
  if (self.scalar_type() != a.scalar_type()) return "mixed dtypes";
  if (self.layout() != at::kStrided) return "a layout other than strided";
  if (has_names(self)) return "named dimensions";
  if (self.dim() > 2) return "sizes that stock refuses";
  int64_t strides[2] = {0, 0};
  for (int64_t i = 0; i < self.dim(); ++i) {
    const int64_t to = 2 - self.dim() + i, size = to == 0 ? a.size(0) : b.size(1);
    if (self.size(i) != 1 && self.size(i) != size) return "sizes that stock refuses";
    if (self.size(i) != 1) strides[to] = self.stride(i);
  }
  product.mm.self = self.const_data_ptr();
  product.mm.self_row = strides[product.weight_is_b ? 1 : 0], product.mm.self_column = strides[product.weight_is_b ? 0 : 1];
  return nullptr;
}

const char* describe_factors(const Scalar& beta, const Scalar& alpha, Mm& mm) {
  if (beta.isComplex() || alpha.isComplex()) return "complex alpha or beta";
  mm.alpha = alpha.to<float>(), mm.beta = beta.to<float>();
  if (mm.beta == 0) mm.self = nullptr;  // not even its NaN count
  return nullptr;
}

// Can the kernel write into `out` while it reads the others?
const char* describe_out(const Tensor& out, const Tensor& a, const Tensor& b, const Tensor* self, const Mm& mm) {
  if (out.device() != a.device()) return "tensors of several devices";
  if (out.scalar_type() != a.scalar_type()) return "mixed dtypes";
  if (out.layout() != at::kStrided || has_names(out)) return "a layout other than strided";
  if (out.dim() != 2 || out.size(0) != a.size(0) || out.size(1) != b.size(1)) return "out of another size";
  const bool rows = out.stride(1) == 1 && out.stride(0) >= out.size(1), columns = out.stride(0) == 1 && out.stride(1) >= out.size(0);
  if (!rows && !columns) return "out with no stride of 1";
  auto shares = [&](const Tensor& tensor) { return tensor.storage().is_alias_of(out.storage()); };
  if (shares(a) || shares(b)) return "out shares memory with an input";
  // As in addmm_: each element of self is read by the thread that writes it.
  if (self && mm.self && shares(*self) &&
      !(self->sizes() == out.sizes() && self->strides() == out.strides() && self->const_data_ptr() == out.const_data_ptr()))
    return "out shares memory with an input";
  return nullptr;
}

const char* why_stock(const Mm& mm, int device) {
  return measured_mm.why_stock(device, [&, along = inner_major(mm)](const MeasuredMm& row) {
    return row.element == mm.element && row.tf32 == mm.tf32 && row.inner_major == along && row.columns.holds(mm.columns) &&
           row.rows.holds(mm.rows) && row.inner.holds(mm.inner);
  });
}

const char* choose(Product& product, bool forced, int device) {
  const Mm& mm = product.mm;
  auto plan = plan_for(mm, device);
  if (!plan) return "a GPU that the kernels were not built for";
  product.plan = *plan;
  if (const std::string* wanted = pinned.load(std::memory_order_acquire)) {
    for (const Plan& one : plans_for(mm, device))
      if (name_of(one, mm) == *wanted) {
        product.plan = one;
        return nullptr;
      }
    return "the pinned plan does not apply";
  }
  return forced ? nullptr : why_stock(mm, device);
}

void run(Product& product, const Tensor& out, const char* name) {
  Mm& mm = product.mm;
  mm.out = out.mutable_data_ptr();
  mm.out_row = out.stride(product.weight_is_b ? 1 : 0), mm.out_column = out.stride(product.weight_is_b ? 0 : 1);
  check_launch(launch_mm(mm, product.plan, out.device().index(), current_stream(out.device())), name);
}

Tensor mm(DispatchKeySet keys, const Tensor& a, const Tensor& b);
Tensor& mm_out(DispatchKeySet keys, const Tensor& a, const Tensor& b, Tensor& out);
Tensor addmm(DispatchKeySet keys, const Tensor& self, const Tensor& a, const Tensor& b, const Scalar& beta, const Scalar& alpha);
Tensor& addmm_out(DispatchKeySet keys, const Tensor& self, const Tensor& a, const Tensor& b, const Scalar& beta, const Scalar& alpha,
                  Tensor& out);

TypedOperator<Tensor(const Tensor&, const Tensor&)> mm_operator("aten::mm", [](torch::Library& m) { m.impl("mm", TORCH_FN(mm)); });
TypedOperator<Tensor&(const Tensor&, const Tensor&, Tensor&)> mm_out_operator("aten::mm.out", [](torch::Library& m) {
  m.impl("mm.out", TORCH_FN(mm_out));
});
TypedOperator<Tensor(const Tensor&, const Tensor&, const Tensor&, const Scalar&, const Scalar&)> addmm_operator(
    "aten::addmm", [](torch::Library& m) { m.impl("addmm", TORCH_FN(addmm)); });
TypedOperator<Tensor&(const Tensor&, const Tensor&, const Tensor&, const Scalar&, const Scalar&, Tensor&)> addmm_out_operator(
    "aten::addmm.out", [](torch::Library& m) { m.impl("addmm.out", TORCH_FN(addmm_out)); });
Override mm_override("mm", {&mm_operator, &mm_out_operator, &addmm_operator, &addmm_out_operator});

Tensor mm(DispatchKeySet keys, const Tensor& a, const Tensor& b) {
  Product product;
  const char* reason = describe(a, b, product);
  if (!reason) reason = choose(product, mm_override.forced(), a.device().index());
  if (reason) return mm_operator.hand_over(reason, keys, a, b);
  c10::DeviceGuard guard(a.device());
  Tensor out = at::empty({a.size(0), b.size(1)}, a.options());
  run(product, out, "aten::mm");
  mm_operator.ran();
  return out;
}

Tensor& mm_out(DispatchKeySet keys, const Tensor& a, const Tensor& b, Tensor& out) {
  Product product;
  const char* reason = describe(a, b, product);
  if (!reason) reason = describe_out(out, a, b, nullptr, product.mm);
  if (!reason) reason = choose(product, mm_override.forced(), a.device().index());
  if (reason) return mm_out_operator.hand_over(reason, keys, a, b, out);
  c10::DeviceGuard guard(a.device());
  run(product, out, "aten::mm.out");
  mm_out_operator.ran();
  return out;
}

Tensor addmm(DispatchKeySet keys, const Tensor& self, const Tensor& a, const Tensor& b, const Scalar& beta, const Scalar& alpha) {
  Product product;
  const char* reason = describe(a, b, product);
  if (!reason) reason = describe_self(self, a, b, product);
  if (!reason) reason = describe_factors(beta, alpha, product.mm);
  if (!reason) reason = choose(product, mm_override.forced(), a.device().index());
  if (reason) return addmm_operator.hand_over(reason, keys, self, a, b, beta, alpha);
  c10::DeviceGuard guard(a.device());
  Tensor out = at::empty({a.size(0), b.size(1)}, a.options());
  run(product, out, "aten::addmm");
  addmm_operator.ran();
  return out;
}

Tensor& addmm_out(DispatchKeySet keys, const Tensor& self, const Tensor& a, const Tensor& b, const Scalar& beta, const Scalar& alpha,
                  Tensor& out) {
  Product product;
  const char* reason = describe(a, b, product);
  if (!reason) reason = describe_self(self, a, b, product);
  if (!reason) reason = describe_factors(beta, alpha, product.mm);
  if (!reason) reason = describe_out(out, a, b, &self, product.mm);
  if (!reason) reason = choose(product, mm_override.forced(), a.device().index());
  if (reason) return addmm_out_operator.hand_over(reason, keys, self, a, b, beta, alpha, out);
  c10::DeviceGuard guard(a.device());
  run(product, out, "aten::addmm.out");
  addmm_out_operator.ran();
  return out;
}

}  // namespace

std::vector<std::string> mm_plans(const Tensor& a, const Tensor& b) {
  Product product;
  std::vector<std::string> names;
  if (!describe(a, b, product))
    for (const Plan& plan : plans_for(product.mm, a.device().index())) names.push_back(name_of(plan, product.mm));
  return names;
}

std::string mm_plan(const Tensor& a, const Tensor& b) {
  Product product;
  if (describe(a, b, product)) return "";
  auto plan = plan_for(product.mm, a.device().index());
  return plan ? name_of(*plan, product.mm) : "";
}

void pin_mm_plan(const std::optional<std::string>& plan) {
  // Kept for ever: a thread may be reading it.
  pinned.store(plan ? new std::string(*plan) : nullptr, std::memory_order_release);
}

}  // namespace tracer::overrides
