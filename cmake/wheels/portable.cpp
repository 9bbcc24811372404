// glibc 2.32 says here whether a process has one thread only, for which libstdc++ then counts references without locks. An older
// libc does not, so a wheel's extension has an answer of its own: there may be more.
extern "C" {
__attribute__((visibility("hidden"))) char __libc_single_threaded = 0;
}
