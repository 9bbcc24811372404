// The plans that were measured to be the fastest for their products; others:
// plan_for() in mm_plans.cpp.
// Written by benchmarks/override_tuning.py: NVIDIA H100 80GB HBM3, torch 2.11.0+cu130.
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
// clang-format off: rows as the benchmark writes them
inline constexpr std::array<TunedMm, 77> kTunedMm{{
    {ProductKind::kStrict, true, {1, 1}, {4167, 8333}, {1087, 2172}, {Method::kDot, 4, 1, 2}},  // mm 1x1536x5893 NT float32
    {ProductKind::kStrict, true, {1, 1}, {2897, 5792}, {2897, 5792}, {Method::kDot, 4, 1, 8}},  // mm 1x4096x4096 NT float32
    {ProductKind::kStrict, false, {1, 1}, {1087, 2172}, {4167, 8333}, {Method::kGroups, 64, 8, 4}},  // mm 1x5893x1536 NN float32
    {ProductKind::kStrict, false, {1, 1}, {2897, 5792}, {2897, 5792}, {Method::kDirect, 32, 1, 1}},  // mm 1x4096x4096 NN float32
    {ProductKind::kTwoBytes, true, {1, 1}, {4167, 8333}, {1087, 2172}, {Method::kDot, 4, 1, 2}},  // mm 1x1536x5893 NT bfloat16
    {ProductKind::kTwoBytes, true, {1, 1}, {2897, 5792}, {2897, 5792}, {Method::kDot, 2, 1, 2}},  // mm 1x4096x4096 NT bfloat16
    {ProductKind::kTwoBytes, false, {1, 1}, {1087, 2172}, {4167, 8333}, {Method::kTensor, 64, 8, 4}},  // mm 1x5893x1536 NN bfloat16
    {ProductKind::kTwoBytes, false, {1, 1}, {2897, 5792}, {2897, 5792}, {Method::kTensor, 64, 8, 2}},  // mm 1x4096x4096 NN bfloat16
    {ProductKind::kStrict, true, {2, 2}, {4167, 8333}, {1087, 2172}, {Method::kDot, 4, 2, 2}},  // mm 2x1536x5893 NT float32
    {ProductKind::kStrict, true, {2, 2}, {2897, 5792}, {2897, 5792}, {Method::kDot, 4, 2, 8}},  // mm 2x4096x4096 NT float32
    {ProductKind::kStrict, false, {2, 2}, {1087, 2172}, {4167, 8333}, {Method::kTensor, 64, 8, 8}},  // mm 2x5893x1536 NN float32
    {ProductKind::kStrict, false, {2, 2}, {2897, 5792}, {2897, 5792}, {Method::kDirect, 32, 2, 1}},  // mm 2x4096x4096 NN float32
    {ProductKind::kTwoBytes, true, {2, 2}, {4167, 8333}, {1087, 2172}, {Method::kDot, 2, 2, 1}},  // mm 2x1536x5893 NT bfloat16
    {ProductKind::kTwoBytes, true, {2, 2}, {2897, 5792}, {2897, 5792}, {Method::kDot, 4, 2, 2}},  // mm 2x4096x4096 NT bfloat16
    {ProductKind::kTwoBytes, false, {2, 2}, {1087, 2172}, {4167, 8333}, {Method::kTensor, 64, 8, 8}},  // mm 2x5893x1536 NN bfloat16
    {ProductKind::kTwoBytes, false, {2, 2}, {2897, 5792}, {2897, 5792}, {Method::kGroups, 64, 8, 2}},  // mm 2x4096x4096 NN bfloat16
    {ProductKind::kStrict, true, {3, 4}, {4167, 8333}, {1087, 2172}, {Method::kDot, 4, 4, 1}},  // mm 4x1536x5893 NT float32
    {ProductKind::kStrict, true, {3, 4}, {2897, 5792}, {2897, 5792}, {Method::kDot, 4, 4, 4}},  // mm 4x4096x4096 NT float32
    {ProductKind::kStrict, false, {3, 4}, {1087, 2172}, {4167, 8333}, {Method::kTensor, 64, 8, 8}},  // mm 4x5893x1536 NN float32
    {ProductKind::kStrict, false, {3, 4}, {2897, 5792}, {2897, 5792}, {Method::kTensor, 64, 8, 2}},  // mm 4x4096x4096 NN float32
    {ProductKind::kTwoBytes, true, {3, 4}, {4167, 8333}, {1087, 2172}, {Method::kDirect, 16, 8, 4}},  // mm 4x1536x5893 NT bfloat16
    {ProductKind::kTwoBytes, true, {3, 4}, {2897, 5792}, {2897, 5792}, {Method::kDot, 4, 4, 2}},  // mm 4x4096x4096 NT bfloat16
    {ProductKind::kTwoBytes, false, {3, 4}, {1087, 2172}, {4167, 8333}, {Method::kTensor, 64, 8, 8}},  // mm 4x5893x1536 NN bfloat16
    {ProductKind::kTwoBytes, false, {3, 4}, {2897, 5792}, {2897, 5792}, {Method::kGroups, 64, 8, 2}},  // mm 4x4096x4096 NN bfloat16
    {ProductKind::kStrict, true, {5, 8}, {4167, 8333}, {1087, 2172}, {Method::kDot, 4, 8, 1}},  // mm 8x1536x5893 NT float32
    {ProductKind::kStrict, true, {5, 8}, {2897, 5792}, {2897, 5792}, {Method::kDot, 4, 8, 2}},  // mm 8x4096x4096 NT float32
    {ProductKind::kStrict, false, {5, 8}, {1087, 2172}, {4167, 8333}, {Method::kTensor, 64, 8, 8}},  // mm 8x5893x1536 NN float32
    {ProductKind::kTwoBytes, true, {5, 8}, {4167, 8333}, {1087, 2172}, {Method::kDirect, 16, 8, 4}},  // mm 8x1536x5893 NT bfloat16
    {ProductKind::kTwoBytes, true, {5, 8}, {2897, 5792}, {2897, 5792}, {Method::kDirect, 16, 8, 8}},  // mm 8x4096x4096 NT bfloat16
    {ProductKind::kTwoBytes, false, {5, 8}, {1087, 2172}, {4167, 8333}, {Method::kTensor, 64, 8, 8}},  // mm 8x5893x1536 NN bfloat16
    {ProductKind::kTwoBytes, false, {5, 8}, {2897, 5792}, {2897, 5792}, {Method::kGroups, 64, 8, 2}},  // mm 8x4096x4096 NN bfloat16
    {ProductKind::kStrict, true, {9, 16}, {4167, 8333}, {1087, 2172}, {Method::kDirect, 16, 16, 4}},  // mm 16x1536x5893 NT float32
    {ProductKind::kStrict, true, {9, 16}, {2897, 5792}, {2897, 5792}, {Method::kGroups, 64, 16, 2}},  // mm 16x4096x4096 NT float32
    {ProductKind::kStrict, false, {9, 16}, {1087, 2172}, {4167, 8333}, {Method::kTensor, 64, 16, 8}},  // mm 16x5893x1536 NN float32
    {ProductKind::kStrict, false, {9, 16}, {2897, 5792}, {2897, 5792}, {Method::kGroups, 64, 16, 2}},  // mm 16x4096x4096 NN float32
    {ProductKind::kTwoBytes, true, {9, 16}, {4167, 8333}, {1087, 2172}, {Method::kGroups, 64, 16, 1}},  // mm 16x1536x5893 NT bfloat16
    {ProductKind::kTwoBytes, true, {9, 16}, {2897, 5792}, {2897, 5792}, {Method::kGroups, 64, 16, 2}},  // mm 16x4096x4096 NT bfloat16
    {ProductKind::kTwoBytes, false, {9, 16}, {1087, 2172}, {4167, 8333}, {Method::kTensor, 64, 16, 8}},  // mm 16x5893x1536 NN bfloat16
    {ProductKind::kTwoBytes, false, {9, 16}, {2897, 5792}, {2897, 5792}, {Method::kGroups, 64, 16, 2}},  // mm 16x4096x4096 NN bfloat16
    {ProductKind::kStrict, true, {17, 32}, {4167, 8333}, {1087, 2172}, {Method::kGroups, 64, 32, 1}},  // mm 32x1536x5893 NT float32
    {ProductKind::kStrict, true, {17, 32}, {2897, 5792}, {2897, 5792}, {Method::kGroups, 64, 32, 2}},  // mm 32x4096x4096 NT float32
    {ProductKind::kStrict, false, {17, 32}, {1087, 2172}, {4167, 8333}, {Method::kTensor, 64, 32, 8}},  // mm 32x5893x1536 NN float32
    {ProductKind::kTwoBytes, true, {17, 32}, {4167, 8333}, {1087, 2172}, {Method::kGroups, 64, 32, 1}},  // mm 32x1536x5893 NT bfloat16
    {ProductKind::kTwoBytes, true, {17, 32}, {2897, 5792}, {2897, 5792}, {Method::kGroups, 64, 32, 2}},  // mm 32x4096x4096 NT bfloat16
    {ProductKind::kTwoBytes, false, {17, 32}, {1087, 2172}, {4167, 8333}, {Method::kTensor, 64, 32, 8}},  // mm 32x5893x1536 NN bfloat16
    {ProductKind::kStrict, true, {33, 64}, {4167, 8333}, {1087, 2172}, {Method::kGroups, 64, 64, 1}},  // mm 64x1536x5893 NT float32
    {ProductKind::kStrict, true, {33, 64}, {2897, 5792}, {2897, 5792}, {Method::kGroups, 64, 64, 2}},  // mm 64x4096x4096 NT float32
    {ProductKind::kStrict, false, {33, 64}, {1087, 2172}, {4167, 8333}, {Method::kTensor, 128, 64, 8}},  // mm 64x5893x1536 NN float32
    {ProductKind::kTwoBytes, true, {33, 64}, {4167, 8333}, {1087, 2172}, {Method::kGroups, 64, 64, 1}},  // mm 64x1536x5893 NT bfloat16
    {ProductKind::kTwoBytes, true, {33, 64}, {2897, 5792}, {2897, 5792}, {Method::kGroups, 64, 64, 2}},  // mm 64x4096x4096 NT bfloat16
    {ProductKind::kTwoBytes, false, {33, 64}, {1087, 2172}, {4167, 8333}, {Method::kTensor, 64, 32, 8}},  // mm 64x5893x1536 NN bfloat16
    {ProductKind::kStrict, true, {65, 128}, {4167, 8333}, {1087, 2172}, {Method::kGroups, 64, 128, 1}},  // mm 128x1536x5893 NT float32
    {ProductKind::kStrict, true, {65, 128}, {2897, 5792}, {2897, 5792}, {Method::kGroups, 64, 128, 2}},  // mm 128x4096x4096 NT float32
    {ProductKind::kStrict, false, {65, 128}, {1087, 2172}, {4167, 8333}, {Method::kTensor, 128, 64, 8}},  // mm 128x5893x1536 NN float32
    {ProductKind::kTwoBytes, true, {65, 128}, {4167, 8333}, {1087, 2172}, {Method::kGroups, 64, 128, 1}},  // mm 128x1536x5893 NT bfloat16
    {ProductKind::kTwoBytes, true, {65, 128}, {2897, 5792}, {2897, 5792}, {Method::kGroups, 64, 128, 2}},  // mm 128x4096x4096 NT bfloat16
    {ProductKind::kTwoBytes, false, {65, 128}, {1087, 2172}, {4167, 8333}, {Method::kTensor, 128, 64, 8}},  // mm 128x5893x1536 NN bfloat16
    {ProductKind::kTf32, true, {5, 8}, {4167, 8333}, {1087, 2172}, {Method::kDirect, 16, 8, 4}},  // mm 8x1536x5893 NT tf32
    {ProductKind::kTwoBytes, true, {5, 8}, {4167, 8333}, {1087, 2172}, {Method::kDirect, 16, 8, 4}},  // mm 8x1536x5893 NT float16
    {ProductKind::kStrict, true, {5, 8}, {1087, 2172}, {363, 724}, {Method::kDot, 4, 8, 4}},  // mm 8x512x1536 NT float32
    {ProductKind::kStrict, false, {5, 8}, {2897, 5792}, {2897, 5792}, {Method::kTensor, 64, 8, 2}},  // mm 8x4096x4096 NN float32
    {ProductKind::kTf32, true, {17, 32}, {4167, 8333}, {1087, 2172}, {Method::kGroups, 64, 32, 1}},  // mm 32x1536x5893 NT tf32
    {ProductKind::kTwoBytes, true, {17, 32}, {4167, 8333}, {1087, 2172}, {Method::kGroups, 64, 32, 1}},  // mm 32x1536x5893 NT float16
    {ProductKind::kStrict, true, {17, 32}, {1087, 2172}, {363, 724}, {Method::kTensor, 64, 32, 4}},  // mm 32x512x1536 NT float32
    {ProductKind::kStrict, false, {17, 32}, {2897, 5792}, {2897, 5792}, {Method::kGroups, 64, 32, 2}},  // mm 32x4096x4096 NN float32
    {ProductKind::kTf32, true, {65, 128}, {4167, 8333}, {1087, 2172}, {Method::kGroups, 64, 128, 1}},  // mm 128x1536x5893 NT tf32
    {ProductKind::kTwoBytes, true, {65, 128}, {4167, 8333}, {1087, 2172}, {Method::kGroups, 64, 128, 1}},  // mm 128x1536x5893 NT float16
    {ProductKind::kStrict, true, {65, 128}, {1087, 2172}, {363, 724}, {Method::kTensor, 64, 64, 4}},  // mm 128x512x1536 NT float32
    {ProductKind::kStrict, false, {65, 128}, {2897, 5792}, {2897, 5792}, {Method::kGroups, 64, 128, 2}},  // mm 128x4096x4096 NN float32
    {ProductKind::kStrict, true, {1, 1}, {5553, 11105}, {1268, 2534}, {Method::kDot, 4, 1, 2}},  // addmm 1x1792x7853 NT float32
    {ProductKind::kTwoBytes, true, {1, 1}, {5553, 11105}, {1268, 2534}, {Method::kDot, 2, 1, 1}},  // addmm 1x1792x7853 NT bfloat16
    {ProductKind::kStrict, true, {33, 64}, {5553, 11105}, {1268, 2534}, {Method::kGroups, 64, 64, 1}},  // addmm 64x1792x7853 NT float32
    {ProductKind::kTwoBytes, true, {33, 64}, {5553, 11105}, {1268, 2534}, {Method::kGroups, 64, 64, 1}},  // addmm 64x1792x7853 NT bfloat16
    {ProductKind::kStrict, true, {65, 128}, {5553, 11105}, {1268, 2534}, {Method::kGroups, 64, 128, 1}},  // addmm 128x1792x7853 NT float32
    {ProductKind::kTwoBytes, true, {65, 128}, {5553, 11105}, {1268, 2534}, {Method::kGroups, 64, 128, 1}},  // addmm 128x1792x7853 NT bfloat16
    {ProductKind::kStrict, true, {1, 1}, {2263, 4525}, {363, 724}, {Method::kDot, 4, 1, 2}},  // mm 3200x512x1 NT float32
    {ProductKind::kTwoBytes, true, {1, 1}, {2263, 4525}, {363, 724}, {Method::kDot, 1, 1, 1}},  // mm 3200x512x1 NT bfloat16
}};
// clang-format on

}  // namespace tracer::overrides
