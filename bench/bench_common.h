/* What the benchmarks share: clocks, CPU and memory of a process, latencies, folders. */
#ifndef SF_BENCH_COMMON_H
#define SF_BENCH_COMMON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Ends the program with a message when `ok` is false. */
void bench_must(bool ok, const char *what);

/* Monotonic time. */
int64_t bench_now_ns(void);

/* User and system time of a process, in microseconds. */
double bench_cpu_us(pid_t pid);

/* User and system time of this process so far, in seconds. */
double bench_own_cpu_seconds(void);

/* Resident memory of a process, in KiB. */
long bench_rss_kib(pid_t pid);

/* Size of all files below a folder. */
uint64_t bench_folder_bytes(const char *folder);

/* Removes a folder and what is in it. */
void bench_remove_folder(const char *folder);

/* Writes all of it to a pipe, or ends the program; reads all of it, false when the pipe ended. */
void bench_write_all(int fd, const void *data, size_t len);
bool bench_read_all(int fd, void *data, size_t len);

/* Sorts samples; the value below which `per_mille` of them lie. */
void bench_sort(uint32_t *samples, size_t count);
uint32_t bench_quantile(const uint32_t *sorted, size_t count, unsigned per_mille);

#endif
