// The backward recurrence, from the last time step to the first. A cluster owns a tile of sequences; a block of it owns `units` hidden
// units, computes their gate gradients, and multiplies them by its 3 * units rows of W_hh, which stay in its registers and shared
// memory. That gives the block's part of the gradient of all of h; each block then adds up the parts of its own units, in the order
// of the blocks.
#include "gru_cluster.cuh"

namespace tracer::overrides::gru {
namespace {

constexpr int kMaximumThreads = 256;
// Pairs of (16 columns of W_hh, 64-byte block of gate rows) of a warp that stay in registers: as many as leave no spills to speak of.
__host__ __device__ constexpr int pairs_in_registers(Precision precision) { return precision == Precision::kFloat32 ? 8 : 12; }

struct BackwardArguments {
  Backward backward;
  int blocks;        // of 64 bytes along the 3 * units gate rows
  int pairs;         // of a warp
  int gate_bytes;    // of a row of gate gradients in shared memory
  int weight_bytes;
};

template <Precision precision, int NT>
__global__ void __launch_bounds__(kMaximumThreads, 1) backward_kernel(const __grid_constant__ BackwardArguments arguments) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900  // clusters
  using T = Element<precision>;
  constexpr int kSequences = 8 * NT, kInRegisters = pairs_in_registers(precision);
  const Backward& f = arguments.backward;
  const int units = f.plan.units, cluster = f.plan.cluster, rank = cluster > 1 ? int(cluster_rank()) : 0;
  const int first_unit = rank * units, first_sequence = int(blockIdx.y) * kSequences, direction = int(blockIdx.z);
  const int threads = int(blockDim.x), thread = int(threadIdx.x), warps = threads >> 5, warp = thread >> 5, lane = thread & 31,
            g = lane >> 2, q = lane & 3;
  const int blocks = arguments.blocks, column_tiles = cluster * units / 16;
  const int part_stride = units + 4;  // padded

  char* shared = block_shared();
  uint4* weights = reinterpret_cast<uint4*>(shared) + warp * max(0, arguments.pairs - kInRegisters) * 2 * 32;  // [pair][g, g + 8][lane]
  char* gate_region = shared + arguments.weight_bytes;                                               // [sequence][gate row]
  float* parts = reinterpret_cast<float*>(gate_region + kSequences * arguments.gate_bytes);                   // [block][sequence][unit]

  // Pair i of this warp: columns 16 * (warp + warps * (i / blocks)), gate rows of block i % blocks.
  const int own_tiles = warp < column_tiles ? (column_tiles - warp + warps - 1) / warps : 0, own_pairs = own_tiles * blocks;
  const T* w_hh = static_cast<const T*>(f.w_hh[direction]);
  auto weight_piece = [&](int pair, int half) {
    const int column = 16 * (warp + warps * (pair / blocks)) + g + 8 * half;
    union {
      T elements[kPiece<precision>];
      uint4 piece;
    };
    piece = make_uint4(0, 0, 0, 0);
#pragma unroll
    for (int i = 0; i < kPiece<precision>; i++) {
      const int row = pair % blocks * kBlock<precision> + q * kPiece<precision> + i, gate = row / units, unit = first_unit + row % units;
      if (gate < 3 && unit < f.hidden && column < f.hidden) elements[i] = w_hh[(int64_t(gate) * f.hidden + unit) * f.hidden + column];
    }
    return operand_piece<precision>(piece);
  };
  uint4 kept[kInRegisters][2];
#pragma unroll
  for (int i = 0; i < kInRegisters; i++) {
    kept[i][0] = i < own_pairs ? weight_piece(i, 0) : make_uint4(0, 0, 0, 0);
    kept[i][1] = i < own_pairs ? weight_piece(i, 1) : make_uint4(0, 0, 0, 0);
  }
  for (int i = kInRegisters; i < own_pairs; i++) {
    weights[((i - kInRegisters) * 2 + 0) * 32 + lane] = weight_piece(i, 0);
    weights[((i - kInRegisters) * 2 + 1) * 32 + lane] = weight_piece(i, 1);
  }
  for (int i = thread; i < kSequences * arguments.gate_bytes / 16; i += threads)
    reinterpret_cast<uint4*>(gate_region)[i] = make_uint4(0, 0, 0, 0);
  __syncthreads();

  // This thread's elements: NT of the units * kSequences of the block, since a block has 8 threads for each unit.
  int own_unit[NT], own_sequence[NT];
  bool inside[NT];
  float carry[NT];                                         // what the later steps give to the gradient of h
  float r[NT], z[NT], n[NT], h_n[NT], h[NT], grad[NT];     // of the step at hand, loaded ahead
#pragma unroll
  for (int e = 0; e < NT; e++) {
    const int element = thread + e * threads;
    own_unit[e] = element % units;
    own_sequence[e] = element / units;
    inside[e] = first_unit + own_unit[e] < f.hidden && first_sequence + own_sequence[e] < f.batch;
    carry[e] = 0.0f;
  }
  const int64_t width = int64_t(f.directions) * f.hidden;
  const T* output = static_cast<const T*>(f.output) + int64_t(direction) * f.hidden;
  const T* hx = static_cast<const T*>(f.hx) + int64_t(direction) * f.batch * f.hidden;
  const T* grad_hy = static_cast<const T*>(f.grad_hy);
  auto load_step = [&](int step) {  // steps count in the order of the forward pass
    const int time = direction == 0 ? step : f.steps - 1 - step, before = direction == 0 ? time - 1 : time + 1;
#pragma unroll
    for (int e = 0; e < NT; e++) {
      if (!inside[e]) continue;
      const int sequence = first_sequence + own_sequence[e], unit = first_unit + own_unit[e];
      const int64_t row = int64_t(time) * f.batch + sequence;
      const float* from = f.reserve + (int64_t(direction) * f.steps * f.batch + row) * 4 * f.hidden + unit;
      r[e] = __ldg(from);
      z[e] = __ldg(from + f.hidden);
      n[e] = __ldg(from + 2 * f.hidden);
      h_n[e] = __ldg(from + 3 * f.hidden);
      h[e] = to_float(step == 0 ? hx[int64_t(sequence) * f.hidden + unit] : output[(int64_t(before) * f.batch + sequence) * width + unit]);
      grad[e] = 0.0f;
      if (f.grad_output != nullptr)
        grad[e] = to_float(static_cast<const T*>(f.grad_output)[row * width + int64_t(direction) * f.hidden + unit]);
      if (step + 1 == f.steps && grad_hy != nullptr) {
        grad[e] += to_float(grad_hy[(int64_t(direction) * f.batch + sequence) * f.hidden + unit]);
      }
    }
  };
  load_step(f.steps - 1);

  cluster_arrive();  // nobody reads this block's parts yet
  for (int step = f.steps - 1; step >= 0; step--) {
    const int time = direction == 0 ? step : f.steps - 1 - step;
#pragma unroll
    for (int e = 0; e < NT; e++) {
      if (!inside[e]) continue;
      const float grad_h = grad[e] + carry[e];
      const GateGradients d = gate_gradients(grad_h, r[e], z[e], n[e], h_n[e], h[e]);
      carry[e] = grad_h * z[e];
      T* row = reinterpret_cast<T*>(gate_region + own_sequence[e] * arguments.gate_bytes) + own_unit[e];
      row[0] = operand<precision>(d.r);
      row[units] = operand<precision>(d.z);
      row[2 * units] = operand<precision>(d.h_n);
      const int64_t at = (int64_t(time) * f.batch + first_sequence + own_sequence[e]) * 3 * width + int64_t(direction) * 3 * f.hidden +
                         first_unit + own_unit[e];
      T value_r, value_z, value_n, value_h_n;
      from_float(d.r, value_r);
      from_float(d.z, value_z);
      from_float(d.n, value_n);
      from_float(d.h_n, value_h_n);
      T* to_x = static_cast<T*>(f.gate_grad_x) + at;
      T* to_h = static_cast<T*>(f.gate_grad_h) + at;
      to_x[0] = to_h[0] = value_r;
      to_x[f.hidden] = to_h[f.hidden] = value_z;
      to_x[2 * f.hidden] = value_n;
      to_h[2 * f.hidden] = value_h_n;
    }
    __syncthreads();
    if (step > 0) load_step(step - 1);
    cluster_wait();  // the others have read the parts of the step before

    float sums[NT][4] = {};
    int block = 0, tile = 0;
    auto multiply_pair = [&](const uint4& low_piece, const uint4& high_piece) {
      const Split<precision> low(low_piece), high(high_piece);
#pragma unroll
      for (int t = 0; t < NT; t++) {
        const char* row = gate_region + (8 * t + g) * arguments.gate_bytes;
        multiply(sums[t], low, high, Split<precision>(*reinterpret_cast<const uint4*>(row + block * 64 + q * 16)));
      }
      if (++block < blocks) return;
      const int column = 16 * (warp + warps * tile), owner = column / units;
      float* to = parts + owner * kSequences * part_stride + column % units + g;
#pragma unroll
      for (int t = 0; t < NT; t++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
          to[(8 * t + 2 * q + (i & 1)) * part_stride + (i >= 2 ? 8 : 0)] = sums[t][i];
          sums[t][i] = 0.0f;
        }
      }
      block = 0;
      tile++;
    };
#pragma unroll
    for (int i = 0; i < kInRegisters; i++) {
      if (i < own_pairs) multiply_pair(kept[i][0], kept[i][1]);
    }
    for (int i = kInRegisters; i < own_pairs; i++) {
      multiply_pair(weights[((i - kInRegisters) * 2 + 0) * 32 + lane], weights[((i - kInRegisters) * 2 + 1) * 32 + lane]);
    }
    cluster_meet();  // all parts are there, and the gate gradients have been used
#pragma unroll
    for (int e = 0; e < NT; e++) {
      const float* own = parts + (rank * kSequences + own_sequence[e]) * part_stride + own_unit[e];
      float sum = 0.0f;
#pragma unroll 4
      for (int other = 0; other < cluster; other++) sum += *of_block(own, unsigned(other));
      carry[e] += sum;
    }
    cluster_arrive();  // read; waited for before the parts are written again, and before the block ends
  }
  cluster_wait();
  if (f.grad_hx == nullptr) return;
#pragma unroll
  for (int e = 0; e < NT; e++) {
    if (!inside[e]) continue;
    T value;
    from_float(carry[e], value);
    static_cast<T*>(f.grad_hx)[(int64_t(direction) * f.batch + first_sequence + own_sequence[e]) * f.hidden + first_unit + own_unit[e]] =
        value;
  }
#endif
}

struct Sizes {
  int blocks, pairs, gate_bytes, weight_bytes, part_bytes, threads;
};
Sizes sizes_of(Precision precision, int cluster, int units, int batch_tile) {
  const int bytes = element_bytes(precision), threads = 8 * units, warps = threads / 32;
  const int blocks = (3 * units * bytes + 63) / 64, tiles = cluster * units / 16, pairs = (tiles + warps - 1) / warps * blocks;
  const int kept = pairs_in_registers(precision), in_memory = pairs > kept ? pairs - kept : 0;
  return {blocks,
          pairs,
          row_bytes(3 * units, bytes),
          warps * in_memory * 2 * 32 * int(sizeof(uint4)),
          cluster * batch_tile * (units + 4) * int(sizeof(float)),
          threads};
}

template <Precision precision, int NT>
Prepared prepared{0};

int active(Precision precision, const Plan& plan) {
  Launch shape = cluster_shape(sizes_of(precision, plan.cluster, plan.units, plan.batch_tile).threads, plan, plan.batch_tile, 1);
  return with_precision(precision, [&](auto p) {
    return with_tiles(plan.batch_tile,
                      [&](auto tiles) { return active_clusters(backward_kernel<p(), tiles()>, shape, prepared<p(), tiles()>); });
  });
}

}  // namespace

Plan backward_plan_of(Precision precision, int hidden, int cluster, int units, int batch_tile) {
  Plan plan;
  if (!is_plan(hidden, cluster, units, batch_tile)) return plan;
  const Sizes sizes = sizes_of(precision, cluster, units, batch_tile);
  const int bytes = sizes.weight_bytes + batch_tile * sizes.gate_bytes + sizes.part_bytes;
  if (bytes > int(current_device().shared_bytes)) return plan;
  plan.cluster = cluster;
  plan.units = units;
  plan.batch_tile = batch_tile;
  plan.shared_bytes = size_t(bytes);
  return plan;
}

Plan backward_plan(Precision precision, int batch, int hidden, int directions) {
  static Plans plans;
  return plans.get(precision, batch, hidden, directions, [&] {
    return choose_plan(
        false, precision, batch, hidden, directions,
        [&](int cluster, int units, int tile) { return backward_plan_of(precision, hidden, cluster, units, tile); },
        [&](const Plan& plan) { return active(precision, plan); });
  });
}

cudaError_t launch_backward(const Backward& backward, cudaStream_t stream) {
  const Plan& plan = backward.plan;
  const Sizes sizes = sizes_of(backward.precision, plan.cluster, plan.units, plan.batch_tile);
  BackwardArguments arguments{backward, sizes.blocks, sizes.pairs, sizes.gate_bytes, sizes.weight_bytes};
  Launch shape = cluster_shape(sizes.threads, plan, backward.batch, backward.directions);
  shape.stream = stream;
  return with_precision(backward.precision, [&](auto p) {
    return with_tiles(plan.batch_tile,
                      [&](auto tiles) { return launch(backward_kernel<p(), tiles()>, shape, prepared<p(), tiles()>, arguments); });
  });
}

}  // namespace tracer::overrides::gru
