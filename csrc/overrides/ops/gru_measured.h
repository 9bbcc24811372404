// Where the GRU was measured to be faster than the stock one: what `auto` uses.
// Written by benchmarks/gru_tuning.py: NVIDIA H200, torch 2.11.0+cu130.
#pragma once

#include <array>

#include "../kernels/gru.h"
#include "../measured.h"

namespace tracer::overrides::gru {

inline constexpr const char* kMeasuredOn = "NVIDIA H200";

struct MeasuredGru {
  Precision precision;
  Range steps, batch, input, hidden;
};
// clang-format off: rows as the benchmark writes them
inline constexpr std::array<MeasuredGru, 49> kMeasuredGru{{
    {Precision::kTf32, {23, 45}, {46, 90}, {182, 362}, {363, 724}},  // T32 B64 I256 H512 tf32
    {Precision::kFloat32, {23, 45}, {46, 90}, {182, 362}, {363, 724}},  // T32 B64 I256 H512 float32
    {Precision::kBfloat16, {23, 45}, {46, 90}, {182, 362}, {363, 724}},  // T32 B64 I256 H512 bfloat16
    {Precision::kFloat16, {23, 45}, {46, 90}, {182, 362}, {363, 724}},  // T32 B64 I256 H512 float16
    {Precision::kTf32, {23, 45}, {91, 181}, {182, 362}, {363, 724}},  // T32 B128 I256 H512 tf32
    {Precision::kFloat32, {23, 45}, {91, 181}, {182, 362}, {363, 724}},  // T32 B128 I256 H512 float32
    {Precision::kBfloat16, {23, 45}, {91, 181}, {182, 362}, {363, 724}},  // T32 B128 I256 H512 bfloat16
    {Precision::kFloat16, {23, 45}, {91, 181}, {182, 362}, {363, 724}},  // T32 B128 I256 H512 float16
    {Precision::kTf32, {23, 45}, {12, 22}, {182, 362}, {363, 724}},  // T32 B16 I256 H512 tf32
    {Precision::kFloat32, {23, 45}, {12, 22}, {182, 362}, {363, 724}},  // T32 B16 I256 H512 float32
    {Precision::kBfloat16, {23, 45}, {12, 22}, {182, 362}, {363, 724}},  // T32 B16 I256 H512 bfloat16
    {Precision::kFloat16, {23, 45}, {12, 22}, {182, 362}, {363, 724}},  // T32 B16 I256 H512 float16
    {Precision::kTf32, {23, 45}, {23, 45}, {182, 362}, {182, 362}},  // T32 B32 I256 H256 tf32
    {Precision::kFloat32, {23, 45}, {23, 45}, {182, 362}, {182, 362}},  // T32 B32 I256 H256 float32
    {Precision::kBfloat16, {23, 45}, {23, 45}, {182, 362}, {182, 362}},  // T32 B32 I256 H256 bfloat16
    {Precision::kFloat16, {23, 45}, {23, 45}, {182, 362}, {182, 362}},  // T32 B32 I256 H256 float16
    {Precision::kTf32, {23, 45}, {1, 1}, {182, 362}, {363, 724}},  // T32 B1 I256 H512 tf32
    {Precision::kFloat32, {23, 45}, {1, 1}, {182, 362}, {363, 724}},  // T32 B1 I256 H512 float32
    {Precision::kBfloat16, {23, 45}, {1, 1}, {182, 362}, {363, 724}},  // T32 B1 I256 H512 bfloat16
    {Precision::kFloat16, {23, 45}, {1, 1}, {182, 362}, {363, 724}},  // T32 B1 I256 H512 float16
    {Precision::kFloat32, {1, 1}, {1, 1}, {1087, 2172}, {363, 724}},  // T1 B1 I1536 H512 float32
    {Precision::kBfloat16, {1, 1}, {1, 1}, {1087, 2172}, {363, 724}},  // T1 B1 I1536 H512 bfloat16
    {Precision::kFloat16, {1, 1}, {1, 1}, {1087, 2172}, {363, 724}},  // T1 B1 I1536 H512 float16
    {Precision::kTf32, {1, 1}, {2, 2}, {1087, 2172}, {363, 724}},  // T1 B2 I1536 H512 tf32
    {Precision::kFloat32, {1, 1}, {2, 2}, {1087, 2172}, {363, 724}},  // T1 B2 I1536 H512 float32
    {Precision::kBfloat16, {1, 1}, {2, 2}, {1087, 2172}, {363, 724}},  // T1 B2 I1536 H512 bfloat16
    {Precision::kFloat16, {1, 1}, {2, 2}, {1087, 2172}, {363, 724}},  // T1 B2 I1536 H512 float16
    {Precision::kTf32, {1, 1}, {3, 5}, {1087, 2172}, {363, 724}},  // T1 B4 I1536 H512 tf32
    {Precision::kFloat32, {1, 1}, {3, 5}, {1087, 2172}, {363, 724}},  // T1 B4 I1536 H512 float32
    {Precision::kBfloat16, {1, 1}, {3, 5}, {1087, 2172}, {363, 724}},  // T1 B4 I1536 H512 bfloat16
    {Precision::kFloat16, {1, 1}, {3, 5}, {1087, 2172}, {363, 724}},  // T1 B4 I1536 H512 float16
    {Precision::kTf32, {1, 1}, {6, 11}, {1087, 2172}, {363, 724}},  // T1 B8 I1536 H512 tf32
    {Precision::kFloat32, {1, 1}, {6, 11}, {1087, 2172}, {363, 724}},  // T1 B8 I1536 H512 float32
    {Precision::kBfloat16, {1, 1}, {6, 11}, {1087, 2172}, {363, 724}},  // T1 B8 I1536 H512 bfloat16
    {Precision::kFloat16, {1, 1}, {6, 11}, {1087, 2172}, {363, 724}},  // T1 B8 I1536 H512 float16
    {Precision::kTf32, {1, 1}, {12, 22}, {1087, 2172}, {363, 724}},  // T1 B16 I1536 H512 tf32
    {Precision::kFloat32, {1, 1}, {12, 22}, {1087, 2172}, {363, 724}},  // T1 B16 I1536 H512 float32
    {Precision::kBfloat16, {1, 1}, {12, 22}, {1087, 2172}, {363, 724}},  // T1 B16 I1536 H512 bfloat16
    {Precision::kFloat16, {1, 1}, {12, 22}, {1087, 2172}, {363, 724}},  // T1 B16 I1536 H512 float16
    {Precision::kTf32, {1, 1}, {23, 45}, {1087, 2172}, {363, 724}},  // T1 B32 I1536 H512 tf32
    {Precision::kFloat32, {1, 1}, {23, 45}, {1087, 2172}, {363, 724}},  // T1 B32 I1536 H512 float32
    {Precision::kBfloat16, {1, 1}, {23, 45}, {1087, 2172}, {363, 724}},  // T1 B32 I1536 H512 bfloat16
    {Precision::kFloat16, {1, 1}, {23, 45}, {1087, 2172}, {363, 724}},  // T1 B32 I1536 H512 float16
    {Precision::kFloat32, {1, 1}, {46, 90}, {1087, 2172}, {363, 724}},  // T1 B64 I1536 H512 float32
    {Precision::kBfloat16, {1, 1}, {46, 90}, {1087, 2172}, {363, 724}},  // T1 B64 I1536 H512 bfloat16
    {Precision::kFloat16, {1, 1}, {46, 90}, {1087, 2172}, {363, 724}},  // T1 B64 I1536 H512 float16
    {Precision::kFloat32, {1, 1}, {91, 181}, {1087, 2172}, {363, 724}},  // T1 B128 I1536 H512 float32
    {Precision::kBfloat16, {1, 1}, {91, 181}, {1087, 2172}, {363, 724}},  // T1 B128 I1536 H512 bfloat16
    {Precision::kFloat16, {1, 1}, {91, 181}, {1087, 2172}, {363, 724}},  // T1 B128 I1536 H512 float16
}};
// clang-format on

}  // namespace tracer::overrides::gru
