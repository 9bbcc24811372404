// Which storage and which version each tensor of a call has. For `tracer record --values scalars`.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>

#include "../trace/lane.h"

namespace tracer::dispatch {

// A signature has at most this many tensors; of longer lists it has the lengths.
constexpr size_t kMostTensors = 64;

class Identities {
 public:
  // In the order of the signature. Runs no Python, throws nothing.
  void add(const at::Tensor& tensor) noexcept;

  // A kTensor of each, with room for `further` words behind them; nothing if there is none.
  void write(trace::Lane* lane, ptrdiff_t further) const noexcept;
  // Behind a kResults.
  void write_results(trace::Lane* lane, uint32_t signature) const noexcept;

 private:
  bool has_room(trace::Lane* lane, ptrdiff_t further) const noexcept;
  void write_each(trace::Lane* lane, uint64_t when) const noexcept;

  std::array<uint64_t, kMostTensors> words_;
  size_t size_ = 0;
};

// To be called once the recording has ended: from then on nothing of tracer's refers to a storage.
void forget_storages() noexcept;

}  // namespace tracer::dispatch
