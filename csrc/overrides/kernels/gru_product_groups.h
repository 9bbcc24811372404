// The products that gru_product.cu leaves to gru_product_groups.cu.
#pragma once

#include "gru.h"

namespace tracer::overrides::gru {

// Whether the current device has warp groups, and the product is one of theirs.
bool suits_groups(const Product& product);
cudaError_t launch_groups_product(const Product& product, cudaStream_t stream);

}  // namespace tracer::overrides::gru
