// CUDA runtime and driver calls of all threads, as CUPTI calls back at their begin and end.
#pragma once

#include <cupti.h>

#include <atomic>
#include <cstdint>
#include <string>

namespace tracer::cuda {

enum class DriverCalls { kNone, kLaunches, kAll };

// Calls whose native stack was not taken, for there were too many.
extern std::atomic<uint64_t> stacks_not_taken;

// Subscribes to CUPTI; returns "" or why not. `holder` gets the name of the tool that holds CUPTI, if one does. With
// `queries_of_torch` CUPTI tells nothing of calls of the functions that query_calls.h hooks: see_hooked_call() hears of them.
std::string subscribe(DriverCalls driver, bool queries_of_torch, std::string& holder);
// What CUPTI would have told at the begin or the end of a call, with kNoCorrelation. `frame`: that of the hook.
void see_hooked_call(const CUpti_CallbackData* call, uint32_t id, const void* frame) noexcept;
void unsubscribe();
// In a forked child nothing is subscribed. Both give the slots back.
void forget_subscription();

}  // namespace tracer::cuda
