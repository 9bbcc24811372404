// The reserves that the GRU's forward pass made and its backward pass has yet to read.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstdint>

namespace tracer::overrides::gru {

// Counts a reserve until its memory is given back; then, if it was the last one, calls `none_left`. Where saved tensor hooks are on
// (offloading, checkpoints), a copy of the reserve may come back after the reserve has gone: then it counts for good.
void count_reserve(const at::Tensor& reserve, void (*none_left)());
int64_t counted_reserves();

}  // namespace tracer::overrides::gru
