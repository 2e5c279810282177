/*
 * Output of sfctl. Tables are for people and may change; `--json` is for scripts and is the
 * canonical JSON of the contract's messages. Errors go to stderr only, so that stdout stays
 * parseable.
 */
#include "cli/cli_priv.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <time.h>

#include "base/hash.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/pbjson.h"
#include "base/text.h"

void sf_cli_print_json(const ProtobufCMessage *message)
{
    struct sf_buf out = {0};
    sf_pbjson_encode(message, &out);
    sf_buf_append_str(&out, "\n");
    (void)fwrite(out.data, 1, out.len, stdout);
    sf_buf_fini(&out);
}

void sf_cli_print_pretty(const ProtobufCMessage *message)
{
    struct sf_buf out = {0};
    sf_pbjson_encode_pretty(message, &out);
    sf_buf_append_str(&out, "\n");
    (void)fwrite(out.data, 1, out.len, stdout);
    sf_buf_fini(&out);
}

void sf_cli_json_begin(struct sf_cli_json *json)
{
    *json = (struct sf_cli_json){0};
    sf_buf_append_str(&json->text, "{");
}

static void member(struct sf_cli_json *json, const char *name)
{
    if (json->text.len > 1)
        sf_buf_append_str(&json->text, ",");
    sf_json_append_string(&json->text, sf_view_str(name));
    sf_buf_append_str(&json->text, ":");
}

void sf_cli_json_view(struct sf_cli_json *json, const char *name, struct sf_view value)
{
    struct sf_buf clean = {0};

    member(json, name);
    for (size_t at = 0; at < value.len;) {
        size_t len = sf_utf8_scalar_length(value.ptr + at, value.len - at);
        if (len == 0)
            sf_buf_append_str(&clean, "\xef\xbf\xbd");
        else
            sf_buf_append(&clean, value.ptr + at, len);
        at += len == 0 ? 1 : len;
    }
    sf_json_append_string(&json->text, sf_buf_view(&clean));
    sf_buf_fini(&clean);
}

void sf_cli_json_str(struct sf_cli_json *json, const char *name, const char *value)
{
    if (value != NULL) {
        sf_cli_json_view(json, name, sf_view_str(value));
        return;
    }
    member(json, name);
    sf_buf_append_str(&json->text, "null");
}

void sf_cli_json_u64(struct sf_cli_json *json, const char *name, uint64_t value)
{
    member(json, name);
    sf_buf_printf(&json->text, "\"%" PRIu64 "\"", value);
}

void sf_cli_json_number(struct sf_cli_json *json, const char *name, double value, int decimals)
{
    member(json, name);
    sf_buf_printf(&json->text, "%.*f", decimals, value);
}

void sf_cli_json_bool(struct sf_cli_json *json, const char *name, bool value)
{
    member(json, name);
    sf_buf_append_str(&json->text, value ? "true" : "false");
}

/* True when `bytes` can stand in an output of one JSON value a line. */
static bool is_json_line(struct sf_view bytes)
{
    return bytes.len > 0 && memchr(bytes.ptr, '\n', bytes.len) == NULL &&
           memchr(bytes.ptr, '\r', bytes.len) == NULL && sf_json_valid(bytes, SF_LIMIT_JSON_DEPTH);
}

void sf_cli_json_bytes(struct sf_cli_json *json, const char *name, struct sf_view bytes)
{
    char hex_name[64];

    if (is_json_line(bytes)) {
        member(json, name);
        sf_buf_append(&json->text, bytes.ptr, bytes.len);
        return;
    }
    char *hex = sf_malloc(bytes.len * 2 + 1);
    sf_hex_encode(bytes.ptr, bytes.len, hex);
    (void)snprintf(hex_name, sizeof(hex_name), "%s_hex", name);
    sf_cli_json_view(json, hex_name, sf_view_bytes(hex, bytes.len * 2));
    free(hex);
}

void sf_cli_json_end(struct sf_cli_json *json, FILE *out)
{
    sf_buf_append_str(&json->text, "}\n");
    (void)fwrite(json->text.data, 1, json->text.len, out);
    sf_buf_fini(&json->text);
}

void sf_cli_table_begin(struct sf_cli_table *table, size_t columns, const char *const *titles)
{
    *table = (struct sf_cli_table){.columns = columns};
    sf_cli_table_row(table, titles);
}

void sf_cli_table_row(struct sf_cli_table *table, const char *const *cells)
{
    size_t count = table->cell_count + table->columns;

    table->cells = sf_realloc(table->cells, count * sizeof(*table->cells));
    for (size_t i = 0; i < table->columns; i++) {
        const char *cell = cells[i] == NULL || cells[i][0] == '\0' ? "-" : cells[i];
        table->cells[table->cell_count + i] = sf_strdup(cell);
    }
    table->cell_count = count;
}

/* Characters of a cell: a good enough width for names in scripts with one column a character. */
static size_t cell_width(const char *cell)
{
    struct sf_view text = sf_view_str(cell);

    return sf_utf8_valid(text) ? sf_utf8_scalars(text) : text.len;
}

static size_t column_width(const struct sf_cli_table *table, size_t column)
{
    size_t width = 0;

    for (size_t i = column; i < table->cell_count; i += table->columns) {
        size_t len = cell_width(table->cells[i]);
        width = len > width ? len : width;
    }
    return width;
}

void sf_cli_table_end(struct sf_cli_table *table, FILE *out)
{
    size_t *widths = sf_calloc(table->columns + 1, sizeof(*widths));

    for (size_t column = 0; column < table->columns; column++)
        widths[column] = column_width(table, column);
    for (size_t i = 0; out != NULL && i < table->cell_count; i++) {
        size_t column = i % table->columns;
        sf_cli_print_text(sf_view_str(table->cells[i]), out);
        if (column + 1 == table->columns)
            fputc('\n', out);
        else
            fprintf(out, "%*s", (int)(widths[column] - cell_width(table->cells[i]) + 2), "");
    }
    free(widths);
    for (size_t i = 0; i < table->cell_count; i++)
        free(table->cells[i]);
    free(table->cells);
    *table = (struct sf_cli_table){0};
}

size_t sf_cli_cut(struct sf_view text, size_t max_bytes)
{
    size_t at = 0;

    if (text.len <= max_bytes)
        return text.len;
    while (at < max_bytes) {
        size_t len = sf_utf8_scalar_length(text.ptr + at, text.len - at);
        len = len == 0 ? 1 : len;
        if (at + len > max_bytes)
            break;
        at += len;
    }
    return at;
}

void sf_cli_print_text(struct sf_view text, FILE *out)
{
    for (size_t i = 0; i < text.len; i++)
        fputc(text.ptr[i] < ' ' || text.ptr[i] == 0x7f ? '?' : text.ptr[i], out);
}

void sf_cli_format_unix_ms(int64_t unix_ms, char *out)
{
    time_t seconds = (time_t)(unix_ms / 1000);
    struct tm tm;
    if (gmtime_r(&seconds, &tm) == NULL) {
        snprintf(out, 32, "%lld", (long long)unix_ms);
        return;
    }
    char date[24];
    strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(out, 32, "%s.%03dZ", date, (int)(unix_ms % 1000));
}

int sf_cli_usage(const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    fputs("sfctl: ", stderr);
    vfprintf(stderr, fmt, args);
    fputc('\n', stderr);
    va_end(args);
    return SF_CLI_USAGE;
}
