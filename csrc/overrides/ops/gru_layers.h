// The layers of a GRU over tensors: which kernels run for a whole call of _cudnn_rnn or _cudnn_rnn_backward.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>

#include <array>
#include <optional>
#include <tuple>
#include <vector>

#include "../kernels/gru.h"

namespace tracer::overrides::gru {

// A call whose tensors have been checked: one type, one device, contiguous weights and hx.
struct Call {
  Precision precision;
  int64_t steps, batch, input, hidden, layers;
  int directions;
  bool biases, batch_first, train;
  at::TensorList weight;  // w_ih, w_hh (, b_ih, b_hh) of each layer and direction

  int64_t rows() const { return steps * batch; }
  int64_t input_of(int64_t layer) const { return layer == 0 ? input : directions * hidden; }
  const at::Tensor& weight_of(int64_t layer, int direction, int which) const {
    return weight[size_t((layer * directions + direction) * (biases ? 4 : 2) + which)];
  }
};

// at::empty of a contiguous tensor on the GPU, without the dispatcher's search for the device.
at::Tensor allocate(at::IntArrayRef sizes, at::ScalarType type, c10::Device device);

// (output, hy, reserve); the reserve is float32, or undefined where the call does not train. `x` is contiguous, time first; output
// is time first too.
std::tuple<at::Tensor, at::Tensor, at::Tensor> run_forward(const Call& call, const at::Tensor& x, const at::Tensor& hx,
                                                           cudaStream_t stream);

struct Gradients {
  at::Tensor x, hx;
  std::vector<at::Tensor> weight;
};
// `wanted`: x, hx, weights. All tensors contiguous, time first; a gradient that is not defined is zero.
Gradients run_backward(const Call& call, const at::Tensor& x, const at::Tensor& hx, const at::Tensor& output,
                       const std::optional<at::Tensor>& grad_output, const std::optional<at::Tensor>& grad_hy, const at::Tensor& reserve,
                       std::array<bool, 3> wanted, cudaStream_t stream);

// Floats of the reserve: per layer and direction r, z, n and h W_hn' + b_hn for each row, then the outputs of the lower layers.
int64_t reserve_floats(const Call& call);

}  // namespace tracer::overrides::gru
