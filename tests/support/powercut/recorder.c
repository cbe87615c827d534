/* Writes down what a process does to the files below one folder, in order. Preloaded (LD_PRELOAD) into the process.

   POWERCUT_ROOT   the folder, as an absolute path without symbolic links
   POWERCUT_LOG    where to write; a later process appends
   POWERCUT_KILL   if set: the process ends by SIGKILL when it has done so many operations and begins another one

   One record: struct head, then `first` bytes and `second` bytes. What is written to standard error is recorded too: that
   is how the log of the process tells what was acknowledged, and when. A lock is held around each operation and its
   record, by all processes that write to the same log, so the order of the records is the order of the operations. What
   goes by other ways than these functions (mmap, stdio, system calls by number) is not seen; the tests compare the folder
   with what the records make of it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

struct head {
    uint32_t first, second;
    uint64_t inode;
    int64_t number; /* where bytes were written, a new size, or the flags of open */
    uint32_t kind;  /* a letter, see `Kind` in operations.py */
    uint32_t padding;
};

static char root[PATH_MAX];
static size_t root_size;
static int output = -1;
static long kill_after, done;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static ssize_t (*real_write)(int, const void *, size_t);

#define REAL(name) ((__typeof__(&name))real(#name))

static void *real(const char *name) {
    void *found = dlsym(RTLD_NEXT, name);
    if (found == NULL) {
        fprintf(stderr, "recorder: no %s\n", name);
        abort();
    }
    return found;
}

__attribute__((constructor)) static void begin(void) {
    const char *folder = getenv("POWERCUT_ROOT"), *log = getenv("POWERCUT_LOG"), *end = getenv("POWERCUT_KILL");
    real_write = REAL(write);
    if (folder == NULL || log == NULL) return;
    int opened = REAL(open)(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (opened < 0 || strlen(folder) >= sizeof root) abort();
    output = fcntl(opened, F_DUPFD_CLOEXEC, 500);
    if (output < 0) abort();
    REAL(close)(opened);
    kill_after = end == NULL ? -1 : atol(end);
    root_size = strlen(folder);
    memcpy(root, folder, root_size + 1);
}

static int below(const char *path) {
    return output >= 0 && strncmp(path, root, root_size) == 0 && (path[root_size] == '/' || path[root_size] == 0);
}

/* The path that a name stands for, its folder without symbolic links; tells whether it lies below the root. */
static int locate(int folder, const char *name, char *path) {
    char whole[PATH_MAX * 2], start[PATH_MAX], link[64], parent[PATH_MAX];
    if (output < 0) return 0;
    if (name[0] == '/') {
        snprintf(whole, sizeof whole, "%s", name);
    } else {
        if (folder == AT_FDCWD) {
            if (getcwd(start, sizeof start) == NULL) return 0;
        } else {
            snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
            ssize_t size = readlink(link, start, sizeof start - 1);
            if (size < 0) return 0;
            start[size] = 0;
        }
        snprintf(whole, sizeof whole, "%s/%s", start, name);
    }
    size_t size = strlen(whole);
    while (size > 1 && whole[size - 1] == '/') whole[--size] = 0;
    char *slash = strrchr(whole, '/');
    if (slash == NULL || slash == whole) return 0;
    *slash = 0;
    if (realpath(whole, parent) == NULL) return 0;
    int length = snprintf(path, PATH_MAX, "%s/%s", parent, slash + 1);
    return length < PATH_MAX && below(path);
}

static int located(int fd, char *path, struct stat *status) {
    char link[64];
    if (output < 0 || fd < 0) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, path, PATH_MAX - 1);
    if (size <= 0) return 0;
    path[size] = 0;
    return below(path) && fstat(fd, status) == 0;
}

static void record(char kind, uint64_t inode, int64_t number, const void *first, size_t first_size, const char *second) {
    size_t second_size = second == NULL ? 0 : strlen(second);
    struct head head = {(uint32_t)first_size, (uint32_t)second_size, inode, number, (uint32_t)kind, 0};
    struct iovec parts[] = {{&head, sizeof head}, {(void *)first, first_size}, {(void *)second, second_size}};
    ssize_t expected = (ssize_t)(sizeof head + first_size + second_size);
    if (REAL(writev)(output, parts, 3) != expected) abort();
    if (kind != 'n') done++;
}

static void enter(void) {
    pthread_mutex_lock(&lock);
    while (flock(output, LOCK_EX) != 0 && errno == EINTR) {
    }
    if (done == kill_after) kill(getpid(), SIGKILL);
}

static void leave(void) {
    int saved = errno;
    flock(output, LOCK_UN);
    pthread_mutex_unlock(&lock);
    errno = saved;
}

/* Does an operation under the lock, and records it if it succeeded. */
#define RECORDED(call, ...)               \
    enter();                              \
    __typeof__(call) result = call;       \
    if (result >= 0) {                    \
        __VA_ARGS__;                      \
    }                                     \
    leave();                              \
    return result

static int opened(int folder, const char *name, int flags, mode_t mode) {
    char path[PATH_MAX];
    struct stat status;
    if (!(flags & (O_CREAT | O_TRUNC)) || !locate(folder, name, path)) return REAL(openat)(folder, name, flags, mode);
    RECORDED(REAL(openat)(folder, name, flags, mode), if (fstat(result, &status) == 0)
             record('o', status.st_ino, flags & O_TRUNC ? 1 : 0, path, strlen(path), NULL));
}

#define MODE                               \
    mode_t mode = 0;                       \
    if (flags & (O_CREAT | O_TMPFILE)) {   \
        va_list rest;                      \
        va_start(rest, flags);             \
        mode = (mode_t)va_arg(rest, int);  \
        va_end(rest);                      \
    }

int open(const char *name, int flags, ...) { MODE return opened(AT_FDCWD, name, flags, mode); }
int open64(const char *name, int flags, ...) { MODE return opened(AT_FDCWD, name, flags, mode); }
int openat(int folder, const char *name, int flags, ...) { MODE return opened(folder, name, flags, mode); }
int openat64(int folder, const char *name, int flags, ...) { MODE return opened(folder, name, flags, mode); }
int creat(const char *name, mode_t mode) { return opened(AT_FDCWD, name, O_WRONLY | O_CREAT | O_TRUNC, mode); }
int creat64(const char *name, mode_t mode) { return creat(name, mode); }

ssize_t write(int fd, const void *bytes, size_t size) {
    char path[PATH_MAX];
    struct stat status;
    if (fd == 2 && output >= 0) {
        pthread_mutex_lock(&lock);
        while (flock(output, LOCK_EX) != 0 && errno == EINTR) {
        }
        record('n', 0, 0, bytes, size, NULL);
        leave();
        return real_write(fd, bytes, size);
    }
    if (!located(fd, path, &status)) return real_write(fd, bytes, size);
    int appends = fcntl(fd, F_GETFL) & O_APPEND;
    enter();
    fstat(fd, &status);
    int64_t at = appends ? status.st_size : lseek(fd, 0, SEEK_CUR);
    ssize_t result = real_write(fd, bytes, size);
    if (result > 0) record('w', status.st_ino, at, bytes, (size_t)result, NULL);
    leave();
    return result;
}

ssize_t pwrite(int fd, const void *bytes, size_t size, off_t at) {
    char path[PATH_MAX];
    struct stat status;
    if (!located(fd, path, &status)) return REAL(pwrite)(fd, bytes, size, at);
    RECORDED(REAL(pwrite)(fd, bytes, size, at), record('w', status.st_ino, at, bytes, (size_t)result, NULL));
}
ssize_t pwrite64(int fd, const void *bytes, size_t size, off_t at) { return pwrite(fd, bytes, size, at); }

ssize_t writev(int fd, const struct iovec *parts, int count) {
    char path[PATH_MAX];
    struct stat status;
    if (!located(fd, path, &status)) return REAL(writev)(fd, parts, count);
    int part = 0;
    while (part < count - 1 && parts[part].iov_len == 0) part++;
    return write(fd, parts[part].iov_base, parts[part].iov_len); /* less than all: the caller goes on with the rest */
}

static int truncated(int fd, off_t size) {
    char path[PATH_MAX];
    struct stat status;
    if (!located(fd, path, &status)) return REAL(ftruncate)(fd, size);
    RECORDED(REAL(ftruncate)(fd, size), record('t', status.st_ino, size, NULL, 0, NULL));
}
int ftruncate(int fd, off_t size) { return truncated(fd, size); }
int ftruncate64(int fd, off_t size) { return truncated(fd, size); }

static int synced(int fd, int (*sync)(int)) {
    char path[PATH_MAX];
    struct stat status;
    if (!located(fd, path, &status)) return sync(fd);
    char kind = S_ISDIR(status.st_mode) ? 'S' : 's';
    RECORDED(sync(fd), record(kind, status.st_ino, 0, path, strlen(path), NULL));
}
int fsync(int fd) { return synced(fd, REAL(fsync)); }
int fdatasync(int fd) { return synced(fd, REAL(fdatasync)); }

int linkat(int from, const char *old, int to, const char *name, int flags) {
    char source[PATH_MAX], target[PATH_MAX];
    if (!locate(from, old, source) || !locate(to, name, target)) return REAL(linkat)(from, old, to, name, flags);
    RECORDED(REAL(linkat)(from, old, to, name, flags), record('l', 0, 0, source, strlen(source), target));
}
int link(const char *old, const char *name) { return linkat(AT_FDCWD, old, AT_FDCWD, name, 0); }

int renameat(int from, const char *old, int to, const char *name) {
    char source[PATH_MAX], target[PATH_MAX];
    if (!locate(from, old, source) || !locate(to, name, target)) return REAL(renameat)(from, old, to, name);
    RECORDED(REAL(renameat)(from, old, to, name), record('r', 0, 0, source, strlen(source), target));
}
int rename(const char *old, const char *name) { return renameat(AT_FDCWD, old, AT_FDCWD, name); }

int unlinkat(int folder, const char *name, int flags) {
    char path[PATH_MAX];
    if (!locate(folder, name, path)) return REAL(unlinkat)(folder, name, flags);
    RECORDED(REAL(unlinkat)(folder, name, flags), record('u', 0, 0, path, strlen(path), NULL));
}
int unlink(const char *name) { return unlinkat(AT_FDCWD, name, 0); }
int rmdir(const char *name) { return unlinkat(AT_FDCWD, name, AT_REMOVEDIR); }

int mkdirat(int folder, const char *name, mode_t mode) {
    char path[PATH_MAX];
    if (!locate(folder, name, path)) return REAL(mkdirat)(folder, name, mode);
    RECORDED(REAL(mkdirat)(folder, name, mode), record('m', 0, 0, path, strlen(path), NULL));
}
int mkdir(const char *name, mode_t mode) { return mkdirat(AT_FDCWD, name, mode); }
