// What both ways to compute a GRU time step share: where its sums come from, and what ends them.
#pragma once

#include <cstring>

#include "gru_launch.cuh"
#include "gru_numbers.cuh"

namespace tracer::overrides::gru {
namespace {

struct StepArguments {
  Step step;
  bool x_vector, w_ih_vector, h_vector, w_hh_vector;  // rows are 16-byte aligned
  bool results_vector;                                // four units of a row of all results are aligned to their size
  int cluster;
};

template <typename T>
bool aligned(T* const (&pointers)[2], int directions, int64_t stride_bytes, int64_t to = 16) {
  bool result = stride_bytes % to == 0;
  for (int d = 0; d < directions; d++) result = result && reinterpret_cast<uintptr_t>(pointers[d]) % to == 0;
  return result;
}
inline bool step_results_vector(const Step& step) {
  const int64_t bytes = element_bytes(step.precision);
  return step.hidden % 4 == 0 && aligned(step.output, step.directions, step.output_stride * bytes, 4 * bytes) &&
         aligned(step.hy, step.directions, 0, 4 * bytes) && aligned(step.reserve, step.directions, 0);
}

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
__device__ __forceinline__ void finish_four(const Step& step, bool vector, int direction, int sequence, int unit,
                                            const Given<T> (&given)[4], const float (&sum)[4][4]) {
  if (unit >= step.hidden || sequence >= step.batch) return;
  const int inside = step.hidden - unit;
  float next[4], kept[4][4];
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const float h_n = given[i].h(2) + sum[2][i];
    const Gates gate =
        gates(given[i].x(0), given[i].x(1), given[i].x(2) + sum[3][i], sum[0][i] + given[i].h(0), sum[1][i] + given[i].h(1), h_n);
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

}  // namespace
}  // namespace tracer::overrides::gru
