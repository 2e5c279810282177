/*
 * Model: only what lengthens a log is held back, and never beyond the transaction that wrote it. A
 * log is a header of 32 bytes and frames: 24 bytes, of which bytes 4 to 7 are not 0 in the last
 * frame of a transaction, then a page (SQLite's file format). SQLite tells other connections of
 * frames after it wrote the last one of the transaction; that is where what was held back goes out,
 * so whoever looks for a frame finds it, and a failure is the failure of that write.
 *
 * - A write at the end is held back; a full buffer, or the last page of a transaction, is written.
 * - At a write anywhere else what is held back goes first, then this one: frames are written again
 *   in place when a transaction that did not fit its cache goes on.
 * - At anything but a write what is held back goes first, then that.
 *
 * A process that dies loses frames of a transaction that had not been committed. Nothing is synced
 * here that SQLite does not sync.
 */
#include "sql/sqlite_gather.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

#define FRAME_HEADER_BYTES 24
#define BUFFER_BYTES       ((size_t)124 << 10) /* one xWrite of the unix VFS takes below 128 KiB */

/* An open log. */
struct log_file {
    sqlite3_file base;     /* first: what SQLite holds */
    sqlite3_file *real;    /* the system's; behind this struct */
    uint8_t *held;         /* owned: BUFFER_BYTES, NULL before the first write that is held back */
    size_t held_bytes;     /* of it in use */
    sqlite3_int64 held_at; /* where they belong */
    sqlite3_int64 end;     /* of the longest write since the log began anew */
    bool last_frame;       /* the last write was the header of a transaction's last frame */
};

static struct log_file *log_of(sqlite3_file *file)
{
    return (struct log_file *)(void *)file;
}

/* Writes what is held back; a failure drops it, as the transaction fails with it. */
static int write_held(struct log_file *log)
{
    size_t bytes = log->held_bytes;
    log->held_bytes = 0;
    if (bytes == 0)
        return SQLITE_OK;
    return log->real->pMethods->xWrite(log->real, log->held, (int)bytes, log->held_at);
}

static bool ends_transaction(const uint8_t *header)
{
    return (header[4] | header[5] | header[6] | header[7]) != 0;
}

static void hold(struct log_file *log, const void *bytes, size_t count, sqlite3_int64 at)
{
    if (log->held == NULL)
        log->held = sf_malloc(BUFFER_BYTES);
    if (log->held_bytes == 0)
        log->held_at = at;
    memcpy(log->held + log->held_bytes, bytes, count);
    log->held_bytes += count;
}

static int log_write(sqlite3_file *file, const void *bytes, int count, sqlite3_int64 at)
{
    struct log_file *log = log_of(file);
    bool holds = at == log->end && at != 0 && (size_t)count <= BUFFER_BYTES;
    bool ends = log->last_frame;
    int rc = SQLITE_OK;

    if (!holds || log->held_bytes + (size_t)count > BUFFER_BYTES)
        rc = write_held(log);
    if (rc == SQLITE_OK && !holds)
        rc = log->real->pMethods->xWrite(log->real, bytes, count, at);
    if (rc != SQLITE_OK)
        return rc;
    if (holds)
        hold(log, bytes, (size_t)count, at);
    if (at == 0 || at + count > log->end) /* at 0 stands the header: the log begins anew */
        log->end = at + count;
    log->last_frame = count == FRAME_HEADER_BYTES && ends_transaction(bytes);
    return ends ? write_held(log) : SQLITE_OK;
}

static int log_read(sqlite3_file *file, void *bytes, int count, sqlite3_int64 at)
{
    struct log_file *log = log_of(file);
    int rc = write_held(log);
    return rc != SQLITE_OK ? rc : log->real->pMethods->xRead(log->real, bytes, count, at);
}

static int log_truncate(sqlite3_file *file, sqlite3_int64 size)
{
    struct log_file *log = log_of(file);
    int rc = write_held(log);
    return rc != SQLITE_OK ? rc : log->real->pMethods->xTruncate(log->real, size);
}

static int log_sync(sqlite3_file *file, int flags)
{
    struct log_file *log = log_of(file);
    int rc = write_held(log);
    return rc != SQLITE_OK ? rc : log->real->pMethods->xSync(log->real, flags);
}

static int log_size(sqlite3_file *file, sqlite3_int64 *out_size)
{
    struct log_file *log = log_of(file);
    int rc = write_held(log);
    return rc != SQLITE_OK ? rc : log->real->pMethods->xFileSize(log->real, out_size);
}

static int log_close(sqlite3_file *file)
{
    struct log_file *log = log_of(file);
    int rc = write_held(log);
    int closed = log->real->pMethods->xClose(log->real);
    free(log->held);
    log->held = NULL;
    return rc != SQLITE_OK ? rc : closed;
}

static int log_lock(sqlite3_file *file, int level)
{
    struct log_file *log = log_of(file);
    return log->real->pMethods->xLock(log->real, level);
}

static int log_unlock(sqlite3_file *file, int level)
{
    struct log_file *log = log_of(file);
    return log->real->pMethods->xUnlock(log->real, level);
}

static int log_reserved(sqlite3_file *file, int *out_reserved)
{
    struct log_file *log = log_of(file);
    return log->real->pMethods->xCheckReservedLock(log->real, out_reserved);
}

/* Size hints and the like, which may look at the file. */
static int log_control(sqlite3_file *file, int op, void *arg)
{
    struct log_file *log = log_of(file);
    int rc = write_held(log);
    return rc != SQLITE_OK ? rc : log->real->pMethods->xFileControl(log->real, op, arg);
}

static int log_sector_size(sqlite3_file *file)
{
    struct log_file *log = log_of(file);
    return log->real->pMethods->xSectorSize(log->real);
}

static int log_characteristics(sqlite3_file *file)
{
    struct log_file *log = log_of(file);
    return log->real->pMethods->xDeviceCharacteristics(log->real);
}

/* Version 1: a log has no shared memory and is never mapped. */
static const sqlite3_io_methods log_methods = {.iVersion = 1,
                                               .xClose = log_close,
                                               .xRead = log_read,
                                               .xWrite = log_write,
                                               .xTruncate = log_truncate,
                                               .xSync = log_sync,
                                               .xFileSize = log_size,
                                               .xLock = log_lock,
                                               .xUnlock = log_unlock,
                                               .xCheckReservedLock = log_reserved,
                                               .xFileControl = log_control,
                                               .xSectorSize = log_sector_size,
                                               .xDeviceCharacteristics = log_characteristics};

static sqlite3_vfs *real_vfs(sqlite3_vfs *vfs)
{
    return vfs->pAppData;
}

/* All files but a log are the system's own. */
static int gather_open(sqlite3_vfs *vfs, const char *name, sqlite3_file *file, int flags,
                       int *out_flags)
{
    sqlite3_vfs *real = real_vfs(vfs);
    struct log_file *log = log_of(file);

    if ((flags & SQLITE_OPEN_WAL) == 0)
        return real->xOpen(real, name, file, flags, out_flags);
    *log = (struct log_file){.real = (sqlite3_file *)(void *)(log + 1)};
    int rc = real->xOpen(real, name, log->real, flags, out_flags);
    if (log->real->pMethods != NULL)
        log->base.pMethods = &log_methods;
    return rc;
}

int sql_gather_register(void)
{
    static sqlite3_vfs vfs;
    sqlite3_vfs *real = sqlite3_vfs_find(NULL);

    if (real == NULL)
        return SQLITE_ERROR;
    vfs = *real; /* all other calls are the system's, which looks at no VFS of its own in them */
    vfs.pNext = NULL;
    vfs.zName = SQL_GATHER_VFS;
    vfs.pAppData = real;
    vfs.xOpen = gather_open;
    vfs.szOsFile = real->szOsFile + (int)sizeof(struct log_file);
    return sqlite3_vfs_register(&vfs, 0);
}
