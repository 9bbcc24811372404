// What `auto` reads: where the overrides were measured to be faster than the stock kernels.
//
//   a call's shape -> the rows that `tracer compare --tune` measured on this device: faster? slower?
//                  -> the rows of the build (measured.h, ops/gru_measured.h), if they were measured on such a GPU
//                  -> neither: stock computes the call
//
// Read in each call of an operator: no lock, no allocation. A table is never changed and never freed, since a thread may be
// reading it; replacing it is the exchange of one pointer.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <span>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "kernels/device.h"
#include "measured.h"
#include "ops/gru_measured.h"

namespace tracer::overrides {

// Why `auto` leaves a call to stock; tests and users see these.
constexpr const char* kNotMeasured = "not measured to be faster";
constexpr const char* kMeasuredNoFaster = "measured to be no faster than stock";
constexpr const char* kGpuNotMeasured = "this GPU was not measured; to measure it: tracer compare --tune";

template <class Row>
struct Measured {
  std::vector<Row> faster, slower;
};

template <class Row>
class MeasuredTables {
 public:
  static constexpr int kDevices = 64;

  constexpr MeasuredTables(std::span<const Row> built_in, const char* built_in_gpu) : built_in_(built_in), built_in_gpu_(built_in_gpu) {}

  // From now on on this device. Throws std::invalid_argument for a device that there cannot be.
  void replace(int device, Measured<Row> rows) {
    if (device < 0 || device >= kDevices) throw std::invalid_argument("no device " + std::to_string(device));
    tables_[size_t(device)].store(new const Measured<Row>(std::move(rows)), std::memory_order_release);
  }

  // Null: a row that `fits` the call says that the override is faster. Else why stock computes it.
  template <class Fits>
  const char* why_stock(int device, Fits fits) const {
    const Measured<Row>* tuned = device >= 0 && device < kDevices ? tables_[size_t(device)].load(std::memory_order_acquire) : nullptr;
    if (tuned && std::ranges::any_of(tuned->faster, fits)) return nullptr;
    if (tuned && std::ranges::any_of(tuned->slower, fits)) return kMeasuredNoFaster;
    if (device_of(device).name == built_in_gpu_) return std::ranges::any_of(built_in_, fits) ? nullptr : kNotMeasured;
    return tuned && !tuned->faster.empty() ? kNotMeasured : kGpuNotMeasured;
  }

 private:
  std::array<std::atomic<const Measured<Row>*>, kDevices> tables_{};
  std::span<const Row> built_in_;
  const char* built_in_gpu_;
};

extern MeasuredTables<MeasuredMm> measured_mm;
extern MeasuredTables<MeasuredCat> measured_cat;
extern MeasuredTables<gru::MeasuredGru> measured_gru;

// Rows as Python gives them, their fields in the order of the structs; ranges include both ends. All throw std::invalid_argument.
using RangeRow = std::pair<int64_t, int64_t>;
using MmRow = std::tuple<std::string, bool, bool, RangeRow, RangeRow, RangeRow>;  // float32, bfloat16 or float16
using CatRow = std::tuple<RangeRow, RangeRow, bool>;
using GruRow = std::tuple<std::string, RangeRow, RangeRow, RangeRow, RangeRow>;  // float32, tf32, bfloat16 or float16
void set_measured_mm(int device, const std::vector<MmRow>& faster, const std::vector<MmRow>& slower);
void set_measured_cat(int device, const std::vector<CatRow>& faster, const std::vector<CatRow>& slower);
void set_measured_gru(int device, const std::vector<GruRow>& faster, const std::vector<GruRow>& slower);

}  // namespace tracer::overrides
