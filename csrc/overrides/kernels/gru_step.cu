// One GRU time step in one kernel; the sums run over [x, h]. In one of two ways:
//
// row_kernel, for one or two sequences: a block computes four units. Each thread multiplies 16 bytes of the twelve gate rows of these
// units, all of them on their way at once, in float32 (which is exact enough for kFloat32 and serves kTf32 too).
//
// tile_kernel: a block computes 16 or 32 units for 16 to 128 sequences on the tensor cores. The blocks of a cluster share the sums
// over [x, h]: each brings its part of the gate rows and of the sequences to shared memory once, several stages ahead.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <type_traits>

#include "gru_launch.cuh"
#include "gru_numbers.cuh"
#include "gru_tuned.h"

namespace tracer::overrides::gru {
namespace {

struct StepArguments {
  Step step;
  bool x_vector, w_ih_vector, h_vector, w_hh_vector;  // rows are 16-byte aligned
  bool results_vector;                                // four units of a row of all results are aligned to their size
  int cluster;
};

// What the sums run over, in chunks: chunks of x first (none where gx is used instead), then chunks of h.
struct Chunks {
  int x, all;
  __host__ __device__ Chunks(const Step& step, int elements)
      : x(step.x[0] == nullptr ? 0 : (step.input + elements - 1) / elements), all(x + (step.hidden + elements - 1) / elements) {}
};

// The side of a chunk: x with W_ih, or h with W_hh.
template <typename T>
struct Side {
  const T *weight, *input;
  int64_t stride;  // of the input; that of the weight is `length`
  int length;
  bool weight_vector, input_vector;
  __device__ __forceinline__ Side(const StepArguments& arguments, int direction, bool from_x) {
    const Step& step = arguments.step;
    weight = static_cast<const T*>(from_x ? step.w_ih[direction] : step.w_hh[direction]);
    input = static_cast<const T*>(from_x ? step.x[direction] : step.h[direction]);
    stride = from_x ? step.x_stride : step.h_stride;
    length = from_x ? step.input : step.hidden;
    weight_vector = from_x ? arguments.w_ih_vector : arguments.w_hh_vector;
    input_vector = from_x ? arguments.x_vector : arguments.h_vector;
  }
};

// What the gates of a unit take besides the products, as loaded: nothing waits for it here.
template <typename T>
struct Given {
  float gx[3] = {};
  T b_ih[3] = {}, b_hh[3] = {}, state = {};
  __device__ __forceinline__ float x(int gate) const { return gx[gate] + to_float(b_ih[gate]); }
  __device__ __forceinline__ float h(int gate) const { return to_float(b_hh[gate]); }
};

template <typename T>
__device__ __forceinline__ Given<T> load_given(const Step& step, int direction, int sequence, int unit) {
  Given<T> given;
  if (unit >= step.hidden || sequence >= step.batch) return given;
  const T* b_ih = static_cast<const T*>(step.b_ih[direction]);
  const T* b_hh = static_cast<const T*>(step.b_hh[direction]);
  const float* gx = step.gx[direction];
#pragma unroll
  for (int i = 0; i < 3; i++) {
    if (gx != nullptr) {
      given.gx[i] = gx[sequence * step.gx_stride + int64_t(i) * step.hidden + unit];
    } else if (b_ih != nullptr) {
      given.b_ih[i] = b_ih[i * step.hidden + unit];
    }
    if (b_hh != nullptr) given.b_hh[i] = b_hh[i * step.hidden + unit];
  }
  given.state = static_cast<const T*>(step.h[direction])[sequence * step.h_stride + unit];
  return given;
}

// `sum`: of r, of z, of the h part of n, of its x part.
template <typename T>
__device__ __forceinline__ void finish(const Step& step, int direction, int sequence, int unit, const Given<T>& given,
                                       const float (&sum)[4]) {
  if (unit >= step.hidden || sequence >= step.batch) return;
  const float h_n = given.h(2) + sum[2];
  const Gates gate = gates(given.x(0), given.x(1), given.x(2) + sum[3], sum[0] + given.h(0), sum[1] + given.h(1), h_n);
  T next;
  from_float(next_state(gate, to_float(given.state)), next);
  static_cast<T*>(step.output[direction])[sequence * step.output_stride + unit] = next;
  if (step.hy[direction] != nullptr) static_cast<T*>(step.hy[direction])[int64_t(sequence) * step.hidden + unit] = next;
  if (step.reserve[direction] != nullptr) {
    float* reserve = step.reserve[direction] + int64_t(sequence) * 4 * step.hidden + unit;
    reserve[0] = gate.r;
    reserve[step.hidden] = gate.z;
    reserve[2 * step.hidden] = gate.n;
    reserve[3 * step.hidden] = h_n;
  }
}

// Four elements; aligned to their size if `vector`.
__device__ __forceinline__ void store_four(float* to, const float (&values)[4], bool vector, int inside) {
  if (vector) {
    *reinterpret_cast<float4*>(to) = make_float4(values[0], values[1], values[2], values[3]);
  } else {
#pragma unroll
    for (int i = 0; i < 4; i++)
      if (i < inside) to[i] = values[i];
  }
}
template <typename T>
__device__ __forceinline__ void store_four(T* to, const float (&values)[4], bool vector, int inside) {
  T rounded[4];
#pragma unroll
  for (int i = 0; i < 4; i++) from_float(values[i], rounded[i]);
  if (vector) {
    uint2 words;
    memcpy(&words, rounded, sizeof words);
    *reinterpret_cast<uint2*>(to) = words;
  } else {
#pragma unroll
    for (int i = 0; i < 4; i++)
      if (i < inside) to[i] = rounded[i];
  }
}

// The same for the units `unit` to `unit` + 3: sum[part][unit].
template <typename T>
__device__ __forceinline__ void finish_four(const StepArguments& arguments, int direction, int sequence, int unit, const Given<T> (&given)[4],
                                            const float (&sum)[4][4]) {
  const Step& step = arguments.step;
  if (unit >= step.hidden || sequence >= step.batch) return;
  const bool vector = arguments.results_vector;
  const int inside = step.hidden - unit;
  float next[4], kept[4][4];
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const float h_n = given[i].h(2) + sum[2][i];
    const Gates gate = gates(given[i].x(0), given[i].x(1), given[i].x(2) + sum[3][i], sum[0][i] + given[i].h(0), sum[1][i] + given[i].h(1), h_n);
    next[i] = next_state(gate, to_float(given[i].state));
    kept[0][i] = gate.r;
    kept[1][i] = gate.z;
    kept[2][i] = gate.n;
    kept[3][i] = h_n;
  }
  store_four(static_cast<T*>(step.output[direction]) + sequence * step.output_stride + unit, next, vector, inside);
  if (step.hy[direction] != nullptr)
    store_four(static_cast<T*>(step.hy[direction]) + int64_t(sequence) * step.hidden + unit, next, vector, inside);
  if (step.reserve[direction] != nullptr) {
    float* reserve = step.reserve[direction] + int64_t(sequence) * 4 * step.hidden + unit;
#pragma unroll
    for (int part = 0; part < 4; part++) store_four(reserve + int64_t(part) * step.hidden, kept[part], vector, inside);
  }
}

// ---- one or two sequences ---------------------------------------------------------------------

constexpr int kRowUnits = 4;
// As many threads as [x, h] of 2048 elements has pieces.
template <Precision precision>
constexpr int kRowThreads = 2048 / kPiece<precision>;

template <Precision precision>
__device__ __forceinline__ void values_of(const uint4& piece, float (&values)[kPiece<precision>]) {
  const unsigned words[4] = {piece.x, piece.y, piece.z, piece.w};
#pragma unroll
  for (int i = 0; i < 4; i++) {
    if constexpr (sizeof(Element<precision>) == 4) {
      values[i] = __uint_as_float(words[i]);
    } else if constexpr (precision == Precision::kBfloat16) {
      values[2 * i] = __uint_as_float(words[i] << 16);
      values[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000u);
    } else {
      values[2 * i] = __half2float(__ushort_as_half(static_cast<unsigned short>(words[i] & 0xffffu)));
      values[2 * i + 1] = __half2float(__ushort_as_half(static_cast<unsigned short>(words[i] >> 16)));
    }
  }
}

// The sum over all lanes of sums[lane / (32 / kCount)]; kCount is a power of two. At each distance a lane keeps half of the sums and
// gives the other half away.
template <int kCount, int kDistance = 16>
__device__ __forceinline__ float sum_of_lanes(float (&sums)[kCount], int lane) {
  if constexpr (kCount == 1) {
    float sum = sums[0];
#pragma unroll
    for (int distance = kDistance; distance > 0; distance /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, distance);
    return sum;
  } else {
    const bool upper = lane & kDistance;
    float kept[kCount / 2];
#pragma unroll
    for (int i = 0; i < kCount / 2; i++) {
      const float given = upper ? sums[i] : sums[i + kCount / 2];
      kept[i] = (upper ? sums[i + kCount / 2] : sums[i]) + __shfl_xor_sync(0xffffffffu, given, kDistance);
    }
    return sum_of_lanes<kCount / 2, kDistance / 2>(kept, lane);
  }
}

template <Precision precision, int kSequences>
__global__ void __launch_bounds__(kRowThreads<precision>) row_kernel(StepArguments arguments) {
  using T = Element<precision>;
  constexpr int kThreads = kRowThreads<precision>, kWarps = kThreads / 32, kGateRows = 3 * kRowUnits;
  constexpr int kSums = 4 * kRowUnits * kSequences;  // [sequence][r, z, h part of n, x part of n][unit]: 16 or 32
  const Step& step = arguments.step;
  const int first_unit = int(blockIdx.x) * kRowUnits, first_sequence = int(blockIdx.y) * kSequences, direction = int(blockIdx.z);
  const int warp = int(threadIdx.x) >> 5, lane = int(threadIdx.x) & 31;
  float* partial = reinterpret_cast<float*>(block_shared());  // [warp][kSums]

  // The lanes of the first warp that end the computation: one for each unit and sequence.
  const int last_sequence = first_sequence + lane / 16, last_unit = first_unit + lane % 16;
  const bool ends = warp == 0 && lane < kSums && lane % 16 < kRowUnits;
  Given<T> given;
  if (ends) given = load_given<T>(step, direction, last_sequence, last_unit);

  float sums[kSums] = {};
  const Chunks chunks(step, 32 * kPiece<precision>);  // a chunk for each warp
  for (int chunk = warp; chunk < chunks.all; chunk += kWarps) {
    const bool from_x = chunk < chunks.x;
    const Side<T> side(arguments, direction, from_x);
    const int k = ((from_x ? chunk : chunk - chunks.x) * 32 + lane) * kPiece<precision>;
    uint4 weight[kGateRows], input[kSequences];
#pragma unroll
    for (int s = 0; s < kSequences; s++) {
      const T* row = first_sequence + s < step.batch ? side.input + (first_sequence + s) * side.stride : nullptr;
      input[s] = load_piece(row, k, side.length, side.input_vector);
    }
    if (side.weight_vector) {
#pragma unroll
      for (int i = 0; i < kGateRows; i++) {
        const int unit = first_unit + i % kRowUnits;
        const T* row = side.weight + (int64_t(i / kRowUnits) * step.hidden + unit) * side.length;
        weight[i] = make_uint4(0, 0, 0, 0);
        if (unit < step.hidden && k < side.length) weight[i] = load_once(reinterpret_cast<const uint4*>(row + k));
      }
    } else {
#pragma unroll
      for (int i = 0; i < kGateRows; i++) {
        const int unit = first_unit + i % kRowUnits;
        const T* row = side.weight + (int64_t(i / kRowUnits) * step.hidden + unit) * side.length;
        weight[i] = load_piece(unit < step.hidden ? row : nullptr, k, side.length, false);
      }
    }
#pragma unroll
    for (int i = 0; i < kGateRows; i++) {
      float w[kPiece<precision>];
      values_of<precision>(weight[i], w);
#pragma unroll
      for (int s = 0; s < kSequences; s++) {
        float value[kPiece<precision>], sum = 0;
        values_of<precision>(input[s], value);
#pragma unroll
        for (int j = 0; j < kPiece<precision>; j++) sum = fmaf(w[j], value[j], sum);
        float* to = sums + s * 4 * kRowUnits;
        if (i < 2 * kRowUnits || !from_x) {
          to[i] += sum;
        } else {
          to[i + kRowUnits] += sum;
        }
      }
    }
  }
  __syncwarp();
  const float sum = sum_of_lanes(sums, lane);
  if (lane % (32 / kSums) == 0) partial[warp * kSums + lane / (32 / kSums)] = sum;
  __syncthreads();
  if (warp != 0) return;
  float total = 0;
  if (lane < kSums) {
#pragma unroll
    for (int w = 0; w < kWarps; w++) total += partial[w * kSums + lane];
  }
  float last[4];
#pragma unroll
  for (int i = 0; i < 4; i++) last[i] = __shfl_sync(0xffffffffu, total, (lane & 16) + i * kRowUnits + lane % kRowUnits);
  if (ends) finish<T>(step, direction, last_sequence, last_unit, given, last);
}

template <Precision precision, int kSequences>
cudaError_t launch_rows(const StepArguments& arguments, cudaStream_t stream) {
  static Prepared prepared{0};
  const Step& step = arguments.step;
  Launch shape;
  shape.grid = dim3((step.hidden + kRowUnits - 1) / kRowUnits, (step.batch + kSequences - 1) / kSequences, step.directions);
  shape.block = dim3(kRowThreads<precision>);
  shape.shared_bytes = sizeof(float) * kRowThreads<precision> / 32 * 4 * kRowUnits * kSequences;
  shape.stream = stream;
  return launch(row_kernel<precision, kSequences>, shape, prepared, arguments);
}

// ---- more sequences ---------------------------------------------------------------------------

constexpr int kTileThreads = 256, kLargestCluster = 8;

// The warps of a block: `unit_warps` times `sequence_warps` times `inner_warps` (over [x, h]), 8 in all. A warp computes 16 units, which
// are three 16-row tiles (r, z, n), for 8 * NT sequences.
// `blocks`: how many at least have room on a multiprocessor; a lone one has twice the registers.
template <int unit_warps, int sequence_warps, int inner_warps, int NT, int stages, int blocks>
struct Tile {
  static_assert(unit_warps * sequence_warps * inner_warps * 32 == kTileThreads);
  static constexpr int kUnitWarps = unit_warps, kSequenceWarps = sequence_warps, kInnerWarps = inner_warps, kTiles = NT, kStages = stages;
  static constexpr int kUnits = 16 * unit_warps, kSequences = 8 * NT * sequence_warps, kBlocks = blocks;
  // A stage: rows of 16-byte pieces, first the gate rows of 16 units, r, z and n, for each of the unit warps, then the
  // sequences. The pieces of each 128 bytes are permuted by their row, so that a read of one piece of 8 rows meets no bank twice.
  static constexpr int kRowBlocks = inner_warps < 2 ? 2 : inner_warps, kRowPieces = 4 * kRowBlocks, kRowBytes = 16 * kRowPieces;
  static constexpr int kGateRows = 3 * kUnits, kRows = kGateRows + kSequences, kStageBytes = kRows * kRowBytes;
  static constexpr int kPass = kTileThreads / kRowPieces;  // rows that all threads copy at once: those of one gate
  static_assert(kPass == kUnits && kSequences % kPass == 0);
  // The sums: [r, z, h part of n, x part of n][inner warp][sequence][unit], padded. The first three replace the stages, the
  // last one behind them, since x may be done before h.
  static constexpr int kStride = kUnits + 4, kPlane = kSequences * kStride, kPart = inner_warps * kPlane;
  static constexpr int kLastPart = kStages * kStageBytes / int(sizeof(float));
  static constexpr size_t kSharedBytes = sizeof(float) * (kLastPart + kPart);
  static_assert(3 * kPart <= kLastPart && kSharedBytes <= 226 * 1024 / blocks);
  __device__ __forceinline__ static constexpr int at(int part) { return part < 3 ? part * kPart : kLastPart; }
  __device__ __forceinline__ static int offset(int row, int piece) { return row * kRowBytes + (piece ^ (row & 7)) * 16; }
};

// Starts copying one piece of each of `count` rows to shared memory, rows `stride` elements and `step` bytes apart; `left` elements of
// a row are at `from` and behind. Zeros beyond a row, and from row `inside` on.
template <int count, int step, typename T>
__device__ __forceinline__ void copy_rows(char* to, const T* from, int64_t stride, int left, int inside, bool vector) {
  if (vector) {
    const int bytes = max(0, min(16, left * int(sizeof(T))));
#pragma unroll
    for (int i = 0; i < count; i++) copy_async_16(to + i * step, from + i * stride, i < inside ? bytes : 0);
  } else {
#pragma unroll 1
    for (int i = 0; i < count; i++)
      *reinterpret_cast<uint4*>(to + i * step) = load_piece(i < inside ? from + i * stride : nullptr, 0, left, false);
  }
}

// What a thread copies: a piece of the rows of each gate of one unit, and of every kPass-th sequence, chunk after chunk.
template <Precision precision, class Tile>
struct Copies {
  using T = Element<precision>;
  static constexpr int kChunk = Tile::kRowPieces * kPiece<precision>, kPasses = Tile::kSequences / Tile::kPass;
  const T *weight, *input;
  int left;

  // From chunk `chunk` of its side on.
  __device__ __forceinline__ void start(const StepArguments& arguments, int direction, bool from_x, int chunk, int unit, int sequence) {
    const Side<T> side(arguments, direction, from_x);
    const int k = chunk * kChunk + int(threadIdx.x) % Tile::kRowPieces * kPiece<precision>;
    weight = side.weight + int64_t(unit) * side.length + k;
    input = side.input + sequence * side.stride + k;
    left = side.length - k;
  }
  __device__ __forceinline__ void next(char* stage, const StepArguments& arguments, int direction, bool from_x, int row, int gates_inside,
                                       int sequences_inside) {
    const Side<T> side(arguments, direction, from_x);
    const int piece = int(threadIdx.x) % Tile::kRowPieces;
    char* gates = stage + Tile::offset(row / 16 * 48 + row % 16, piece);
    copy_rows<3, 16 * Tile::kRowBytes>(gates, weight, int64_t(arguments.step.hidden) * side.length, left, gates_inside, side.weight_vector);
    char* sequences = stage + Tile::offset(Tile::kGateRows + row, piece);
    copy_rows<kPasses, Tile::kPass * Tile::kRowBytes>(sequences, input, Tile::kPass * side.stride, left, sequences_inside,
                                                      side.input_vector);
    weight += kChunk;
    input += kChunk;
    left -= kChunk;
  }
};

// d += a b for one of the two mma that the words of `b` are for.
template <Precision precision>
__device__ __forceinline__ void multiply_half(float (&d)[4], const Split<precision>& a, const Split<precision>& b, int half) {
  const unsigned right[2] = {b.words[2 * half], b.words[2 * half + 1]};
  if constexpr (precision == Precision::kFloat32) {
    // The tensor cores truncate their sums: short sums from zero, added to d with rounding.
    const unsigned rest[2] = {b.rest[2 * half], b.rest[2 * half + 1]};
    float sum[4] = {0, 0, 0, 0};
    mma_tf32(sum, a.rest, right);
    mma_tf32(sum, a.words, rest);
    mma_tf32(sum, a.words, right);
#pragma unroll
    for (int i = 0; i < 4; i++) d[i] += sum[i];
  } else {
    multiply_words<precision>(d, a.words, right);
  }
}

// Adds the products of a stage: r to sums[0], z to sums[1], n to sums[2].
template <Precision precision, class Tile>
__device__ __forceinline__ void multiply_stage(float (&sums)[3][Tile::kTiles][4], const char* stage, int unit_warp, int sequence_warp,
                                               int inner_warp) {
  const int lane = int(threadIdx.x) & 31;
  // The rows and pieces that a lane names to ldmatrix. Left: 16 rows, two pieces; right: 8 rows, four pieces.
  const int left_row = 48 * unit_warp + (lane & 15), left_piece = 4 * inner_warp + (lane >> 4);
  const int right_row = Tile::kGateRows + 8 * Tile::kTiles * sequence_warp + (lane & 7), right_piece = 4 * inner_warp + (lane >> 3);
  const int left = Tile::offset(left_row, left_piece), right = Tile::offset(right_row, right_piece);
  // 64 bytes further along the row, or 32 of the left ones: the bits of a piece's number change, in whatever row.
  const auto words = [&](int offset, int rows, int pieces) {
    unsigned found[4];
    load_matrices(found, stage + ((offset ^ pieces * 16) + rows * Tile::kRowBytes));
    return Split<precision>(operand_piece<precision>(make_uint4(found[0], found[1], found[2], found[3])));
  };
#pragma unroll
  for (int i = 0; i < Tile::kRowBlocks / Tile::kInnerWarps; i++) {
    const int block = 4 * i * Tile::kInnerWarps;
    Split<precision> sequences[Tile::kTiles];
#pragma unroll
    for (int n = 0; n < Tile::kTiles; n++) sequences[n] = words(right, 8 * n, block);
#pragma unroll
    for (int half = 0; half < 2; half++) {
#pragma unroll
      for (int m = 0; m < 3; m++) {
        const Split<precision> gate = words(left, 16 * m, block + 2 * half);
#pragma unroll
        for (int n = 0; n < Tile::kTiles; n++) multiply_half(sums[m][n], gate, sequences[n], half);
      }
    }
  }
}

template <Precision precision, class Tile>
__global__ void __launch_bounds__(kTileThreads, Tile::kBlocks) tile_kernel(StepArguments arguments) {
  using T = Element<precision>;
  constexpr int kUnits = Tile::kUnits, kSequences = Tile::kSequences, kStages = Tile::kStages, kStride = Tile::kStride;
  const Step& step = arguments.step;
  const int cluster = arguments.cluster, rank = cluster > 1 ? int(cluster_rank()) : 0;
  const int first_unit = int(blockIdx.x) / cluster * kUnits, first_sequence = int(blockIdx.y) * kSequences, direction = int(blockIdx.z);
  const int warp = int(threadIdx.x) >> 5, lane = int(threadIdx.x) & 31, g = lane >> 2, q = lane & 3;
  const int unit_warp = warp % Tile::kUnitWarps, sequence_warp = warp / Tile::kUnitWarps % Tile::kSequenceWarps;
  const int inner_warp = warp / (Tile::kUnitWarps * Tile::kSequenceWarps);
  char* shared = block_shared();

  const Chunks chunks(step, Tile::kRowPieces * kPiece<precision>);
  const int begin = int(unsigned(chunks.all * rank) / unsigned(cluster)), end = int(unsigned(chunks.all * (rank + 1)) / unsigned(cluster));
  float* partial = reinterpret_cast<float*>(shared);
  float* mine = partial + inner_warp * Tile::kPlane + (sequence_warp * 8 * Tile::kTiles + 2 * q) * kStride + 16 * unit_warp + g;
  const auto keep = [&](const float (&sum)[Tile::kTiles][4], int part) {
#pragma unroll
    for (int n = 0; n < Tile::kTiles; n++) {
#pragma unroll
      for (int i = 0; i < 4; i++) mine[Tile::at(part) + (8 * n + (i & 1)) * kStride + (i >= 2 ? 8 : 0)] = sum[n][i];
    }
  };
  float sums[3][Tile::kTiles][4] = {};
  const int first_of_h = max(begin, chunks.x);
  const auto end_x = [&] {  // what was added to n so far is its x part
    keep(sums[2], 3);
#pragma unroll
    for (int n = 0; n < Tile::kTiles; n++) {
#pragma unroll
      for (int i = 0; i < 4; i++) sums[2][n][i] = 0;
    }
  };
  const int row = int(threadIdx.x) / Tile::kRowPieces, unit_of_row = first_unit + row, sequence_of_row = first_sequence + row;
  const int gates_inside = unit_of_row < step.hidden ? 3 : 0,
            sequences_inside = (step.batch - sequence_of_row + Tile::kPass - 1) / Tile::kPass;
  Copies<precision, Tile> copies;
  copies.start(arguments, direction, begin < chunks.x, begin < chunks.x ? begin : begin - chunks.x, unit_of_row, sequence_of_row);
  // Copies run kStages - 1 chunks ahead of the products, which use the slot behind the one that is filled.
  int slot = 0;
#pragma unroll 1
  for (int chunk = begin - (kStages - 1); chunk < end; chunk++) {
    if (chunk >= begin) {
      copy_async_wait<kStages - 2>();
      __syncthreads();  // the copies of all threads have come, and nobody reads the stage before this one any more
    }
    const int ahead = chunk + kStages - 1;
    if (ahead < end) {
      if (ahead == chunks.x) copies.start(arguments, direction, false, 0, unit_of_row, sequence_of_row);
      copies.next(shared + slot * Tile::kStageBytes, arguments, direction, ahead < chunks.x, row, gates_inside, sequences_inside);
    }
    copy_async_commit();
    slot = slot + 1 == kStages ? 0 : slot + 1;
    if (chunk < begin) continue;
    if (chunk == first_of_h) end_x();
    multiply_stage<precision, Tile>(sums, shared + slot * Tile::kStageBytes, unit_warp, sequence_warp, inner_warp);
  }
  if (end <= chunks.x) end_x();

  // The blocks of a cluster share the sequences of the tile; a thread ends four units of one. What the gates take is loaded before it
  // is needed.
  constexpr int kGroups = kUnits / 4;
  const auto sequence_of = [&](int group) { return group / kGroups * cluster + rank; };
  const int groups = (kSequences - rank + cluster - 1) / cluster * kGroups;
  int group = int(threadIdx.x);
  Given<T> given[4];
  const auto load = [&](int of) {
#pragma unroll
    for (int i = 0; i < 4; i++)
      given[i] = load_given<T>(step, direction, first_sequence + sequence_of(of), first_unit + of % kGroups * 4 + i);
  };
  if (group < groups) load(group);

  __syncthreads();
#pragma unroll
  for (int part = 0; part < 3; part++) keep(sums[part], part);
  if constexpr (Tile::kInnerWarps > 1) {
    __syncthreads();
#pragma unroll
    for (int part = 0; part < 4; part++) {
#pragma unroll 1
      for (int e = 4 * int(threadIdx.x); e < Tile::kPlane; e += 4 * kTileThreads) {
        float* at = partial + Tile::at(part) + e;
        float4 sum = *reinterpret_cast<const float4*>(at);
#pragma unroll
        for (int w = 1; w < Tile::kInnerWarps; w++) {
          const float4 more = *reinterpret_cast<const float4*>(at + w * Tile::kPlane);
          sum = make_float4(sum.x + more.x, sum.y + more.y, sum.z + more.z, sum.w + more.w);
        }
        *reinterpret_cast<float4*>(at) = sum;
      }
    }
  }
  if (cluster > 1) {
    cluster_arrive();
    cluster_wait();
  } else {
    __syncthreads();
  }
  for (int next = 0; next < groups; group += kTileThreads) {  // as often in each thread
    next = group - int(threadIdx.x) + kTileThreads;
    const int sequence = sequence_of(group), unit = group % kGroups * 4;
    float sum[4][4] = {};
    if (group < groups) {
      const float* at = partial + sequence * kStride + unit;
      const auto add = [&](const float* from) {
#pragma unroll
        for (int part = 0; part < 4; part++) {
          const float4 more = *reinterpret_cast<const float4*>(from + Tile::at(part));
          sum[part][0] += more.x;
          sum[part][1] += more.y;
          sum[part][2] += more.z;
          sum[part][3] += more.w;
        }
      };
      if (cluster > 1) {
#pragma unroll
        for (int other = 0; other < kLargestCluster; other++) {
          if (other < cluster) add(of_block(at, unsigned(other)));
        }
      } else {
        add(at);
      }
    }
    if (cluster > 1 && next >= groups) cluster_arrive();  // this block reads no sums of others any more
    if (group < groups) finish_four<T>(arguments, direction, first_sequence + sequence, first_unit + unit, given, sum);
    if (group + kTileThreads < groups) load(group + kTileThreads);
  }
  if (cluster > 1) cluster_wait();  // no block may end while another reads its sums
}

// How many clusters of each size run at once, a block on each multiprocessor; 0 where nobody asked yet.
struct ActiveClusters {
  std::atomic<int> of[kLargestCluster + 1] = {};
};

// As many blocks share the sums of a tile as can run at once with a multiprocessor for each, and leave each of them a chunk. Two blocks
// on one would take twice the time, and all others wait for them.
template <typename Active>
int cluster_for(const Device& device, int64_t tiles, int chunks, ActiveClusters& known, Active&& active) {
  if (device.capability < 90) return 1;
  for (int cluster = kLargestCluster; cluster > 1; cluster--) {
    if (chunks < cluster || tiles * cluster > device.processors) continue;
    int clusters = known.of[cluster].load(std::memory_order_relaxed);
    if (clusters == 0) {
      clusters = active(cluster);
      known.of[cluster].store(clusters, std::memory_order_relaxed);
    }
    if (tiles <= clusters) return cluster;
  }
  return 1;
}

template <Precision precision, class Tile>
cudaError_t launch_tile(StepArguments& arguments, const Device& device, cudaStream_t stream) {
  static Prepared prepared{0};
  static ActiveClusters known;
  constexpr auto kernel = tile_kernel<precision, Tile>;
  const Step& step = arguments.step;
  const unsigned unit_tiles = (step.hidden + Tile::kUnits - 1) / Tile::kUnits;
  const unsigned batch_tiles = (step.batch + Tile::kSequences - 1) / Tile::kSequences;
  Launch shape;
  shape.block = dim3(kTileThreads);
  shape.stream = stream;
  const auto with_cluster = [&](int cluster) {
    shape.cluster = cluster;
    shape.grid = dim3(unit_tiles * cluster, batch_tiles, step.directions);
    // More than half of what a multiprocessor has keeps it to one block.
    shape.shared_bytes = cluster > 1 ? std::max<size_t>(Tile::kSharedBytes, device.shared_bytes / 2 + 1024) : Tile::kSharedBytes;
  };
  arguments.cluster = cluster_for(device, int64_t(unit_tiles) * batch_tiles * step.directions,
                                  Chunks(step, Tile::kRowPieces * kPiece<precision>).all, known, [&](int cluster) {
                                    with_cluster(cluster);
                                    return active_clusters(kernel, shape, prepared);
                                  });
  with_cluster(arguments.cluster);
  return launch(kernel, shape, prepared, arguments);
}

// ---- the choice -------------------------------------------------------------------------------

template <typename T>
bool aligned(T* const (&pointers)[2], int directions, int64_t stride_bytes, int64_t to = 16) {
  bool result = stride_bytes % to == 0;
  for (int d = 0; d < directions; d++) result = result && reinterpret_cast<uintptr_t>(pointers[d]) % to == 0;
  return result;
}

int tile_for(const Step& step, const Device& device) {
  if (step.tile >= 0) return step.tile;
  for (const TunedTile& row : kTunedTiles) {
    if (row.precision == step.precision && step.batch >= row.batch_from && step.batch <= row.batch_to && step.hidden >= row.hidden_from &&
        step.hidden <= row.hidden_to) {
      return row.tile;
    }
  }
  if (step.batch <= 2) return 0;
  if (step.batch <= 16) return 1;
  if (device.capability < 90) return 2;  // without clusters more, smaller blocks
  return step.batch <= 32 ? 3 : step.batch <= 64 ? 4 : 5;
}

template <Precision precision>
cudaError_t launch_precision(const Step& step, cudaStream_t stream) {
  const Device& device = current_device();
  const int64_t bytes = element_bytes(precision);
  StepArguments arguments{step,
                          aligned(step.x, step.directions, step.x_stride * bytes),
                          aligned(step.w_ih, step.directions, step.input * bytes),
                          aligned(step.h, step.directions, step.h_stride * bytes),
                          aligned(step.w_hh, step.directions, step.hidden * bytes),
                          step.hidden % 4 == 0 && aligned(step.output, step.directions, step.output_stride * bytes, 4 * bytes) &&
                              aligned(step.hy, step.directions, 0, 4 * bytes) && aligned(step.reserve, step.directions, 0),
                          1};
  // 32 units for 64 and for 128 sequences. kFloat32 has no registers for 32 sequences of a warp, so tile 5 is two of tile 4.
  constexpr Precision kOfRows = precision == Precision::kTf32 ? Precision::kFloat32 : precision;
  constexpr bool kSplit = precision == Precision::kFloat32;
  using SixtyFour = std::conditional_t<kSplit, Tile<2, 4, 1, 2, 4, 1>, Tile<2, 2, 2, 4, 4, 1>>;
  using Largest = std::conditional_t<kSplit, SixtyFour, Tile<2, 4, 1, 4, 4, 1>>;
  switch (tile_for(step, device)) {
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
