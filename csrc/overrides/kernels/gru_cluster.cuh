// What the forward and the backward recurrence share: rows in shared memory, and the choice of a plan.
#pragma once

#include <map>
#include <mutex>
#include <tuple>

#include "gru_launch.cuh"
#include "gru_numbers.cuh"
#include "gru_tuned.h"

namespace tracer::overrides::gru {

// Bytes of a row of `elements` in shared memory, a multiple of 64 and odd times that, so that a warp's reads of 16 bytes of
// 8 rows meet no bank twice.
constexpr int row_bytes(int elements, int element_bytes) {
  const int blocks = (elements * element_bytes + 63) / 64;
  return (blocks | 1) * 64;
}

// The whole barrier of the cluster. The block's own barrier between the halves, where threads wait anyway, is for compute-sanitizer:
// without it racecheck reports accesses within a block that the cluster's barrier orders.
__device__ __forceinline__ void cluster_meet() {
  cluster_arrive();
  __syncthreads();
  cluster_wait();
}

template <typename Function>
auto with_precision(Precision precision, Function&& function) {
  switch (precision) {
    case Precision::kFloat32:
      return function(std::integral_constant<Precision, Precision::kFloat32>());
    case Precision::kTf32:
      return function(std::integral_constant<Precision, Precision::kTf32>());
    case Precision::kBfloat16:
      return function(std::integral_constant<Precision, Precision::kBfloat16>());
    default:
      return function(std::integral_constant<Precision, Precision::kFloat16>());
  }
}
// Tiles of 8, 16 and 32 sequences are 1, 2 and 4 mma tiles.
template <typename Function>
auto with_tiles(int batch_tile, Function&& function) {
  switch (batch_tile) {
    case 8:
      return function(std::integral_constant<int, 1>());
    case 16:
      return function(std::integral_constant<int, 2>());
    default:
      return function(std::integral_constant<int, 4>());
  }
}

inline bool is_plan(int hidden, int cluster, int units, int batch_tile) {
  return current_device().capability == 90 && cluster >= 1 && cluster <= 16 && (cluster & (cluster - 1)) == 0 &&
         (units == 16 || units == 32) && (batch_tile == 8 || batch_tile == 16 || batch_tile == 32) && hidden >= 1 &&
         hidden <= cluster * units;
}

// A plan that was tuned for these sizes; else the smallest batch tile with which all clusters run at once, or the largest that fits,
// with blocks of 32 units before blocks of 16. `plan_of(cluster, units, batch_tile)` gives a plan, `active(plan)` how many of its
// clusters run at once.
template <typename PlanOf, typename Active>
Plan choose_plan(bool forward, Precision precision, int batch, int hidden, int directions, PlanOf&& plan_of, Active&& active) {
  for (const TunedPlan& row : kTunedPlans) {
    if (row.forward != forward || row.precision != precision || batch < row.batch_from || batch > row.batch_to ||
        hidden < row.hidden_from || hidden > row.hidden_to) {
      continue;
    }
    Plan plan = plan_of(row.cluster, row.units, row.batch_tile);
    if (plan.cluster != 0 && active(plan) > 0) return plan;
  }
  Plan best;
  for (int units : {32, 16}) {
    int cluster = 1;
    while (cluster * units < hidden) cluster *= 2;
    for (int batch_tile : {8, 16, 32}) {
      Plan plan = plan_of(cluster, units, batch_tile);
      const int clusters = plan.cluster == 0 ? 0 : active(plan);
      if (clusters == 0) continue;
      best = plan;
      if (int64_t(batch + batch_tile - 1) / batch_tile * directions <= clusters || batch <= batch_tile) return plan;
    }
    if (best.cluster != 0) return best;
  }
  return best;
}

// The launch of a plan: a cluster for each tile of sequences and each direction.
inline Launch cluster_shape(int threads, const Plan& plan, int batch, int directions) {
  Launch shape;
  shape.grid = dim3(plan.cluster, (batch + plan.batch_tile - 1) / plan.batch_tile, directions);
  shape.block = dim3(threads);
  shape.cluster = plan.cluster;
  shape.shared_bytes = plan.shared_bytes;
  return shape;
}

// Plans asked for before, since the driver takes microseconds to answer.
class Plans {
 public:
  template <typename Choose>
  Plan get(Precision precision, int batch, int hidden, int directions, Choose&& choose) {
    const auto key = std::make_tuple(current_index(), int(precision), batch, hidden, directions);
    std::lock_guard<std::mutex> lock(mutex_);
    auto found = plans_.find(key);
    if (found == plans_.end()) found = plans_.emplace(key, choose()).first;
    return found->second;
  }

 private:
  std::mutex mutex_;
  std::map<std::tuple<int, int, int, int, int>, Plan> plans_;
};

}  // namespace tracer::overrides::gru
