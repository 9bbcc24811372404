// Which tensors of a call share memory, and where in it each begins. For `tracer record --values scalars`.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

namespace tracer::dispatch {

class SharedMemory {
 public:
  // In the order of the signature.
  void add(const at::Tensor& tensor);

  // To be called once, after the last add(): whether any two tensors share memory.
  bool found();

  // Of the next tensor: `[0,64]`, the number of its memory in this call and the offset of its first element in bytes,
  // from the lowest first element of those that share it; `null` if it shares none.
  std::string next();

 private:
  struct Place {
    const void* storage = nullptr;  // null: not known
    uintptr_t begin = 0, end = 0;   // of the storage; equal: it has no address
    int64_t first = 0;              // the address of the first element, or its offset where there is no address
    int device = 0, group = -1;
  };
  static bool share(const Place& one, const Place& other);

  std::vector<Place> places_;
  std::vector<int64_t> lowest_;  // by group
  size_t next_ = 0;
};

}  // namespace tracer::dispatch
