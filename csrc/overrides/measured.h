// Where the overrides were measured to be faster than the stock kernels: what `auto` uses.
// Written by benchmarks/override_tuning.py: NVIDIA H200, torch 2.11.0+cu130.
#pragma once

#include <array>
#include <cstdint>

#include "kernels/mm.h"

namespace tracer::overrides {

// On another GPU these tables do not count: see measured_tables.h.
inline constexpr const char* kMeasuredOn = "NVIDIA H200";

struct Range {
  int64_t from, to;  // both included
  constexpr bool holds(int64_t value) const { return value >= from && value <= to; }
};

struct MeasuredMm {
  Element element;
  bool tf32, inner_major;
  Range columns, rows, inner;
};
// clang-format off: rows as the benchmark writes them
inline constexpr std::array<MeasuredMm, 63> kMeasuredMm{{
    {Element::kBfloat16, false, false, {1, 1}, {2897, 5792}, {2897, 5792}},  // mm 1x4096x4096 NN bfloat16
    {Element::kFloat, false, false, {2, 2}, {2897, 5792}, {2897, 5792}},  // mm 2x4096x4096 NN float32
    {Element::kBfloat16, false, false, {2, 2}, {2897, 5792}, {2897, 5792}},  // mm 2x4096x4096 NN bfloat16
    {Element::kFloat, false, false, {3, 4}, {2897, 5792}, {2897, 5792}},  // mm 4x4096x4096 NN float32
    {Element::kFloat, false, true, {5, 8}, {4167, 8333}, {1087, 2172}},  // mm 8x1536x5893 NT float32
    {Element::kBfloat16, false, true, {5, 8}, {4167, 8333}, {1087, 2172}},  // mm 8x1536x5893 NT bfloat16
    {Element::kFloat, false, false, {9, 16}, {2897, 5792}, {2897, 5792}},  // mm 16x4096x4096 NN float32
    {Element::kFloat, false, true, {33, 64}, {4167, 8333}, {1087, 2172}},  // mm 64x1536x5893 NT float32
    {Element::kBfloat16, false, true, {33, 64}, {4167, 8333}, {1087, 2172}},  // mm 64x1536x5893 NT bfloat16
    {Element::kFloat, false, true, {65, 128}, {4167, 8333}, {1087, 2172}},  // mm 128x1536x5893 NT float32
    {Element::kBfloat16, false, true, {65, 128}, {4167, 8333}, {1087, 2172}},  // mm 128x1536x5893 NT bfloat16
    {Element::kFloat, true, true, {5, 8}, {4167, 8333}, {1087, 2172}},  // mm 8x1536x5893 NT tf32
    {Element::kHalf, false, true, {5, 8}, {4167, 8333}, {1087, 2172}},  // mm 8x1536x5893 NT float16
    {Element::kFloat, true, true, {65, 128}, {4167, 8333}, {1087, 2172}},  // mm 128x1536x5893 NT tf32
    {Element::kHalf, false, true, {65, 128}, {4167, 8333}, {1087, 2172}},  // mm 128x1536x5893 NT float16
    {Element::kFloat, false, true, {1, 1}, {4167, 8333}, {1087, 2172}},  // mm 1x1536x5893 NT float32
    {Element::kFloat, false, true, {1, 1}, {2897, 5792}, {2897, 5792}},  // mm 1x4096x4096 NT float32
    {Element::kFloat, false, false, {1, 1}, {1087, 2172}, {4167, 8333}},  // mm 1x5893x1536 NN float32
    {Element::kBfloat16, false, true, {1, 1}, {4167, 8333}, {1087, 2172}},  // mm 1x1536x5893 NT bfloat16
    {Element::kBfloat16, false, true, {1, 1}, {2897, 5792}, {2897, 5792}},  // mm 1x4096x4096 NT bfloat16
    {Element::kBfloat16, false, false, {1, 1}, {1087, 2172}, {4167, 8333}},  // mm 1x5893x1536 NN bfloat16
    {Element::kFloat, false, true, {2, 2}, {4167, 8333}, {1087, 2172}},  // mm 2x1536x5893 NT float32
    {Element::kFloat, false, true, {2, 2}, {2897, 5792}, {2897, 5792}},  // mm 2x4096x4096 NT float32
    {Element::kFloat, false, false, {2, 2}, {1087, 2172}, {4167, 8333}},  // mm 2x5893x1536 NN float32
    {Element::kBfloat16, false, true, {2, 2}, {4167, 8333}, {1087, 2172}},  // mm 2x1536x5893 NT bfloat16
    {Element::kBfloat16, false, true, {2, 2}, {2897, 5792}, {2897, 5792}},  // mm 2x4096x4096 NT bfloat16
    {Element::kBfloat16, false, false, {2, 2}, {1087, 2172}, {4167, 8333}},  // mm 2x5893x1536 NN bfloat16
    {Element::kFloat, false, true, {3, 4}, {4167, 8333}, {1087, 2172}},  // mm 4x1536x5893 NT float32
    {Element::kFloat, false, true, {3, 4}, {2897, 5792}, {2897, 5792}},  // mm 4x4096x4096 NT float32
    {Element::kFloat, false, false, {3, 4}, {1087, 2172}, {4167, 8333}},  // mm 4x5893x1536 NN float32
    {Element::kBfloat16, false, true, {3, 4}, {4167, 8333}, {1087, 2172}},  // mm 4x1536x5893 NT bfloat16
    {Element::kBfloat16, false, true, {3, 4}, {2897, 5792}, {2897, 5792}},  // mm 4x4096x4096 NT bfloat16
    {Element::kBfloat16, false, false, {3, 4}, {1087, 2172}, {4167, 8333}},  // mm 4x5893x1536 NN bfloat16
    {Element::kFloat, false, true, {5, 8}, {2897, 5792}, {2897, 5792}},  // mm 8x4096x4096 NT float32
    {Element::kFloat, false, false, {5, 8}, {1087, 2172}, {4167, 8333}},  // mm 8x5893x1536 NN float32
    {Element::kBfloat16, false, true, {5, 8}, {2897, 5792}, {2897, 5792}},  // mm 8x4096x4096 NT bfloat16
    {Element::kBfloat16, false, false, {5, 8}, {1087, 2172}, {4167, 8333}},  // mm 8x5893x1536 NN bfloat16
    {Element::kFloat, false, true, {9, 16}, {4167, 8333}, {1087, 2172}},  // mm 16x1536x5893 NT float32
    {Element::kFloat, false, true, {9, 16}, {2897, 5792}, {2897, 5792}},  // mm 16x4096x4096 NT float32
    {Element::kFloat, false, false, {9, 16}, {1087, 2172}, {4167, 8333}},  // mm 16x5893x1536 NN float32
    {Element::kBfloat16, false, true, {9, 16}, {4167, 8333}, {1087, 2172}},  // mm 16x1536x5893 NT bfloat16
    {Element::kFloat, false, true, {17, 32}, {4167, 8333}, {1087, 2172}},  // mm 32x1536x5893 NT float32
    {Element::kFloat, false, true, {17, 32}, {2897, 5792}, {2897, 5792}},  // mm 32x4096x4096 NT float32
    {Element::kFloat, false, false, {17, 32}, {1087, 2172}, {4167, 8333}},  // mm 32x5893x1536 NN float32
    {Element::kBfloat16, false, true, {17, 32}, {4167, 8333}, {1087, 2172}},  // mm 32x1536x5893 NT bfloat16
    {Element::kFloat, false, true, {33, 64}, {2897, 5792}, {2897, 5792}},  // mm 64x4096x4096 NT float32
    {Element::kFloat, false, true, {65, 128}, {2897, 5792}, {2897, 5792}},  // mm 128x4096x4096 NT float32
    {Element::kFloat, false, true, {5, 8}, {1087, 2172}, {363, 724}},  // mm 8x512x1536 NT float32
    {Element::kFloat, false, false, {5, 8}, {2897, 5792}, {2897, 5792}},  // mm 8x4096x4096 NN float32
    {Element::kFloat, true, true, {17, 32}, {4167, 8333}, {1087, 2172}},  // mm 32x1536x5893 NT tf32
    {Element::kHalf, false, true, {17, 32}, {4167, 8333}, {1087, 2172}},  // mm 32x1536x5893 NT float16
    {Element::kFloat, false, true, {17, 32}, {1087, 2172}, {363, 724}},  // mm 32x512x1536 NT float32
    {Element::kFloat, false, false, {17, 32}, {2897, 5792}, {2897, 5792}},  // mm 32x4096x4096 NN float32
    {Element::kFloat, false, true, {65, 128}, {1087, 2172}, {363, 724}},  // mm 128x512x1536 NT float32
    {Element::kFloat, false, false, {65, 128}, {2897, 5792}, {2897, 5792}},  // mm 128x4096x4096 NN float32
    {Element::kFloat, false, true, {1, 1}, {5553, 11105}, {1268, 2534}},  // addmm 1x1792x7853 NT float32
    {Element::kBfloat16, false, true, {1, 1}, {5553, 11105}, {1268, 2534}},  // addmm 1x1792x7853 NT bfloat16
    {Element::kFloat, false, true, {33, 64}, {5553, 11105}, {1268, 2534}},  // addmm 64x1792x7853 NT float32
    {Element::kBfloat16, false, true, {33, 64}, {5553, 11105}, {1268, 2534}},  // addmm 64x1792x7853 NT bfloat16
    {Element::kFloat, false, true, {65, 128}, {5553, 11105}, {1268, 2534}},  // addmm 128x1792x7853 NT float32
    {Element::kBfloat16, false, true, {65, 128}, {5553, 11105}, {1268, 2534}},  // addmm 128x1792x7853 NT bfloat16
    {Element::kFloat, false, true, {1, 1}, {2263, 4525}, {363, 724}},  // mm 3200x512x1 NT float32
    {Element::kBfloat16, false, true, {1, 1}, {2263, 4525}, {363, 724}},  // mm 3200x512x1 NT bfloat16
}};
// clang-format on

struct MeasuredCat {
  Range tensors, bytes;  // of the result
  bool aligned;          // every piece begins and ends at a multiple of 16 bytes
};
// clang-format off: rows as the benchmark writes them
inline constexpr std::array<MeasuredCat, 8> kMeasuredCat{{
    {{3, 4}, {278046, 556091}, true},  // cat dim 1 64x512 64x512 64x512 float32
    {{2, 2}, {94906266, 189812531}, true},  // cat dim 0 4096x4096 4096x4096 float32
    {{2, 2}, {94906266, 189812531}, true},  // cat dim 1 4096x4096 4096x4096 float32
    {{3, 5}, {1518500250, 3037000499}, true},  // cat dim 1 16384x8192 16384x8192 16384x8192 and 1 more float32
    {{2, 2}, {94929437, 189858872}, false},  // cat dim 1 8192x4097 8192x4097 bfloat16
    {{3, 4}, {1782135363, 3564270725}, true},  // cat dim 1 20000x30108 20000x624 20000x772 float32
    {{5, 8}, {54496958, 108993914}, true},  // cat dim 1 64x32x56x56 64x32x56x56 64x32x56x56 and 3 more bfloat16
    {{3, 5}, {47453133, 94906265}, false},  // cat dim 1 4194304x1 4194304x1 4194304x1 and 1 more float32
}};
// clang-format on

}  // namespace tracer::overrides
