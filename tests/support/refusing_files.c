/* A layer below a process that refuses what some file systems do not have. In $REFUSE, with commas:

   flock    flock and locks of fcntl: ENOSYS, as Lustre mounted without -o flock
   fsync    fsync of folders: EINVAL, as CIFS
   chmod    chmod in each form: EPERM, as SMB
   Only below $REFUSE_BELOW. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int refuses(const char *what) {
    const char *list = getenv("REFUSE");
    return list != NULL && strstr(list, what) != NULL;
}

static int below(const char *path) {
    const char *folder = getenv("REFUSE_BELOW");
    return folder != NULL && strncmp(path, folder, strlen(folder)) == 0;
}

static int open_below(int descriptor) {
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t size = readlink(link, path, sizeof path - 1);
    if (size < 0) return 0;
    path[size] = 0;
    return below(path);
}

int flock(int descriptor, int operation) {
    if (refuses("flock") && open_below(descriptor)) { errno = ENOSYS; return -1; }
    int (*real)(int, int) = dlsym(RTLD_NEXT, "flock");
    return real(descriptor, operation);
}

static int control(const char *name, int descriptor, int command, void *argument) {
    int locks = command == F_SETLK || command == F_SETLKW || command == F_OFD_SETLK || command == F_OFD_SETLKW;
    if (locks && refuses("flock") && open_below(descriptor)) { errno = ENOSYS; return -1; }
    int (*real)(int, int, ...) = dlsym(RTLD_NEXT, name);
    return real(descriptor, command, argument);
}

int fcntl(int descriptor, int command, ...) {
    va_list rest;
    va_start(rest, command);
    void *argument = va_arg(rest, void *);
    va_end(rest);
    return control("fcntl", descriptor, command, argument);
}

int fcntl64(int descriptor, int command, ...) {
    va_list rest;
    va_start(rest, command);
    void *argument = va_arg(rest, void *);
    va_end(rest);
    return control("fcntl64", descriptor, command, argument);
}

int fsync(int descriptor) {
    struct stat about;
    if (refuses("fsync") && fstat(descriptor, &about) == 0 && S_ISDIR(about.st_mode) && open_below(descriptor)) {
        errno = EINVAL;
        return -1;
    }
    int (*real)(int) = dlsym(RTLD_NEXT, "fsync");
    return real(descriptor);
}

int fchmod(int descriptor, mode_t mode) {
    if (refuses("chmod") && open_below(descriptor)) { errno = EPERM; return -1; }
    int (*real)(int, mode_t) = dlsym(RTLD_NEXT, "fchmod");
    return real(descriptor, mode);
}

int chmod(const char *path, mode_t mode) {
    if (refuses("chmod") && below(path)) { errno = EPERM; return -1; }
    int (*real)(const char *, mode_t) = dlsym(RTLD_NEXT, "chmod");
    return real(path, mode);
}

int fchmodat(int folder, const char *path, mode_t mode, int flags) {
    if (refuses("chmod") && below(path)) { errno = EPERM; return -1; }
    int (*real)(int, const char *, mode_t, int) = dlsym(RTLD_NEXT, "fchmodat");
    return real(folder, path, mode, flags);
}
