// Plans and tiles that were measured to be the fastest; benchmarks/gru_tuning.py prints the rows. Where none fits, the choice goes by
// size alone (choose_plan in gru_cluster.cuh, tile_for in gru_step.cu).
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
inline constexpr std::array<TunedPlan, 0> kTunedPlans{};

struct TunedTile {
  Precision precision;
  int batch_from, batch_to;
  int hidden_from, hidden_to;
  int tile;
};
inline constexpr std::array<TunedTile, 0> kTunedTiles{};

}  // namespace tracer::overrides::gru
