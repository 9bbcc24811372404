// Which plans the GRU's kernels have, and taking another than the usual one: for tuning and tests.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "../kernels/gru.h"

namespace tracer::overrides {

// Blocks of a cluster, hidden units of a block, sequences of a cluster.
using GruPlan = std::array<int, 3>;

// float32, tf32, bfloat16 or float16. Throws std::invalid_argument.
gru::Precision precision_named(const std::string& name);
// `pass`: forward or backward; `precision`: float32, tf32, bfloat16 or float16. Of the current device. Throws std::invalid_argument.
std::vector<GruPlan> gru_plans(const std::string& pass, const std::string& precision, int hidden);
// The plan that is taken, or none where every time step has a kernel of its own.
std::optional<GruPlan> gru_plan(const std::string& pass, const std::string& precision, int batch, int hidden, int directions);
// Taken from now on wherever it fits; nothing: the usual one.
void pin_gru_plan(const std::string& pass, std::optional<GruPlan> plan);
// The tile of a single time step, below gru::kStepTiles; -1: the usual one.
void pin_gru_step_tile(int tile);

namespace gru {
Plan forward_plan_now(Precision precision, int batch, int hidden, int directions);
Plan backward_plan_now(Precision precision, int batch, int hidden, int directions);
int step_tile_now();
}  // namespace gru

}  // namespace tracer::overrides
