// Matrix products for the GRU: 128 x 128, 128 x 64 or 64 x 64 tiles of c, slices of 128 bytes along k in three stages of shared memory.
//
//             columns 0..31   32..63   ..          Each warp multiplies half of the rows with 32 columns; 4 or 8 warps. Then the sums go
//   rows 0..  | warp 0      | warp 2 | ..          through shared memory, so that a thread ends four columns of a row at a time.
//   rows 64.. | warp 1      | warp 3 | ..
//
// Where there are few tiles, the blocks of a cluster share k and add their sums up in order; so the result is the same each time.
#include "gru_product.cuh"
#include "gru_product_groups.h"

namespace tracer::overrides::gru {
namespace {

struct ProductArguments {
  Product product;
  bool a_vector, b_vector, c_quads;
  int split;  // blocks that share k
};

// Four columns of a row of c; `whole`: all of them are inside and aligned to their size.
template <typename T>
__device__ __forceinline__ void write_four(const Product& p, int64_t row, int64_t column, const float4& sum, bool whole) {
  float value[4] = {sum.x, sum.y, sum.z, sum.w};
  if (p.addend != nullptr) {
#pragma unroll
    for (int i = 0; i < 4; i++)
      if (column + i < p.n) value[i] += p.addend[row * p.addend_stride + column + i];
  }
  if (p.c_is_float) {
    float* to = static_cast<float*>(p.c) + row * p.c_stride + column;
    if (whole) {
      *reinterpret_cast<float4*>(to) = make_float4(value[0], value[1], value[2], value[3]);
      return;
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
      if (column + i < p.n) to[i] = value[i];
  } else {
    struct alignas(4 * sizeof(T)) {
      T of[4];
    } rounded;
#pragma unroll
    for (int i = 0; i < 4; i++) from_float(value[i], rounded.of[i]);
    T* to = static_cast<T*>(p.c) + row * p.c_stride + column;
    if (whole) {
      *reinterpret_cast<decltype(rounded)*>(to) = rounded;
      return;
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
      if (column + i < p.n) to[i] = rounded.of[i];
  }
}

// Blocks of a multiprocessor at once: what shared memory leaves room for, fewer where the registers would not do.
__host__ __device__ constexpr int minimum_blocks(Precision precision, int tile_m, int tile_n) {
  if (tile_n == 128) return precision == Precision::kFloat32 ? 1 : 2;
  return precision == Precision::kFloat32 ? (tile_m == 128 ? 2 : 3) : (tile_m == 128 ? 3 : 4);
}

template <Precision precision, Product::Layout layout, int kM, int kN>
__global__ void __launch_bounds__(threads_of(kN), minimum_blocks(precision, kM, kN))
    product_kernel(const __grid_constant__ ProductArguments arguments) {
  using T = Element<precision>;
  constexpr bool a_contiguous = layout != Product::Layout::kColumnsByColumns, b_contiguous = layout == Product::Layout::kRowsByRows;
  using ATile = Tile<T, a_contiguous, kM>;
  using BTile = Tile<T, b_contiguous, kN>;
  constexpr int kSteps = kSliceBytes / 32;
  constexpr int kChain = precision == Precision::kFloat32 ? 2 : 1;  // steps that the tensor cores sum
  constexpr int MT = kM / 32, NT = 4, kThreads = threads_of(kN);    // mma tiles of a warp
  const Product& p = arguments.product;
  const int split = kM == 64 ? arguments.split : 1;  // large tiles are many
  const int rank = split > 1 ? int(cluster_rank()) : 0;
  const int64_t first_m = int64_t(int(blockIdx.x) / split) * kM, first_n = int64_t(blockIdx.y) * kN;
  const int warp = int(threadIdx.x) >> 5, lane = int(threadIdx.x) & 31, g = lane >> 2, q = lane & 3;
  const int warp_m = (warp & 1) * (kM / 2), warp_n = (warp >> 1) * 32;
  const Rows a_rows{p.a, p.a, p.a_stride, p.a_stride, INT64_MAX}, b_rows{p.b[0], p.b[1], p.b_stride[0], p.b_stride[1], p.b_split};
  char* shared = block_shared();
  auto a_tile = [&](int stage) { return shared + stage * (ATile::kBytes + BTile::kBytes); };
  auto b_tile = [&](int stage) { return shared + stage * (ATile::kBytes + BTile::kBytes) + ATile::kBytes; };
  auto fetch_slice = [&](int slice, int stage) {
    const int64_t k = int64_t(slice) * kSlice<T>;
    if constexpr (a_contiguous) {
      fetch<kThreads, T, true, kM>(a_tile(stage), a_rows, p.m, p.k, first_m, k, arguments.a_vector);
    } else {
      fetch<kThreads, T, false, kM>(a_tile(stage), a_rows, p.k, p.m, k, first_m, arguments.a_vector);
    }
    if constexpr (b_contiguous) {
      fetch<kThreads, T, true, kN>(b_tile(stage), b_rows, p.n, p.k, first_n, k, arguments.b_vector);
    } else {
      fetch<kThreads, T, false, kN>(b_tile(stage), b_rows, p.k, p.n, k, first_n, arguments.b_vector);
    }
  };

  const int all_slices = int((p.k + kSlice<T> - 1) / kSlice<T>);
  const int begin = int(int64_t(all_slices) * rank / split), end = int(int64_t(all_slices) * (rank + 1) / split);
#pragma unroll
  for (int s = 0; s < kStages - 1; s++) {
    if (begin + s < end) fetch_slice(begin + s, s);
    copy_async_commit();
  }
  float sums[MT][NT][4] = {};
  int loading = kStages - 1, using_ = 0;  // places in the ring
#pragma unroll 1
  for (int slice = begin; slice < end; slice++) {
    copy_async_wait<kStages - 2>();
    __syncthreads();  // the slice is there, and its predecessor has been used by all
    if (slice + kStages - 1 < end) fetch_slice(slice + kStages - 1, loading);
    copy_async_commit();
    const char* a = a_tile(using_);
    const char* b = b_tile(using_);
    loading = loading + 1 == kStages ? 0 : loading + 1;
    using_ = using_ + 1 == kStages ? 0 : using_ + 1;
#pragma unroll
    for (int step = 0; step < kSteps; step += kChain) {
      Fragment<precision> left[kChain][MT];
#pragma unroll
      for (int s = 0; s < kChain; s++) {
#pragma unroll
        for (int m = 0; m < MT; m++) {
          load_left<T, a_contiguous, kM>(left[s][m].words, a, warp_m + 16 * m, step + s, lane);
          left[s][m].prepare();
        }
      }
#pragma unroll
      for (int n = 0; n < NT; n += 2) {
        Fragment<precision> right[kChain];
#pragma unroll
        for (int s = 0; s < kChain; s++) {
          load_right<T, b_contiguous, kN>(right[s].words, b, warp_n + 8 * n, step + s, lane);
          right[s].prepare();
        }
#pragma unroll
        for (int j = 0; j < 2; j++) {
#pragma unroll
          for (int m = 0; m < MT; m++) {
            if constexpr (precision == Precision::kFloat32) {
              // The tensor cores truncate their sums: short sums from zero, added with rounding.
              float sum[4] = {0, 0, 0, 0};
#pragma unroll
              for (int s = 0; s < kChain; s++) {
                const unsigned words[2] = {right[s].words[2 * j], right[s].words[2 * j + 1]};
                const unsigned rest[2] = {right[s].rest[2 * j], right[s].rest[2 * j + 1]};
                mma_tf32(sum, left[s][m].rest, words);
                mma_tf32(sum, left[s][m].words, rest);
              }
#pragma unroll
              for (int s = 0; s < kChain; s++) {
                const unsigned words[2] = {right[s].words[2 * j], right[s].words[2 * j + 1]};
                mma_tf32(sum, left[s][m].words, words);
              }
#pragma unroll
              for (int i = 0; i < 4; i++) sums[m][n + j][i] += sum[i];
            } else {
              const unsigned words[2] = {right[0].words[2 * j], right[0].words[2 * j + 1]};
              multiply_words<precision>(sums[m][n + j], left[0][m].words, words);
            }
          }
        }
      }
    }
  }
  copy_async_wait<0>();

  // The sums go through shared memory, so that a thread ends four columns of a row at a time, always the same ones. Each block of a
  // cluster ends some rows.
  constexpr int kStride = kN + 4, kQuads = kN / 4, kRowsAtOnce = kThreads / kQuads;
  static_assert(kM * kStride * int(sizeof(float)) <= kStages * (ATile::kBytes + BTile::kBytes) && kThreads % kQuads == 0);
  float* tile = reinterpret_cast<float*>(shared);
  __syncthreads();  // the stages have been used by all
#pragma unroll
  for (int m = 0; m < MT; m++) {
#pragma unroll
    for (int n = 0; n < NT; n++) {
      float* to = tile + (warp_m + 16 * m + g) * kStride + warp_n + 8 * n + 2 * q;
      *reinterpret_cast<float2*>(to) = make_float2(sums[m][n][0], sums[m][n][1]);
      *reinterpret_cast<float2*>(to + 8 * kStride) = make_float2(sums[m][n][2], sums[m][n][3]);
    }
  }
  const int quad = int(threadIdx.x) % kQuads * 4;
  const int64_t column = first_n + quad;
  float bias[4];
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const bool second = column + i >= p.b_split;
    const T* from = static_cast<const T*>(p.bias[second ? 1 : 0]);
    bias[i] = from == nullptr || column + i >= p.n ? 0.0f : to_float(from[column + i - (second ? p.b_split : 0)]);
  }
  if (split > 1) {
    cluster_arrive();
    cluster_wait();
  } else {
    __syncthreads();
  }
  const int share = kM / split, first_row = rank * share + int(threadIdx.x) / kQuads;
  const int64_t rows_left = p.m - first_m;
  const bool whole = arguments.c_quads && column + 4 <= p.n;
#pragma unroll 4
  for (int r = first_row; r < (rank + 1) * share; r += kRowsAtOnce) {
    float4 value = make_float4(bias[0], bias[1], bias[2], bias[3]);
    for (int other = 0; other < split; other++) {
      const float* at = tile + r * kStride + quad;
      const float4 sum = *reinterpret_cast<const float4*>(split > 1 ? of_block(at, unsigned(other)) : at);
      value = make_float4(value.x + sum.x, value.y + sum.y, value.z + sum.z, value.w + sum.w);
    }
    if (r < rows_left) write_four<T>(p, first_m + r, column, value, whole);
  }
  if (split > 1) {
    cluster_arrive();
    cluster_wait();  // no block ends while another reads its sums
  }
}

template <Precision precision, Product::Layout layout, int kM, int kN>
cudaError_t launch_tile(ProductArguments arguments, cudaStream_t stream) {
  using T = Element<precision>;
  static Prepared prepared{0};
  const Product& p = arguments.product;
  Launch shape;
  const int64_t tiles_m = (p.m + kM - 1) / kM, tiles_n = (p.n + kN - 1) / kN, slices = (p.k + kSlice<T> - 1) / kSlice<T>;
  // As many blocks share k as fill the GPU once, and have some slices each.
  const Device& device = current_device();
  arguments.split = 1;
  while (kM == 64 && device.capability >= 90 && arguments.split < 8 && tiles_m * tiles_n * arguments.split * 2 <= device.processors &&
         slices >= 4 * arguments.split) {
    arguments.split *= 2;
  }
  shape.grid = dim3(unsigned(tiles_m * arguments.split), unsigned(tiles_n));
  shape.cluster = unsigned(arguments.split);
  shape.block = dim3(unsigned(threads_of(kN)));
  shape.shared_bytes = kStages * (Tile<T, layout != Product::Layout::kColumnsByColumns, kM>::kBytes +
                                  Tile<T, layout == Product::Layout::kRowsByRows, kN>::kBytes);
  shape.stream = stream;
  return launch(product_kernel<precision, layout, kM, kN>, shape, prepared, arguments);
}

bool aligned(const void* pointer, int64_t stride_bytes, int64_t bytes) {
  return int64_t(reinterpret_cast<uintptr_t>(pointer) % uintptr_t(bytes)) == 0 && stride_bytes % bytes == 0;
}

template <Precision precision, Product::Layout layout>
cudaError_t launch_layout(const ProductArguments& arguments, cudaStream_t stream) {
  const Product& p = arguments.product;
  // Large tiles where they are enough to fill the GPU; the gradients of the weights are small and have a long k.
  if constexpr (layout != Product::Layout::kColumnsByColumns) {
    const int64_t tiles = (p.m + 127) / 128 * ((p.n + 127) / 128);
    if (tiles >= 4 * current_device().processors) return launch_tile<precision, layout, 128, 128>(arguments, stream);
    if ((p.m + 127) / 128 * ((p.n + 63) / 64) >= current_device().processors)
      return launch_tile<precision, layout, 128, 64>(arguments, stream);
  }
  return launch_tile<precision, layout, 64, 64>(arguments, stream);
}

template <Precision precision>
cudaError_t launch_precision(const Product& p, cudaStream_t stream) {
  const int64_t bytes = element_bytes(precision), c_bytes = p.c_is_float ? 4 : bytes;
  const bool second = p.b[1] == nullptr || aligned(p.b[1], p.b_stride[1] * bytes, 16);
  ProductArguments arguments{p, aligned(p.a, p.a_stride * bytes, 16), aligned(p.b[0], p.b_stride[0] * bytes, 16) && second,
                             aligned(p.c, p.c_stride * c_bytes, 4 * c_bytes), 1};
  switch (p.layout) {
    case Product::Layout::kRowsByRows:
      return launch_layout<precision, Product::Layout::kRowsByRows>(arguments, stream);
    case Product::Layout::kRowsByColumns:
      return launch_layout<precision, Product::Layout::kRowsByColumns>(arguments, stream);
    default:
      return launch_layout<precision, Product::Layout::kColumnsByColumns>(arguments, stream);
  }
}

}  // namespace

cudaError_t launch_product(const Product& product, cudaStream_t stream) {
  if (suits_groups(product)) {
    const cudaError_t error = launch_groups_product(product, stream);
    if (error != cudaErrorNotSupported) return error;  // else this driver makes no tensor maps
  }
  switch (product.precision) {
    case Precision::kFloat32:
      return launch_precision<Precision::kFloat32>(product, stream);
    case Precision::kTf32:
      return launch_precision<Precision::kTf32>(product, stream);
    case Precision::kBfloat16:
      return launch_precision<Precision::kBfloat16>(product, stream);
    default:
      return launch_precision<Precision::kFloat16>(product, stream);
  }
}

}  // namespace tracer::overrides::gru
