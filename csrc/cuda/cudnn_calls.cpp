// What is read of calls into cuDNN: recurrent networks, and the executions of its graphs.
#include "library_hook.h"

namespace tracer::cuda {
namespace {

struct Rnn {
  int32_t mode, layers, input, hidden, projection, sequence, batch, direction, algorithm, type, math, training;
};

// Reads the two descriptors that say what a recurrent network computes.
Rnn read_rnn(const LibraryFunction& function, void* network, void* input, int training) {
  using GetRnn = int (*)(void*, int*, int*, int*, int*, int*, int*, int*, int*, int32_t*, int32_t*, int32_t*, int32_t*, void**, uint32_t*);
  using GetData = int (*)(void*, int*, int*, int*, int*, int*, int, int*, void*);
  static auto of_network = reinterpret_cast<GetRnn>(companion_of(function, "cudnnGetRNNDescriptor_v8"));
  static auto of_data = reinterpret_cast<GetData>(companion_of(function, "cudnnGetRNNDataDescriptor"));
  Rnn call{};
  call.training = training;
  int bias = 0, input_mode = 0, precision = 0, data_type = 0, layout = 0, vector = 0;
  void* dropout = nullptr;
  uint32_t flags = 0;
  if (of_network)
    of_network(network, &call.algorithm, &call.mode, &bias, &call.direction, &input_mode, &call.type, &precision, &call.math, &call.input,
               &call.hidden, &call.projection, &call.layers, &dropout, &flags);
  int lengths[1] = {0};
  double fill = 0;
  if (of_data) of_data(input, &data_type, &layout, &call.sequence, &call.batch, &vector, 0, lengths, &fill);
  return call;
}

std::string rnn_layout() {
  return LayoutText()
      .TRACER_FIELD(Rnn, mode, "cudnnRNNMode_t").TRACER_FIELD(Rnn, layers, "int").TRACER_FIELD(Rnn, input, "int")
      .TRACER_FIELD(Rnn, hidden, "int").TRACER_FIELD(Rnn, projection, "int").TRACER_FIELD(Rnn, sequence, "int")
      .TRACER_FIELD(Rnn, batch, "int").TRACER_FIELD(Rnn, direction, "cudnnDirectionMode_t")
      .TRACER_FIELD(Rnn, algorithm, "cudnnRNNAlgo_t").TRACER_FIELD(Rnn, type, "cudnnDataType_t")
      .TRACER_FIELD(Rnn, math, "cudnnMathType_t").TRACER_FIELD(Rnn, training, "cudnnForwardMode_t");
}

struct cudnnRNNForward {
  static constexpr const char* name = "cudnnRNNForward";
  using Signature = int(Handle, void*, int, const int32_t*, void*, const void*, void*, void*, void*, const void*, void*, void*, const void*,
                        void*, size_t, const void*, size_t, void*, size_t, void*);
  static std::string layout() { return rnn_layout(); }
  template <class... Rest>
  static Rnn read(Handle, void* network, int mode, const int32_t*, void* input, Rest...) {
    return read_rnn(Hook<cudnnRNNForward, Signature>::function, network, input, mode);
  }
};

struct cudnnRNNBackwardData_v8 {
  static constexpr const char* name = "cudnnRNNBackwardData_v8";
  using Signature = int(Handle, void*, const int32_t*, void*, const void*, const void*, void*, void*, void*, const void*, const void*, void*,
                        void*, const void*, const void*, void*, size_t, const void*, size_t, void*, size_t, void*);
  static std::string layout() { return rnn_layout(); }
  template <class... Rest>
  static Rnn read(Handle, void* network, const int32_t*, void*, const void*, const void*, void* input, Rest...) {
    return read_rnn(Hook<cudnnRNNBackwardData_v8, Signature>::function, network, input, 1);
  }
};

struct cudnnRNNBackwardWeights_v8 {
  static constexpr const char* name = "cudnnRNNBackwardWeights_v8";
  using Signature = int(Handle, void*, int, const int32_t*, void*, const void*, void*, const void*, void*, const void*, size_t, void*, size_t,
                        void*, size_t, void*);
  static std::string layout() { return rnn_layout(); }
  template <class... Rest>
  static Rnn read(Handle, void* network, int, const int32_t*, void* input, Rest...) {
    return read_rnn(Hook<cudnnRNNBackwardWeights_v8, Signature>::function, network, input, 1);
  }
};

// ---- the graph interface of cuDNN: convolutions, normalisation, attention --------------------------
struct cudnnBackendExecute {
  static constexpr const char* name = "cudnnBackendExecute";
  using Signature = int(Handle, void*, void*);
  static std::string layout() { return {}; }
  static Nothing read(Handle, void*, void*) { return {}; }
};

}  // namespace

void add_cudnn() {
  add<cudnnRNNForward>();
  add<cudnnRNNBackwardData_v8>();
  add<cudnnRNNBackwardWeights_v8>();
  add<cudnnBackendExecute>();
}

}  // namespace tracer::cuda
