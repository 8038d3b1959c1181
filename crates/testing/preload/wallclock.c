/*
 * A preload library that moves one process' wall clock, or its CLOCK_BOOTTIME, and nothing else.
 *
 * The offsets in nanoseconds are two native int64 at the start of the file that DLOCK_WALLCLOCK_FILE names. The file is
 * mapped, so a test that writes to it moves the clocks of the running process at once. CLOCK_MONOTONIC does not change:
 * after a suspend of the machine, CLOCK_BOOTTIME is ahead of it.
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

static int64_t offset(int which) {
    return offset_file ? atomic_load_explicit(offset_file + which, memory_order_relaxed) : 0;
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
    void *map = mmap(NULL, 2 * sizeof(int64_t), PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    if (map != MAP_FAILED) offset_file = map;
}

int clock_gettime(clockid_t clock, struct timespec *at) {
    if (syscall(SYS_clock_gettime, clock, at) != 0) return -1;
    if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE) *at = moved(*at, offset(0));
    if (clock == CLOCK_BOOTTIME) *at = moved(*at, offset(1));
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
