/*
 * Opening: one writer connection, the schema, then the readers. What the options say is copied,
 * since connections are made anew later.
 */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/file.h"
#include "base/limits.h"
#include "base/mem.h"
#include "sql/sql_priv.h"

#define DEFAULT_READERS    2u
#define MAX_PASSWORD_BYTES 1024u

static const struct sql_backend *const backends[] = {
    [SF_SQL_SQLITE] = &sql_sqlite, [SF_SQL_POSTGRES] = &sql_postgres, [SF_SQL_MYSQL] = &sql_mysql};

static void conn_close(struct sf_sql_conn *conn)
{
    sql_cache_fini(conn);
    conn->core->backend->disconnect(conn);
    free(conn);
}

static void core_destroy(struct sql_core *core)
{
    if (core->backend->stop != NULL)
        core->backend->stop(core);
    while (core->all != NULL) {
        struct sf_sql_conn *conn = core->all;
        core->all = conn->all_next;
        conn_close(conn);
    }
    (void)pthread_mutex_destroy(&core->mu);
    free(core->path);
    free(core->server.host);
    free(core->server.database);
    free(core->server.user);
    free(core->server.password_file);
    free(core->server.tls_ca_file);
    free(core);
}

static char *copy(const char *text)
{
    return text == NULL ? NULL : sf_strdup(text);
}

static struct sql_core *core_new(const struct sf_sql_options *options)
{
    struct sql_core *core = sf_calloc(1, sizeof(*core));
    const struct sf_sql_server *server = &options->server;

    core->backend = backends[options->kind];
    core->path = copy(options->path);
    core->server = (struct sql_server){
        .host = copy(server->host),
        .database = copy(server->database),
        .user = copy(server->user),
        .password_file = copy(server->password_file),
        .tls_ca_file = copy(server->tls_ca_file),
        .port = server->port,
        .tls = server->tls,
        .connect_timeout_ms = server->connect_timeout_ms == 0 ? SF_SQL_CONNECT_TIMEOUT_MS
                                                              : server->connect_timeout_ms,
        .statement_timeout_ms = server->statement_timeout_ms == 0 ? SF_SQL_STATEMENT_TIMEOUT_MS
                                                                  : server->statement_timeout_ms};
    core->in_memory = options->kind == SF_SQL_SQLITE && options->path == NULL;
    core->schema_version = (uint32_t)options->migration_count;
    core->refs = 1;
    core->writer.tail = &core->writer.head;
    core->readers.tail = &core->readers.head;
    (void)pthread_mutex_init(&core->mu, NULL);
    return core;
}

static enum sf_err conn_open(struct sql_core *core, bool writer, struct sf_diag *diag)
{
    struct sf_sql_conn *conn = sf_calloc(1, sizeof(*conn));
    struct sql_gate *gate = writer ? &core->writer : &core->readers;

    conn->core = core;
    conn->writer = writer;
    enum sf_err err = core->backend->connect(conn, diag);
    if (err != SF_OK) {
        conn_close(conn);
        return err == SF_ERR_UNAVAILABLE ? SF_ERR_IO : err;
    }
    conn->all_next = core->all;
    core->all = conn;
    conn->next = gate->idle;
    gate->idle = conn;
    return SF_OK;
}

static enum sf_err open_all(struct sf_sql *db, const struct sf_sql_options *options,
                            struct sf_diag *diag)
{
    unsigned readers = options->readers == 0 ? DEFAULT_READERS : options->readers;

    enum sf_err err = conn_open(db->core, true, diag);
    if (err == SF_OK)
        err = sql_migrate(db, options, diag);
    for (unsigned i = 0; err == SF_OK && !db->core->in_memory && i < readers; i++)
        err = conn_open(db->core, false, diag);
    if (err == SF_OK && !db->core->in_memory && db->core->backend->start != NULL)
        err = db->core->backend->start(db->core, diag);
    return err;
}

enum sf_err sf_sql_open(const struct sf_sql_options *options, struct sf_diag *diag,
                        struct sf_sql **out_db)
{
    struct sf_sql *db = sf_calloc(1, sizeof(*db));

    SF_ASSERT(options->migration_count >= 1 && options->readers < SF_LIMIT_SQL_CONNECTIONS);
    for (size_t i = 0; i < options->migration_count; i++)
        SF_ASSERT(options->migrations[i].version == i + 1);
    db->core = core_new(options);
    enum sf_err err = open_all(db, options, diag);
    if (err != SF_OK) {
        sf_sql_close(db);
        return err;
    }
    db->faults = options->faults; /* the schema itself is no subject of faults */
    *out_db = db;
    return SF_OK;
}

static enum sf_err remove_files(const char *path, struct sf_diag *diag)
{
    static const char *const suffixes[] = {"", "-wal", "-shm"};

    for (size_t i = 0; path != NULL && i < SF_ARRAY_LEN(suffixes); i++) {
        struct sf_buf name = {0};
        sf_buf_printf(&name, "%s%s", path, suffixes[i]);
        sf_buf_append(&name, "", 1);
        int rc = unlink((const char *)name.data);
        sf_buf_fini(&name);
        if (rc != 0 && errno != ENOENT)
            return sf_diag_set(diag, SF_ERR_IO, "%s%s: %s", path, suffixes[i], strerror(errno));
    }
    return SF_OK;
}

enum sf_err sf_sql_drop(const struct sf_sql_options *where, struct sf_diag *diag)
{
    if (where->kind == SF_SQL_SQLITE)
        return remove_files(where->path, diag);
    struct sql_core *core = core_new(where);
    enum sf_err err = conn_open(core, true, diag);
    if (err == SF_OK)
        err = core->backend->drop_all(core->all, diag);
    core_destroy(core);
    return err == SF_ERR_UNAVAILABLE ? SF_ERR_IO : err;
}

struct sf_sql *sf_sql_share(struct sf_sql *db, struct sf_sql_faults *faults)
{
    struct sf_sql *handle = sf_calloc(1, sizeof(*handle));

    *handle = (struct sf_sql){.core = db->core, .faults = faults};
    (void)pthread_mutex_lock(&db->core->mu);
    db->core->refs++;
    (void)pthread_mutex_unlock(&db->core->mu);
    return handle;
}

void sf_sql_close(struct sf_sql *db)
{
    if (db == NULL)
        return;
    (void)pthread_mutex_lock(&db->core->mu);
    bool last = --db->core->refs == 0;
    (void)pthread_mutex_unlock(&db->core->mu);
    if (last)
        core_destroy(db->core);
    free(db);
}

uint32_t sf_sql_schema_version(const struct sf_sql *db)
{
    return db->core->schema_version;
}

enum sf_err sql_password(const struct sql_server *server, struct sf_diag *diag, struct sf_buf *out)
{
    if (server->password_file == NULL)
        return SF_OK;
    enum sf_err err = sf_file_read(server->password_file, MAX_PASSWORD_BYTES, true, diag, out);
    if (err != SF_OK) {
        sf_diag_wrap(diag, "password file %s", server->password_file);
        return err == SF_ERR_LIMIT ? SF_ERR_CONFIG : err;
    }
    while (out->len > 0 && (out->data[out->len - 1] == '\n' || out->data[out->len - 1] == '\r'))
        out->len--;
    if (out->len == 0 || memchr(out->data, 0, out->len) != NULL)
        return sf_diag_set(diag, SF_ERR_CONFIG, "password file %s holds no password",
                           server->password_file);
    sf_buf_append(out, "", 1);
    return SF_OK;
}
