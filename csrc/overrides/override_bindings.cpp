// The Python module tracer._overrides. No logic: each function calls the registration or a planner.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include "kernels/device.h"
#include "kernels/mm.h"
#include "measured_tables.h"
#include "ops/gru_tuning.h"
#include "ops/mm_tuning.h"
#include "registration.h"

namespace py = pybind11;
using namespace tracer::overrides;

namespace {

std::map<std::string, uint64_t> ran(const std::string& name) {
  std::map<std::string, uint64_t> out;
  for (Operator* op : override_named(name).operators()) out[op->name()] = op->counts.ran_calls();
  return out;
}

std::map<std::string, std::map<std::string, uint64_t>> handed_over(const std::string& name) {
  std::map<std::string, std::map<std::string, uint64_t>> out;
  for (Operator* op : override_named(name).operators()) out[op->name()] = op->counts.reasons();
  return out;
}

void reset_counts(const std::string& name) {
  for (Operator* op : override_named(name).operators()) op->counts.reset();
}

std::vector<std::pair<std::string, std::string>> operators(const std::string& name) {
  std::vector<std::pair<std::string, std::string>> out;
  for (Operator* op : override_named(name).operators()) out.emplace_back(op->name(), c10::toString(kKey));
  return out;
}

int64_t live_reserves() {
  int64_t live = 0;
  for (Override* one : all_overrides()) live += one->live_reserves();
  return live;
}

// Without torch's own start of CUDA.
std::vector<std::string> gpu_names() {
  std::vector<std::string> names;
  for (int index = 0; index < device_count(); ++index) names.push_back(device_of(index).name);
  return names;
}

}  // namespace

PYBIND11_MODULE(_overrides, m) {
  m.doc() = "The built-in overrides: switching, counts, and the plans of mm.";
  // The dispatcher's lock is waited for, so never with the GIL.
  using Release = py::call_guard<py::gil_scoped_release>;
  m.def(
      "install", [](const std::string& name, bool forced) { override_named(name).install(forced); }, py::arg("name"), py::arg("forced"),
      Release());
  m.def("remove", [](const std::string& name) { override_named(name).remove(); }, py::arg("name"), Release());
  m.def("operators", &operators, py::arg("name"));
  m.def("ran", &ran, py::arg("name"));
  m.def("handed_over", &handed_over, py::arg("name"));
  m.def("reset_counts", &reset_counts, py::arg("name"));
  m.def("live_reserves", &live_reserves);
  m.def("architectures", [] { return std::vector<int>{TRACER_OVERRIDE_ARCHITECTURES}; });
  // What `auto` reads on a device; a row is a tuple (measured_tables.h).
  m.def("set_measured_mm", &set_measured_mm, py::arg("device"), py::arg("faster"), py::arg("slower"));
  m.def("set_measured_cat", &set_measured_cat, py::arg("device"), py::arg("faster"), py::arg("slower"));
  m.def("set_measured_gru", &set_measured_gru, py::arg("device"), py::arg("faster"), py::arg("slower"));
  m.def("gpu_names", &gpu_names);
  // For tuning and tests: which kernel and tile mm takes, and taking another.
  m.def("mm_plans", &mm_plans, py::arg("a"), py::arg("b"));
  m.def("mm_plan", &mm_plan, py::arg("a"), py::arg("b"));
  m.def("pin_mm_plan", &pin_mm_plan, py::arg("plan"));
  m.def("gru_plans", &gru_plans, py::arg("pass_"), py::arg("precision"), py::arg("hidden"));
  m.def("gru_plan", &gru_plan, py::arg("pass_"), py::arg("precision"), py::arg("batch"), py::arg("hidden"), py::arg("directions"));
  m.def("pin_gru_plan", &pin_gru_plan, py::arg("pass_"), py::arg("plan"));
  m.def("pin_gru_step_tile", &pin_gru_step_tile, py::arg("tile"));
}
