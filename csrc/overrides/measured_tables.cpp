#include "measured_tables.h"

#include "ops/gru_tuning.h"

namespace tracer::overrides {

constinit MeasuredTables<MeasuredMm> measured_mm{kMeasuredMm, kMeasuredOn};
constinit MeasuredTables<MeasuredCat> measured_cat{kMeasuredCat, kMeasuredOn};
constinit MeasuredTables<gru::MeasuredGru> measured_gru{gru::kMeasuredGru, gru::kMeasuredOn};

namespace {

Element element_named(const std::string& name) {
  if (name == "float32") return Element::kFloat;
  if (name == "bfloat16") return Element::kBfloat16;
  if (name == "float16") return Element::kHalf;
  throw std::invalid_argument("no element \"" + name + "\": float32, bfloat16 or float16");
}

Range range(const RangeRow& row) { return {row.first, row.second}; }

MeasuredMm row_of(const MmRow& row) {
  const auto& [element, tf32, inner_major, columns, rows, inner] = row;
  return {element_named(element), tf32, inner_major, range(columns), range(rows), range(inner)};
}

MeasuredCat row_of(const CatRow& row) {
  const auto& [tensors, bytes, aligned] = row;
  return {range(tensors), range(bytes), aligned};
}

gru::MeasuredGru row_of(const GruRow& row) {
  const auto& [precision, steps, batch, input, hidden] = row;
  return {precision_named(precision), range(steps), range(batch), range(input), range(hidden)};
}

template <class Row, class Given>
void replace(MeasuredTables<Row>& tables, int device, const std::vector<Given>& faster, const std::vector<Given>& slower) {
  Measured<Row> measured;
  for (const Given& row : faster) measured.faster.push_back(row_of(row));
  for (const Given& row : slower) measured.slower.push_back(row_of(row));
  tables.replace(device, std::move(measured));
}

}  // namespace

void set_measured_mm(int device, const std::vector<MmRow>& faster, const std::vector<MmRow>& slower) {
  replace(measured_mm, device, faster, slower);
}
void set_measured_cat(int device, const std::vector<CatRow>& faster, const std::vector<CatRow>& slower) {
  replace(measured_cat, device, faster, slower);
}
void set_measured_gru(int device, const std::vector<GruRow>& faster, const std::vector<GruRow>& slower) {
  replace(measured_gru, device, faster, slower);
}

}  // namespace tracer::overrides
