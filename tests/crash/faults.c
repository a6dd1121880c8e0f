/* Faults between a program and the system, for whoever is started with this library in LD_PRELOAD.

   Every call that changes a file or a folder whose path contains the armed name is counted; at one of them the process is
   killed by SIGKILL, before it, after it or half-way through what it writes, or stopped by SIGSTOP, or the call fails. Memory that is mapped to such a file
   counts too: each store to it. All calls, with their data, can be written to a log, from which power cuts are played.
   Nothing happens before `faults_arm` or `faults_log`. */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <ucontext.h>
#include <unistd.h>

enum { WRITE = 1, SYNC = 2, TRUNCATE = 4, CREATE = 8, REMOVE = 16, STORE = 32, RENAME = 64 };
enum { NEVER, BEFORE, AFTER, TORN, ONCE, EVER, STOP };
enum { GO_ON, FAIL, HALF, THEN_DIE };
enum { RANGES = 64 };

static char armed_name[PATH_MAX], logged_name[PATH_MAX];
static unsigned armed_kinds;
static int armed_mode, armed_error, fired, is_owed, log_file = -1;
static long armed_at, seen;
static struct { char *start; size_t length; } ranges[RANGES];
static int range_count, is_stepping;

static void die(void) {
    syscall(SYS_kill, syscall(SYS_getpid), SIGKILL);
    for (;;) ;
}

static void protect(int how) {
    for (int i = 0; i < range_count; i++) mprotect(ranges[i].start, ranges[i].length, how);
}

/* Say what becomes of a call that is due to be counted. A full disk takes a part of what is written before it refuses. */
static int judged(unsigned kind, const char *path, size_t size) {
#ifndef __x86_64__
    protect(PROT_READ); /* without single steps the first store after each call is seen */
#endif
    if (!(armed_kinds & kind) || !strstr(path, armed_name)) return GO_ON;
    long number = ++seen;
    if (is_owed && kind == WRITE) { is_owed = 0; return FAIL; }
    if (number != armed_at && !(armed_mode == EVER && number > armed_at)) return GO_ON;
    int is_first = !fired;
    fired = 1;
    if (armed_mode == BEFORE) die();
    if (armed_mode == AFTER) return THEN_DIE;
    if (armed_mode == STOP) { syscall(SYS_kill, syscall(SYS_getpid), SIGSTOP); return GO_ON; }
    if (armed_mode == TORN) return size > 1 ? HALF : THEN_DIE;
    if (armed_error == ENOSPC && kind == WRITE && is_first && size > 1) { is_owed = 1; return HALF; }
    return FAIL;
}

static long ended(int verdict, long result) {
    if (verdict == THEN_DIE || (verdict == HALF && armed_mode == TORN)) die();
    return result;
}

static long failed(void) {
    errno = armed_error;
    return -1;
}

/* -- the log: kind, length of the path, offset (of a new file: its mode), length of the data, all as 8 bytes; then both texts */

static void note(char kind, const char *path, int64_t offset, const void *data, size_t size) {
    if (log_file < 0 || (kind != 'M' && !strstr(path, logged_name))) return;
    int64_t head[4] = {kind, (int64_t)strlen(path), offset, (int64_t)size};
    struct iovec parts[3] = {{head, sizeof head}, {(void *)path, strlen(path)}, {(void *)data, size}};
    int saved = errno;
    if (syscall(SYS_writev, log_file, parts, 3) != (long)(sizeof head + strlen(path) + size)) die();
    errno = saved;
}

static const char *path_of(int file, char *path) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, PATH_MAX - 1);
    path[length < 0 ? 0 : length] = 0;
    return path;
}

static const char *absolute(const char *name, char *path) {
    if (*name == '/' || !getcwd(path, PATH_MAX)) return name;
    size_t length = strlen(path);
    snprintf(path + length, PATH_MAX - length, "/%s", name);
    return path;
}

/* -- what is written */

static ssize_t put(int file, const void *data, size_t size, off_t offset, int has_offset) {
    char path[PATH_MAX];
    int saved = errno;
    int verdict = judged(WRITE, path_of(file, path), size);
    errno = saved;
    if (verdict == FAIL) return failed();
    if (verdict == HALF) size /= 2;
    ssize_t written = has_offset ? syscall(SYS_pwrite64, file, data, size, offset) : syscall(SYS_write, file, data, size);
    if (written > 0 && !has_offset && log_file >= 0) offset = syscall(SYS_lseek, file, 0, SEEK_CUR) - written;
    if (written > 0) note('W', path, offset, data, written);
    return ended(verdict, written);
}

ssize_t write(int file, const void *data, size_t size) { return put(file, data, size, 0, 0); }
ssize_t pwrite(int file, const void *data, size_t size, off_t offset) { return put(file, data, size, offset, 1); }
ssize_t pwrite64(int file, const void *data, size_t size, off_t offset) { return put(file, data, size, offset, 1); }

static int flush(int file, long call) {
    char path[PATH_MAX];
    int verdict = judged(SYNC, path_of(file, path), 0);
    if (verdict == FAIL) {
        note('X', path, 0, "", 0);
        return failed();
    }
    int result = syscall(call, file);
    if (result == 0) note('F', path, 0, "", 0);
    return ended(verdict, result);
}

int fsync(int file) { return flush(file, SYS_fsync); }
int fdatasync(int file) { return flush(file, SYS_fdatasync); }

static int cut(int file, off_t length) {
    char path[PATH_MAX];
    int verdict = judged(TRUNCATE, path_of(file, path), 0);
    if (verdict == FAIL) return failed();
    int result = syscall(SYS_ftruncate, file, length);
    if (result == 0) note('T', path, length, "", 0);
    return ended(verdict, result);
}

int ftruncate(int file, off_t length) { return cut(file, length); }
int ftruncate64(int file, off_t length) { return cut(file, length); }

/* -- names */

static int opened(int folder, const char *name, int flags, va_list rest) {
    char room[PATH_MAX];
    unsigned mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, unsigned) : 0;
    const char *path = absolute(name, room);
    int is_new = (flags & O_CREAT) && syscall(SYS_faccessat, folder, name, F_OK) != 0;
    int verdict = is_new ? judged(CREATE, path, 0) : GO_ON;
    if (verdict == FAIL) return failed();
    int file = syscall(SYS_openat, folder, name, flags, mode);
    struct stat about;
    if (is_new && file >= 0 && fstat(file, &about) == 0) note('C', path, about.st_mode & 0777, "", 0);
    return ended(verdict, file);
}

#define OPENS(NAME_, PARAMETERS, FOLDER) \
    int NAME_ PARAMETERS { \
        va_list rest; \
        va_start(rest, flags); \
        int file = opened(FOLDER, name, flags, rest); \
        va_end(rest); \
        return file; \
    }
OPENS(open, (const char *name, int flags, ...), AT_FDCWD)
OPENS(open64, (const char *name, int flags, ...), AT_FDCWD)
OPENS(openat, (int folder, const char *name, int flags, ...), folder)
OPENS(openat64, (int folder, const char *name, int flags, ...), folder)

static int removed(int folder, const char *name, int flags) {
    char room[PATH_MAX];
    const char *path = absolute(name, room);
    int verdict = judged(REMOVE, path, 0);
    if (verdict == FAIL) return failed();
    int result = syscall(SYS_unlinkat, folder, name, flags);
    if (result == 0) note('U', path, 0, "", 0);
    return ended(verdict, result);
}

int unlink(const char *name) { return removed(AT_FDCWD, name, 0); }
int unlinkat(int folder, const char *name, int flags) { return removed(folder, name, flags); }

int rename(const char *old, const char *new) {
    char room[PATH_MAX], other[PATH_MAX];
    const char *path = absolute(old, room), *target = absolute(new, other);
    int verdict = judged(RENAME, path, 0);
    if (verdict == FAIL) return failed();
    int result = syscall(SYS_renameat2, AT_FDCWD, old, AT_FDCWD, new, 0);
    if (result == 0) note('R', path, 0, target, strlen(target));
    return ended(verdict, result);
}

int mkdir(const char *name, mode_t mode) {
    char room[PATH_MAX];
    const char *path = absolute(name, room);
    int verdict = judged(CREATE, path, 0);
    if (verdict == FAIL) return failed();
    int result = syscall(SYS_mkdirat, AT_FDCWD, name, mode);
    if (result == 0) note('D', path, 0, "", 0);
    return ended(verdict, result);
}

/* -- stores to mapped memory: each one traps; after it the memory is closed again */

static int is_mapped(const char *address) {
    for (int i = 0; i < range_count; i++)
        if (address >= ranges[i].start && address < ranges[i].start + ranges[i].length) return 1;
    return 0;
}

static void stored(int number, siginfo_t *info, void *context) {
    if (!is_mapped(info->si_addr)) {
        signal(number, SIG_DFL);
        return;
    }
    int is_due = ++seen == armed_at;
    fired |= is_due;
    if (is_due && armed_mode == BEFORE) die();
    protect(PROT_READ | PROT_WRITE);
#ifdef __x86_64__
    is_stepping = 1;
    ((ucontext_t *)context)->uc_mcontext.gregs[REG_EFL] |= 0x100;
#endif
}

#ifdef __x86_64__
static void stepped(int number, siginfo_t *info, void *context) {
    (void)number, (void)info;
    if (!is_stepping) return;
    is_stepping = 0;
    ((ucontext_t *)context)->uc_mcontext.gregs[REG_EFL] &= ~0x100ll;
    protect(PROT_READ);
}
#endif

static void watch(void) {
    struct sigaction action = {.sa_sigaction = stored, .sa_flags = SA_SIGINFO};
    sigaction(SIGSEGV, &action, NULL);
#ifdef __x86_64__
    action.sa_sigaction = stepped;
    sigaction(SIGTRAP, &action, NULL);
#endif
}

static void *mapped(void *address, size_t length, int how, int flags, int file, off_t offset) {
    void *start = (void *)syscall(SYS_mmap, address, length, how, flags, file, offset);
    if (!(armed_kinds & STORE) || file < 0 || start == MAP_FAILED || !(how & PROT_WRITE) || !(flags & MAP_SHARED))
        return start;
    char path[PATH_MAX];
    if (!strstr(path_of(file, path), armed_name) || range_count == RANGES) return start;
    ranges[range_count].start = start;
    ranges[range_count++].length = length;
    mprotect(start, length, PROT_READ);
    return start;
}

void *mmap(void *address, size_t length, int how, int flags, int file, off_t offset) {
    return mapped(address, length, how, flags, file, offset);
}
void *mmap64(void *address, size_t length, int how, int flags, int file, off_t offset) {
    return mapped(address, length, how, flags, file, offset);
}

int munmap(void *address, size_t length) {
    for (int i = 0; i < range_count; i++)
        if (ranges[i].start == (char *)address) ranges[i--] = ranges[--range_count];
    return syscall(SYS_munmap, address, length);
}

/* -- for the program */

void faults_arm(const char *name, unsigned kinds, int mode, long at, int error) {
    snprintf(armed_name, sizeof armed_name, "%s", name);
    armed_kinds = kinds, armed_mode = mode, armed_at = at, armed_error = error;
    seen = fired = is_owed = 0;
    if (kinds & STORE) watch();
}

long faults_seen(void) { return seen; }
int faults_fired(void) { return fired; }

void faults_log(const char *name, int file) {
    snprintf(logged_name, sizeof logged_name, "%s", name);
    log_file = file;
}

void faults_mark(const char *said) { note('M', "", 0, said, strlen(said)); }
