// Are the sizes in this machine's pyconfig.h those of the processor that is compiled for? Then its Python.h serves.
#include <Python.h>

static_assert(sizeof(short) == SIZEOF_SHORT && sizeof(int) == SIZEOF_INT && sizeof(long) == SIZEOF_LONG);
static_assert(sizeof(long long) == SIZEOF_LONG_LONG && sizeof(void*) == SIZEOF_VOID_P && sizeof(size_t) == SIZEOF_SIZE_T);
static_assert(sizeof(float) == SIZEOF_FLOAT && sizeof(double) == SIZEOF_DOUBLE && sizeof(wchar_t) == SIZEOF_WCHAR_T);
static_assert(sizeof(pid_t) == SIZEOF_PID_T && sizeof(off_t) == SIZEOF_OFF_T && sizeof(time_t) == SIZEOF_TIME_T);
static_assert(sizeof(pthread_t) == SIZEOF_PTHREAD_T && sizeof(uintptr_t) == SIZEOF_UINTPTR_T);
static_assert(PY_LITTLE_ENDIAN == (__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__));
