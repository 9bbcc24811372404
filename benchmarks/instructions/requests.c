/* Valgrind's client requests as functions, for ctypes. They do nothing where valgrind is not around. */
#include <valgrind/callgrind.h>

void count_from_here(void) { CALLGRIND_START_INSTRUMENTATION; }
void count_from_zero(void) { CALLGRIND_ZERO_STATS; }
void say_count(const char* name) { CALLGRIND_DUMP_STATS_AT(name); }
