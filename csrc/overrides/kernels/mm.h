// Products of a matrix with a narrow one: what they compute, the ways to compute it, and which way is taken.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tracer::overrides {

enum class Element : uint8_t { kFloat, kBfloat16, kHalf };
constexpr int bytes_of(Element element) { return element == Element::kFloat ? 4 : 2; }

// out[r, c] = alpha * sum over k of weight[r, k] * input[c, k] + beta * self[r, c], summed in fp32.
// Strides in elements. The weight is the long operand, and one of its strides is 1; the input has few columns.
struct Mm {
  const void* weight;
  const void* input;
  const void* self;  // nullptr: beta is 0, and self is not read
  void* out;
  int64_t weight_row, weight_inner;
  int64_t input_column, input_inner;
  int64_t self_row, self_column;
  int64_t out_row, out_column;
  int64_t rows, columns, inner;
  float alpha, beta;
  Element element;
  bool tf32;  // fp32 operands may be rounded to TF32
  // How the operands may be read; filled by launch_mm.
  bool weight_vectors, input_vectors;  // 16 bytes at a time along the stride that is 1
  int split;                           // blocks of a cluster (dot, and direct where inner_major: warps of a block) that share k
};

constexpr int64_t kMostColumns = 128;

// Is the weight's inner stride 1 (an nn.Linear weight, transposed), or its row stride?
inline bool inner_major(const Mm& mm) { return mm.weight_inner == 1; }

// One way to compute a product, as in "3xtf32 64x32 split 2". Methods:
//   dot      a warp for some rows, fp32 FMA, both operands with inner stride 1; tile: rows a warp x columns
//   ffma     tiles through shared memory, fp32 FMA
//   tensor   tiles through shared memory, tensor cores: bf16, fp16, TF32, or fp32 as three TF32 products ("3xtf32")
//   direct   the weight goes from global memory straight into registers, 16 bytes at a time; tensor cores, but fp32 FMA
//            where the row stride is 1
//   groups   tiles that the copy engine brings, warp groups on the tensor cores of sm_90a: "tf32-groups 64x16"
enum class Method : uint8_t { kDot, kFfma, kTensor, kDirect, kGroups };
struct Plan {
  Method method;
  int tile_rows, tile_columns, split;
  bool operator==(const Plan&) const = default;
};
std::string name_of(const Plan& plan, const Mm& mm);

// All plans that can compute it on the device; empty where none can.
std::vector<Plan> plans_for(const Mm& mm, int device);
// The one that the table of tuned plans says, or none where plans_for() is empty.
std::optional<Plan> plan_for(const Mm& mm, int device);

// On the current device, whose index is `device`. The plan is one of plans_for(). Nothing is allocated or waited for.
cudaError_t launch_mm(Mm mm, const Plan& plan, int device, cudaStream_t stream);

// ---- of the methods -----------------------------------------------------------------------------
struct TileSize {
  int rows, columns;
};
const std::vector<TileSize>& dot_tiles(Element element);
const std::vector<TileSize>& ffma_tiles();
const std::vector<TileSize>& tensor_tiles(const Mm& mm);
const std::vector<TileSize>& direct_tiles(bool inner_major);
const std::vector<TileSize>& groups_tiles();
cudaError_t launch_dot(const Mm& mm, const Plan& plan, int device, cudaStream_t stream);
cudaError_t launch_ffma(const Mm& mm, const Plan& plan, int device, cudaStream_t stream);
cudaError_t launch_tensor(const Mm& mm, const Plan& plan, int device, cudaStream_t stream);
cudaError_t launch_direct_rows(const Mm& mm, const Plan& plan, int device, cudaStream_t stream);     // inner_major
cudaError_t launch_direct_columns(const Mm& mm, const Plan& plan, int device, cudaStream_t stream);  // not inner_major
cudaError_t launch_groups(const Mm& mm, const Plan& plan, int device, cudaStream_t stream);

}  // namespace tracer::overrides
