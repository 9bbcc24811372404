// The plans of mm, for tuning and tests.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <vector>

namespace tracer::overrides {

// The names of all plans that can compute a @ b, and of the one that is taken; empty where the override hands over.
std::vector<std::string> mm_plans(const at::Tensor& a, const at::Tensor& b);
std::string mm_plan(const at::Tensor& a, const at::Tensor& b);
// From now on mm and addmm take this plan, or hand over where it does not apply; without a name as before.
void pin_mm_plan(const std::optional<std::string>& plan);

}  // namespace tracer::overrides
