// The backward pass of one time step without its products, and sums of columns.
#include "gru_cluster.cuh"

namespace tracer::overrides::gru {
namespace {

constexpr int kThreads = 256;

template <Precision precision>
__global__ void __launch_bounds__(kThreads) step_backward_kernel(StepBackward step) {
  using T = Element<precision>;
  const int64_t index = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (index >= int64_t(step.batch) * step.hidden) return;
  const int64_t sequence = index / step.hidden, unit = index % step.hidden;
  float grad = step.grad_h != nullptr ? step.grad_h[index] : 0.0f;
  if (step.grad_output != nullptr) grad += to_float(static_cast<const T*>(step.grad_output)[sequence * step.grad_output_stride + unit]);
  if (step.grad_hy != nullptr) grad += to_float(static_cast<const T*>(step.grad_hy)[index]);
  const float* reserve = step.reserve + sequence * 4 * step.hidden + unit;
  const float r = reserve[0], z = reserve[step.hidden], n = reserve[2 * int64_t(step.hidden)], h_n = reserve[3 * int64_t(step.hidden)];
  const GateGradients d = gate_gradients(grad, r, z, n, h_n, to_float(static_cast<const T*>(step.h)[sequence * step.h_stride + unit]));
  step.carry[index] = grad * z;
  T* to_x = static_cast<T*>(step.gate_grad_x) + sequence * step.gate_stride + unit;
  T* to_h = static_cast<T*>(step.gate_grad_h) + sequence * step.gate_stride + unit;
  from_float(d.r, to_x[0]);
  from_float(d.r, to_h[0]);
  from_float(d.z, to_x[step.hidden]);
  from_float(d.z, to_h[step.hidden]);
  from_float(d.n, to_x[2 * int64_t(step.hidden)]);
  from_float(d.h_n, to_h[2 * int64_t(step.hidden)]);
}

constexpr int kSlices = 32;  // warps of a block, which share the rows

template <Precision precision>
__global__ void __launch_bounds__(32 * kSlices) column_sum_kernel(ColumnSum sum) {
  using T = Element<precision>;
  float* slices = reinterpret_cast<float*>(block_shared());  // [slice][column]
  const int lane = int(threadIdx.x) & 31, slice = int(threadIdx.x) >> 5;
  const int64_t column = int64_t(blockIdx.x) * 32 + lane;
  const T* matrix = static_cast<const T*>(sum.matrix[blockIdx.y]);
  float total = 0.0f;
  if (column < sum.columns) {
    const int64_t begin = sum.rows * slice / kSlices, end = sum.rows * (slice + 1) / kSlices;
#pragma unroll 8
    for (int64_t row = begin; row < end; row++) total += to_float(matrix[row * sum.stride + column]);
  }
  slices[slice * 32 + lane] = total;
  __syncthreads();
  if (slice != 0 || column >= sum.columns) return;
  for (int s = 1; s < kSlices; s++) total += slices[s * 32 + lane];
  from_float(total, static_cast<T*>(sum.sum[blockIdx.y])[column]);
}

Launch shape_of(int64_t count, cudaStream_t stream) {
  Launch shape;
  shape.grid = dim3(unsigned((count + kThreads - 1) / kThreads));
  shape.block = dim3(kThreads);
  shape.stream = stream;
  return shape;
}

}  // namespace

cudaError_t launch_step_backward(const StepBackward& step, cudaStream_t stream) {
  return with_precision(step.precision, [&](auto p) {
    static Prepared prepared{0};
    return launch(step_backward_kernel<p()>, shape_of(int64_t(step.batch) * step.hidden, stream), prepared, step);
  });
}

cudaError_t launch_column_sum(const ColumnSum& sum, cudaStream_t stream) {
  return with_precision(sum.precision, [&](auto p) {
    static Prepared prepared{0};
    Launch shape;
    shape.grid = dim3(unsigned((sum.columns + 31) / 32), sum.matrix[1] == nullptr ? 1 : 2);
    shape.block = dim3(32 * kSlices);
    shape.shared_bytes = kSlices * 32 * sizeof(float);
    shape.stream = stream;
    return launch(column_sum_kernel<p()>, shape, prepared, sum);
  });
}

}  // namespace tracer::overrides::gru
