// The forward recurrence of kFloat32 where W_hh fits into no cluster but into the whole GPU. A block owns some hidden units for some
// sequences for all time steps; blocks of the same sequences are a group, which meets at a counter in global memory after each step.
//
//             units 0..31   units 32..  ..            A step of a block: warp p multiplies part p of k, an eighth, of its rows of
//   seq 0..31 | block 0   | block 1   | .. group 0    W_hh with h. Nobody else in the block needs this part of h, so it comes from the
//   seq 32..  | block 32  | block 33  | .. group 1    output of the step before straight into the fragments; W_hh stays in registers
//   ..                                                and shared memory. Then the eight parts are added up, the upper four to the
//                                                     lower four first, and each thread ends the gates of 4 elements.
//
// All blocks run at once (a cooperative launch). Two shapes: 32 units and 32 sequences, or 16 units and 64 sequences.
#include "gru_cluster.cuh"
#include "gru_grid_groups.h"

namespace tracer::overrides::gru {
namespace {

constexpr Precision precision = Precision::kFloat32;
constexpr int kParts = 8, kThreads = 32 * kParts;

struct GridArguments {
  Forward forward;
  unsigned* counters;  // one for each group, zero before the launch
  int direction, first_sequence, unit_blocks;
  int per_part;        // blocks of 64 bytes of k
};

// 64-byte blocks of a part whose weights stay in registers: as few as shared memory allows where W_hh has 1024 columns.
__host__ __device__ constexpr int kept_blocks(int unit_tiles) { return unit_tiles == 2 ? 1 : 2; }

// A piece of h for each of a warp's tiles of 8 sequences.
template <int kTiles>
struct Pieces {
  uint4 of[kTiles];
};

[[maybe_unused]] __device__ __forceinline__ void add(float4& sum, const float4& more) {
  sum = make_float4(sum.x + more.x, sum.y + more.y, sum.z + more.z, sum.w + more.w);
}

template <int kUnitTiles>
__global__ void __launch_bounds__(kThreads, 1) grid_kernel(const __grid_constant__ GridArguments arguments) {
#if __CUDA_ARCH__ >= 900
  using T = Element<precision>;
  constexpr int RT = 3 * kUnitTiles, NT = 8 / kUnitTiles, kUnits = 16 * kUnitTiles, kSequences = 8 * NT;
  constexpr int kKept = kept_blocks(kUnitTiles), kAhead = 2;  // blocks of h on their way
  const Forward& f = arguments.forward;
  const int warp = int(threadIdx.x) >> 5, lane = int(threadIdx.x) & 31, g = lane >> 2, q = lane & 3;
  const int group = int(blockIdx.x) / arguments.unit_blocks, direction = arguments.direction, per_part = arguments.per_part;
  const int first_unit = int(blockIdx.x) % arguments.unit_blocks * kUnits, first_sequence = arguments.first_sequence + group * kSequences;
  unsigned* counter = arguments.counters + group;

  char* shared = block_shared();
  float4* partial = reinterpret_cast<float4*>(shared);                     // [part below 4][row tile][sequence tile][lane]
  float* given = reinterpret_cast<float*>(partial + 4 * RT * NT * 32);     // [12][thread]: the next gx; then [3][unit]: b_hh
  float* bias = given + 12 * kThreads;
  uint4* weights = reinterpret_cast<uint4*>(bias + 3 * kUnits) + warp * (per_part - kKept) * RT * 2 * 32;  // [block][row tile][half][lane]

  const T* w_hh = static_cast<const T*>(f.w_hh[direction]);
  const int first_k = warp * per_part * kBlock<precision> + q * kPiece<precision>;
  auto weight_of = [&](int block, int tile, int half) {
    const int unit = first_unit + tile % kUnitTiles * 16 + half * 8 + g;
    return operand_piece<precision>(
        load_if(w_hh + (int64_t(tile / kUnitTiles) * f.hidden + unit) * f.hidden + first_k + block * kBlock<precision>, unit < f.hidden));
  };
  uint4 kept[kKept > 0 ? kKept : 1][RT][2];
#pragma unroll
  for (int i = 0; i < kKept; i++) {
#pragma unroll
    for (int tile = 0; tile < RT; tile++) {
#pragma unroll
      for (int half = 0; half < 2; half++) kept[i][tile][half] = weight_of(i, tile, half);
    }
  }
  for (int i = kKept; i < per_part; i++) {
#pragma unroll
    for (int tile = 0; tile < RT; tile++) {
#pragma unroll
      for (int half = 0; half < 2; half++) weights[(((i - kKept) * RT + tile) * 2 + half) * 32 + lane] = weight_of(i, tile, half);
    }
  }
  const T* b_hh = static_cast<const T*>(f.b_hh[direction]);
  for (int i = int(threadIdx.x); i < 3 * kUnits; i += kThreads) {
    const int unit = first_unit + i % kUnits;
    bias[i] = b_hh != nullptr && unit < f.hidden ? to_float(b_hh[i / kUnits * f.hidden + unit]) : 0.0f;
  }

  // This thread's four elements: units g and g + 8 of a tile, two neighbouring sequences.
  const int own_unit_tile = warp / NT, own_tile = warp % NT;
  const int own_unit = 16 * own_unit_tile + g, own_sequence = first_sequence + 8 * own_tile + 2 * q;
  auto unit_of = [&](int e) { return own_unit + e / 2 * 8; };
  auto inside = [&](int e) { return first_unit + unit_of(e) < f.hidden && own_sequence + e % 2 < f.batch; };
  const int64_t gx_stride = int64_t(f.directions) * 3 * f.hidden, output_stride = int64_t(f.directions) * f.hidden;
  const T* hx = static_cast<const T*>(f.hx) + int64_t(direction) * f.batch * f.hidden;
  T* output = static_cast<T*>(f.output) + int64_t(direction) * f.hidden;
  float state[4];
#pragma unroll
  for (int e = 0; e < 4; e++)
    state[e] = inside(e) ? to_float(hx[int64_t(own_sequence + e % 2) * f.hidden + first_unit + unit_of(e)]) : 0.0f;
  auto time_of = [&](int step) { return direction == 0 ? step : f.steps - 1 - step; };
  auto fetch_gates = [&](int step) {
#pragma unroll
    for (int e = 0; e < 4; e++) {
      const float* from = f.gx + (int64_t(time_of(step)) * f.batch + own_sequence + e % 2) * gx_stride + int64_t(direction) * 3 * f.hidden +
                          first_unit + unit_of(e);
#pragma unroll
      for (int gate = 0; gate < 3; gate++)
        copy_async_4(given + (3 * e + gate) * kThreads + threadIdx.x, inside(e) ? from + gate * f.hidden : f.gx, inside(e) ? 4 : 0);
    }
    copy_async_commit();
  };
  fetch_gates(0);
  __syncthreads();

#pragma unroll 1
  for (int step = 0; step < f.steps; step++) {
    const T* h = step == 0 ? hx : output + int64_t(time_of(step - 1)) * f.batch * output_stride;
    const int64_t h_stride = step == 0 ? f.hidden : output_stride;
    if (step > 0) {
      if (threadIdx.x == 0) {
        const unsigned wanted = unsigned(step) * unsigned(arguments.unit_blocks);
        unsigned count;
        do {
          asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(count) : "l"(counter) : "memory");
        } while (count < wanted);
      }
      __syncthreads();
    }
    const T* from = h + int64_t(first_sequence + g) * h_stride + first_k;
    Pieces<NT> right[kAhead];
    auto fetch = [&](Pieces<NT>& to, int block) {
#pragma unroll
      for (int n = 0; n < NT; n++) {
        to.of[n] = make_uint4(0, 0, 0, 0);
        if (block < per_part && first_sequence + 8 * n + g < f.batch)  // not through L1, which may hold what was there before
          to.of[n] = __ldcg(reinterpret_cast<const uint4*>(from + 8 * n * h_stride + block * kBlock<precision>));
      }
    };
    float sums[RT][NT][4] = {};
    auto multiply_block = [&](Pieces<NT>& pieces, auto&& weight) {
#pragma unroll
      for (int n = 0; n < NT; n++) pieces.of[n] = operand_piece<precision>(pieces.of[n]);
#pragma unroll
      for (int tile = 0; tile < RT; tile++) {
        const Split<precision> low(weight(tile, 0)), high(weight(tile, 1));
#pragma unroll
        for (int n = 0; n < NT; n++) multiply(sums[tile][n], low, high, Split<precision>(pieces.of[n]));
      }
    };
#pragma unroll
    for (int i = 0; i < kAhead; i++) fetch(right[i], i);
    // The first kKept blocks, then the others; a ring of kAhead, whose places are known when this is compiled.
#pragma unroll
    for (int i = 0; i < kKept; i++) {
      multiply_block(right[i % kAhead], [&](int tile, int half) -> const uint4& { return kept[i][tile][half]; });
      fetch(right[i % kAhead], i + kAhead);
    }
#pragma unroll 1
    for (int first = kKept; first < per_part; first += kAhead) {
#pragma unroll
      for (int j = 0; j < kAhead; j++) {
        const int i = first + j;
        if (i >= per_part) break;
        multiply_block(right[(kKept + j) % kAhead],
                       [&](int tile, int half) -> const uint4& { return weights[(((i - kKept) * RT + tile) * 2 + half) * 32 + lane]; });
        fetch(right[(kKept + j) % kAhead], i + kAhead);
      }
    }

    auto place = [&](int part, int tile, int n) { return partial + ((part * RT + tile) * NT + n) * 32 + lane; };
    if (warp >= 4) {
#pragma unroll
      for (int tile = 0; tile < RT; tile++) {
#pragma unroll
        for (int n = 0; n < NT; n++)
          *place(warp - 4, tile, n) = make_float4(sums[tile][n][0], sums[tile][n][1], sums[tile][n][2], sums[tile][n][3]);
      }
    }
    __syncthreads();
    if (warp < 4) {
#pragma unroll
      for (int tile = 0; tile < RT; tile++) {
#pragma unroll
        for (int n = 0; n < NT; n++) {
          float4 sum = make_float4(sums[tile][n][0], sums[tile][n][1], sums[tile][n][2], sums[tile][n][3]);
          add(sum, *place(warp, tile, n));
          *place(warp, tile, n) = sum;
        }
      }
    }
    copy_async_wait<0>();  // this thread's gx
    __syncthreads();
    float4 h_gate[3];
#pragma unroll
    for (int gate = 0; gate < 3; gate++) {
      const int tile = gate * kUnitTiles + own_unit_tile;
      h_gate[gate] = *place(0, tile, own_tile);
#pragma unroll
      for (int part = 1; part < 4; part++) add(h_gate[gate], *place(part, tile, own_tile));
    }
    const int64_t first_row = int64_t(time_of(step)) * f.batch + own_sequence;
    const bool last = step + 1 == f.steps;
    Gates gate_values[4];
    float h_n[4];
#pragma unroll
    for (int e = 0; e < 4; e++) {
      auto part = [&](const float4& all) { return e == 0 ? all.x : e == 1 ? all.y : e == 2 ? all.z : all.w; };
      const float* x = given + 3 * e * kThreads + threadIdx.x;
      const float h_r = part(h_gate[0]) + bias[unit_of(e)], h_z = part(h_gate[1]) + bias[kUnits + unit_of(e)];
      h_n[e] = part(h_gate[2]) + bias[2 * kUnits + unit_of(e)];
      gate_values[e] = gates(x[0], x[kThreads], x[2 * kThreads], h_r, h_z, h_n[e]);
      state[e] = next_state(gate_values[e], state[e]);
      if (!inside(e)) continue;
      T value;
      from_float(state[e], value);
      output[(first_row + e % 2) * output_stride + first_unit + unit_of(e)] = value;
      if (last) static_cast<T*>(f.hy)[(int64_t(direction) * f.batch + own_sequence + e % 2) * f.hidden + first_unit + unit_of(e)] = value;
    }
    __syncthreads();  // the block's h is written, and its partial sums are used
    if (!last && threadIdx.x == 0) {
      asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(counter) : "memory");
    }
    if (f.reserve != nullptr) {
#pragma unroll
      for (int e = 0; e < 4; e++) {
        if (!inside(e)) continue;
        float* to = f.reserve + (int64_t(direction) * f.steps * f.batch + first_row + e % 2) * 4 * f.hidden + first_unit + unit_of(e);
        to[0] = gate_values[e].r;
        to[f.hidden] = gate_values[e].z;
        to[2 * f.hidden] = gate_values[e].n;
        to[3 * f.hidden] = h_n[e];
      }
    }
    if (!last) fetch_gates(step + 1);
  }
#endif
}

template <int kUnitTiles>
cudaError_t launch_tiles(const Launch& shape, const GridArguments& arguments) {
  static Prepared prepared{0};
  return launch(grid_kernel<kUnitTiles>, shape, prepared, arguments);
}

int per_part_of(int hidden) { return hidden * element_bytes(precision) / (64 * kParts); }

size_t shared_bytes_of(int per_part, int unit_tiles) {
  const int row_tiles = 3 * unit_tiles, sequence_tiles = 8 / unit_tiles;
  return size_t(4) * row_tiles * sequence_tiles * 32 * 16 + size_t(12) * kThreads * 4 + size_t(3) * 16 * unit_tiles * 4 +
         size_t(kParts) * (per_part - kept_blocks(unit_tiles)) * row_tiles * 2 * 32 * 16;
}

}  // namespace

GridPlan grid_plan(Precision of, int batch, int hidden) {
  if (of != precision) return groups_plan(of, batch, hidden);
  GridPlan plan;
  const Device& device = current_device();
  const int per_part = per_part_of(hidden);
  if (device.capability != 90 || hidden * element_bytes(precision) % (64 * kParts) != 0) return plan;
  for (int unit_tiles : {batch > 32 ? 1 : 2, batch > 32 ? 2 : 1}) {
    const int unit_blocks = (hidden + 16 * unit_tiles - 1) / (16 * unit_tiles);
    if (per_part < kept_blocks(unit_tiles) || unit_blocks > device.processors ||
        shared_bytes_of(per_part, unit_tiles) > device.shared_bytes)
      continue;
    plan.units = 16 * unit_tiles;
    plan.sequences = 64 / unit_tiles;
    plan.unit_blocks = unit_blocks;
    plan.groups = device.processors / unit_blocks;
    return plan;
  }
  return plan;
}

size_t grid_workspace(const Forward& forward, const GridPlan& plan) {
  if (forward.precision != precision) return groups_workspace(forward, plan);
  return size_t(forward.directions) * ((forward.batch + plan.sequences - 1) / plan.sequences) * sizeof(unsigned);
}

cudaError_t launch_grid(const Forward& forward, const GridPlan& plan, void* workspace, cudaStream_t stream) {
  if (forward.precision != precision) return launch_groups(forward, plan, workspace, stream);
  const int all_groups = (forward.batch + plan.sequences - 1) / plan.sequences, unit_tiles = plan.units / 16;
  unsigned* counters = static_cast<unsigned*>(workspace);
  cudaError_t error = cudaMemsetAsync(counters, 0, grid_workspace(forward, plan), stream);
  GridArguments arguments{forward, counters, 0, 0, plan.unit_blocks, per_part_of(forward.hidden)};
  Launch shape;
  shape.block = dim3(kThreads);
  shape.stream = stream;
  shape.cooperative = true;
  shape.shared_bytes = shared_bytes_of(arguments.per_part, unit_tiles);
  for (int direction = 0; direction < forward.directions; direction++) {
    for (int group = 0; group < all_groups && error == cudaSuccess; group += plan.groups) {
      const int groups = all_groups - group < plan.groups ? all_groups - group : plan.groups;
      arguments.direction = direction;
      arguments.first_sequence = group * plan.sequences;
      arguments.counters = counters + direction * all_groups + group;
      shape.grid = dim3(unsigned(groups * plan.unit_blocks));
      error = unit_tiles == 2 ? launch_tiles<2>(shape, arguments) : launch_tiles<1>(shape, arguments);
    }
  }
  return error;
}

}  // namespace tracer::overrides::gru
