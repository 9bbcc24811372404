// Which method, tile and split a product takes.
#include <algorithm>

#include "device.h"
#include "mm.h"
#include "mm_tuned.h"
#include "tensor_map.h"

namespace tracer::overrides {

cudaError_t launch_tensor_3xtf32(const Mm& mm, const Plan& plan, int device, cudaStream_t stream);
cudaError_t launch_tensor_tf32(const Mm& mm, const Plan& plan, int device, cudaStream_t stream);
cudaError_t launch_tensor_bf16(const Mm& mm, const Plan& plan, int device, cudaStream_t stream);
cudaError_t launch_tensor_f16(const Mm& mm, const Plan& plan, int device, cudaStream_t stream);

const std::vector<TileSize>& tensor_tiles(const Mm& mm) {
  static const auto& all =
      *new std::vector<TileSize>{{64, 8}, {32, 16}, {64, 16}, {64, 32}, {64, 64}, {128, 64}, {64, 128}, {96, 64}, {96, 128}};
  static const auto& others = *new std::vector<TileSize>(all.begin(), all.end() - 2);
  const bool three_products = mm.element == Element::kFloat && !mm.tf32;
  return inner_major(mm) && !three_products ? all : others;  // tiles of 96 rows have a row each, and registers for one product
}

const std::vector<TileSize>& direct_tiles(bool inner_major) {
  static const auto& along = *new std::vector<TileSize>{{16, 8}, {16, 16}};
  static const auto& across = *new std::vector<TileSize>{{32, 1}, {32, 2}, {32, 4}};
  return inner_major ? along : across;
}

cudaError_t launch_tensor(const Mm& mm, const Plan& plan, int device, cudaStream_t stream) {
  switch (mm.element) {
    case Element::kFloat:
      return mm.tf32 ? launch_tensor_tf32(mm, plan, device, stream) : launch_tensor_3xtf32(mm, plan, device, stream);
    case Element::kBfloat16:
      return launch_tensor_bf16(mm, plan, device, stream);
    case Element::kHalf:
      return launch_tensor_f16(mm, plan, device, stream);
  }
  return cudaErrorInvalidValue;
}

namespace {

constexpr int kSplits[] = {1, 2, 4, 8};
constexpr int kFill = 0;  // as many as fill the device

int64_t tiles_of(const Mm& mm, const Plan& plan) {
  return ((mm.rows + plan.tile_rows - 1) / plan.tile_rows) * ((mm.columns + plan.tile_columns - 1) / plan.tile_columns);
}

// Two blocks for each multiprocessor, or 16 warps of dot, and at least 4 stages of the inner dimension for each part.
int filling_split(const Mm& mm, const Plan& plan, int device) {
  const int64_t wanted = (plan.method == Method::kDot ? 16 : 2) * device_of(device).processors, tiles = tiles_of(mm, plan);
  const int64_t stages = mm.inner * bytes_of(mm.element) / 128;
  int split = 1;
  while (split < 8 && tiles * split < wanted && stages / (split * 2) >= 4) split *= 2;
  return split;
}

// Of fewer products the errors of three TF32 products, up to 3 2^-22 each, do not average out to those of fp32.
constexpr int64_t kLeastInnerOf3xTf32 = 64;
bool too_short(const Mm& mm, Method method) {
  const bool three = method == Method::kTensor || method == Method::kGroups || (method == Method::kDirect && inner_major(mm));
  return three && mm.element == Element::kFloat && !mm.tf32 && mm.inner < kLeastInnerOf3xTf32;
}

ProductKind kind_of(const Mm& mm) {
  if (mm.element != Element::kFloat) return ProductKind::kTwoBytes;
  return mm.tf32 ? ProductKind::kTf32 : ProductKind::kStrict;
}

// Where no product nearby was measured (mm_tuned.h): few columns of a weight with inner stride 1, then any.
constexpr int64_t kAny = INT64_MAX;
constexpr struct {
  int64_t most_columns, most_rows;
  Plan plan;
} kDots[] = {
    {1, 1024, {Method::kDot, 1, 1, 8}},     {1, kAny, {Method::kDot, 4, 1, kFill}}, {2, kAny, {Method::kDot, 4, 2, kFill}},
    {4, kAny, {Method::kDot, 4, 4, kFill}}, {8, kAny, {Method::kDot, 4, 8, kFill}},
};
int64_t most_columns_of_dots(const Mm& mm) { return mm.element == Element::kFloat ? 8 : 4; }

constexpr struct {
  int64_t most_columns;
  Plan plan;
} kTiles[] = {
    {8, {Method::kTensor, 64, 8, kFill}},   {16, {Method::kTensor, 32, 16, kFill}},   {32, {Method::kTensor, 64, 32, kFill}},
    {64, {Method::kTensor, 64, 64, kFill}}, {128, {Method::kTensor, 64, 128, kFill}}, {16, {Method::kFfma, 64, 16, kFill}},
    {32, {Method::kFfma, 64, 32, kFill}},   {64, {Method::kFfma, 64, 64, kFill}},     {128, {Method::kFfma, 64, 128, kFill}},
};

// Warp groups where the weight is large, in as many parts as all multiprocessors can work on at once.
constexpr int64_t kLargeRows = 1024, kLargeInner = 512;
std::optional<Plan> groups_plan(const Mm& mm, int device) {
  if (mm.rows < kLargeRows || mm.inner < kLargeInner) return std::nullopt;
  for (TileSize tile : groups_tiles()) {
    if (tile.columns < mm.columns) continue;
    Plan plan{Method::kGroups, tile.rows, tile.columns, 1};
    const int64_t tiles = tiles_of(mm, plan);
    while (plan.split < 8 && tiles * plan.split * 2 <= device_of(device).processors) plan.split *= 2;
    return plan;
  }
  return std::nullopt;
}

bool is_tile(Method method) { return method == Method::kFfma || method == Method::kTensor || method == Method::kGroups; }

bool aligned(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer) % 16 == 0; }

// How the operands may be read. In tiles a last vector may lie half outside the matrix; where a thread loads into
// registers it may not.
void choose_vectors(Mm& mm, Method method) {
  const int64_t elements = 16 / bytes_of(mm.element);
  const bool tiles = is_tile(method);
  const bool major = inner_major(mm);
  const int64_t pitch = major ? mm.weight_row : mm.weight_inner, lines = major ? mm.rows : mm.inner;
  const int64_t length = major ? mm.inner : mm.rows;
  mm.weight_vectors = aligned(mm.weight) && (lines == 1 || pitch % elements == 0) && (tiles || length % elements == 0);
  mm.input_vectors = aligned(mm.input) && mm.input_inner == 1 && (mm.columns == 1 || mm.input_column % elements == 0) &&
                     (tiles || mm.inner % elements == 0);
}

// Direct loads are 16 bytes of both operands.
bool takes_direct(Mm mm) {
  choose_vectors(mm, Method::kDirect);
  return mm.weight_vectors && mm.input_vectors && (inner_major(mm) || mm.element == Element::kFloat);
}

// The copy engine reads lines that begin at multiples of 16 bytes, and no line twice.
bool takes_groups(Mm mm, int architecture) {
  choose_vectors(mm, Method::kGroups);
  const bool repeats = (mm.columns > 1 && mm.input_column == 0) ||
                       (inner_major(mm) ? mm.rows > 1 && mm.weight_row == 0 : mm.inner > 1 && mm.weight_inner == 0);
  return architecture == 90 && mm.weight_vectors && mm.input_vectors && !repeats && makes_tensor_maps();
}

// The kernels count rows and the inner dimension in an int, with what loads run ahead to spare.
constexpr int64_t kLongest = INT32_MAX - 8192;
bool supports(const Mm& mm, int architecture) {
  return architecture && mm.columns >= 1 && mm.columns <= kMostColumns && mm.rows >= 1 && mm.inner >= 1 &&
         std::max(mm.rows, mm.inner) <= kLongest && (mm.weight_inner == 1 || mm.weight_row == 1);
}

}  // namespace

std::string name_of(const Plan& plan, const Mm& mm) {
  std::string tile = std::to_string(plan.tile_rows) + "x" + std::to_string(plan.tile_columns), name;
  switch (plan.method) {
    case Method::kDot:
      name = "dot " + tile;
      break;
    case Method::kFfma:
      name = "ffma " + tile;
      break;
    case Method::kDirect:
      name = "direct " + tile;
      break;
    case Method::kTensor:
    case Method::kGroups:
      name = std::string(mm.element == Element::kBfloat16 ? "bf16"
                         : mm.element == Element::kHalf   ? "fp16"
                         : mm.tf32                        ? "tf32"
                                                          : "3xtf32") +
             (plan.method == Method::kGroups ? "-groups " : " ") + tile;
  }
  return name + (plan.split > 1 ? " split " + std::to_string(plan.split) : "");
}

std::vector<Plan> plans_for(const Mm& mm, int device) {
  std::vector<Plan> plans;
  const int architecture = architecture_for(device_of(device).capability);
  if (!supports(mm, architecture)) return plans;
  const bool clusters = architecture >= 90;
  // Of the widths, the smallest that holds all columns; of tiles also those of half that width.
  auto add = [&](Method method, const std::vector<TileSize>& tiles, bool narrower) {
    int widest = 0, fitting = INT32_MAX;
    for (TileSize tile : tiles) {
      widest = std::max(widest, tile.columns);
      if (tile.columns >= mm.columns) fitting = std::min(fitting, tile.columns);
    }
    if (!narrower && mm.columns > widest) return;
    fitting = std::min(fitting, widest);
    for (TileSize tile : tiles)
      for (int split : kSplits)
        if ((tile.columns == fitting || (narrower && tile.columns == fitting / 2)) &&
            (split == 1 || (method == Method::kDirect ? inner_major(mm) : clusters || method == Method::kDot)))
          plans.push_back({method, tile.rows, tile.columns, split});
  };
  if (inner_major(mm)) add(Method::kDot, dot_tiles(mm.element), false);
  if (mm.element == Element::kFloat && !mm.tf32) add(Method::kFfma, ffma_tiles(), true);
  if (!too_short(mm, Method::kTensor)) add(Method::kTensor, tensor_tiles(mm), true);
  if (takes_groups(mm, architecture) && !too_short(mm, Method::kGroups)) add(Method::kGroups, groups_tiles(), false);
  if (takes_direct(mm) && !too_short(mm, Method::kDirect)) add(Method::kDirect, direct_tiles(inner_major(mm)), false);
  return plans;
}

std::optional<Plan> plan_for(const Mm& mm, int device) {
  Mm read = mm;
  const auto resolved = [&](Plan plan) {
    choose_vectors(read, plan.method);
    if (plan.split == kFill) plan.split = filling_split(read, plan, device);
    const bool warps = plan.method == Method::kDot || (plan.method == Method::kDirect && inner_major(mm));
    if (!warps && architecture_for(device_of(device).capability) < 90) plan.split = 1;
    return plan;
  };
  const int architecture = architecture_for(device_of(device).capability);
  if (!supports(mm, architecture)) return std::nullopt;
  for (const TunedMm& line : kTunedMm)
    if (line.kind == kind_of(mm) && line.inner_major == inner_major(mm) && line.columns.holds(mm.columns) && line.rows.holds(mm.rows) &&
        line.inner.holds(mm.inner) && !too_short(mm, line.plan.method) && (line.plan.method != Method::kDirect || takes_direct(mm)) &&
        (line.plan.method != Method::kGroups || takes_groups(mm, architecture)))
      return resolved(line.plan);
  if (inner_major(mm) && mm.columns <= most_columns_of_dots(mm))
    for (const auto& line : kDots)
      if (mm.columns <= line.most_columns && mm.rows <= line.most_rows) return resolved(line.plan);
  if (takes_groups(mm, architecture) && !too_short(mm, Method::kGroups))
    if (auto plan = groups_plan(mm, device)) return plan;
  for (const auto& line : kTiles)
    if (mm.columns <= line.most_columns && !too_short(mm, line.plan.method)) return resolved(line.plan);
  return std::nullopt;
}

cudaError_t launch_mm(Mm mm, const Plan& plan, int device, cudaStream_t stream) {
  choose_vectors(mm, plan.method);
  mm.split = plan.split;
  switch (plan.method) {
    case Method::kDot:
      return launch_dot(mm, plan, device, stream);
    case Method::kFfma:
      return launch_ffma(mm, plan, device, stream);
    case Method::kTensor:
      return launch_tensor(mm, plan, device, stream);
    case Method::kDirect:
      return inner_major(mm) ? launch_direct_rows(mm, plan, device, stream) : launch_direct_columns(mm, plan, device, stream);
    case Method::kGroups:
      return launch_groups(mm, plan, device, stream);
  }
  return cudaErrorInvalidValue;
}

}  // namespace tracer::overrides
