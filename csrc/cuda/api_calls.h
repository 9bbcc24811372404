// CUDA runtime and driver calls of all threads, as CUPTI calls back at their begin and end.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

namespace tracer::cuda {

enum class DriverCalls { kNone, kLaunches, kAll };

// Calls whose native stack was not taken, for there were too many.
extern std::atomic<uint64_t> stacks_not_taken;

// Subscribes to CUPTI; returns "" or why not. `holder` gets the name of the tool that holds CUPTI, if one does.
std::string subscribe(DriverCalls driver, std::string& holder);
void unsubscribe();
// In a forked child nothing is subscribed.
void forget_subscription();

}  // namespace tracer::cuda
