// One GRU time step in one kernel. A block computes 4 * MT hidden units for 8 * NT sequences: the rows of a 16-row tile are r, z,
// the x part of n and the h part of n of four units; the sums run over [x, h], cut over the 8 warps of a block and over the blocks of
// a cluster, each of which reads its part of the weights and of x and h once, from memory to registers.
#include "gru_launch.cuh"
#include "gru_numbers.cuh"
#include "gru_tuned.h"

namespace tracer::overrides::gru {
namespace {

constexpr int kWarps = 8;

struct StepArguments {
  Step step;
  bool x_vector, w_ih_vector, h_vector, w_hh_vector;
  int cluster;
};

// Four gate rows times four units of one tile, as loaded by lane (g, q): rows g and g + 8.
template <Precision precision, int MT, int NT>
struct Loaded {
  uint4 low[MT], high[MT], right[NT];
};

template <Precision precision, int MT, int NT>
__device__ __forceinline__ void load(Loaded<precision, MT, NT>& loaded, const StepArguments& arguments, int direction, int block,
                                     int x_blocks, int first_unit, int first_sequence) {
  using T = Element<precision>;
  const Step& step = arguments.step;
  const int lane = threadIdx.x & 31, g = lane >> 2, q = lane & 3;
  const bool from_x = block < x_blocks;
  const int length = from_x ? step.input : step.hidden;
  const int64_t k = int64_t(from_x ? block : block - x_blocks) * kBlock<precision> + q * kPiece<precision>;
  const T* weight = static_cast<const T*>(from_x ? step.w_ih[direction] : step.w_hh[direction]);
  const T* input = static_cast<const T*>(from_x ? step.x[direction] : step.h[direction]);
  const int64_t stride = from_x ? step.x_stride : step.h_stride;
  const bool weight_vector = from_x ? arguments.w_ih_vector : arguments.w_hh_vector;
  const bool input_vector = from_x ? arguments.x_vector : arguments.h_vector;
  const bool has_n = from_x == (g < 4);  // row 8 + g: the x part of n for g < 4, else the h part
#pragma unroll
  for (int m = 0; m < MT; m++) {
    const int unit = first_unit + 4 * m + (g & 3);
    const bool inside = unit < step.hidden;
    const T* low = inside ? weight + (int64_t(g >> 2) * step.hidden + unit) * length : nullptr;
    const T* high = inside && has_n ? weight + (int64_t(2) * step.hidden + unit) * length : nullptr;
    loaded.low[m] = load_piece(low, k, length, weight_vector);
    loaded.high[m] = load_piece(high, k, length, weight_vector);
  }
#pragma unroll
  for (int n = 0; n < NT; n++) {
    const int sequence = first_sequence + 8 * n + g;
    loaded.right[n] = load_piece(sequence < step.batch ? input + sequence * stride : nullptr, k, length, input_vector);
  }
}

template <Precision precision, int MT, int NT>
__device__ __forceinline__ void accumulate(float (&sums)[MT][NT][4], const Loaded<precision, MT, NT>& loaded) {
  __syncwarp();  // the loads of a warp may have taken different ways
#pragma unroll
  for (int m = 0; m < MT; m++) {
    const Split<precision> low(operand_piece<precision>(loaded.low[m])), high(operand_piece<precision>(loaded.high[m]));
#pragma unroll
    for (int n = 0; n < NT; n++) multiply(sums[m][n], low, high, Split<precision>(operand_piece<precision>(loaded.right[n])));
  }
}

// `ahead`: pieces of so many 64-byte blocks are loaded before they are used.
template <Precision precision, int MT, int NT, int ahead>
__global__ void __launch_bounds__(32 * kWarps) step_kernel(StepArguments arguments) {
  using T = Element<precision>;
  constexpr int kUnits = 4 * MT, kSequences = 8 * NT, kRows = 16 * MT, kStride = kRows + 4;
  const Step& step = arguments.step;
  const int cluster = arguments.cluster, rank = cluster > 1 ? int(cluster_rank()) : 0;
  const int first_unit = int(blockIdx.x) / cluster * kUnits, first_sequence = int(blockIdx.y) * kSequences, direction = int(blockIdx.z);
  const int warp = int(threadIdx.x) >> 5, lane = int(threadIdx.x) & 31, g = lane >> 2, q = lane & 3;
  float* partial = reinterpret_cast<float*>(block_shared());  // [warp][sequence][row], padded

  const int x_blocks = step.x[direction] == nullptr ? 0 : (step.input + kBlock<precision> - 1) / kBlock<precision>;
  const int blocks = x_blocks + (step.hidden + kBlock<precision> - 1) / kBlock<precision>;
  const int share = rank * kWarps + warp, shares = cluster * kWarps;
  const int begin = int(int64_t(blocks) * share / shares), end = int(int64_t(blocks) * (share + 1) / shares);
  float sums[MT][NT][4] = {};
  Loaded<precision, MT, NT> loaded[ahead];
#pragma unroll
  for (int i = 0; i < ahead; i++) {
    if (begin + i < end) load(loaded[i], arguments, direction, begin + i, x_blocks, first_unit, first_sequence);
  }
  for (int block = begin; block < end; block += ahead) {
#pragma unroll
    for (int i = 0; i < ahead; i++) {
      if (block + i < end) {
        accumulate(sums, loaded[i]);
        if (block + i + ahead < end) load(loaded[i], arguments, direction, block + i + ahead, x_blocks, first_unit, first_sequence);
      }
    }
  }
  float* mine = partial + warp * kSequences * kStride;
#pragma unroll
  for (int m = 0; m < MT; m++) {
#pragma unroll
    for (int n = 0; n < NT; n++) {
#pragma unroll
      for (int i = 0; i < 4; i++) mine[(8 * n + 2 * q + (i & 1)) * kStride + 16 * m + g + (i >= 2 ? 8 : 0)] = sums[m][n][i];
    }
  }
  __syncthreads();
  for (int e = int(threadIdx.x); e < kSequences * kRows; e += 32 * kWarps) {
    float* at = partial + e / kRows * kStride + e % kRows;
    float sum = at[0];
#pragma unroll
    for (int w = 1; w < kWarps; w++) sum += at[w * kSequences * kStride];
    at[0] = sum;
  }
  if (cluster > 1) {
    cluster_arrive();
    cluster_wait();
  } else {
    __syncthreads();
  }
  // The blocks of a cluster share the sequences of the tile.
  for (int e = int(threadIdx.x); e < kSequences / cluster * kUnits; e += 32 * kWarps) {
    const int local = e / kUnits * cluster + rank, sequence = first_sequence + local, in_tile = e % kUnits, unit = first_unit + in_tile;
    float sum[4] = {};  // r, z, x part of n, h part of n
    for (int other = 0; other < cluster; other++) {
      const float* row = partial + local * kStride + in_tile / 4 * 16 + in_tile % 4;
      if (cluster > 1) row = of_block(row, unsigned(other));
#pragma unroll
      for (int i = 0; i < 4; i++) sum[i] += row[4 * i];
    }
    if (unit >= step.hidden || sequence >= step.batch) continue;
    const T* b_ih = static_cast<const T*>(step.b_ih[direction]);
    const T* b_hh = static_cast<const T*>(step.b_hh[direction]);
    float x_gate[3] = {};
    if (step.gx[direction] != nullptr) {
#pragma unroll
      for (int i = 0; i < 3; i++) x_gate[i] = step.gx[direction][sequence * step.gx_stride + int64_t(i) * step.hidden + unit];
    } else if (b_ih != nullptr) {
#pragma unroll
      for (int i = 0; i < 3; i++) x_gate[i] = to_float(b_ih[i * step.hidden + unit]);
    }
    float h_gate[3] = {};
    if (b_hh != nullptr) {
#pragma unroll
      for (int i = 0; i < 3; i++) h_gate[i] = to_float(b_hh[i * step.hidden + unit]);
    }
    h_gate[2] += sum[3];
    const float h = to_float(static_cast<const T*>(step.h[direction])[sequence * step.h_stride + unit]);
    const Gates gate = gates(x_gate[0], x_gate[1], x_gate[2] + sum[2], sum[0] + h_gate[0], sum[1] + h_gate[1], h_gate[2]);
    T next;
    from_float(next_state(gate, h), next);
    static_cast<T*>(step.output[direction])[sequence * step.output_stride + unit] = next;
    if (step.hy[direction] != nullptr) static_cast<T*>(step.hy[direction])[int64_t(sequence) * step.hidden + unit] = next;
    if (step.reserve[direction] != nullptr) {
      float* reserve = step.reserve[direction] + int64_t(sequence) * 4 * step.hidden + unit;
      reserve[0] = gate.r;
      reserve[step.hidden] = gate.z;
      reserve[2 * step.hidden] = gate.n;
      reserve[3 * step.hidden] = h_gate[2];
    }
  }
  if (cluster > 1) {  // no block may end while another reads its sums
    cluster_arrive();
    cluster_wait();
  }
}

// As many blocks share the sums of a tile as fill the GPU once, and leave every warp a part of k.
int cluster_for(unsigned tiles, int64_t blocks) {
  const Device& device = current_device();
  int cluster = 1;
  if (device.capability < 90) return cluster;
  while (cluster < 8 && int64_t(tiles) * cluster * 2 <= device.processors && blocks >= kWarps * cluster * 2) cluster *= 2;
  return cluster;
}

template <Precision precision, int MT, int NT, int ahead>
cudaError_t launch_tile(StepArguments& arguments, cudaStream_t stream) {
  static Prepared prepared{0};
  const Step& step = arguments.step;
  const unsigned unit_tiles = (step.hidden + 4 * MT - 1) / (4 * MT), batch_tiles = (step.batch + 8 * NT - 1) / (8 * NT);
  const int64_t length = int64_t(step.x[0] == nullptr ? 0 : step.input) + step.hidden;
  arguments.cluster = cluster_for(unit_tiles * batch_tiles * step.directions, length / kBlock<precision>);
  Launch shape;
  shape.grid = dim3(unit_tiles * arguments.cluster, batch_tiles, step.directions);
  shape.block = dim3(32 * kWarps);
  shape.cluster = arguments.cluster;
  shape.shared_bytes = sizeof(float) * kWarps * 8 * NT * (16 * MT + 4);
  shape.stream = stream;
  return launch(step_kernel<precision, MT, NT, ahead>, shape, prepared, arguments);
}

bool aligned(const void* const (&pointers)[2], int directions, int64_t stride_bytes) {
  bool result = stride_bytes % 16 == 0;
  for (int d = 0; d < directions; d++) result = result && reinterpret_cast<uintptr_t>(pointers[d]) % 16 == 0;
  return result;
}

int tile_for(const Step& step) {
  if (step.tile >= 0) return step.tile;
  for (const TunedTile& row : kTunedTiles) {
    if (row.precision == step.precision && step.batch >= row.batch_from && step.batch <= row.batch_to && step.hidden >= row.hidden_from &&
        step.hidden <= row.hidden_to) {
      return row.tile;
    }
  }
  return step.batch <= 8 ? 0 : step.batch <= 16 ? 1 : step.batch <= 32 ? 2 : 3;
}

template <Precision precision>
cudaError_t launch_precision(const Step& step, cudaStream_t stream) {
  const int64_t bytes = element_bytes(precision);
  StepArguments arguments{step,
                          aligned(step.x, step.directions, step.x_stride * bytes),
                          aligned(step.w_ih, step.directions, step.input * bytes),
                          aligned(step.h, step.directions, step.h_stride * bytes),
                          aligned(step.w_hh, step.directions, step.hidden * bytes),
                          1};
  switch (tile_for(step)) {
    case 0:
      return launch_tile<precision, 1, 1, 4>(arguments, stream);
    case 1:
      return launch_tile<precision, 2, 2, 2>(arguments, stream);
    case 2:
      return launch_tile<precision, 4, 4, 1>(arguments, stream);
    default:
      return launch_tile<precision, 4, 8, 1>(arguments, stream);
  }
}

}  // namespace

cudaError_t launch_step(const Step& step, cudaStream_t stream) {
  switch (step.precision) {
    case Precision::kFloat32:
      return launch_precision<Precision::kFloat32>(step, stream);
    case Precision::kTf32:
      return launch_precision<Precision::kTf32>(step, stream);
    case Precision::kBfloat16:
      return launch_precision<Precision::kBfloat16>(step, stream);
    default:
      return launch_precision<Precision::kFloat16>(step, stream);
  }
}

}  // namespace tracer::overrides::gru
