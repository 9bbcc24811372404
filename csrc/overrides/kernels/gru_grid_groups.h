// The sequences that gru_grid.cu leaves to gru_grid_groups.cu: all precisions but kFloat32. See grid_plan() in gru.h.
#pragma once

#include "gru.h"

namespace tracer::overrides::gru {

GridPlan groups_plan(Precision precision, int batch, int hidden);
size_t groups_workspace(const Forward& forward, const GridPlan& plan);
cudaError_t launch_groups(const Forward& forward, const GridPlan& plan, void* workspace, cudaStream_t stream);

}  // namespace tracer::overrides::gru
