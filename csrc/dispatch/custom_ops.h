// Hops of custom operators (torch.library.custom_op), whose kernel function torch chooses at each call.
#pragma once

#include "hop.h"

namespace tracer::dispatch {

// Of a hop with a Python kernel, the hop of the function that runs at this call: itself, unless the kernel is a
// custom operator's.
Hop* hop_of_function(Hop* hop);
// Names such a hop after the user's function. Takes the GIL.
void name_after_user(Hop* hop);

}  // namespace tracer::dispatch
