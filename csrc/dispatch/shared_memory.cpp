#include "shared_memory.h"

#include <c10/core/impl/COW.h>

#include <algorithm>

#include "../torch_abi/tensor.h"

namespace tracer::dispatch {

namespace {

constexpr size_t kMostTensors = 64;  // those that a signature names

}  // namespace

void SharedMemory::add(const at::Tensor& tensor) {
  if (places_.size() >= kMostTensors) return;
  Place& place = places_.emplace_back();
  if (!tensor.defined()) return;
  const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  const auto& by_python = torch_abi::AnsweredByPython::of(impl);
  c10::DispatchKeySet keys = impl.key_set();
  if (by_python.sizes() || by_python.device() || by_python.layout() || impl.has_symbolic_sizes_strides() || !impl.has_storage() ||
      keys.has(c10::DispatchKey::NestedTensor) || keys.has(c10::DispatchKey::Python) || impl.layout() != c10::kStrided || !impl.numel())
    return;
  try {
    const c10::Storage& storage = impl.storage();
    // Of lazily copied ones each is a memory of its own as soon as it is written to.
    if (!c10::impl::cow::is_cow_data_ptr(storage.data_ptr())) {
      place.begin = reinterpret_cast<uintptr_t>(storage.data());
      place.end = place.begin ? place.begin + storage.nbytes() : 0;
    }
    place.first = int64_t(place.begin) + impl.storage_offset() * int64_t(impl.itemsize());
    place.device = int(impl.device().type()) << 8 | uint8_t(impl.device().index());
    place.storage = storage.unsafeGetStorageImpl();
  } catch (...) {
    place = Place{};  // a class of tensors whose storage may not be asked for
  }
}

// Two storages can be of one memory: two torch.from_numpy of one array.
bool SharedMemory::share(const Place& one, const Place& other) {
  if (!one.storage || !other.storage || one.device != other.device) return false;
  return one.storage == other.storage || (one.begin < other.end && other.begin < one.end);
}

bool SharedMemory::found() {
  for (size_t i = 0; i < places_.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (!share(places_[i], places_[j])) continue;
      if (places_[j].group < 0) {
        places_[j].group = int(lowest_.size());
        lowest_.push_back(places_[j].first);
      }
      places_[i].group = places_[j].group;
      lowest_[size_t(places_[i].group)] = std::min(lowest_[size_t(places_[i].group)], places_[i].first);
      break;
    }
  }
  return !lowest_.empty();
}

std::string SharedMemory::next() {
  size_t at = next_++;
  if (at >= places_.size() || places_[at].group < 0) return "null";
  const Place& place = places_[at];
  return '[' + std::to_string(place.group) + ',' + std::to_string(place.first - lowest_[size_t(place.group)]) + ']';
}

}  // namespace tracer::dispatch
