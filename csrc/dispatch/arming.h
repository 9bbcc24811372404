// Puts hops into the dispatch table and takes them out again.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tracer::dispatch {

struct NamedEntry {
  std::string op, key;
  std::string why;
};

struct ArmingResult {
  size_t entries = 0;    // table entries that run a kernel
  size_t hooked = 0;     // of these, entries that hold a hop now
  size_t operators = 0;
  double seconds = 0;
};

struct ArmingState {
  size_t entries = 0, hooked = 0;
  size_t rearmed = 0;                       // entries wrapped again after a registration, since the last arming
  std::vector<NamedEntry> not_hooked;       // entries that could not be wrapped
  std::vector<NamedEntry> lost;             // entries found without their hop
  std::vector<std::string> other_signatures;  // operators that torch calls otherwise than tracer was built for: boxed hops
  bool call_sites = false;                  // return addresses tell calls from redispatches
  bool guards_update = false, guards_check = false;  // updateDispatchTableEntry_ and checkInvariants come to us
};

// Wraps every entry that runs a kernel, of the operators whose name matches one of the patterns (none: of all).
// Without the GIL: waits for the dispatcher's lock.
ArmingResult arm(const std::vector<std::string>& operators);
// Names the Python kernels that were wrapped by threads without the GIL. Takes the GIL.
void name_python_kernels();
// Puts every entry back as it was found. Hops stay valid: threads may be inside.
void restore();
// The addresses of the kernel functions and boxed functions of the hops that the running recording describes.
std::vector<uint64_t> recorded_kernels();
// Compares all entries with what arming left there.
ArmingState compare();

}  // namespace tracer::dispatch
