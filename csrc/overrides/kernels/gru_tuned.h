// Plans and tiles that were measured to be the fastest. Where none fits, the size decides
// alone (choose_plan in gru_cluster.cuh, tile_for in gru_step.cu).
// Written by benchmarks/gru_tuning.py: NVIDIA H200, torch 2.11.0+cu130; tile 6 was measured on one NVIDIA H100.
#pragma once

#include <array>

#include "gru.h"

namespace tracer::overrides::gru {

struct TunedPlan {
  bool forward;
  Precision precision;
  int batch_from, batch_to;    // both included
  int hidden_from, hidden_to;
  int cluster, units, batch_tile;
};
// clang-format off: rows as the benchmark writes them
inline constexpr std::array<TunedPlan, 40> kTunedPlans{{
    {true, Precision::kTf32, 46, 90, 363, 724, 16, 32, 16},  // T32 B64 I256 H512 tf32
    {false, Precision::kTf32, 46, 90, 363, 724, 16, 32, 16},  // T32 B64 I256 H512 tf32
    {true, Precision::kFloat32, 46, 90, 363, 724, 16, 32, 16},  // T32 B64 I256 H512 float32
    {false, Precision::kFloat32, 46, 90, 363, 724, 16, 32, 16},  // T32 B64 I256 H512 float32
    {true, Precision::kBfloat16, 46, 90, 363, 724, 16, 32, 16},  // T32 B64 I256 H512 bfloat16
    {false, Precision::kBfloat16, 46, 90, 363, 724, 16, 32, 16},  // T32 B64 I256 H512 bfloat16
    {true, Precision::kFloat16, 46, 90, 363, 724, 16, 32, 16},  // T32 B64 I256 H512 float16
    {false, Precision::kFloat16, 46, 90, 363, 724, 16, 32, 16},  // T32 B64 I256 H512 float16
    {true, Precision::kTf32, 91, 181, 363, 724, 16, 32, 32},  // T32 B128 I256 H512 tf32
    {false, Precision::kTf32, 91, 181, 363, 724, 16, 32, 32},  // T32 B128 I256 H512 tf32
    {true, Precision::kFloat32, 91, 181, 363, 724, 16, 32, 32},  // T32 B128 I256 H512 float32
    {false, Precision::kFloat32, 91, 181, 363, 724, 16, 32, 32},  // T32 B128 I256 H512 float32
    {true, Precision::kBfloat16, 91, 181, 363, 724, 16, 32, 32},  // T32 B128 I256 H512 bfloat16
    {false, Precision::kBfloat16, 91, 181, 363, 724, 16, 32, 32},  // T32 B128 I256 H512 bfloat16
    {true, Precision::kFloat16, 91, 181, 363, 724, 16, 32, 32},  // T32 B128 I256 H512 float16
    {false, Precision::kFloat16, 91, 181, 363, 724, 16, 32, 32},  // T32 B128 I256 H512 float16
    {true, Precision::kTf32, 12, 22, 363, 724, 16, 32, 8},  // T32 B16 I256 H512 tf32
    {false, Precision::kTf32, 12, 22, 363, 724, 16, 32, 8},  // T32 B16 I256 H512 tf32
    {true, Precision::kFloat32, 12, 22, 363, 724, 16, 32, 8},  // T32 B16 I256 H512 float32
    {false, Precision::kFloat32, 12, 22, 363, 724, 16, 32, 8},  // T32 B16 I256 H512 float32
    {true, Precision::kBfloat16, 12, 22, 363, 724, 16, 32, 8},  // T32 B16 I256 H512 bfloat16
    {false, Precision::kBfloat16, 12, 22, 363, 724, 16, 32, 8},  // T32 B16 I256 H512 bfloat16
    {true, Precision::kFloat16, 12, 22, 363, 724, 16, 32, 8},  // T32 B16 I256 H512 float16
    {false, Precision::kFloat16, 12, 22, 363, 724, 16, 32, 8},  // T32 B16 I256 H512 float16
    {true, Precision::kTf32, 23, 45, 182, 362, 16, 16, 8},  // T32 B32 I256 H256 tf32
    {false, Precision::kTf32, 23, 45, 182, 362, 8, 32, 8},  // T32 B32 I256 H256 tf32
    {true, Precision::kFloat32, 23, 45, 182, 362, 16, 16, 8},  // T32 B32 I256 H256 float32
    {false, Precision::kFloat32, 23, 45, 182, 362, 8, 32, 8},  // T32 B32 I256 H256 float32
    {true, Precision::kBfloat16, 23, 45, 182, 362, 8, 32, 8},  // T32 B32 I256 H256 bfloat16
    {false, Precision::kBfloat16, 23, 45, 182, 362, 8, 32, 8},  // T32 B32 I256 H256 bfloat16
    {true, Precision::kFloat16, 23, 45, 182, 362, 8, 32, 8},  // T32 B32 I256 H256 float16
    {false, Precision::kFloat16, 23, 45, 182, 362, 8, 32, 8},  // T32 B32 I256 H256 float16
    {true, Precision::kTf32, 1, 1, 363, 724, 16, 32, 8},  // T32 B1 I256 H512 tf32
    {false, Precision::kTf32, 1, 1, 363, 724, 16, 32, 8},  // T32 B1 I256 H512 tf32
    {true, Precision::kFloat32, 1, 1, 363, 724, 16, 32, 8},  // T32 B1 I256 H512 float32
    {false, Precision::kFloat32, 1, 1, 363, 724, 16, 32, 8},  // T32 B1 I256 H512 float32
    {true, Precision::kBfloat16, 1, 1, 363, 724, 16, 32, 8},  // T32 B1 I256 H512 bfloat16
    {false, Precision::kBfloat16, 1, 1, 363, 724, 16, 32, 8},  // T32 B1 I256 H512 bfloat16
    {true, Precision::kFloat16, 1, 1, 363, 724, 16, 32, 8},  // T32 B1 I256 H512 float16
    {false, Precision::kFloat16, 1, 1, 363, 724, 16, 32, 8},  // T32 B1 I256 H512 float16
}};
// clang-format on

struct TunedTile {
  Precision precision;
  int batch_from, batch_to;
  int hidden_from, hidden_to;
  int tile;
};
// clang-format off: rows as the benchmark writes them
inline constexpr std::array<TunedTile, 31> kTunedTiles{{
    {Precision::kFloat32, 1, 1, 363, 724, 0},  // T1 B1 I1536 H512 float32
    {Precision::kBfloat16, 1, 1, 363, 724, 0},  // T1 B1 I1536 H512 bfloat16
    {Precision::kFloat16, 1, 1, 363, 724, 0},  // T1 B1 I1536 H512 float16
    {Precision::kTf32, 2, 2, 363, 724, 0},  // T1 B2 I1536 H512 tf32
    {Precision::kFloat32, 2, 2, 363, 724, 0},  // T1 B2 I1536 H512 float32
    {Precision::kBfloat16, 2, 2, 363, 724, 0},  // T1 B2 I1536 H512 bfloat16
    {Precision::kFloat16, 2, 2, 363, 724, 0},  // T1 B2 I1536 H512 float16
    {Precision::kTf32, 3, 5, 363, 724, 0},  // T1 B4 I1536 H512 tf32
    {Precision::kFloat32, 3, 5, 363, 724, 0},  // T1 B4 I1536 H512 float32
    {Precision::kBfloat16, 3, 5, 363, 724, 0},  // T1 B4 I1536 H512 bfloat16
    {Precision::kFloat16, 3, 5, 363, 724, 0},  // T1 B4 I1536 H512 float16
    {Precision::kTf32, 6, 11, 363, 724, 1},  // T1 B8 I1536 H512 tf32
    {Precision::kFloat32, 6, 11, 363, 724, 1},  // T1 B8 I1536 H512 float32
    {Precision::kBfloat16, 6, 11, 363, 724, 1},  // T1 B8 I1536 H512 bfloat16
    {Precision::kFloat16, 6, 11, 363, 724, 1},  // T1 B8 I1536 H512 float16
    {Precision::kTf32, 12, 22, 363, 724, 1},  // T1 B16 I1536 H512 tf32
    {Precision::kFloat32, 12, 22, 363, 724, 1},  // T1 B16 I1536 H512 float32
    {Precision::kBfloat16, 12, 22, 363, 724, 1},  // T1 B16 I1536 H512 bfloat16
    {Precision::kFloat16, 12, 22, 363, 724, 1},  // T1 B16 I1536 H512 float16
    {Precision::kTf32, 23, 45, 363, 724, 6},  // T1 B32 I1536 H512 tf32
    {Precision::kFloat32, 23, 45, 363, 724, 2},  // T1 B32 I1536 H512 float32
    {Precision::kBfloat16, 23, 45, 363, 724, 6},  // T1 B32 I1536 H512 bfloat16
    {Precision::kFloat16, 23, 45, 363, 724, 6},  // T1 B32 I1536 H512 float16
    {Precision::kTf32, 46, 90, 363, 724, 6},  // T1 B64 I1536 H512 tf32
    {Precision::kFloat32, 46, 90, 363, 724, 2},  // T1 B64 I1536 H512 float32
    {Precision::kBfloat16, 46, 90, 363, 724, 6},  // T1 B64 I1536 H512 bfloat16
    {Precision::kFloat16, 46, 90, 363, 724, 6},  // T1 B64 I1536 H512 float16
    {Precision::kTf32, 91, 181, 363, 724, 6},  // T1 B128 I1536 H512 tf32
    {Precision::kFloat32, 91, 181, 363, 724, 2},  // T1 B128 I1536 H512 float32
    {Precision::kBfloat16, 91, 181, 363, 724, 2},  // T1 B128 I1536 H512 bfloat16
    {Precision::kFloat16, 91, 181, 363, 724, 2},  // T1 B128 I1536 H512 float16
}};
// clang-format on

}  // namespace tracer::overrides::gru
