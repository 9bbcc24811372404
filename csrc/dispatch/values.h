// What op calls returned, as one number for the bytes of all their tensors, and whether there is a NaN among them. For
// `tracer record --values hash`.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>

#include <tuple>
#include <vector>

#include "../trace/lane.h"

namespace tracer::dispatch {

class Values {
 public:
  void add(const at::Tensor& tensor) noexcept;
  template <class... T>
  void add(const std::tuple<T...>& several) noexcept {
    std::apply([&](const auto&... each) { (add(each), ...); }, several);
  }
  void add(const std::vector<at::Tensor>& several) noexcept {
    for (const at::Tensor& each : several) add(each);
  }
  template <class T>
  void add(const T&) noexcept {}  // no tensor

  // A kValue event, if there was a tensor; where no room can be had there is none.
  void write(trace::Lane* lane) const noexcept;

 private:
  uint64_t hash_ = 0x9E3779B97F4A7C15ull;
  uint64_t flags_ = 0;  // trace::ValueFlags
  uint32_t tensors_ = 0;
};

}  // namespace tracer::dispatch
