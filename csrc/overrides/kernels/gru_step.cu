// One GRU time step in one kernel; the sums run over [x, h]. In one of three ways: gru_step_rows.cuh for one or two sequences,
// gru_step_tiles.cuh for more, gru_step_groups.cu for many.
#include <type_traits>

#include "gru_cluster.cuh"
#include "gru_step_groups.h"
#include "gru_step_rows.cuh"
#include "gru_step_tiles.cuh"
#include "gru_tuned.h"

namespace tracer::overrides::gru {
namespace {

int tile_by_size(const Step& step, const Device& device) {
  if (step.batch <= 2) return 0;
  if (step.batch <= 16) return 1;
  if (device.capability < 90) return 2;  // without clusters more, smaller blocks
  return step.batch <= 32 ? 3 : step.batch <= 64 ? 4 : 5;
}

int wanted_tile(const Step& step, const Device& device) {
  if (step.tile >= 0) return step.tile;
  for (const TunedTile& row : kTunedTiles) {
    if (row.precision == step.precision && step.batch >= row.batch_from && step.batch <= row.batch_to && step.hidden >= row.hidden_from &&
        step.hidden <= row.hidden_to) {
      return row.tile;
    }
  }
  return step.batch > 32 ? kGroupsTile : tile_by_size(step, device);
}

int tile_for(const Step& step, const Device& device) {
  const int tile = wanted_tile(step, device);
  return tile == kGroupsTile && !suits_groups(step) ? tile_by_size(step, device) : tile;
}

template <Precision precision>
cudaError_t launch_precision(const Step& step, int tile, const Device& device, cudaStream_t stream) {
  const int64_t bytes = element_bytes(precision);
  StepArguments arguments{step,
                          aligned(step.x, step.directions, step.x_stride * bytes),
                          aligned(step.w_ih, step.directions, step.input * bytes),
                          aligned(step.h, step.directions, step.h_stride * bytes),
                          aligned(step.w_hh, step.directions, step.hidden * bytes),
                          step_results_vector(step),
                          1};
  // 32 units for 64 and for 128 sequences. kFloat32 has no registers for 32 sequences of a warp, so tile 5 is two of tile 4.
  constexpr Precision kOfRows = precision == Precision::kTf32 ? Precision::kFloat32 : precision;
  constexpr bool kSplit = precision == Precision::kFloat32;
  using SixtyFour = std::conditional_t<kSplit, Tile<2, 4, 1, 2, 4, 1>, Tile<2, 2, 2, 4, 4, 1>>;
  using Largest = std::conditional_t<kSplit, SixtyFour, Tile<2, 4, 1, 4, 4, 1>>;
  switch (tile) {
    case 0:
      return step.batch == 1 ? launch_rows<kOfRows, 1>(arguments, stream) : launch_rows<kOfRows, 2>(arguments, stream);
    case 1:
      return launch_tile<precision, Tile<1, 2, 4, 1, 5, 2>>(arguments, device, stream);  // 16 units, 16 sequences
    case 2:
      return launch_tile<precision, Tile<1, 2, 4, 2, 4, 2>>(arguments, device, stream);  // 16 units, 32 sequences
    case 3:
      return launch_tile<precision, Tile<2, 2, 2, 2, 5, 1>>(arguments, device, stream);  // 32 units, 32 sequences
    case 4:
      return launch_tile<precision, SixtyFour>(arguments, device, stream);
    default:
      // 8.6 and 8.9 have less shared memory.
      if (device.shared_bytes < Largest::kSharedBytes) return launch_tile<precision, SixtyFour>(arguments, device, stream);
      return launch_tile<precision, Largest>(arguments, device, stream);
  }
}

}  // namespace

cudaError_t launch_step(const Step& step, cudaStream_t stream) {
  const Device& device = current_device();
  int tile = tile_for(step, device);
  if (tile == kGroupsTile) {
    const cudaError_t error = launch_groups_step(step, stream);
    if (error != cudaErrorNotSupported) return error;  // else this driver makes no tensor maps
    tile = tile_by_size(step, device);
  }
  return with_precision(step.precision, [&](auto precision) { return launch_precision<precision()>(step, tile, device, stream); });
}

}  // namespace tracer::overrides::gru
