#include "gru_layers.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/empty_ops.h>

#include "gru_tuning.h"
#include "torch_device.h"

namespace tracer::overrides::gru {

namespace {

using at::Tensor;

constexpr const char* kName = "gru";

// Element `index` of a buffer of the call's type.
void* at_element(const Call& call, void* buffer, int64_t index) {
  return static_cast<char*>(buffer) + index * element_bytes(call.precision);
}
const void* at_element(const Call& call, const void* buffer, int64_t index) {
  return static_cast<const char*>(buffer) + index * element_bytes(call.precision);
}

int64_t gate_floats(const Call& call) { return call.directions * call.rows() * 4 * call.hidden; }
// Of a lower layer's output in the reserve, rounded up to 16 bytes.
int64_t output_floats(const Call& call) {
  return (call.rows() * call.directions * call.hidden * element_bytes(call.precision) + 15) / 16 * 4;
}

float* gates_of(const Call& call, float* reserve, int64_t layer) { return reserve + layer * gate_floats(call); }
void* output_of(const Call& call, float* reserve, int64_t layer) {
  return reserve + call.layers * gate_floats(call) + layer * output_floats(call);
}

// The time step that direction `direction` takes as its `step`th.
int64_t time_of(const Call& call, int direction, int64_t step) { return direction == 0 ? step : call.steps - 1 - step; }

struct Layer {
  const void* input;  // rows of input_of(layer)
  void* output;       // rows of directions * hidden
  const void* hx;     // [directions][batch][hidden]
  void* hy;
  float* gates;       // of the reserve, or null
  int64_t index;
};

const void* weight_pointer(const Call& call, const Layer& layer, int direction, int which) {
  return direction < call.directions && (which < 2 || call.biases) ? call.weight_of(layer.index, direction, which).const_data_ptr()
                                                                   : nullptr;
}

Step step_of(const Call& call, const Layer& layer) {
  Step step = {};
  step.precision = call.precision;
  step.batch = int(call.batch);
  step.input = int(call.input_of(layer.index));
  step.hidden = int(call.hidden);
  step.directions = call.directions;
  step.output_stride = call.directions * call.hidden;
  step.tile = step_tile_now();
  for (int d = 0; d < call.directions; ++d) {
    step.w_ih[d] = weight_pointer(call, layer, d, 0);
    step.w_hh[d] = weight_pointer(call, layer, d, 1);
    step.b_ih[d] = weight_pointer(call, layer, d, 2);
    step.b_hh[d] = weight_pointer(call, layer, d, 3);
  }
  return step;
}

// One time step: x and h in one kernel.
void forward_single(const Call& call, const Layer& layer, cudaStream_t stream) {
  Step step = step_of(call, layer);
  step.x_stride = step.input;
  step.h_stride = call.hidden;
  for (int d = 0; d < call.directions; ++d) {
    step.x[d] = layer.input;
    step.h[d] = at_element(call, layer.hx, d * call.batch * call.hidden);
    step.output[d] = at_element(call, layer.output, d * call.hidden);
    step.hy[d] = at_element(call, layer.hy, d * call.batch * call.hidden);
    step.reserve[d] = layer.gates == nullptr ? nullptr : layer.gates + d * call.rows() * 4 * call.hidden;
  }
  check_launch(launch_step(step, stream), kName);
}

// x W_ih' + b_ih for all rows and directions.
void multiply_input(const Call& call, const Layer& layer, float* gx, cudaStream_t stream) {
  Product product = {};
  product.precision = call.precision;
  product.layout = Product::Layout::kRowsByRows;
  product.m = call.rows();
  product.n = call.directions * 3 * call.hidden;
  product.k = product.a_stride = call.input_of(layer.index);
  product.a = layer.input;
  for (int d = 0; d < call.directions; ++d) {
    product.b[d] = weight_pointer(call, layer, d, 0);
    product.b_stride[d] = product.k;
    product.bias[d] = weight_pointer(call, layer, d, 2);
  }
  product.b_split = 3 * call.hidden;
  product.c = gx;
  product.c_stride = product.n;
  product.c_is_float = true;
  check_launch(launch_product(product, stream), kName);
}

// One kernel for each time step, where a cluster cannot hold W_hh.
void forward_stepwise(const Call& call, const Layer& layer, const float* gx, cudaStream_t stream) {
  Step step = step_of(call, layer);
  const int64_t width = call.directions * call.hidden;
  step.gx_stride = 3 * width;
  for (int64_t i = 0; i < call.steps; ++i) {
    step.h_stride = i == 0 ? call.hidden : width;
    for (int d = 0; d < call.directions; ++d) {
      const int64_t row = time_of(call, d, i) * call.batch;
      step.gx[d] = gx + row * step.gx_stride + d * 3 * call.hidden;
      step.h[d] = i == 0 ? at_element(call, layer.hx, d * call.batch * call.hidden)
                         : at_element(call, layer.output, time_of(call, d, i - 1) * call.batch * width + d * call.hidden);
      step.output[d] = at_element(call, layer.output, row * width + d * call.hidden);
      step.hy[d] = i + 1 == call.steps ? at_element(call, layer.hy, d * call.batch * call.hidden) : nullptr;
      step.reserve[d] = layer.gates == nullptr ? nullptr : layer.gates + (d * call.rows() + row) * 4 * call.hidden;
    }
    check_launch(launch_step(step, stream), kName);
  }
}

Forward forward_of(const Call& call, const Layer& layer, const float* gx) {
  Forward forward = {};
  forward.precision = call.precision;
  forward.steps = int(call.steps);
  forward.batch = int(call.batch);
  forward.hidden = int(call.hidden);
  forward.directions = call.directions;
  forward.gx = gx;
  for (int d = 0; d < call.directions; ++d) {
    forward.w_hh[d] = weight_pointer(call, layer, d, 1);
    forward.b_hh[d] = weight_pointer(call, layer, d, 3);
  }
  forward.hx = layer.hx;
  forward.output = layer.output;
  forward.hy = layer.hy;
  forward.reserve = layer.gates;
  return forward;
}

void forward_clusters(const Call& call, const Layer& layer, const float* gx, const Plan& plan, cudaStream_t stream) {
  Forward forward = forward_of(call, layer, gx);
  forward.plan = plan;
  check_launch(launch_forward(forward, stream), kName);
}

// All blocks of the GPU together, where W_hh is too large for a cluster. False: not for these addresses.
bool forward_grid(const Call& call, const Layer& layer, const float* gx, const GridPlan& plan, void* workspace, cudaStream_t stream) {
  if (plan.units == 0) return false;
  const Forward forward = forward_of(call, layer, gx);
  auto aligned = [](const void* pointer) { return reinterpret_cast<uintptr_t>(pointer) % 16 == 0; };
  bool all = aligned(forward.hx) && aligned(forward.output);
  for (int d = 0; d < call.directions; ++d) all = all && aligned(forward.w_hh[d]);
  if (!all) return false;
  check_launch(launch_grid(forward, plan, workspace, stream), kName);
  return true;
}

struct LayerGradients {
  const void* output;  // gradient of the layer's output; null: zero
  const void* hy;      // of its last states; null: zero
  void* gate_x;        // rows of directions * 3 * hidden
  void* gate_h;
  void* hx;            // null: not wanted
};

void backward_clusters(const Call& call, const Layer& layer, const LayerGradients& gradients, const Plan& plan, cudaStream_t stream) {
  Backward backward = {};
  backward.precision = call.precision;
  backward.steps = int(call.steps);
  backward.batch = int(call.batch);
  backward.hidden = int(call.hidden);
  backward.directions = call.directions;
  for (int d = 0; d < call.directions; ++d) backward.w_hh[d] = weight_pointer(call, layer, d, 1);
  backward.hx = layer.hx;
  backward.output = layer.output;
  backward.reserve = layer.gates;
  backward.grad_output = gradients.output;
  backward.grad_hy = gradients.hy;
  backward.gate_grad_x = gradients.gate_x;
  backward.gate_grad_h = gradients.gate_h;
  backward.grad_hx = gradients.hx;
  backward.plan = plan;
  check_launch(launch_backward(backward, stream), kName);
}

// For each time step a kernel over the elements and a product. `carry` has batch * hidden floats.
void backward_stepwise(const Call& call, const Layer& layer, const LayerGradients& gradients, float* carry, cudaStream_t stream) {
  const int64_t width = call.directions * call.hidden, states = call.batch * call.hidden;
  for (int d = 0; d < call.directions; ++d) {
    for (int64_t i = call.steps - 1; i >= 0; --i) {
      const int64_t row = time_of(call, d, i) * call.batch;
      StepBackward step = {};
      step.precision = call.precision;
      step.batch = int(call.batch);
      step.hidden = int(call.hidden);
      step.reserve = layer.gates + (d * call.rows() + row) * 4 * call.hidden;
      step.h =
          i == 0 ? at_element(call, layer.hx, d * states)
                 : at_element(call, static_cast<const void*>(layer.output), time_of(call, d, i - 1) * call.batch * width + d * call.hidden);
      step.h_stride = i == 0 ? call.hidden : width;
      step.grad_output = gradients.output == nullptr ? nullptr : at_element(call, gradients.output, row * width + d * call.hidden);
      step.grad_output_stride = width;
      step.grad_hy = gradients.hy == nullptr || i + 1 < call.steps ? nullptr : at_element(call, gradients.hy, d * states);
      step.grad_h = i + 1 == call.steps ? nullptr : carry;
      step.gate_stride = 3 * width;
      step.gate_grad_x = at_element(call, gradients.gate_x, row * step.gate_stride + d * 3 * call.hidden);
      step.gate_grad_h = at_element(call, gradients.gate_h, row * step.gate_stride + d * 3 * call.hidden);
      step.carry = carry;
      check_launch(launch_step_backward(step, stream), kName);
      if (i == 0 && gradients.hx == nullptr) continue;
      Product product = {};
      product.precision = call.precision;
      product.layout = Product::Layout::kRowsByColumns;
      product.m = call.batch;
      product.n = call.hidden;
      product.k = 3 * call.hidden;
      product.a = step.gate_grad_h;
      product.a_stride = step.gate_stride;
      product.b[0] = weight_pointer(call, layer, d, 1);
      product.b_stride[0] = call.hidden;
      product.b_split = product.k;
      product.addend = carry;
      product.addend_stride = product.c_stride = call.hidden;
      product.c = i == 0 ? at_element(call, gradients.hx, d * states) : carry;
      product.c_is_float = i != 0;
      check_launch(launch_product(product, stream), kName);
    }
  }
}

// The gradient of the layer's input, rows of input_of(layer).
void multiply_gates(const Call& call, const Layer& layer, const void* gate_x, void* grad, cudaStream_t stream) {
  Product product = {};
  product.precision = call.precision;
  product.layout = Product::Layout::kRowsByColumns;
  product.m = call.rows();
  product.n = product.c_stride = call.input_of(layer.index);
  product.k = product.a_stride = call.directions * 3 * call.hidden;
  product.a = gate_x;
  for (int d = 0; d < call.directions; ++d) {
    product.b[d] = weight_pointer(call, layer, d, 0);
    product.b_stride[d] = product.n;
  }
  product.b_split = 3 * call.hidden;
  product.c = grad;
  check_launch(launch_product(product, stream), kName);
}

// The gradients of the layer's weights, into their place in `grads`.
void weight_gradients(const Call& call, const Layer& layer, const LayerGradients& gradients, std::vector<Tensor>& grads,
                      cudaStream_t stream) {
  const int64_t width = call.directions * call.hidden, gate_stride = 3 * width;
  const int per_direction = call.biases ? 4 : 2;
  for (int d = 0; d < call.directions; ++d) {
    Tensor* to = &grads[size_t((layer.index * call.directions + d) * per_direction)];
    to[0] = at::empty_like(call.weight_of(layer.index, d, 0));
    to[1] = at::empty_like(call.weight_of(layer.index, d, 1));
    Product product = {};
    product.precision = call.precision;
    product.layout = Product::Layout::kColumnsByColumns;
    product.m = 3 * call.hidden;
    product.k = call.rows();
    product.a = at_element(call, static_cast<const void*>(gradients.gate_x), d * 3 * call.hidden);
    product.a_stride = gate_stride;
    product.n = product.b_stride[0] = product.c_stride = call.input_of(layer.index);
    product.b[0] = layer.input;
    product.b_split = product.k;
    product.c = to[0].mutable_data_ptr();
    check_launch(launch_product(product, stream), kName);

    // The state before each row: hx at one end, the output of the neighbouring time step elsewhere.
    product.a = at_element(call, static_cast<const void*>(gradients.gate_h), d * 3 * call.hidden);
    product.n = product.c_stride = call.hidden;
    const void* hx = at_element(call, layer.hx, d * call.batch * call.hidden);
    const void* output = at_element(call, static_cast<const void*>(layer.output), (d == 0 ? 0 : call.batch * width) + d * call.hidden);
    product.b[0] = d == 0 ? hx : output;
    product.b[1] = d == 0 ? output : hx;
    product.b_stride[0] = d == 0 ? call.hidden : width;
    product.b_stride[1] = d == 0 ? width : call.hidden;
    product.b_split = d == 0 ? call.batch : call.rows() - call.batch;
    if (call.steps == 1) product.b[0] = product.b[1] = hx;  // there is no output before or after
    product.c = to[1].mutable_data_ptr();
    check_launch(launch_product(product, stream), kName);
  }
  if (!call.biases) return;
  Tensor sums = at::empty({2, gate_stride}, call.weight_of(layer.index, 0, 2).options());
  ColumnSum sum = {};
  sum.precision = call.precision;
  sum.rows = call.rows();
  sum.columns = sum.stride = gate_stride;
  sum.matrix[0] = gradients.gate_x;
  sum.matrix[1] = gradients.gate_h;
  sum.sum[0] = sums.mutable_data_ptr();
  sum.sum[1] = at_element(call, sums.mutable_data_ptr(), gate_stride);
  check_launch(launch_column_sum(sum, stream), kName);
  for (int d = 0; d < call.directions; ++d) {
    Tensor* to = &grads[size_t((layer.index * call.directions + d) * per_direction)];
    for (int which = 0; which < 2; ++which) {
      Tensor sum = sums.select(0, which).narrow(0, d * 3 * call.hidden, 3 * call.hidden);
      to[2 + which] = sum.view_as(call.weight_of(layer.index, d, 2 + which));
    }
  }
}

}  // namespace

Tensor allocate(at::IntArrayRef sizes, at::ScalarType type, c10::Device device) {
  return at::_ops::empty_memory_format::redispatch(c10::DispatchKeySet(kKey), c10::fromIntArrayRefSlow(sizes), type, std::nullopt, device,
                                                   std::nullopt, std::nullopt);
}

int64_t reserve_floats(const Call& call) { return call.layers * gate_floats(call) + (call.layers - 1) * output_floats(call); }

std::tuple<Tensor, Tensor, Tensor> run_forward(const Call& call, const Tensor& x, const Tensor& hx, cudaStream_t stream) {
  const int64_t width = call.directions * call.hidden;
  Tensor output = allocate({call.steps, call.batch, width}, x.scalar_type(), x.device());
  Tensor hy = allocate(hx.sizes(), hx.scalar_type(), hx.device());
  Tensor reserve, gx, lower;
  if (call.train) reserve = allocate({reserve_floats(call)}, at::kFloat, x.device());
  if (call.steps > 1) gx = allocate({call.rows(), 3 * width}, at::kFloat, x.device());
  float* reserved = call.train ? reserve.mutable_data_ptr<float>() : nullptr;
  const Plan plan = call.steps > 1 ? forward_plan_now(call.precision, int(call.batch), int(call.hidden), call.directions) : Plan();
  const GridPlan grid = call.steps > 1 && plan.cluster == 0 ? grid_plan(call.precision, int(call.batch), int(call.hidden)) : GridPlan();
  Layer layer = {};
  Tensor workspace;
  if (grid.units != 0) workspace = allocate({int64_t(grid_workspace(forward_of(call, layer, nullptr), grid))}, at::kByte, x.device());
  layer.input = x.const_data_ptr();
  for (layer.index = 0; layer.index < call.layers; ++layer.index) {
    Tensor keep = lower;  // the input of this layer
    if (layer.index + 1 == call.layers) {
      layer.output = output.mutable_data_ptr();
    } else if (call.train) {
      layer.output = output_of(call, reserved, layer.index);
    } else {
      lower = allocate(output.sizes(), output.scalar_type(), output.device());
      layer.output = lower.mutable_data_ptr();
    }
    layer.hx = at_element(call, hx.const_data_ptr(), layer.index * call.directions * call.batch * call.hidden);
    layer.hy = at_element(call, hy.mutable_data_ptr(), layer.index * call.directions * call.batch * call.hidden);
    layer.gates = call.train ? gates_of(call, reserved, layer.index) : nullptr;
    if (call.steps == 1) {
      forward_single(call, layer, stream);
    } else {
      multiply_input(call, layer, gx.mutable_data_ptr<float>(), stream);
      if (plan.cluster != 0) {
        forward_clusters(call, layer, gx.const_data_ptr<float>(), plan, stream);
      } else if (!forward_grid(call, layer, gx.const_data_ptr<float>(), grid, workspace.defined() ? workspace.mutable_data_ptr() : nullptr,
                               stream)) {
        forward_stepwise(call, layer, gx.const_data_ptr<float>(), stream);
      }
    }
    layer.input = layer.output;
  }
  return {std::move(output), std::move(hy), std::move(reserve)};
}

Gradients run_backward(const Call& call, const Tensor& x, const Tensor& hx, const Tensor& output, const std::optional<Tensor>& grad_output,
                       const std::optional<Tensor>& grad_hy, const Tensor& reserve, std::array<bool, 3> wanted, cudaStream_t stream) {
  const int64_t width = call.directions * call.hidden, states = call.directions * call.batch * call.hidden;
  Gradients result;
  if (wanted[0]) result.x = at::empty(x.sizes(), x.options());
  if (wanted[1]) result.hx = at::empty(hx.sizes(), hx.options());
  if (wanted[2]) result.weight.resize(call.weight.size());
  Tensor gate_x = at::empty({call.rows(), 3 * width}, x.options()), gate_h = at::empty_like(gate_x);
  const Plan plan = call.steps > 1 ? backward_plan_now(call.precision, int(call.batch), int(call.hidden), call.directions) : Plan();
  Tensor carry, upper, lower;
  if (plan.cluster == 0) carry = at::empty({call.batch, call.hidden}, x.options().dtype(at::kFloat));
  float* reserved = const_cast<float*>(reserve.const_data_ptr<float>());
  LayerGradients gradients = {};
  gradients.gate_x = gate_x.mutable_data_ptr();
  gradients.gate_h = gate_h.mutable_data_ptr();
  gradients.output = grad_output ? grad_output->const_data_ptr() : nullptr;
  Layer layer = {};
  for (layer.index = call.layers - 1; layer.index >= 0; --layer.index) {
    const bool lowest = layer.index == 0;
    layer.input = lowest ? x.const_data_ptr() : output_of(call, reserved, layer.index - 1);
    layer.output = layer.index + 1 == call.layers ? const_cast<void*>(output.const_data_ptr()) : output_of(call, reserved, layer.index);
    layer.hx = at_element(call, hx.const_data_ptr(), layer.index * states);
    layer.gates = gates_of(call, reserved, layer.index);
    gradients.hy = grad_hy ? at_element(call, grad_hy->const_data_ptr(), layer.index * states) : nullptr;
    gradients.hx = wanted[1] ? at_element(call, result.hx.mutable_data_ptr(), layer.index * states) : nullptr;
    if (plan.cluster != 0) {
      backward_clusters(call, layer, gradients, plan, stream);
    } else {
      backward_stepwise(call, layer, gradients, carry.mutable_data_ptr<float>(), stream);
    }
    if (wanted[2]) weight_gradients(call, layer, gradients, result.weight, stream);
    if (lowest) {
      if (wanted[0]) multiply_gates(call, layer, gradients.gate_x, result.x.mutable_data_ptr(), stream);
    } else {
      lower = at::empty(output.sizes(), output.options());
      multiply_gates(call, layer, gradients.gate_x, lower.mutable_data_ptr(), stream);
      upper = lower;  // alive until the layer below has read it
      gradients.output = upper.const_data_ptr();
    }
  }
  return result;
}

}  // namespace tracer::overrides::gru
