// The plans that were measured to be the fastest for the products they stand for; others: plan_for() in mm_plans.cpp.
#pragma once

#include <array>
#include <cstdint>

#include "../measured.h"
#include "mm.h"

namespace tracer::overrides {

enum class ProductKind : uint8_t { kStrict, kTf32, kTwoBytes };

struct TunedMm {
  ProductKind kind;
  bool inner_major;
  Range columns, rows, inner;
  Plan plan;
};
inline constexpr std::array<TunedMm, 0> kTunedMm{};

}  // namespace tracer::overrides
