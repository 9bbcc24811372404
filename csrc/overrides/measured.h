// Where the overrides were measured to be faster than the stock kernels: what `auto` goes by. Nothing was measured yet, so
// `auto` hands everything over.
#pragma once

#include <array>
#include <cstdint>

#include "kernels/mm.h"

namespace tracer::overrides {

struct Range {
  int64_t from, to;  // both included
  constexpr bool holds(int64_t value) const { return value >= from && value <= to; }
};

struct MeasuredMm {
  Element element;
  bool tf32, inner_major;
  Range columns, rows, inner;
};
inline constexpr std::array<MeasuredMm, 0> kMeasuredMm{};

struct MeasuredCat {
  Range tensors, bytes;  // of the result
  bool aligned;          // every piece begins and ends at a multiple of 16 bytes
};
inline constexpr std::array<MeasuredCat, 0> kMeasuredCat{};

}  // namespace tracer::overrides
