#include "library_calls.h"

#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "../native/elf.h"
#include "../python/source_line.h"
#include "../trace/lane.h"
#include "api_function.h"

namespace tracer::cuda {
namespace {

using trace::Lane;

// What the arguments of a call are written as: the words, and how a reader finds the fields in them.
struct LibraryFunction {
  const char* name;
  std::string layout;
  uint32_t number;
  void** slot = nullptr;
  void* original = nullptr;
  void* hook = nullptr;
  std::atomic<uint32_t> described_epoch{0};
};

std::vector<LibraryFunction*>& functions() {
  static auto& all = *new std::vector<LibraryFunction*>;
  return all;
}

class LayoutText {
 public:
  explicit LayoutText(size_t start = 0) : start_(start) {}
  LayoutText& add(const char* name, const char* type, size_t offset, size_t size) {
    text_ += std::string("enter\t") + name + "\t" + type + "\t" + std::to_string(start_ + offset) + "\t" + std::to_string(size) + "\n";
    return *this;
  }
  operator std::string() const { return text_; }

 private:
  size_t start_;
  std::string text_;
};
#define TRACER_FIELD(type, name, c_type) add(#name, c_type, offsetof(type, name), sizeof(type::name))

// ---- the calls as events --------------------------------------------------------------------------
struct OpenCall {
  Lane* lane = nullptr;
  uint64_t mark = 0;
  uint32_t number = 0;
};

OpenCall begin(LibraryFunction& function, const uint64_t* arguments, size_t count) noexcept {
  Lane* lane = trace::current_lane_for_call();
  if (!lane) return {};
  if (function.described_epoch.load(std::memory_order_acquire) != lane->epoch) {
    describe(trace::kLibrary, function.number, function.name, function.layout);
    function.described_epoch.store(lane->epoch, std::memory_order_release);
  }
  uint64_t source = lane->depth == 0 && lane->source ? python::source_id(lane) : 0;
  uint64_t depth = lane->depth < trace::kMaxDepth ? lane->depth : trace::kMaxDepth;
  uint64_t nested = lane->calls < trace::kMaxCallDepth ? lane->calls : trace::kMaxCallDepth;
  lane->next[2] = 0;
  trace::CallEvent event(lane, trace::kLibraryEnter, 3, trace::two_numbers(0, source));
  for (size_t i = 0; i < count; ++i) event.arguments.put(arguments[i]);
  event.write(lane->now(), function.number | depth << trace::kCallDepthShift | nested << trace::kCallCallsShift);
  lane->calls += 1;
  return {lane, lane->epoch, function.number};
}

void end(const OpenCall& open, int result) noexcept {
  Lane* lane = open.lane;
  if (!lane || lane->epoch != open.mark) return;
  lane->calls -= 1;
  uint64_t when = lane->now();
  if (trace::current_lane_for_call() != lane) return;
  uint64_t depth = lane->depth < trace::kMaxDepth ? lane->depth : trace::kMaxDepth;
  uint64_t nested = lane->calls < trace::kMaxCallDepth ? lane->calls : trace::kMaxCallDepth;
  trace::CallEvent(lane, trace::kLibraryExit, 2, uint32_t(result)).write(when, open.number | depth << trace::kCallDepthShift | nested << trace::kCallCallsShift);
}

// The hook of one function. Its types are those of the C interface with handles as void* and enumerations as int,
// which are passed in the same way. `Describe` turns the arguments into what is written.
template <class Tag, class Signature>
struct Hook;

template <class Tag, class... Args>
struct Hook<Tag, int(Args...)> {
  static inline LibraryFunction function{Tag::name, Tag::layout(), 0};

  static int call(Args... args) {
    auto original = reinterpret_cast<int (*)(Args...)>(function.original);
    if (!trace::recording_epoch.load(std::memory_order_relaxed)) return original(args...);
    auto arguments = Tag::read(args...);
    static_assert(sizeof arguments % 8 == 0 && sizeof arguments <= trace::kMaxCallWords * 8);
    uint64_t words[sizeof arguments / 8];
    memcpy(words, &arguments, sizeof arguments);
    OpenCall open = begin(function, words, sizeof arguments / 8);
    int result = original(args...);
    end(open, result);
    return result;
  }
};

template <class Tag>
void add() {
  using TagHook = Hook<Tag, typename Tag::Signature>;
  LibraryFunction& function = TagHook::function;
  function.number = uint32_t(functions().size() + 1);
  functions().push_back(&function);
  void** slot = native::find_plt_slot("libtorch_cuda.so", Tag::name);
  if (!slot) return;
  void* original = *slot;
  Dl_info found;
  native::Library torch = native::find_library("libtorch_cuda.so");
  auto address = reinterpret_cast<uint64_t>(original);
  // A slot that was never used leads to the resolver, which would overwrite it: find the function ourselves.
  if (address >= torch.begin && address < torch.end) original = dlsym(RTLD_DEFAULT, Tag::name);
  if (!original || !dladdr(original, &found)) return;
  function.original = original;
  function.hook = reinterpret_cast<void*>(&TagHook::call);
  if (native::write_plt_slot(slot, function.hook)) function.slot = slot;
}

// An exported function of the library that another one belongs to.
template <class Function>
Function companion(const LibraryFunction& function, const char* name) {
  Dl_info found;
  if (!function.original || !dladdr(function.original, &found)) return nullptr;
  void* library = dlopen(found.dli_fname, RTLD_NOW | RTLD_NOLOAD);
  return library ? reinterpret_cast<Function>(dlsym(library, name)) : nullptr;
}

using Handle = void*;

// ---- GEMM -------------------------------------------------------------------------------------------
struct Gemm {
  int32_t transa, transb, m, n, k, lda, ldb, ldc;
};
LayoutText gemm_layout() {
  return LayoutText()
      .TRACER_FIELD(Gemm, transa, "cublasOperation_t").TRACER_FIELD(Gemm, transb, "cublasOperation_t")
      .TRACER_FIELD(Gemm, m, "int").TRACER_FIELD(Gemm, n, "int").TRACER_FIELD(Gemm, k, "int")
      .TRACER_FIELD(Gemm, lda, "int").TRACER_FIELD(Gemm, ldb, "int").TRACER_FIELD(Gemm, ldc, "int");
}

struct TypedGemm {
  Gemm gemm;
  int32_t Atype, Btype, Ctype, computeType, algo, unused;
};
LayoutText typed_gemm_layout() {
  return gemm_layout()
      .TRACER_FIELD(TypedGemm, Atype, "cudaDataType").TRACER_FIELD(TypedGemm, Btype, "cudaDataType")
      .TRACER_FIELD(TypedGemm, Ctype, "cudaDataType").TRACER_FIELD(TypedGemm, computeType, "cublasComputeType_t");
}

struct Batch {
  int64_t strideA, strideB, strideC, batchCount;
};
struct BatchedGemm {
  Gemm gemm;
  Batch batch;
};
struct TypedBatchedGemm {
  TypedGemm gemm;
  Batch batch;
};
template <class Type>
LayoutText batched(LayoutText layout) {
  size_t start = sizeof(Type) - sizeof(Batch);
  return layout.add("strideA", "long long", start + offsetof(Batch, strideA), 8).add("strideB", "long long", start + offsetof(Batch, strideB), 8)
      .add("strideC", "long long", start + offsetof(Batch, strideC), 8).add("batchCount", "int", start + offsetof(Batch, batchCount), 4);
}

#define TRACER_GEMM(NAME)                                                                                                             \
  struct NAME {                                                                                                                       \
    static constexpr const char* name = #NAME;                                                                                        \
    using Signature = int(Handle, int, int, int, int, int, const void*, const void*, int, const void*, int, const void*, void*, int); \
    static std::string layout() { return gemm_layout(); }                                                                             \
    static Gemm read(Handle, int transa, int transb, int m, int n, int k, const void*, const void*, int lda, const void*, int ldb,    \
                     const void*, void*, int ldc) {                                                                                   \
      return {transa, transb, m, n, k, lda, ldb, ldc};                                                                                \
    }                                                                                                                                 \
  };
TRACER_GEMM(cublasSgemm_v2)
TRACER_GEMM(cublasDgemm_v2)
TRACER_GEMM(cublasCgemm_v2)
TRACER_GEMM(cublasZgemm_v2)

#define TRACER_BATCHED_GEMM(NAME)                                                                                                     \
  struct NAME {                                                                                                                       \
    static constexpr const char* name = #NAME;                                                                                        \
    using Signature = int(Handle, int, int, int, int, int, const void*, const void*, int, long long, const void*, int, long long,     \
                          const void*, void*, int, long long, int);                                                                   \
    static std::string layout() { return batched<BatchedGemm>(gemm_layout()); }                                                       \
    static BatchedGemm read(Handle, int transa, int transb, int m, int n, int k, const void*, const void*, int lda, long long a,      \
                            const void*, int ldb, long long b, const void*, void*, int ldc, long long c, int count) {                 \
      return {{transa, transb, m, n, k, lda, ldb, ldc}, {a, b, c, count}};                                                            \
    }                                                                                                                                 \
  };
TRACER_BATCHED_GEMM(cublasSgemmStridedBatched)
TRACER_BATCHED_GEMM(cublasDgemmStridedBatched)
TRACER_BATCHED_GEMM(cublasCgemmStridedBatched)
TRACER_BATCHED_GEMM(cublasZgemmStridedBatched)

struct cublasGemmEx {
  static constexpr const char* name = "cublasGemmEx";
  using Signature = int(Handle, int, int, int, int, int, const void*, const void*, int, int, const void*, int, int, const void*, void*, int,
                        int, int, int);
  static std::string layout() { return typed_gemm_layout(); }
  static TypedGemm read(Handle, int transa, int transb, int m, int n, int k, const void*, const void*, int a, int lda, const void*, int b,
                        int ldb, const void*, void*, int c, int ldc, int compute, int algo) {
    return {{transa, transb, m, n, k, lda, ldb, ldc}, a, b, c, compute, algo, 0};
  }
};

struct cublasSgemmEx {
  static constexpr const char* name = "cublasSgemmEx";
  using Signature = int(Handle, int, int, int, int, int, const void*, const void*, int, int, const void*, int, int, const void*, void*, int, int);
  static std::string layout() {
    return gemm_layout().TRACER_FIELD(TypedGemm, Atype, "cudaDataType").TRACER_FIELD(TypedGemm, Btype, "cudaDataType")
        .TRACER_FIELD(TypedGemm, Ctype, "cudaDataType");
  }
  static TypedGemm read(Handle, int transa, int transb, int m, int n, int k, const void*, const void*, int a, int lda, const void*, int b,
                        int ldb, const void*, void*, int c, int ldc) {
    return {{transa, transb, m, n, k, lda, ldb, ldc}, a, b, c, 0, 0, 0};
  }
};

struct cublasGemmStridedBatchedEx {
  static constexpr const char* name = "cublasGemmStridedBatchedEx";
  using Signature = int(Handle, int, int, int, int, int, const void*, const void*, int, int, long long, const void*, int, int, long long,
                        const void*, void*, int, int, long long, int, int, int);
  static std::string layout() { return batched<TypedBatchedGemm>(typed_gemm_layout()); }
  static TypedBatchedGemm read(Handle, int transa, int transb, int m, int n, int k, const void*, const void*, int a, int lda, long long sa,
                               const void*, int b, int ldb, long long sb, const void*, void*, int c, int ldc, long long sc, int count,
                               int compute, int algo) {
    return {{{transa, transb, m, n, k, lda, ldb, ldc}, a, b, c, compute, algo, 0}, {sa, sb, sc, count}};
  }
};

struct Gemv {
  int32_t trans, m, n, lda, incx, incy;
};
#define TRACER_GEMV(NAME)                                                                                                       \
  struct NAME {                                                                                                                 \
    static constexpr const char* name = #NAME;                                                                                  \
    using Signature = int(Handle, int, int, int, const void*, const void*, int, const void*, int, const void*, void*, int);     \
    static std::string layout() {                                                                                               \
      return LayoutText().TRACER_FIELD(Gemv, trans, "cublasOperation_t").TRACER_FIELD(Gemv, m, "int").TRACER_FIELD(Gemv, n, "int") \
          .TRACER_FIELD(Gemv, lda, "int").TRACER_FIELD(Gemv, incx, "int").TRACER_FIELD(Gemv, incy, "int");                      \
    }                                                                                                                           \
    static Gemv read(Handle, int trans, int m, int n, const void*, const void*, int lda, const void*, int incx, const void*,    \
                     void*, int incy) {                                                                                         \
      return {trans, m, n, lda, incx, incy};                                                                                    \
    }                                                                                                                           \
  };
TRACER_GEMV(cublasSgemv_v2)
TRACER_GEMV(cublasDgemv_v2)
TRACER_GEMV(cublasCgemv_v2)
TRACER_GEMV(cublasZgemv_v2)

struct LtMatmul {
  int32_t transa, transb, m, n, k, lda, ldb, ldc, Atype, Btype, Ctype, Dtype, computeType, epilogue, batchCount, unused;
};

struct cublasLtMatmul {
  static constexpr const char* name = "cublasLtMatmul";
  using Signature = int(Handle, void*, const void*, const void*, void*, const void*, void*, const void*, const void*, void*, void*, void*,
                        const void*, void*, size_t, void*);
  static std::string layout() {
    return gemm_layout().TRACER_FIELD(LtMatmul, Atype, "cudaDataType").TRACER_FIELD(LtMatmul, Btype, "cudaDataType")
        .TRACER_FIELD(LtMatmul, Ctype, "cudaDataType").TRACER_FIELD(LtMatmul, Dtype, "cudaDataType")
        .TRACER_FIELD(LtMatmul, computeType, "cublasComputeType_t").TRACER_FIELD(LtMatmul, epilogue, "cublasLtEpilogue_t")
        .TRACER_FIELD(LtMatmul, batchCount, "int");
  }
  using Get = int (*)(const void*, int, void*, size_t, size_t*);
  // Numbers of cublasLtMatrixLayoutAttribute_t and cublasLtMatmulDescAttributes_t.
  enum { kType = 0, kRows = 2, kColumns = 3, kLeading = 4, kBatchCount = 5 };
  enum { kComputeType = 0, kTransposeA = 3, kTransposeB = 4, kEpilogue = 7 };
  template <class T>
  static T get(Get function, const void* of, int attribute) {
    T value{};
    size_t written = 0;
    if (function && of) function(of, attribute, &value, sizeof value, &written);
    return value;
  }
  static LtMatmul read(Handle, void* operation, const void*, const void*, void* a, const void*, void* b, const void*, const void*, void* c,
                       void*, void* d, const void*, void*, size_t, void*) {
    static Get layout_of = companion<Get>(Hook<cublasLtMatmul, Signature>::function, "cublasLtMatrixLayoutGetAttribute");
    static Get operation_of = companion<Get>(Hook<cublasLtMatmul, Signature>::function, "cublasLtMatmulDescGetAttribute");
    LtMatmul call{};
    call.transa = get<int32_t>(operation_of, operation, kTransposeA);
    call.transb = get<int32_t>(operation_of, operation, kTransposeB);
    call.m = int32_t(get<uint64_t>(layout_of, d, kRows));
    call.n = int32_t(get<uint64_t>(layout_of, d, kColumns));
    call.k = int32_t(get<uint64_t>(layout_of, a, call.transa ? kRows : kColumns));
    call.lda = int32_t(get<int64_t>(layout_of, a, kLeading));
    call.ldb = int32_t(get<int64_t>(layout_of, b, kLeading));
    call.ldc = int32_t(get<int64_t>(layout_of, c, kLeading));
    call.Atype = int32_t(get<uint32_t>(layout_of, a, kType));
    call.Btype = int32_t(get<uint32_t>(layout_of, b, kType));
    call.Ctype = int32_t(get<uint32_t>(layout_of, c, kType));
    call.Dtype = int32_t(get<uint32_t>(layout_of, d, kType));
    call.computeType = get<int32_t>(operation_of, operation, kComputeType);
    call.epilogue = int32_t(get<uint32_t>(operation_of, operation, kEpilogue));
    call.batchCount = get<int32_t>(layout_of, d, kBatchCount);
    return call;
  }
};

// ---- recurrent networks -----------------------------------------------------------------------------
struct Rnn {
  int32_t mode, layers, input, hidden, projection, sequence, batch, direction, algorithm, type, math, training;
};

// Reads the two descriptors that say what a recurrent network computes.
Rnn read_rnn(const LibraryFunction& function, void* network, void* input, int training) {
  using GetRnn = int (*)(void*, int*, int*, int*, int*, int*, int*, int*, int*, int32_t*, int32_t*, int32_t*, int32_t*, void**, uint32_t*);
  using GetData = int (*)(void*, int*, int*, int*, int*, int*, int, int*, void*);
  static auto of_network = companion<GetRnn>(function, "cudnnGetRNNDescriptor_v8");
  static auto of_data = companion<GetData>(function, "cudnnGetRNNDataDescriptor");
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
struct Nothing {
  uint64_t unused;
};

struct cudnnBackendExecute {
  static constexpr const char* name = "cudnnBackendExecute";
  using Signature = int(Handle, void*, void*);
  static std::string layout() { return {}; }
  static Nothing read(Handle, void*, void*) { return {}; }
};

}  // namespace

void hook_libraries() {
  if (functions().empty()) {
    add<cublasSgemm_v2>();
    add<cublasDgemm_v2>();
    add<cublasCgemm_v2>();
    add<cublasZgemm_v2>();
    add<cublasSgemmStridedBatched>();
    add<cublasDgemmStridedBatched>();
    add<cublasCgemmStridedBatched>();
    add<cublasZgemmStridedBatched>();
    add<cublasGemmEx>();
    add<cublasSgemmEx>();
    add<cublasGemmStridedBatchedEx>();
    add<cublasSgemv_v2>();
    add<cublasDgemv_v2>();
    add<cublasCgemv_v2>();
    add<cublasZgemv_v2>();
    add<cublasLtMatmul>();
    add<cudnnRNNForward>();
    add<cudnnRNNBackwardData_v8>();
    add<cudnnRNNBackwardWeights_v8>();
    add<cudnnBackendExecute>();
    return;
  }
  for (LibraryFunction* function : functions()) {
    if (function->slot) native::write_plt_slot(function->slot, function->hook);
  }
}

void unhook_libraries() {
  for (LibraryFunction* function : functions())
    if (function->slot && *function->slot == function->hook) native::write_plt_slot(function->slot, function->original);
}

std::map<std::string, bool> library_hooks() {
  std::map<std::string, bool> found;
  for (const LibraryFunction* function : functions()) found[function->name] = function->slot != nullptr;
  return found;
}

}  // namespace tracer::cuda
