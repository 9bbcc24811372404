// A device of one's own on PrivateUse1, as back ends outside torch have it: its memory is the host's, and its kernels
// are the CPU's. What it has no kernel for runs in the CPU fallback.
#include <ATen/EmptyTensor.h>
#include <ATen/autocast_mode.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/add.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/view_native.h>
#include <c10/core/Allocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <cstdlib>

namespace toy {

using at::Tensor, c10::Device, c10::DeviceIndex, c10::Stream;
constexpr auto kToy = c10::DeviceType::PrivateUse1;
constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::PrivateUse1);
const Device kDevice(kToy, 0);

// ---- memory ----------------------------------------------------------------------------------
constexpr size_t kHeader = 64;  // in front of each block: its size
int64_t in_use = 0;

void report(void* block, int64_t bytes) {
  in_use += bytes;
  c10::reportMemoryUsageToProfiler(block, bytes, in_use, in_use, kDevice);
}

void release(void* block) {
  if (!block) return;
  char* base = static_cast<char*>(block) - kHeader;
  report(block, -*reinterpret_cast<int64_t*>(base));
  std::free(base);
}

struct Allocator final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    if (!bytes) return {nullptr, nullptr, &release, kDevice};
    char* base = static_cast<char*>(std::aligned_alloc(kHeader, (bytes + 2 * kHeader - 1) / kHeader * kHeader));
    *reinterpret_cast<int64_t*>(base) = int64_t(bytes);
    void* block = base + kHeader;
    report(block, int64_t(bytes));
    return {block, block, &release, kDevice};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override { std::memcpy(to, from, bytes); }
};
Allocator allocator;
REGISTER_ALLOCATOR(kToy, &allocator);

// ---- one device, one stream ------------------------------------------------------------------
struct Guard final : c10::impl::DeviceGuardImplInterface {
  Guard() = default;
  explicit Guard(c10::DeviceType) {}
  c10::DeviceType type() const override { return kToy; }
  Device exchangeDevice(Device device) const override { return device; }
  Device getDevice() const override { return kDevice; }
  void setDevice(Device) const override {}
  void uncheckedSetDevice(Device) const noexcept override {}
  Stream getStream(Device device) const override { return Stream(Stream::DEFAULT, device); }
  Stream exchangeStream(Stream stream) const override { return stream; }
  DeviceIndex deviceCount() const noexcept override { return 1; }
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

struct Hooks final : at::PrivateUse1HooksInterface {
  bool hasPrimaryContext(DeviceIndex) const override { return true; }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
};
Hooks hooks;
const bool registered = (at::RegisterPrivateUse1HooksInterface(&hooks), true);

// ---- kernels ---------------------------------------------------------------------------------
// The same memory as a tensor of the CPU.
Tensor host(const Tensor& x) {
  return x.is_cpu() ? x : at::from_blob(x.data_ptr(), x.sizes(), x.strides(), at::TensorOptions().dtype(x.dtype()));
}

Tensor empty(at::IntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout>, std::optional<Device>,
             std::optional<bool>, std::optional<at::MemoryFormat> format) {
  return at::detail::empty_generic(size, &allocator, kKeys, c10::dtype_or_default(dtype), format);
}

Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                     std::optional<Device>, std::optional<bool>) {
  return at::detail::empty_strided_generic(size, stride, &allocator, kKeys, c10::dtype_or_default(dtype));
}

Tensor copy_from(const Tensor& from, const Tensor& to, bool) {
  host(to).copy_(host(from));
  return to;
}

const Tensor& resize(const Tensor& x, at::IntArrayRef size, std::optional<at::MemoryFormat> format) {
  return at::native::resize_(x, size, format);
}

Tensor copy_from_and_resize(const Tensor& from, const Tensor& to) {
  return copy_from(from, toy::resize(to, from.sizes(), std::nullopt), false);
}

Tensor as_strided(const Tensor& x, at::IntArrayRef size, at::IntArrayRef stride, std::optional<int64_t> offset) {
  return at::native::as_strided_tensorimpl(x, size, stride, offset);
}

Tensor view(const Tensor& x, at::IntArrayRef size) { return at::native::view(x, size); }

Tensor reshape_alias(const Tensor& x, at::IntArrayRef size, at::IntArrayRef stride) { return at::native::_reshape_alias(x, size, stride); }

Tensor mm(const Tensor& a, const Tensor& b) {
  Tensor result = at::empty({a.size(0), b.size(1)}, a.options()), out = host(result);
  at::mm_out(out, host(a), host(b));
  return result;
}

// An operator that torch does not have, with its own derivative and rule of autocast: a @ b + a.
Tensor mm_plus(const Tensor& a, const Tensor& b) {
  Tensor result = toy::mm(a, b);
  host(result).add_(host(a));
  return result;
}

Tensor call_mm_plus(const Tensor& a, const Tensor& b) {
  static auto op = c10::Dispatcher::singleton().findSchemaOrThrow("toy::mm_plus", "").typed<decltype(mm_plus)>();
  return op.call(a, b);
}

struct MmPlus : torch::autograd::Function<MmPlus> {
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& a, const Tensor& b) {
    at::AutoDispatchBelowADInplaceOrView guard;
    context->save_for_backward({a, b});
    return call_mm_plus(a, b);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context, torch::autograd::variable_list grads) {
    auto saved = context->get_saved_variables();
    return {at::add(at::mm(grads[0], saved[1].t()), grads[0]), at::mm(saved[0].t(), grads[0])};
  }
};

Tensor mm_plus_autograd(const Tensor& a, const Tensor& b) { return MmPlus::apply(a, b); }

Tensor mm_plus_autocast(const Tensor& a, const Tensor& b) {
  c10::impl::ExcludeDispatchKeyGuard guard(c10::DispatchKey::AutocastPrivateUse1);
  return call_mm_plus(at::autocast::cached_cast(at::kHalf, a, kToy), at::autocast::cached_cast(at::kHalf, b, kToy));
}

void fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) { at::native::cpu_fallback(op, stack); }

}  // namespace toy

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("empty.memory_format", toy::empty);
  library.impl("empty_strided", toy::empty_strided);
  library.impl("_copy_from", toy::copy_from);
  library.impl("_copy_from_and_resize", toy::copy_from_and_resize);
  library.impl("resize_", toy::resize);
  library.impl("as_strided", toy::as_strided);
  library.impl("view", toy::view);
  library.impl("_reshape_alias", toy::reshape_alias);
  library.impl("mm", toy::mm);
}
TORCH_LIBRARY_IMPL(_, PrivateUse1, library) { library.fallback(torch::CppFunction::makeFromBoxedFunction<&toy::fallback>()); }

TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, library) { library.fallback(torch::CppFunction::makeFallthrough()); }
TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m){KERNEL_PRIVATEUSEONE(mm, lower_precision_fp)}  // the macro says `m`

TORCH_LIBRARY(toy, library) {
  library.def("mm_plus(Tensor a, Tensor b) -> Tensor");
}
TORCH_LIBRARY_IMPL(toy, PrivateUse1, library) { library.impl("mm_plus", toy::mm_plus); }
TORCH_LIBRARY_IMPL(toy, AutogradPrivateUse1, library) { library.impl("mm_plus", toy::mm_plus_autograd); }
TORCH_LIBRARY_IMPL(toy, AutocastPrivateUse1, library) { library.impl("mm_plus", toy::mm_plus_autocast); }
