// The CUDA kernels of the GRU override: pointers, sizes and a stream; no torch. Gate order is r, z, n:
//   r = sigmoid(x W_ir' + b_ir + h W_hr' + b_hr)          z likewise
//   n = tanh(x W_in' + b_in + r * (h W_hn' + b_hn))       h' = n + z * (h - n)
// "Rows" of a sequence are time steps times batch, time first. All sums are float32; every reduction has a fixed order.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace tracer::overrides::gru {

// What the elements are and how they are multiplied: float32 as three TF32 products (an error of 2^-22 of each product),
// float32 rounded to TF32, and the 16-bit types. An infinite float32 operand gives NaN in kFloat32.
enum class Precision { kFloat32, kTf32, kBfloat16, kFloat16 };
constexpr int kPrecisions = 4;
constexpr int element_bytes(Precision precision) { return precision == Precision::kFloat32 || precision == Precision::kTf32 ? 4 : 2; }

// c[m][n] = sum over k of a and b, + bias[n] + addend[m][n].
struct Product {
  enum class Layout {
    kRowsByRows,      // a[m][k], b[n][k]
    kRowsByColumns,   // a[m][k], b[k][n]
    kColumnsByColumns // a[k][m], b[k][n]
  };
  Precision precision;
  Layout layout;
  int64_t m, n, k;
  const void* a;
  int64_t a_stride;
  // b in two pieces of memory: the rows below `b_split` are in b[0], the others in b[1], counted from 0 again.
  const void* b[2];
  int64_t b_stride[2];
  int64_t b_split;
  const void* bias[2];  // split like b (kRowsByRows); null: none
  const float* addend;  // null: none
  int64_t addend_stride;
  void* c;
  int64_t c_stride;
  bool c_is_float;      // else c has the type of a and b
};
cudaError_t launch_product(const Product& product, cudaStream_t stream);

// One time step for one or two directions, without any barrier between blocks.
struct Step {
  Precision precision;
  int batch, input, hidden, directions;
  const void* x[2];         // [batch][input]; null where gx is used instead
  int64_t x_stride;
  const void* w_ih[2];      // [3 * hidden][input]
  const void* b_ih[2];      // null: none
  const float* gx[2];       // [batch][3 * hidden]: x W_ih' + b_ih, or null
  int64_t gx_stride;
  const void* w_hh[2];      // [3 * hidden][hidden]
  const void* b_hh[2];      // null: none
  const void* h[2];         // [batch][hidden]
  int64_t h_stride;
  void* output[2];          // [batch][hidden]
  int64_t output_stride;
  void* hy[2];              // [batch][hidden], contiguous; null: not wanted
  float* reserve[2];        // [batch][4][hidden]; null: not wanted
  int tile;                 // -1: chosen by size; else an index below kStepTiles
};
constexpr int kStepTiles = 7;   // tile 0 multiplies exactly in kTf32 too
constexpr int kGroupsTile = 6;  // gru_step_groups.cu; another one where it does not suit
cudaError_t launch_step(const Step& step, cudaStream_t stream);

// How a whole sequence is spread over clusters: a cluster owns `batch_tile` sequences, a block of it `units` hidden units, whose
// rows of W_hh stay in its registers and shared memory for all time steps.
struct Plan {
  int cluster = 0;          // blocks in a cluster: 1, 2, 4, 8, 16; 0: no plan
  int units = 0;            // hidden units of a block: 16 or 32
  int batch_tile = 0;       // sequences of a cluster: 8, 16 or 32
  bool double_buffered = false;
  size_t shared_bytes = 0;
};
// The plans for the current device, or one without a cluster where there is none: before compute capability 9.0, and where W_hh does
// not fit into the shared memory of a cluster. Then each time step has a kernel of its own.
Plan forward_plan(Precision precision, int batch, int hidden, int directions);
Plan backward_plan(Precision precision, int batch, int hidden, int directions);
// The same for a cluster size, units and batch tile of one's own; no plan where they do not fit.
Plan forward_plan_of(Precision precision, int hidden, int cluster, int units, int batch_tile);
Plan backward_plan_of(Precision precision, int hidden, int cluster, int units, int batch_tile);

// The recurrence of one layer over all time steps.
struct Forward {
  Precision precision;
  int steps, batch, hidden, directions;
  const float* gx;          // rows of directions * 3 * hidden: x W_ih' + b_ih
  const void* w_hh[2];
  const void* b_hh[2];      // null: none
  const void* hx;           // [directions][batch][hidden]
  void* output;             // rows of directions * hidden
  void* hy;                 // [directions][batch][hidden]
  float* reserve;           // [directions] rows of 4 * hidden: r, z, n, h W_hn' + b_hn; null: not wanted
  Plan plan;
};
cudaError_t launch_forward(const Forward& forward, cudaStream_t stream);

// The same with all blocks of the GPU, where forward_plan() has none: `groups` groups of blocks run at once, each for `sequences`
// sequences, with a block for `units` hidden units.
struct GridPlan {
  int units = 0;            // 0: no plan
  int sequences = 0;
  int unit_blocks = 0;      // of a group
  int groups = 0;
};
GridPlan grid_plan(Precision precision, int batch, int hidden);
size_t grid_workspace(const Forward& forward, const GridPlan& plan);
// `workspace`: grid_workspace() bytes, to be used by nothing else meanwhile. This and the pointers of `forward` are multiples of 16. `plan`
// of `forward` is unused.
cudaError_t launch_grid(const Forward& forward, const GridPlan& plan, void* workspace, cudaStream_t stream);

struct Backward {
  Precision precision;
  int steps, batch, hidden, directions;
  const void* w_hh[2];
  const void* hx;
  const void* output;
  const float* reserve;
  const void* grad_output;  // rows of directions * hidden; null: zero
  const void* grad_hy;      // [directions][batch][hidden]; null: zero
  void* gate_grad_x;        // rows of directions * 3 * hidden: gradient of x W_ih' + b_ih
  void* gate_grad_h;        // likewise of h W_hh' + b_hh
  void* grad_hx;            // [directions][batch][hidden]; null: not wanted
  Plan plan;
};
cudaError_t launch_backward(const Backward& backward, cudaStream_t stream);

// One time step of the backward recurrence without its product with W_hh:
// from the gradient of h' to the gate gradients, and what flows to h past the gates.
struct StepBackward {
  Precision precision;
  int batch, hidden;
  const float* reserve;     // [batch][4][hidden]
  const void* h;            // [batch][hidden], the state before the step
  int64_t h_stride;
  const void* grad_output;  // [batch][hidden]; null: zero
  int64_t grad_output_stride;
  const void* grad_hy;      // [batch][hidden], contiguous; null: zero
  const float* grad_h;      // [batch][hidden], contiguous: what the later step gives; null: zero
  void* gate_grad_x;        // [batch][3 * hidden]
  void* gate_grad_h;
  int64_t gate_stride;
  float* carry;             // [batch][hidden], contiguous: z * gradient of h'; may be grad_h
};
cudaError_t launch_step_backward(const StepBackward& step, cudaStream_t stream);

// sum[c] = sum over the rows of matrix[row][c], in the order of the rows within each of 32 slices.
struct ColumnSum {
  Precision precision;
  int64_t rows, columns;
  const void* matrix[2];    // the second may be null
  int64_t stride;
  void* sum[2];             // type of the matrix
};
cudaError_t launch_column_sum(const ColumnSum& sum, cudaStream_t stream);

}  // namespace tracer::overrides::gru
