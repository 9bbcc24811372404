// Names of the numbers that the C interfaces of cuBLAS, cuBLASLt, cuDNN and NCCL use; their headers need not be there.
#include "api_function.h"

namespace tracer::cuda {

const std::vector<Enumeration>& library_enumerations() {
  static const std::vector<Enumeration> all = {
      {"cublasOperation_t", {{"N", 0}, {"T", 1}, {"C", 2}}},
      {"cublasStatus_t",
       {{"CUBLAS_STATUS_SUCCESS", 0}, {"CUBLAS_STATUS_NOT_INITIALIZED", 1}, {"CUBLAS_STATUS_ALLOC_FAILED", 3},
        {"CUBLAS_STATUS_INVALID_VALUE", 7}, {"CUBLAS_STATUS_ARCH_MISMATCH", 8}, {"CUBLAS_STATUS_MAPPING_ERROR", 11},
        {"CUBLAS_STATUS_EXECUTION_FAILED", 13}, {"CUBLAS_STATUS_INTERNAL_ERROR", 14}, {"CUBLAS_STATUS_NOT_SUPPORTED", 15}}},
      {"cudaDataType",
       {{"R_32F", 0}, {"R_64F", 1}, {"R_16F", 2}, {"R_8I", 3}, {"C_32F", 4}, {"C_64F", 5}, {"R_32I", 10}, {"R_16BF", 14},
        {"R_8F_E4M3", 28}, {"R_8F_E5M2", 29}, {"R_4F_E2M1", 33}}},
      {"cublasComputeType_t",
       {{"16F", 64}, {"16F_PEDANTIC", 65}, {"32F", 68}, {"32F_PEDANTIC", 69}, {"64F", 70}, {"64F_PEDANTIC", 71}, {"32I", 72},
        {"32I_PEDANTIC", 73}, {"32F_FAST_16F", 74}, {"32F_FAST_16BF", 75}, {"32F_FAST_TF32", 77}}},
      {"cublasLtEpilogue_t",
       {{"DEFAULT", 1}, {"RELU", 2}, {"BIAS", 4}, {"RELU_BIAS", 6}, {"GELU", 32}, {"GELU_BIAS", 36}, {"RELU_AUX", 130},
        {"RELU_AUX_BIAS", 134}, {"GELU_AUX", 160}, {"GELU_AUX_BIAS", 164}, {"DRELU", 136}, {"DRELU_BGRAD", 152}, {"DGELU", 192},
        {"DGELU_BGRAD", 208}, {"BGRADA", 256}, {"BGRADB", 512}}},
      {"cudnnStatus_t", {{"CUDNN_STATUS_SUCCESS", 0}}},
      {"cudnnRNNMode_t", {{"RNN_RELU", 0}, {"RNN_TANH", 1}, {"LSTM", 2}, {"GRU", 3}}},
      {"cudnnDirectionMode_t", {{"UNIDIRECTIONAL", 0}, {"BIDIRECTIONAL", 1}}},
      {"cudnnRNNAlgo_t", {{"STANDARD", 0}, {"PERSIST_STATIC", 1}, {"PERSIST_DYNAMIC", 2}, {"PERSIST_STATIC_SMALL_H", 3}}},
      {"cudnnDataType_t",
       {{"FLOAT", 0}, {"DOUBLE", 1}, {"HALF", 2}, {"INT8", 3}, {"INT32", 4}, {"BFLOAT16", 9}, {"INT64", 10}}},
      {"cudnnMathType_t", {{"DEFAULT_MATH", 0}, {"TENSOR_OP_MATH", 1}, {"TENSOR_OP_MATH_ALLOW_CONVERSION", 2}, {"FMA_MATH", 3}}},
      {"cudnnForwardMode_t", {{"INFERENCE", 0}, {"TRAINING", 1}}},
      {"ncclResult_t",
       {{"ncclSuccess", 0}, {"ncclUnhandledCudaError", 1}, {"ncclSystemError", 2}, {"ncclInternalError", 3}, {"ncclInvalidArgument", 4},
        {"ncclInvalidUsage", 5}, {"ncclRemoteError", 6}, {"ncclInProgress", 7}}},
      {"ncclDataType_t",
       {{"ncclInt8", 0}, {"ncclUint8", 1}, {"ncclInt32", 2}, {"ncclUint32", 3}, {"ncclInt64", 4}, {"ncclUint64", 5}, {"ncclFloat16", 6},
        {"ncclFloat32", 7}, {"ncclFloat64", 8}, {"ncclBfloat16", 9}, {"ncclFloat8e4m3", 10}, {"ncclFloat8e5m2", 11}}},
      {"ncclRedOp_t", {{"ncclSum", 0}, {"ncclProd", 1}, {"ncclMax", 2}, {"ncclMin", 3}, {"ncclAvg", 4}}},
  };
  return all;
}

}  // namespace tracer::cuda
