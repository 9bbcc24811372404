// The time steps that gru_step.cu leaves to gru_step_groups.cu.
#pragma once

#include "gru.h"

namespace tracer::overrides::gru {

// Whether the current device has warp groups, and they can compute the step.
bool suits_groups(const Step& step);
cudaError_t launch_groups_step(const Step& step, cudaStream_t stream);

}  // namespace tracer::overrides::gru
