#include "values.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <array>
#include <cmath>
#include <cstring>

#include "../torch_abi/tensor.h"
#include "../trace/interner.h"

namespace tracer::dispatch {
namespace {

constexpr size_t kMostDimensions = 16;

// Whether there is a NaN or an infinity among `count` numbers: by their bits, a conversion would be slower.
template <class Bits>
uint64_t not_finite(const void* data, size_t count, Bits exponent) {
  constexpr Bits sign = Bits(1) << (8 * sizeof(Bits) - 1);
  const char* at = static_cast<const char*>(data);
  uint64_t found = 0;
  for (size_t i = 0; i < count; ++i) {
    Bits bits;
    memcpy(&bits, at + i * sizeof bits, sizeof bits);
    bits &= Bits(~sign);
    if (bits >= exponent) found |= bits == exponent ? trace::kValueInfinite : trace::kValueNan;
  }
  return found;
}

uint64_t not_finite(c10::ScalarType type, const void* data, size_t count) {
  switch (type) {
    case c10::ScalarType::ComplexDouble:
      count *= 2;
      [[fallthrough]];
    case c10::ScalarType::Double:
      return not_finite<uint64_t>(data, count, 0x7ff0000000000000ull);
    case c10::ScalarType::ComplexFloat:
      count *= 2;
      [[fallthrough]];
    case c10::ScalarType::Float:
      return not_finite<uint32_t>(data, count, 0x7f800000u);
    case c10::ScalarType::Half:
      return not_finite<uint16_t>(data, count, 0x7c00);
    case c10::ScalarType::BFloat16:
      return not_finite<uint16_t>(data, count, 0x7f80);
    default:
      return 0;
  }
}

// Rows of elements that lie one after the other, in the logical order of the tensor.
template <class Visit>
void rows(const c10::TensorImpl& tensor, const char* data, Visit visit) {
  c10::IntArrayRef sizes = tensor.sizes(), strides = tensor.strides();
  size_t item = tensor.itemsize(), dimensions = sizes.size();
  if (tensor.is_contiguous() || !dimensions) return visit(data, size_t(tensor.numel()));
  bool dense = strides[dimensions - 1] == 1;
  size_t outer = dense ? dimensions - 1 : dimensions, row = dense ? size_t(sizes[dimensions - 1]) : 1;
  std::array<int64_t, kMostDimensions> index{};
  while (true) {
    visit(data, row);
    size_t d = outer;
    while (d > 0) {
      --d;
      data += strides[d] * int64_t(item);
      if (++index[d] < sizes[d]) break;
      data -= strides[d] * sizes[d] * int64_t(item);
      index[d] = 0;
      if (d == 0) return;
    }
    if (outer == 0) return;
  }
}

}  // namespace

void Values::add(const at::Tensor& tensor) noexcept try {
  if (!tensor.defined()) return;
  ++tensors_;
  const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  const auto& by_python = torch_abi::AnsweredByPython::of(impl);
  c10::DispatchKeySet keys = impl.key_set();
  bool readable = !by_python.sizes() && !by_python.device() && !by_python.layout() && !impl.has_symbolic_sizes_strides() &&
                  !keys.has(c10::DispatchKey::NestedTensor) && !keys.has(c10::DispatchKey::Python) && impl.layout() == c10::kStrided &&
                  impl.device().is_cpu() && impl.has_storage() && impl.sizes().size() <= kMostDimensions;
  const char* data = readable && impl.numel() && impl.storage_initialized() ? static_cast<const char*>(impl.data()) : nullptr;
  if (!readable || (impl.numel() && !data)) {
    flags_ |= trace::kValueUnread;
    return;
  }
  hash_ = trace::mix(hash_, uint64_t(c10::typeMetaToScalarType(impl.dtype())));
  // Lazily conjugated or negated: other values with the same bytes.
  hash_ = trace::mix(hash_, keys.has(c10::DispatchKey::Conjugate) * 2u + keys.has(c10::DispatchKey::Negative));
  for (int64_t size : impl.sizes()) hash_ = trace::mix(hash_, uint64_t(size));
  if (!data) return;
  c10::ScalarType type = c10::typeMetaToScalarType(impl.dtype());
  size_t item = impl.itemsize();
  // The rows of a strided tensor must add up to the number of its contiguous copy.
  std::array<char, 4096> buffer;
  size_t filled = 0, whole = buffer.size() / item * item;
  auto flush = [&](const char* bytes, size_t size) {
    hash_ = trace::mix(hash_, trace::hash_bytes(bytes, size));
    flags_ |= not_finite(type, bytes, size / item);
  };
  rows(impl, data, [&](const char* row, size_t count) {
    size_t left = count * item;
    while (left) {
      if (!filled && left >= whole) {
        flush(row, whole);
        row += whole, left -= whole;
        continue;
      }
      size_t taken = std::min(left, whole - filled);
      memcpy(buffer.data() + filled, row, taken);
      filled += taken, row += taken, left -= taken;
      if (filled == whole) flush(buffer.data(), filled), filled = 0;
    }
  });
  if (filled) flush(buffer.data(), filled);
} catch (...) {
  flags_ |= trace::kValueUnread;
}

void Values::write(trace::Lane* lane) const noexcept {
  if (!tensors_) return;
  if (lane->limit - lane->next < 3 && !trace::lane_advance(lane)) return;
  uint64_t depth = lane->depth < trace::kMaxDepth ? lane->depth : trace::kMaxDepth;
  trace::write_event(lane, trace::kValue, lane->now(), hash_ & ~trace::kEventBit, flags_ | depth << trace::kValueDepthShift);
}

}  // namespace tracer::dispatch
