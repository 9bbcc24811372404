#include "gru_tuning.h"

#include <atomic>
#include <stdexcept>

namespace tracer::overrides {

namespace {

using gru::Plan;
using gru::Precision;

// A plan in one word, since another thread may be running the kernels; 0: none.
std::atomic<uint32_t> pinned_forward{0}, pinned_backward{0};
std::atomic<int> pinned_tile{-1};

bool is_forward(const std::string& pass) {
  if (pass == "forward") return true;
  if (pass == "backward") return false;
  throw std::invalid_argument("no pass \"" + pass + "\": forward or backward");
}

Plan plan_of(bool forward, Precision precision, int hidden, const GruPlan& sizes) {
  return forward ? gru::forward_plan_of(precision, hidden, sizes[0], sizes[1], sizes[2])
                 : gru::backward_plan_of(precision, hidden, sizes[0], sizes[1], sizes[2]);
}

Plan pinned_or_usual(bool forward, Precision precision, int batch, int hidden, int directions) {
  const uint32_t word = (forward ? pinned_forward : pinned_backward).load(std::memory_order_relaxed);
  if (word != 0) {
    Plan plan = plan_of(forward, precision, hidden, {int(word >> 16), int(word >> 8 & 255), int(word & 255)});
    if (plan.cluster != 0) return plan;
  }
  return forward ? gru::forward_plan(precision, batch, hidden, directions) : gru::backward_plan(precision, batch, hidden, directions);
}

}  // namespace

Precision precision_named(const std::string& name) {
  if (name == "float32") return Precision::kFloat32;
  if (name == "tf32") return Precision::kTf32;
  if (name == "bfloat16") return Precision::kBfloat16;
  if (name == "float16") return Precision::kFloat16;
  throw std::invalid_argument("no precision \"" + name + "\": float32, tf32, bfloat16 or float16");
}

std::vector<GruPlan> gru_plans(const std::string& pass, const std::string& precision, int hidden) {
  const bool forward = is_forward(pass);
  std::vector<GruPlan> plans;
  for (int cluster : {1, 2, 4, 8, 16}) {
    for (int units : {16, 32}) {
      for (int tile : {8, 16, 32}) {
        GruPlan sizes{cluster, units, tile};
        if (plan_of(forward, precision_named(precision), hidden, sizes).cluster != 0) plans.push_back(sizes);
      }
    }
  }
  return plans;
}

std::optional<GruPlan> gru_plan(const std::string& pass, const std::string& precision, int batch, int hidden, int directions) {
  Plan plan = pinned_or_usual(is_forward(pass), precision_named(precision), batch, hidden, directions);
  if (plan.cluster == 0) return std::nullopt;
  return GruPlan{plan.cluster, plan.units, plan.batch_tile};
}

void pin_gru_plan(const std::string& pass, std::optional<GruPlan> plan) {
  const uint32_t word = plan ? uint32_t((*plan)[0]) << 16 | uint32_t((*plan)[1]) << 8 | uint32_t((*plan)[2]) : 0;
  (is_forward(pass) ? pinned_forward : pinned_backward) = word;
}

void pin_gru_step_tile(int tile) {
  if (tile < -1 || tile >= gru::kStepTiles)
    throw std::invalid_argument("no tile " + std::to_string(tile) + ": -1 to " + std::to_string(gru::kStepTiles - 1));
  pinned_tile = tile;
}

namespace gru {
Plan forward_plan_now(Precision precision, int batch, int hidden, int directions) {
  return pinned_or_usual(true, precision, batch, hidden, directions);
}
Plan backward_plan_now(Precision precision, int batch, int hidden, int directions) {
  return pinned_or_usual(false, precision, batch, hidden, directions);
}
int step_tile_now() { return pinned_tile.load(std::memory_order_relaxed); }
}  // namespace gru

}  // namespace tracer::overrides
