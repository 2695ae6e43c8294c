/* Power fails at a chosen fsync: what a file holds when it is synced is copied aside, and nothing else survives. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static long left = -1; /* how many fsyncs still succeed; below 0: all */
static char survives[4096];

void power_fails_after(long count, const char *folder) {
    left = count;
    snprintf(survives, sizeof survives, "%s", folder);
}

static void keep(int fd) {
    char name[64], path[4096], to[8192], buffer[65536];
    struct stat about;
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(name, path, sizeof path - 1);
    if (length < 0 || !survives[0] || fstat(fd, &about) || !S_ISREG(about.st_mode)) return;
    path[length] = 0;
    snprintf(to, sizeof to, "%s/%s", survives, strrchr(path, '/') + 1);
    int out = open(to, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    for (off_t at = 0; (length = pread(fd, buffer, sizeof buffer, at)) > 0; at += length)
        if (write(out, buffer, length) != length) _exit(98);
    close(out);
}

static int synced(int fd, const char *function) {
    if (left == 0) _exit(99);
    if (left > 0) left--;
    int (*real)(int) = dlsym(RTLD_NEXT, function);
    int status = real(fd);
    keep(fd);
    return status;
}

int fsync(int fd) { return synced(fd, "fsync"); }
int fdatasync(int fd) { return synced(fd, "fdatasync"); }
