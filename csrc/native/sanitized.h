// Tells ThreadSanitizer that one thread hands something to another through code that it does not watch.
#pragma once

#ifdef __SANITIZE_THREAD__
extern "C" void __tsan_acquire(void* address);
extern "C" void __tsan_release(void* address);
#endif

namespace tracer::native {

// What was written to it before is seen by whoever takes it. The store that publishes it releases; who reads it is torch,
// and each read depends on the pointer.
inline void handed_over([[maybe_unused]] const void* address) {
#ifdef __SANITIZE_THREAD__
  __tsan_release(const_cast<void*>(address));
#endif
}

inline void taken_over([[maybe_unused]] const void* address) {
#ifdef __SANITIZE_THREAD__
  __tsan_acquire(const_cast<void*>(address));
#endif
}

}  // namespace tracer::native
