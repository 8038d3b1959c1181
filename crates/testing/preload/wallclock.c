/*
 * A preload library that moves one process' wall clock, or its CLOCK_BOOTTIME, and nothing else.
 *
 * The offsets in nanoseconds are two native int64 at the start of the file that DLOCK_WALLCLOCK_FILE names. The file is
 * mapped, so a test that writes to it moves the clocks of the running process at once. CLOCK_MONOTONIC does not change:
 * after a suspend of the machine, CLOCK_BOOTTIME is ahead of it. /proc/uptime has the time of CLOCK_BOOTTIME. A third
 * int64 becomes 1 when the process reads a clock: a static binary, or one that reads its clocks itself, never sets it.
 *
 * The true time comes from the system call itself: looking up libc's function would allocate, and the allocator asks
 * for the time while it starts.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/memfd.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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
    int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (fd < 0) return;
    void *map = mmap(NULL, 3 * sizeof(int64_t), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (map != MAP_FAILED) offset_file = map;
}

int clock_gettime(clockid_t clock, struct timespec *at) {
    if (syscall(SYS_clock_gettime, clock, at) != 0) return -1;
    if (offset_file) atomic_store_explicit(offset_file + 2, 1, memory_order_relaxed);
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

/* A file with the moved uptime. */
static int open_uptime(void) {
    struct timespec now;
    if (clock_gettime(CLOCK_BOOTTIME, &now) != 0) return -1;
    int fd = (int)syscall(SYS_memfd_create, "uptime", MFD_CLOEXEC);
    if (fd < 0) return -1;
    if (dprintf(fd, "%lld.%02ld 0.00\n", (long long)now.tv_sec, now.tv_nsec / 10000000) < 0 ||
        lseek(fd, 0, SEEK_SET) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

static int open_any(const char *path, int flags, va_list rest) {
    if (offset(1) != 0 && strcmp(path, "/proc/uptime") == 0) return open_uptime();
    int creates = (flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE;
    mode_t mode = creates ? (mode_t)va_arg(rest, int) : 0;
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

int open(const char *path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    int fd = open_any(path, flags, rest);
    va_end(rest);
    return fd;
}

int open64(const char *path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    int fd = open_any(path, flags | O_LARGEFILE, rest);
    va_end(rest);
    return fd;
}
