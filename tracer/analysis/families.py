"""Families of device kernels: why their work is parallel, what is spread over what, what to try.

Rules use the short name (device_kernels.short_device_kernel): functors in it first, then the
name of the kernel's template; the first that fits counts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Family:
    """`parallel`: why the work can be done at once; `spread`: which dimension goes to grid and block.

    `pattern` is searched in the kernel's name without template arguments, `functor` in those.
    """

    name: str
    pattern: str
    parallel: str
    spread: str
    logic: str
    options: str
    functor: str = ""


FAMILIES = (
    Family(
        "fused by Triton",
        r"^triton_",
        "torch.compile fused several ops into one kernel: pointwise ones (triton_poi), ones with a "
        "reduction (triton_red, triton_per) or a matrix product from a template (triton_tem, "
        "triton_mm). Elements, or rows, do not depend on each other.",
        "Programs of the grid take tiles of XBLOCK output elements or rows; the reduced dimension "
        "stays in one program, in a loop of RBLOCK (red) or held whole (per). A tile's elements are "
        "spread over the block's warps.",
        "Loads all inputs of the fused ops once, keeps what lies between them in registers, stores "
        "the last results.",
        "What was fused and what was not (TORCH_LOGS=fusion); autotuned block sizes "
        '(mode="max-autotune"); shapes that change make it compile again.',
    ),
    Family(
        "attention",
        r"flash|fmha|Flash|attention|Attention|sdpa|dot_do_o|convert_dq",
        "Each query row of each head and batch entry is computed by itself; keys and values are only read.",
        "A block takes a tile of query rows of one head (grid: query tiles, heads, batch); its warps "
        "share the rows. The loop over keys and values runs inside the block; with few queries the "
        "keys are split over blocks too (split-KV) and joined by a second kernel.",
        "Tile by tile of keys: scores on tensor cores, running maximum and sum (online softmax), "
        "product with the values. The matrix of scores is never written to memory.",
        "16-bit types (the flash kernels take no float32); head sizes that are a multiple of 8; a "
        "causal flag instead of a mask tensor, which can send it to a slower kernel.",
    ),
    Family(
        "convolution",
        (
            r"fprop|dgrad|wgrad|implicit_gemm|ImplicitGemm|convolve|conv2d|conv_depthwise|winograd|"
            r"cudnn_infer_ampere_scudnn|scudnn|xmma_.*conv"
        ),
        "Each output pixel and channel is a sum of its own over input channels and filter positions.",
        "As a matrix product (implicit GEMM): rows are output pixels of all images (N x H x W), "
        "columns output channels; a block takes a tile of both. The sum over channels and filter is "
        "the loop inside the block. For gradients of weights (wgrad) the sum runs over all pixels and "
        "is often split over blocks.",
        "Gathers the input's patches while it loads tiles to shared memory, multiplies tiles on "
        "tensor or CUDA cores.",
        "channels_last memory (no layout kernels before and after); channels that are a multiple of "
        "8; 16-bit types or TF32; torch.backends.cudnn.benchmark where shapes are fixed.",
    ),
    Family(
        "recurrent network",
        r"RNN_|LSTM_|GRU_|_persist|lstm_cell|gru_cell|elementWise_fp|elemWiseRNN|Persist",
        "Batch entries and hidden units of one time step are independent; the time steps are not: "
        "each needs the state before it.",
        "Hidden units (rows of the recurrent weights) are spread over blocks and threads, and the "
        "batch over threads. Persistent kernels keep their rows of the weights on chip and loop over "
        "time inside one launch, exchanging the state between blocks at each step; the others launch "
        "a product and a pointwise kernel a step.",
        "The product with the inputs of all steps is one large GEMM beforehand; step by step follow "
        "the product with the state and the gates' pointwise functions.",
        "Steps that wait for each other set the pace, not bytes: larger batches cost little; 16-bit "
        "types; several layers or directions at once; cuDNN's persistent algorithms need fitting "
        "hidden sizes.",
    ),
    Family(
        "before and after a matrix product",
        r"splitKreduce|splitK_reduce|split_k_reduce|ReduceSplitK|^scal_kernel|^globalKernel"
        r"|init_device_workspace|scalePackedTensor",
        "Each output element adds its own partial sums, or is scaled by itself.",
        "Threads of a linear grid take output elements; the number of partial sums is the loop.",
        "Where a matrix product had too few output tiles to fill the device its sum was split over "
        "blocks: before, the output is cleared or scaled (scal_kernel, cuDNN's scalePackedTensor) and the "
        "blocks' counters are cleared (init_device_workspace); after, partial results are added up "
        "(splitKreduce, ReduceSplitK) and the bias is added (globalKernel).",
        "Its cost belongs to the product beside it; a larger batch makes the split unnecessary.",
    ),
    Family(
        "matrix x vector",
        r"gemv|gemvx|gemmSN|dot_kernel",
        "Each output element is a dot product of its own with the shared vector.",
        "Rows (or columns) of the matrix are spread over blocks; the threads of a block share one dot "
        "product or a few rows, and add their parts up by shuffles or in shared memory.",
        "The matrix is read once, and nothing of it is used again: memory bandwidth is the limit.",
        "Batch several vectors into one product; smaller weights (16-bit, 8-bit); with bias a fused "
        "kernel saves a launch.",
    ),
    Family(
        "matrix product (GEMM)",
        r"gemm|Gemm|nvjet|cutlass|xmma|_s884|s1688|s16816|wgmma|matmul_kernel",
        "Each element of the output is a dot product of its own.",
        "The output is cut into tiles (128x128 and the like, often in the kernel's name), a block (or "
        "a cluster) a tile: M and N are spread over the grid, batches over its third dimension; K is "
        "the loop inside the block, and is split over blocks too where there are too few tiles "
        "(split-K, stream-K).",
        "Tiles of A and B go through shared memory in stages while the tile before is multiplied: on "
        "tensor cores (names with s16816, tensorop, wgmma, nvjet) or on CUDA cores (ffma, simt).",
        "float32 without TF32 runs on CUDA cores at a fraction of the peak "
        '(torch.set_float32_matmul_precision("high")); M, N and K that are a multiple of 8 or 16 '
        "(other sizes fall to kernels named align1 and align2); a few tiles more than one wave leave "
        "most multiprocessors idle in the last; batch small products (bmm).",
    ),
    Family(
        "concatenation",
        r"CatArrayBatchedCopy|cat_cuda|_cat_",
        "Every element is copied by itself.",
        "The grid's second dimension is the input tensor, its first the elements of the largest one; "
        "a thread strides over elements. Blocks of small inputs are idle where sizes differ.",
        "Finds the place of each element in the output by division with the output's strides; the "
        "vectorised and aligned variants move 16 bytes at once.",
        "Write into slices of one buffer instead of concatenating; last dimensions that are a "
        "multiple of 16 bytes take the vectorised kernel; mixed dtypes or more than four dimensions "
        "take one copy a tensor.",
    ),
    Family(
        "softmax",
        r"[sS]oft[mM]ax",
        "Rows are independent; within a row the maximum and the sum are needed before any element.",
        "Up to 1,024 elements a row: a warp takes a row or two (softmax_warp), several a block. "
        "Longer rows: a block a row (cunn_SoftMax), the row spread over its threads.",
        "Maximum, sum of exponentials, division: the row is held in registers (warp) or shared "
        "memory, or read again.",
        "Memory bandwidth is the limit: fuse it with what is before and after "
        "(scaled_dot_product_attention, cross_entropy, torch.compile).",
    ),
    Family(
        "layer normalisation",
        r"layer_norm|LayerNorm|RowwiseMoments|GammaBeta|rms_norm|GroupNorm|group_norm",
        "Rows (samples, or groups of channels) are independent.",
        "A block a row, the row's elements over its threads; the gradients of weight and bias are "
        "sums down the columns, so there columns go to threads and rows are split over blocks.",
        "Mean and variance by one pass of running moments (Welford) with vector loads, a second to "
        "scale and shift.",
        "Few long rows leave multiprocessors idle; memory bandwidth is the limit: fuse with the "
        "neighbours (torch.compile).",
    ),
    Family(
        "batch normalisation",
        r"batch_norm|bn_fw|bn_bw|BatchNorm|bn_|batchnorm",
        "Channels are independent; within one, mean and variance are sums over the batch and all pixels.",
        "A channel goes to one block (or a few that join their sums); pixels and images are spread "
        "over its threads. Scaling afterwards is pointwise.",
        "Statistics first, then normalisation; single-read variants keep the values on chip between the two.",
        "Few channels leave multiprocessors idle; fuse with the activation; channels_last; in "
        "inference fold it into the convolution.",
    ),
    Family(
        "optimiser step (multi-tensor)",
        r"multi_tensor_apply|FusedAdam|FusedSgd",
        "Every parameter is updated by itself.",
        "All tensors of the list are cut into chunks of 65,536 elements; a block takes a chunk, its "
        "threads four elements at a time. Addresses of the tensors are kernel arguments, so a launch "
        "holds a limited number of them.",
        "Reads parameter, gradient and state, writes parameter and state: one pass where the "
        "optimiser is fused=True, a pass an operation with foreach.",
        "fused=True instead of foreach; fewer, larger parameters; 16-bit state.",
    ),
    Family(
        "pooling",
        r"[mM]ax_?[pP]ool|[aA]v[ge]_?[pP]ool|[pP]ooling",
        "Output pixels are independent; in the backward pass several may add to one input pixel.",
        "A thread an output element, linear over batch, channels and pixels.",
        "Reads its window of the input; neighbours' windows overlap and are met in the cache.",
        "channels_last; strides equal to the window need no overlap; fuse with what is before.",
    ),
    Family(
        "embedding and gather",
        r"embedding|indexSelect|index_select|vectorized_gather|gather_kernel|EmbeddingBag",
        "Each row that is looked up is copied by itself; in the backward pass equal indices add up "
        "and need order or atomics.",
        "Indices are spread over blocks or warps, the columns of a row over threads.",
        "Reads the index, then the row; the backward pass sorts the indices, or adds atomically.",
        "Rows that are a multiple of 16 bytes; sparse=True for large tables; fewer distinct launches "
        "by one large table.",
    ),
    Family(
        "indexing and scatter",
        r"index_|_index|scatter|gather|masked|nonzero|flip|^roll",
        "Each element moves by itself; writes to one place from several indices need sorting or atomics.",
        "A linear grid over the elements of the result, two or four a thread.",
        "Computes an address from the indices for each element, so that loads are scattered.",
        "Masks and nonzero find out a size and wait for the host; torch.where keeps the shape and "
        "does not wait. Sorted indices read memory in order.",
    ),
    Family(
        "sort, scan and top-k",
        r"[sS]ort|[sS]can|[tT]op[kK]|cub::|Device(Radix|Merge|Select|Reduce|Scan)|[uU]nique|bitonic",
        "Parts are sorted or summed by themselves and then joined: the joins depend on each other.",
        "Tiles of the input go to blocks, a few elements a thread; passes over digits (radix sort) or "
        "a look back at the tiles before (scan) join them.",
        "Several passes over the data with counts in between.",
        "Smaller key types need fewer passes; sort less often; top-k of few elements is cheaper than a sort.",
    ),
    Family(
        "reduction",
        r"reduce_kernel|reduction|[rR]educe|nll_loss|_loss_|norm_",
        "Each output element is a reduction of its own, and a sum may be taken in any order of its parts.",
        "Where the reduced dimension is contiguous the block's x threads run along it, else along "
        "outputs; more outputs go to the block's y and the grid's x. Few outputs: the reduced "
        "dimension is split over blocks too (grid y).",
        "Each thread adds up four or more elements in registers, warps join by shuffles, blocks in "
        "shared memory, and blocks of one output through a buffer in global memory and a counter.",
        "Memory bandwidth is the limit: fuse it with the op that makes its input; reduce the "
        "innermost dimension; one reduction over several dimensions instead of several.",
    ),
    Family(
        "fill",
        r"fill_kernel|memset",
        "Every element is written by itself.",
        "A linear grid over the elements, four or more a thread.",
        "Writes a constant.",
        "torch.empty where all is overwritten anyway; zero_grad(set_to_none=True).",
        functor=r"\bFillFunctor",
    ),
    Family(
        "random numbers",
        r"distribution|dropout|philox|bernoulli|uniform|normal_kernel|random_",
        "Philox makes any element's number from seed and position, so no element waits for another.",
        "A grid of at most a few blocks a multiprocessor strides over the elements, four numbers a "
        "round and thread.",
        "Ten rounds of Philox give four random words, which are transformed; dropout also stores a mask.",
        "Fused dropout (native_dropout, attention with dropout) instead of a random tensor and a product.",
    ),
    Family(
        "copy and layout",
        r"copy_kernel|[tT]oNhwc|[tT]oNchw|[tT]ranspose|memcpy|contiguous|permute|nhwc|nchw",
        "Every element moves by itself.",
        "A linear grid over the elements of the target; transposing kernels take square tiles through "
        "shared memory.",
        "Where strides differ an offset is computed for each element, and one of both sides is "
        "accessed out of order.",
        "Avoid it: keep one memory format (channels_last), make the producer write the layout that "
        "the consumer needs, no .contiguous() or .to() that is not needed.",
        functor=r"copy_kernel|CopyFunctor",
    ),
    Family(
        "pointwise, contiguous (vectorised)",
        r"^vectorized_elementwise_kernel",
        "Each output element depends on the input elements at its place alone.",
        "All dimensions are taken as one: the grid is cut by 512 elements a block or more (128 "
        "threads, 4 to 16 elements a thread), loaded as vectors of up to 16 bytes.",
        "Load, compute in registers, store; the functor in the name is the operation.",
        "Memory bandwidth is the limit: each op in a row of them reads and writes everything again, "
        "so fuse them (torch.compile, an in-place or out variant, a fused op). Small tensors are "
        "bound by the launch: CUDA graphs.",
    ),
    Family(
        "pointwise, with conversion or unaligned",
        r"^unrolled_elementwise_kernel",
        "Each output element depends on the input elements at its place alone.",
        "All dimensions are taken as one; 128 threads a block, four elements a thread, 128 apart so "
        "that a warp's accesses are contiguous.",
        "As the vectorised kernel, but element by element: dtypes are converted on the way, or "
        "addresses are not aligned.",
        "Inputs of one dtype take the vectorised kernel; slices that begin off a 16-byte boundary do not.",
    ),
    Family(
        "pointwise, strided or broadcast",
        r"^(legacy_)?elementwise_kernel|launch_legacy",
        "Each output element depends on input elements at one place alone.",
        "A linear grid over output elements, 128 threads a block, two or four elements a thread; the "
        "offset of each operand is computed from its strides.",
        "Division by the sizes (as multiplications) for each element and operand, then scattered loads.",
        "Contiguous operands of one layout take the vectorised kernel: look for transposes, slices "
        "and expanded operands.",
    ),
)


def family_of(kernel: str) -> Family | None:
    """The family of a device kernel by its short name; None where no rule fits."""
    head, _, functors = kernel.partition("<")
    by_functor = (one for one in FAMILIES if one.functor and re.search(one.functor, functors))
    return next(by_functor, None) or next((one for one in FAMILIES if re.search(one.pattern, head)), None)
