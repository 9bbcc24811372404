// _cudnn_rnn and _cudnn_rnn_backward, for the GRU.
//
// The forward pass returns a reserve of float32 where the stock one returns bytes: so the backward pass knows whose it is, whatever
// was switched in between, and hands reserves of bytes over. Its weight_buf is the one it was given, and is not read.
#include <ATen/Context.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/_cudnn_rnn_backward_ops.h>
#include <ATen/ops/_cudnn_rnn_ops.h>

#include <limits>

#include "../kernels/device.h"
#include "../measured_tables.h"
#include "gru_layers.h"
#include "gru_reserve.h"
#include "torch_device.h"

namespace tracer::overrides {

namespace {

using at::Tensor;
using c10::DispatchKeySet;
using gru::Call;
using gru::Precision;
using OptionalTensor = std::optional<Tensor>;

using ForwardResult = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor>;
using BackwardResult = std::tuple<Tensor, Tensor, Tensor, std::vector<Tensor>>;

ForwardResult forward(DispatchKeySet keys, const Tensor& input, at::TensorList weight, int64_t weight_stride0,
                      const OptionalTensor& weight_buf, const Tensor& hx, const OptionalTensor& cx, int64_t mode, c10::SymInt hidden_size,
                      c10::SymInt proj_size, int64_t num_layers, bool batch_first, double dropout, bool train, bool bidirectional,
                      c10::SymIntArrayRef batch_sizes, const OptionalTensor& dropout_state);
BackwardResult backward(DispatchKeySet keys, const Tensor& input, at::TensorList weight, int64_t weight_stride0, const Tensor& weight_buf,
                        const Tensor& hx, const OptionalTensor& cx, const Tensor& output, const OptionalTensor& grad_output,
                        const OptionalTensor& grad_hy, const OptionalTensor& grad_cy, int64_t mode, c10::SymInt hidden_size,
                        c10::SymInt proj_size, int64_t num_layers, bool batch_first, double dropout, bool train, bool bidirectional,
                        c10::SymIntArrayRef batch_sizes, const OptionalTensor& dropout_state, const Tensor& reserve,
                        std::array<bool, 4> output_mask);

TypedOperator<at::_ops::_cudnn_rnn::schema> forward_operator("aten::_cudnn_rnn", [](torch::Library& library) {
  library.impl("_cudnn_rnn", TORCH_FN(forward));
});
TypedOperator<at::_ops::_cudnn_rnn_backward::schema> backward_operator("aten::_cudnn_rnn_backward", [](torch::Library& library) {
  library.impl("_cudnn_rnn_backward", TORCH_FN(backward));
});

class GruOverride final : public Override {
 public:
  using Override::Override;
  int64_t live_reserves() const override { return gru::counted_reserves(); }

 protected:
  bool still_needed(const Operator& op) const override { return &op == &backward_operator && gru::counted_reserves() > 0; }
};
GruOverride gru_override("gru", {&forward_operator, &backward_operator});

bool is_supported(at::ScalarType type) { return type == at::kFloat || type == at::kBFloat16 || type == at::kHalf; }
// `rows`: time steps times batch. Of a single row stock multiplies float32 exactly even where TF32 is allowed.
Precision precision_of(at::ScalarType type, int64_t rows) {
  if (type == at::kBFloat16) return Precision::kBfloat16;
  if (type == at::kHalf) return Precision::kFloat16;
  return rows > 1 && at::globalContext().allowTF32CuDNN(at::Float32Op::RNN) ? Precision::kTf32 : Precision::kFloat32;
}

bool is_usable(const Tensor& tensor, const Tensor& like) {
  return tensor.scalar_type() == like.scalar_type() && tensor.device() == like.device();
}

// The weights of every layer and direction have the shapes of a GRU and lie together in memory.
const char* weights_reason(const Call& call, const Tensor& input) {
  if (call.weight.size() != size_t(call.layers * call.directions * (call.biases ? 4 : 2))) return "another number of weights";
  for (int64_t layer = 0; layer < call.layers; ++layer) {
    for (int d = 0; d < call.directions; ++d) {
      for (int which = 0; which < (call.biases ? 4 : 2); ++which) {
        const Tensor& weight = call.weight_of(layer, d, which);
        if (!weight.defined() || !is_usable(weight, input)) return "weights of another type or device";
        if (!weight.is_contiguous()) return "weights that are not contiguous";
        const int64_t rows = 3 * call.hidden, columns = which == 0 ? call.input_of(layer) : call.hidden;
        const bool is_declared = which < 2 ? weight.dim() == 2 && weight.size(0) == rows && weight.size(1) == columns
                                           : weight.dim() == 1 && weight.size(0) == rows;
        // Under autocast they are columns of cuDNN's buffer: the same elements in the same order, of size [n, 1].
        const bool is_column = weight.dim() == 2 && weight.size(1) == 1 && weight.numel() == rows * (which < 2 ? columns : 1);
        if (!is_declared && !is_column) return "sizes that stock refuses";
      }
    }
  }
  return nullptr;
}

const char* why_stock(const Call& call, int device) {
  return measured_gru.why_stock(device, [&](const gru::MeasuredGru& row) {
    return row.precision == call.precision && row.steps.holds(call.steps) && row.batch.holds(call.batch) && row.input.holds(call.input) &&
           row.hidden.holds(call.hidden);
  });
}

// Fills the call; or why the kernels do not take it.
const char* describe(Call& call, const Tensor& input, at::TensorList weight, int64_t weight_stride0, const Tensor& hx,
                     const OptionalTensor& cx, int64_t mode, int64_t hidden, int64_t projection, int64_t layers, bool batch_first,
                     double dropout, bool train, bool bidirectional, bool packed) {
  constexpr int64_t kGru = 3, kLargest = std::numeric_limits<int32_t>::max();
  if (mode != kGru) return "not a GRU";
  if (projection != 0 || (cx && cx->defined())) return "a projection or a cell state";
  if (packed) return "a packed sequence";
  if (train && layers > 1 && dropout > 0) return "dropout between layers in training";
  if (!is_supported(input.scalar_type())) return "a type other than float32, bfloat16 and float16";
  if (input.dim() != 3 || hx.dim() != 3 || input.numel() == 0 || hx.numel() == 0) return "an empty input";
  if (!is_usable(hx, input)) return "hx of another type or device";
  if (!hx.is_contiguous()) return "hx that is not contiguous";
  if (weight_stride0 != 2 && weight_stride0 != 4) return "another number of weights";
  call.steps = input.size(batch_first ? 1 : 0);
  call.batch = input.size(batch_first ? 0 : 1);
  call.input = input.size(2);
  call.hidden = hidden;
  call.layers = layers;
  call.directions = bidirectional ? 2 : 1;
  call.biases = weight_stride0 == 4;
  call.batch_first = batch_first;
  call.train = train;
  call.weight = weight;
  if (hx.size(0) != layers * call.directions || hx.size(1) != call.batch || hx.size(2) != hidden) return "sizes that stock refuses";
  if (const char* reason = weights_reason(call, input)) return reason;
  // Grid dimensions and indices within a time step are 32-bit.
  if (call.rows() * 3 * call.directions > kLargest || call.batch * std::max(call.input, hidden) > kLargest || 3 * hidden > kLargest ||
      call.batch / 8 > 65535 || call.directions * 3 * std::max(call.input, hidden) / 64 > 65535) {
    return "more rows or columns than the kernels count";
  }
  if (architecture_for(device_of(input.get_device()).capability) == 0) return "a GPU other than compute capability 8.x and 9.0";
  call.precision = precision_of(input.scalar_type(), call.rows());
  return nullptr;
}

// Below the override nothing is recorded for a gradient or cast, whoever called it.
struct Below {
  explicit Below(c10::Device device) : device_guard(device) {}
  c10::OptionalDeviceGuard device_guard;
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  c10::impl::ExcludeDispatchKeyGuard no_autocast{c10::autocast_dispatch_keyset};
};

Tensor time_first(const Tensor& tensor, bool batch_first) { return (batch_first ? tensor.transpose(0, 1) : tensor).contiguous(); }

void no_reserve_left() { gru_override.remove_what_was_left(); }

ForwardResult forward(DispatchKeySet keys, const Tensor& input, at::TensorList weight, int64_t weight_stride0,
                      const OptionalTensor& weight_buf, const Tensor& hx, const OptionalTensor& cx, int64_t mode, c10::SymInt hidden_size,
                      c10::SymInt proj_size, int64_t num_layers, bool batch_first, double dropout, bool train, bool bidirectional,
                      c10::SymIntArrayRef batch_sizes, const OptionalTensor& dropout_state) {
  Call call{};
  const char* reason =
      describe(call, input, weight, weight_stride0, hx, cx, mode, hidden_size.guard_int(__FILE__, __LINE__),
               proj_size.guard_int(__FILE__, __LINE__), num_layers, batch_first, dropout, train, bidirectional, !batch_sizes.empty());
  if (!reason && !gru_override.forced()) reason = why_stock(call, input.get_device());
  if (reason) {
    return forward_operator.hand_over(reason, keys, input, weight, weight_stride0, weight_buf, hx, cx, mode, hidden_size, proj_size,
                                      num_layers, batch_first, dropout, train, bidirectional, batch_sizes, dropout_state);
  }
  Below below(input.device());
  auto [output, hy, reserve] = gru::run_forward(call, time_first(input, batch_first), hx, current_stream(input.device()));
  if (batch_first) output.transpose_(0, 1);
  if (train) {
    gru::count_reserve(reserve, &no_reserve_left);
  } else {
    reserve = gru::allocate({0}, at::kByte, input.device());
  }
  forward_operator.ran();
  Tensor buffer = weight_buf && weight_buf->defined() ? *weight_buf : gru::allocate({0}, input.scalar_type(), input.device());
  return {std::move(output), std::move(hy), gru::allocate({0}, hx.scalar_type(), hx.device()), std::move(reserve), std::move(buffer)};
}

BackwardResult backward(DispatchKeySet keys, const Tensor& input, at::TensorList weight, int64_t weight_stride0, const Tensor& weight_buf,
                        const Tensor& hx, const OptionalTensor& cx, const Tensor& output, const OptionalTensor& grad_output,
                        const OptionalTensor& grad_hy, const OptionalTensor& grad_cy, int64_t mode, c10::SymInt hidden_size,
                        c10::SymInt proj_size, int64_t num_layers, bool batch_first, double dropout, bool train, bool bidirectional,
                        c10::SymIntArrayRef batch_sizes, const OptionalTensor& dropout_state, const Tensor& reserve,
                        std::array<bool, 4> output_mask) {
  const bool has_output = grad_output && grad_output->defined(), has_hy = grad_hy && grad_hy->defined();
  const char* reason = nullptr;
  if (reserve.scalar_type() != at::kFloat) reason = "a reserve that the stock kernel made";
  if (!train) reason = "a backward pass outside of training, which stock refuses";
  if (reason) {
    return backward_operator.hand_over(reason, keys, input, weight, weight_stride0, weight_buf, hx, cx, output, grad_output, grad_hy,
                                       grad_cy, mode, hidden_size, proj_size, num_layers, batch_first, dropout, train, bidirectional,
                                       batch_sizes, dropout_state, reserve, output_mask);
  }
  if (!has_output && !has_hy) {
    backward_operator.ran();
    return {Tensor(), Tensor(), Tensor(), std::vector<Tensor>(weight.size())};
  }
  Call call{};
  reason = describe(call, input, weight, weight_stride0, hx, cx, mode, hidden_size.guard_int(__FILE__, __LINE__),
                    proj_size.guard_int(__FILE__, __LINE__), num_layers, batch_first, dropout, train, bidirectional, !batch_sizes.empty());
  // Stock cannot read this reserve: there is nobody to hand over to.
  TORCH_CHECK(!reason, "the backward pass of tracer's GRU override got other tensors than its forward pass: ", reason ? reason : "");
  TORCH_CHECK(reserve.numel() == gru::reserve_floats(call), "the backward pass of tracer's GRU override got a reserve of ", reserve.numel(),
              " elements, and needs ", gru::reserve_floats(call));
  Below below(input.device());
  OptionalTensor output_gradient, hy_gradient;
  if (has_output) output_gradient = time_first(*grad_output, batch_first).to(input.scalar_type());
  if (has_hy) hy_gradient = grad_hy->contiguous().to(input.scalar_type());
  gru::Gradients gradients =
      gru::run_backward(call, time_first(input, batch_first), hx, time_first(output, batch_first), output_gradient, hy_gradient,
                        reserve.contiguous(), {output_mask[0], output_mask[1], output_mask[3]}, current_stream(input.device()));
  if (batch_first && output_mask[0]) gradients.x.transpose_(0, 1);
  backward_operator.ran();
  return {std::move(gradients.x), std::move(gradients.hx), Tensor(), std::move(gradients.weight)};
}

}  // namespace

}  // namespace tracer::overrides
