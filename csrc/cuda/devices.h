// The GPUs, as the driver describes them.
#pragma once

namespace tracer::cuda {

// CUPTI describes a GPU when a context is made on it: for a recording that begins later, the driver's word is put into the
// trace, under CUPTI's names. Nothing happens where the driver is not loaded.
void define_devices();

}  // namespace tracer::cuda
