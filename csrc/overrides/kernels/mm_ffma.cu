// Tiles in fp32 with FMA: every product and sum rounded as an fp32 operation rounds it.
#include "mm_tile.cuh"

namespace tracer::overrides {

namespace {

// A thread sums kThreadRows x kThreadColumns; 8 threads of a warp lie along the rows.
template <int kThreadRows, int kThreadColumns>
struct FfmaMath {
  using T = float;
  static constexpr bool kRepairs = false;
  template <class>
  static constexpr int blocks_at_once() {
    return 1;
  }

  template <class Tile, bool kAcross>
  struct Accumulator {
    static constexpr int kDown = Tile::kRows / kThreadRows, kAside = Tile::kColumns / kThreadColumns;
    static_assert(Tile::kThreads == kDown * kAside * Tile::kParts && kDown % 8 == 0, "a thread for each piece and part");
    static constexpr int kGroups = kStageBytes / 16;  // of 4 steps of the inner dimension
    static_assert(kGroups % Tile::kParts == 0 && kThreadRows % 4 == 0);

    float sums[kThreadRows][kThreadColumns] = {};

    __device__ static int part_of(int thread) { return thread / (kDown * kAside); }
    __device__ static int down_of(int thread) { return thread % 8 + thread / 8 / kAside % (kDown / 8) * 8; }
    __device__ static int aside_of(int thread) { return thread / 8 % kAside; }
    // Neighbouring threads read neighbouring rows; across, four rows lie in one load.
    __device__ static int row_of(int down, int r) { return kAcross ? down * 4 + r % 4 + r / 4 * 4 * kDown : down + r * kDown; }

    __device__ void add(const char* weight, const char* input, int thread) {
      constexpr int kWeightPitch = WeightTile<T, Tile::kRows, kAcross>::kPitchBytes;
      const int down = down_of(thread), aside = aside_of(thread), part = part_of(thread);
#pragma unroll 1
      for (int group = part; group < kGroups; group += Tile::kParts) {
        float a[kThreadRows][4];
        if constexpr (kAcross) {
#pragma unroll
          for (int k = 0; k < 4; ++k)
#pragma unroll
            for (int r = 0; r < kThreadRows; r += 4) {
              float4 four = *reinterpret_cast<const float4*>(weight + (group * 4 + k) * kWeightPitch + row_of(down, r) * 4);
              a[r][k] = four.x, a[r + 1][k] = four.y, a[r + 2][k] = four.z, a[r + 3][k] = four.w;
            }
        } else {
#pragma unroll
          for (int r = 0; r < kThreadRows; ++r) {
            float4 four = *reinterpret_cast<const float4*>(weight + row_of(down, r) * kWeightPitch + group * 16);
            a[r][0] = four.x, a[r][1] = four.y, a[r][2] = four.z, a[r][3] = four.w;
          }
        }
#pragma unroll
        for (int c = 0; c < kThreadColumns; ++c) {
          float4 b = *reinterpret_cast<const float4*>(input + (aside + c * kAside) * kPitch + group * 16);
#pragma unroll
          for (int r = 0; r < kThreadRows; ++r) {
            sums[r][c] = fmaf(a[r][0], b.x, sums[r][c]);
            sums[r][c] = fmaf(a[r][1], b.y, sums[r][c]);
            sums[r][c] = fmaf(a[r][2], b.z, sums[r][c]);
            sums[r][c] = fmaf(a[r][3], b.w, sums[r][c]);
          }
        }
      }
    }

    __device__ void store(float* all, int pitch, int thread) const {
      const int down = down_of(thread), aside = aside_of(thread);
      float* mine = all + part_of(thread) * Tile::kColumns * pitch;
#pragma unroll
      for (int c = 0; c < kThreadColumns; ++c)
#pragma unroll
        for (int r = 0; r < kThreadRows; ++r) mine[(aside + c * kAside) * pitch + row_of(down, r)] = sums[r][c];
    }
  };
};

}  // namespace

const std::vector<TileSize>& ffma_tiles() {
  static const auto& tiles = *new std::vector<TileSize>{{64, 16}, {64, 32}, {64, 64}, {128, 64}, {64, 128}};
  return tiles;
}

cudaError_t launch_ffma(const Mm& mm, const Plan& plan, int device, cudaStream_t stream) {
  switch (plan.tile_rows * 1000 + plan.tile_columns) {
    case 64016:
      return launch_tile<FfmaMath<8, 4>, Tile<64, 16, 128, 4, 4>>(mm, device, stream);
    case 64032:
      return launch_tile<FfmaMath<8, 8>, Tile<64, 32, 128, 4, 3>>(mm, device, stream);
    case 64064:
      return launch_tile<FfmaMath<8, 8>, Tile<64, 64, 128, 2, 3>>(mm, device, stream);
    case 128064:
      return launch_tile<FfmaMath<8, 8>, Tile<128, 64, 128, 1, 3>>(mm, device, stream);
    case 64128:
      return launch_tile<FfmaMath<8, 8>, Tile<64, 128, 128, 1, 3>>(mm, device, stream);
  }
  return cudaErrorInvalidValue;
}

}  // namespace tracer::overrides
