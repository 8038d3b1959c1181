/*
 * A preload library that moves one process' wall clock, and nothing else.
 *
 * The offset in nanoseconds is a native int64 at the start of the file that DLOCK_WALLCLOCK_FILE names. The file is
 * mapped, so a test that writes to it moves the clock of the running server at once. CLOCK_MONOTONIC and similar
 * clocks do not change.
 *
 * The true time comes from the system call itself: looking up libc's function would allocate, and the allocator asks
 * for the time while it starts.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define NANOS_PER_SECOND INT64_C(1000000000)

/* NULL until the constructor has run: until then the clock is true. */
static _Atomic int64_t *offset_file;

static int64_t offset(void) {
    return offset_file ? atomic_load_explicit(offset_file, memory_order_relaxed) : 0;
}

static struct timespec moved(struct timespec at, int64_t by) {
    at.tv_sec += by / NANOS_PER_SECOND;
    at.tv_nsec += by % NANOS_PER_SECOND;
    if (at.tv_nsec >= NANOS_PER_SECOND) {
        at.tv_sec += 1;
        at.tv_nsec -= NANOS_PER_SECOND;
    } else if (at.tv_nsec < 0) {
        at.tv_sec -= 1;
        at.tv_nsec += NANOS_PER_SECOND;
    }
    return at;
}

__attribute__((constructor)) static void map_offset(void) {
    const char *path = getenv("DLOCK_WALLCLOCK_FILE");
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0) return;
    void *map = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    if (map != MAP_FAILED) offset_file = map;
}

int clock_gettime(clockid_t clock, struct timespec *at) {
    if (syscall(SYS_clock_gettime, clock, at) != 0) return -1;
    if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE) *at = moved(*at, offset());
    return 0;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone) {
    struct timespec now;
    if (zone && syscall(SYS_gettimeofday, NULL, zone) != 0) return -1;
    if (clock_gettime(CLOCK_REALTIME, &now) != 0) return -1;
    at->tv_sec = now.tv_sec;
    at->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *at) {
    struct timespec now;
    if (clock_gettime(CLOCK_REALTIME, &now) != 0) return (time_t)-1;
    if (at) *at = now.tv_sec;
    return now.tv_sec;
}
