// What is read of calls into cuBLAS and cuBLASLt: matrix products.
#include "library_hook.h"

namespace tracer::cuda {
namespace {

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
    static Get layout_of = reinterpret_cast<Get>(companion_of(Hook<cublasLtMatmul, Signature>::function, "cublasLtMatrixLayoutGetAttribute"));
    static Get operation_of = reinterpret_cast<Get>(companion_of(Hook<cublasLtMatmul, Signature>::function, "cublasLtMatmulDescGetAttribute"));
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

}  // namespace

void add_cublas() {
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
}

}  // namespace tracer::cuda
