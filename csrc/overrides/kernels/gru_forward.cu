// The forward recurrence. A cluster owns a tile of sequences and all hidden units for all time steps; nothing is shared between
// clusters. A block owns `units` of them: its 3 * units rows of W_hh stay in registers and shared memory, cut into 16-row tiles and
// four parts of k, one warp each.
//
//            block 0          block 1     ..       A step of a block: its warps multiply their part of W_hh with all of h;
//   W_hh   | units 0..31    | units 32.. | ..      the four parts are added up through shared memory; a thread ends the gates of
//          | all k, 4 parts | all k      |         one unit of some sequences; the block's slice of the new h goes to all blocks.
//   h      | all of it      | all of it  | ..
//
// h lies in shared memory as [run][sequence][bytes of the run]: a run is 64 bytes of h, or 32 where a block owns no more, so that a
// block's slice is one piece of memory and a warp's read of 16 bytes a lane meets no bank twice. There are two buffers, each with a
// barrier of bytes: a block goes on as soon as the slices of all others have come. It cannot run ahead and overwrite a buffer that
// another one still reads: the slice that it waits for is sent after that. Where there is no room for two buffers, h shares memory with
// the partial sums, and the blocks meet twice a step.
#include "copy_engine.cuh"
#include "gru_cluster.cuh"

namespace tracer::overrides::gru {
namespace {

constexpr int kParts = 4;           // of k: warps that share 16 units
constexpr int kMaximumThreads = 256;
constexpr int kBarrierBytes = 128;  // of shared memory before the weights

// 64-byte blocks of a warp's rows that stay in registers: as many as leave no spills to speak of.
__host__ __device__ constexpr int in_registers(Precision precision, int batch_tile) {
  return precision == Precision::kFloat32 ? (batch_tile == 16 ? 3 : 2) : batch_tile == 32 ? 3 : 4;
}

struct ForwardArguments {
  Forward forward;
  int blocks;        // of 64 bytes along k
  int per_warp;      // of them
  int h_bytes;       // of a buffer of h
  int region_bytes;  // h, or h and the partial sums in turn
  int partial_at;    // where the partial sums are
  bool vector;       // rows of W_hh are 16-byte aligned
};

template <Precision precision, int NT>
__global__ void __launch_bounds__(kMaximumThreads, 1) forward_kernel(const __grid_constant__ ForwardArguments arguments) {
#if __CUDA_ARCH__ >= 900  // clusters
  using T = Element<precision>;
  constexpr int kSequences = 8 * NT, kInRegisters = in_registers(precision, kSequences);
  const Forward& f = arguments.forward;
  const int units = f.plan.units, cluster = f.plan.cluster, rank = cluster > 1 ? int(cluster_rank()) : 0;
  const int first_unit = rank * units, first_sequence = int(blockIdx.y) * kSequences, direction = int(blockIdx.z);
  const int threads = int(blockDim.x), thread = int(threadIdx.x), warp = thread >> 5, lane = thread & 31, g = lane >> 2, q = lane & 3;
  const int unit_tiles = units / 16, unit_tile = warp % unit_tiles, part = warp / unit_tiles;
  const int first_block = part * arguments.per_warp;
  const int block_count = max(0, min(arguments.per_warp, arguments.blocks - first_block));
  const int in_memory = max(0, arguments.per_warp - kInRegisters);  // blocks of a warp in shared memory
  const int partial_stride = units + 4;                             // padded: 8 rows and 4 columns of a tile in different banks

  uint64_t* arrived = reinterpret_cast<uint64_t*>(block_shared());
  char* shared = block_shared() + kBarrierBytes;
  uint4* weights = reinterpret_cast<uint4*>(shared) + warp * in_memory * 3 * 2 * 32;  // [block][gate][row g, row g + 8][lane]
  char* h_region = shared + size_t(threads / 32) * in_memory * 3 * 2 * 32 * sizeof(uint4);
  float* partial = reinterpret_cast<float*>(h_region + arguments.partial_at);         // [part][gate][sequence][unit]
  const int run = units * int(sizeof(T)) < 64 ? units * int(sizeof(T)) : 64;          // bytes: 32 or 64
  const int slice_bytes = kSequences * units * int(sizeof(T));
  auto h_at = [&](int buffer, int sequence, int unit) {
    const int byte = unit * int(sizeof(T)), of_run = byte & (run - 1);
    return reinterpret_cast<T*>(h_region + buffer * arguments.h_bytes + (byte - of_run) * kSequences + sequence * run + of_run);
  };

  // The weights. Where rows are aligned nothing branches between the loads, so that all are on their way at once.
  const T* w_hh = static_cast<const T*>(f.w_hh[direction]);
  uint4 kept[kInRegisters][3][2];
  auto load_weights = [&](auto vector) {
    auto piece_of = [&](int block, int gate, int row) {
      const int unit = first_unit + 16 * unit_tile + row, k = (first_block + block) * kBlock<precision> + q * kPiece<precision>;
      const T* from = w_hh + (int64_t(gate) * f.hidden + unit) * f.hidden;
      const bool inside = unit < f.hidden && block < block_count;
      if constexpr (decltype(vector)::value) return operand_piece<precision>(load_if(from + k, inside && k < f.hidden));
      return operand_piece<precision>(load_piece(inside ? from : nullptr, k, f.hidden, false));
    };
#pragma unroll
    for (int i = 0; i < kInRegisters; i++) {
#pragma unroll
      for (int gate = 0; gate < 3; gate++) {
        kept[i][gate][0] = piece_of(i, gate, g);
        kept[i][gate][1] = piece_of(i, gate, g + 8);
      }
    }
#pragma unroll 2
    for (int i = kInRegisters; i < block_count; i++) {
#pragma unroll
      for (int gate = 0; gate < 3; gate++) {
        weights[(((i - kInRegisters) * 3 + gate) * 2 + 0) * 32 + lane] = piece_of(i, gate, g);
        weights[(((i - kInRegisters) * 3 + gate) * 2 + 1) * 32 + lane] = piece_of(i, gate, g + 8);
      }
    }
  };
  if (arguments.vector) {
    load_weights(std::true_type());
  } else {
    load_weights(std::false_type());
  }

  // h before the first step: the whole tile for the products, and this thread's own elements.
  for (int i = thread; i < arguments.region_bytes / 16; i += threads) reinterpret_cast<uint4*>(h_region)[i] = make_uint4(0, 0, 0, 0);
  if (thread == 0) {  // both by one thread: with two, racecheck takes the address of one before it is there
    bytes_init(&arrived[0]);
    bytes_init(&arrived[1]);
  }
  __syncthreads();
  const T* hx = static_cast<const T*>(f.hx) + int64_t(direction) * f.batch * f.hidden;
  if (arguments.vector && reinterpret_cast<uintptr_t>(hx) % 16 == 0) {
    const int pieces = f.hidden / kPiece<precision>;
#pragma unroll 4
    for (int i = thread; i < kSequences * pieces; i += threads) {
      const int sequence = i / pieces, unit = i % pieces * kPiece<precision>;
      *reinterpret_cast<uint4*>(h_at(0, sequence, unit)) =
          operand_piece<precision>(load_if(hx + int64_t(first_sequence + sequence) * f.hidden + unit, first_sequence + sequence < f.batch));
    }
  } else {
    for (int i = thread; i < kSequences * f.hidden; i += threads) {
      const int sequence = i / f.hidden, unit = i % f.hidden;
      if (first_sequence + sequence < f.batch) {
        *h_at(0, sequence, unit) = operand<precision>(to_float(hx[int64_t(first_sequence + sequence) * f.hidden + unit]));
      }
    }
  }
  // This thread's elements: NT of the units * kSequences of the block, since a block has 8 threads for each unit.
  int own_unit[NT], own_sequence[NT];
  float state[NT], x_gate[NT][3], h_bias[NT][3];
  bool inside[NT];
  const T* b_hh = static_cast<const T*>(f.b_hh[direction]);
  const int64_t gx_stride = int64_t(f.directions) * 3 * f.hidden, output_stride = int64_t(f.directions) * f.hidden;
#pragma unroll
  for (int e = 0; e < NT; e++) {
    const int element = thread + e * threads;
    own_unit[e] = element % units;
    own_sequence[e] = element / units;
    const int unit = first_unit + own_unit[e], sequence = first_sequence + own_sequence[e];
    inside[e] = unit < f.hidden && sequence < f.batch;
    state[e] = inside[e] ? to_float(hx[int64_t(sequence) * f.hidden + unit]) : 0.0f;
#pragma unroll
    for (int gate = 0; gate < 3; gate++) h_bias[e][gate] = inside[e] && b_hh != nullptr ? to_float(b_hh[gate * f.hidden + unit]) : 0.0f;
  }
  // Where element e of a time step is, of gx and of the output; and from one step to the next.
  const int64_t first_time = direction == 0 ? 0 : f.steps - 1, forth = direction == 0 ? f.batch : -int64_t(f.batch);
  const float* gx_at[NT];
  T* output_at[NT];
#pragma unroll
  for (int e = 0; e < NT; e++) {
    const int64_t row = first_time * f.batch + first_sequence + own_sequence[e];
    gx_at[e] = f.gx + row * gx_stride + int64_t(direction) * 3 * f.hidden + first_unit + own_unit[e];
    output_at[e] = static_cast<T*>(f.output) + row * output_stride + int64_t(direction) * f.hidden + first_unit + own_unit[e];
  }
  auto load_gates = [&] {
#pragma unroll
    for (int e = 0; e < NT; e++) {
#pragma unroll
      for (int gate = 0; gate < 3; gate++) x_gate[e][gate] = inside[e] ? __ldg(gx_at[e] + gate * f.hidden) : 0.0f;
      gx_at[e] += forth * gx_stride;
    }
  };
  load_gates();
  cluster_meet();  // every block has its h and its barriers before another one sends to it

  const int piece_of_lane = run == 64 ? q * 16 : (q >> 1) * kSequences * 32 + (q & 1) * 16;
  int current = 0;
  for (int step = 0; step < f.steps; step++) {
    const bool last = step + 1 == f.steps;
    float sums[3][NT][4] = {};
    const char* h = h_region + current * arguments.h_bytes + first_block * 64 * kSequences + g * run + piece_of_lane;
    auto multiply_block = [&](int block, auto&& weight) {
      Split<precision> right[NT];
#pragma unroll
      for (int n = 0; n < NT; n++) right[n] = Split<precision>(*reinterpret_cast<const uint4*>(h + block * 64 * kSequences + 8 * n * run));
#pragma unroll
      for (int gate = 0; gate < 3; gate++) {
        const Split<precision> low(weight(gate, 0)), high(weight(gate, 1));
#pragma unroll
        for (int n = 0; n < NT; n++) multiply(sums[gate][n], low, high, right[n]);
      }
    };
#pragma unroll
    for (int i = 0; i < kInRegisters; i++) {
      if (i < block_count) multiply_block(i, [&](int gate, int half) -> const uint4& { return kept[i][gate][half]; });
    }
#pragma unroll 2
    for (int i = kInRegisters; i < block_count; i++) {
      multiply_block(i,
                     [&](int gate, int half) -> const uint4& { return weights[(((i - kInRegisters) * 3 + gate) * 2 + half) * 32 + lane]; });
    }
    if (!f.plan.double_buffered) __syncthreads();  // the partial sums take the place of h
#pragma unroll
    for (int gate = 0; gate < 3; gate++) {
      float* to = partial + (part * 3 + gate) * kSequences * partial_stride + 16 * unit_tile + g;
#pragma unroll
      for (int n = 0; n < NT; n++) {
#pragma unroll
        for (int i = 0; i < 4; i++) to[(8 * n + 2 * q + (i & 1)) * partial_stride + (i >= 2 ? 8 : 0)] = sums[gate][n][i];
      }
    }
    __syncthreads();
    Gates gate_values[NT];
    float h_n[NT];
#pragma unroll
    for (int e = 0; e < NT; e++) {
      float h_gate[3];
#pragma unroll
      for (int gate = 0; gate < 3; gate++) {
        const float* from = partial + (gate * kSequences + own_sequence[e]) * partial_stride + own_unit[e];
        float sum = from[0];
#pragma unroll
        for (int p = 1; p < kParts; p++) sum += from[p * 3 * kSequences * partial_stride];
        h_gate[gate] = sum + h_bias[e][gate];
      }
      h_n[e] = h_gate[2];
      if constexpr (precision == Precision::kFloat32) {
        gate_values[e] = gates(x_gate[e][0], x_gate[e][1], x_gate[e][2], h_gate[0], h_gate[1], h_gate[2]);
      } else {
        gate_values[e] = quick_gates(x_gate[e][0], x_gate[e][1], x_gate[e][2], h_gate[0], h_gate[1], h_gate[2]);
      }
      state[e] = next_state(gate_values[e], state[e]);
    }
    if (!last) {
      const int next = f.plan.double_buffered ? current ^ 1 : 0;
      if (!f.plan.double_buffered) cluster_meet();  // every block has used its h and its partial sums
#pragma unroll
      for (int e = 0; e < NT; e++) *h_at(next, own_sequence[e], first_unit + own_unit[e]) = operand<precision>(state[e]);
      char* slice = h_region + next * arguments.h_bytes + rank * slice_bytes;
      if (f.plan.double_buffered) {
        copies_see();
        __syncthreads();
        if (thread == 0) bytes_expect(&arrived[next], uint32_t(slice_bytes * (cluster - 1)));
        if (thread < cluster - 1) {
          const unsigned peer = unsigned((rank + 1 + thread) & (cluster - 1));
          send(address_in(slice, peer), slice, uint32_t(slice_bytes), address_in(&arrived[next], peer));
        }
      } else {
        __syncthreads();
        const int pieces = slice_bytes / 16;
        for (int i = thread; i < pieces * (cluster - 1); i += threads) {
          uint4* at = reinterpret_cast<uint4*>(slice) + i % pieces;
          *of_block(at, unsigned((rank + 1 + i / pieces) & (cluster - 1))) = *at;
        }
        cluster_arrive();
      }
    }
    // While the slices of the others come: what leaves the GRU, and the next step's share of x.
#pragma unroll
    for (int e = 0; e < NT; e++) {
      if (!inside[e]) continue;
      const int unit = first_unit + own_unit[e];
      T value;
      from_float(state[e], value);
      *output_at[e] = value;
      output_at[e] += forth * output_stride;
      if (last) static_cast<T*>(f.hy)[(int64_t(direction) * f.batch + first_sequence + own_sequence[e]) * f.hidden + unit] = value;
      if (f.reserve != nullptr) {
        const int64_t row = (first_time * f.batch + forth * step) + first_sequence + own_sequence[e];
        float* to = f.reserve + (int64_t(direction) * f.steps * f.batch + row) * 4 * f.hidden + unit;
        to[0] = gate_values[e].r;
        to[f.hidden] = gate_values[e].z;
        to[2 * f.hidden] = gate_values[e].n;
        to[3 * f.hidden] = h_n[e];
      }
    }
    if (!last) {
      load_gates();
      if (!f.plan.double_buffered) {
        cluster_wait();
      } else if (cluster > 1) {
        bytes_wait(&arrived[current ^ 1], uint32_t(step >> 1 & 1));
      }
      if (f.plan.double_buffered) current ^= 1;
    }
  }
  cluster_meet();  // no block ends while another one sends to it
#endif
}

struct Sizes {
  int blocks, per_warp, h_bytes, partial_bytes, weight_bytes, threads;
};
Sizes sizes_of(Precision precision, int hidden, int cluster, int units, int batch_tile) {
  const int bytes = element_bytes(precision), threads = units / 16 * kParts * 32;
  const int blocks = (hidden * bytes + 63) / 64, per_warp = (blocks + kParts - 1) / kParts;
  const int kept = in_registers(precision, batch_tile), in_memory = per_warp > kept ? per_warp - kept : 0;
  return {blocks,
          per_warp,
          batch_tile * (cluster * units * bytes > blocks * 64 ? cluster * units * bytes : blocks * 64),
          kParts * 3 * batch_tile * (units + 4) * int(sizeof(float)),
          threads / 32 * in_memory * 3 * 2 * 32 * int(sizeof(uint4)),
          threads};
}

template <Precision precision, int NT>
Prepared prepared{0};

int active(Precision precision, int hidden, const Plan& plan) {
  Launch shape = cluster_shape(sizes_of(precision, hidden, plan.cluster, plan.units, plan.batch_tile).threads, plan, plan.batch_tile, 1);
  return with_precision(precision, [&](auto p) {
    return with_tiles(plan.batch_tile,
                      [&](auto tiles) { return active_clusters(forward_kernel<p(), tiles()>, shape, prepared<p(), tiles()>); });
  });
}

}  // namespace

Plan forward_plan_of(Precision precision, int hidden, int cluster, int units, int batch_tile) {
  Plan plan;
  if (!is_plan(hidden, cluster, units, batch_tile)) return plan;
  const Sizes sizes = sizes_of(precision, hidden, cluster, units, batch_tile);
  const int h = sizes.h_bytes, limit = int(current_device().shared_bytes) - kBarrierBytes;
  const int twice = sizes.weight_bytes + 2 * h + sizes.partial_bytes,
            once = sizes.weight_bytes + (h > sizes.partial_bytes ? h : sizes.partial_bytes);
  // Where h and the partial sums share memory, every column of h is written in each step; small plans never need that.
  if (once > limit || (twice > limit && cluster * units * element_bytes(precision) % 64 != 0)) return plan;
  plan.cluster = cluster;
  plan.units = units;
  plan.batch_tile = batch_tile;
  plan.double_buffered = twice <= limit;
  plan.shared_bytes = size_t(plan.double_buffered ? twice : once) + kBarrierBytes;
  return plan;
}

Plan forward_plan(Precision precision, int batch, int hidden, int directions) {
  static Plans plans;
  return plans.get(precision, batch, hidden, directions, [&] {
    return choose_plan(
        true, precision, batch, hidden, directions,
        [&](int cluster, int units, int tile) { return forward_plan_of(precision, hidden, cluster, units, tile); },
        [&](const Plan& plan) { return active(precision, hidden, plan); });
  });
}

cudaError_t launch_forward(const Forward& forward, cudaStream_t stream) {
  const Plan& plan = forward.plan;
  const Sizes sizes = sizes_of(forward.precision, forward.hidden, plan.cluster, plan.units, plan.batch_tile);
  const int bytes = element_bytes(forward.precision), h = sizes.h_bytes;
  bool vector = forward.hidden * bytes % 16 == 0;
  for (int d = 0; d < forward.directions; d++) vector = vector && reinterpret_cast<uintptr_t>(forward.w_hh[d]) % 16 == 0;
  ForwardArguments arguments{forward,
                             sizes.blocks,
                             sizes.per_warp,
                             sizes.h_bytes,
                             int(plan.shared_bytes) - kBarrierBytes - sizes.weight_bytes,
                             plan.double_buffered ? 2 * h : 0,
                             vector};
  Launch shape = cluster_shape(sizes.threads, plan, forward.batch, forward.directions);
  shape.stream = stream;
  return with_precision(forward.precision, [&](auto p) {
    return with_tiles(plan.batch_tile,
                      [&](auto tiles) { return launch(forward_kernel<p(), tiles()>, shape, prepared<p(), tiles()>, arguments); });
  });
}

}  // namespace tracer::overrides::gru
