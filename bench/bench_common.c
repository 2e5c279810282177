#include "bench_common.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"

void bench_must(bool ok, const char *what)
{
    if (ok)
        return;
    (void)fprintf(stderr, "benchmark: %s failed\n", what);
    exit(1);
}

int64_t bench_now_ns(void)
{
    return sf_clock_mono_ns(sf_clock_system());
}

double bench_cpu_us(pid_t pid)
{
    char path[64], text[1024];
    unsigned long user = 0, sys = 0;

    (void)snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "r");
    if (file == NULL)
        return 0;
    size_t n = fread(text, 1, sizeof(text) - 1, file);
    (void)fclose(file);
    text[n] = '\0';
    const char *rest = strrchr(text, ')');
    if (rest == NULL ||
        sscanf(rest + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &sys) != 2)
        return 0;
    return (double)(user + sys) * 1e6 / (double)sysconf(_SC_CLK_TCK);
}

double bench_own_cpu_seconds(void)
{
    struct rusage u;

    (void)getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

long bench_rss_kib(pid_t pid)
{
    char path[64];
    long pages = 0;

    (void)snprintf(path, sizeof(path), "/proc/%d/statm", (int)pid);
    FILE *file = fopen(path, "r");
    if (file == NULL || fscanf(file, "%*d %ld", &pages) != 1)
        pages = 0;
    if (file != NULL)
        (void)fclose(file);
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

static uint64_t folder_bytes; /* of the walk under way */

static int add_one(const char *path, const struct stat *st, int type, struct FTW *walk)
{
    (void)path;
    (void)walk;
    if (type == FTW_F)
        folder_bytes += (uint64_t)st->st_size;
    return 0;
}

uint64_t bench_folder_bytes(const char *folder)
{
    folder_bytes = 0;
    (void)nftw(folder, add_one, 16, FTW_PHYS);
    return folder_bytes;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *walk)
{
    (void)st;
    (void)type;
    (void)walk;
    return remove(path);
}

void bench_remove_folder(const char *folder)
{
    (void)nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static int by_value(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a;
    uint32_t y = *(const uint32_t *)b;

    return (x > y) - (x < y);
}

void bench_sort(uint32_t *samples, size_t count)
{
    qsort(samples, count, sizeof(samples[0]), by_value);
}

uint32_t bench_quantile(const uint32_t *sorted, size_t count, unsigned per_mille)
{
    if (count == 0)
        return 0;
    size_t at = count * per_mille / 1000;
    return sorted[at < count ? at : count - 1];
}

void bench_write_all(int fd, const void *data, size_t len)
{
    bench_must(write(fd, data, len) == (ssize_t)len, "writing to a pipe");
}

bool bench_read_all(int fd, void *data, size_t len)
{
    for (size_t done = 0; done < len;) {
        ssize_t n = read(fd, (char *)data + done, len - done);
        if (n <= 0)
            return false;
        done += (size_t)n;
    }
    return true;
}
