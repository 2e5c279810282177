/*
 * Output of sfctl. Tables are for people and may change; `--json` is for scripts and is the
 * canonical JSON of the contract's messages. Errors go to stderr only, so that stdout stays
 * parseable.
 */
#include "cli/cli_priv.h"

#include <stdarg.h>
#include <stdlib.h>
#include <time.h>

#include "base/mem.h"
#include "base/pbjson.h"
#include "contract/descriptor_set.h"

void sf_cli_print_json(const ProtobufCMessage *message)
{
    struct sf_buf out = {0};
    sf_pbjson_encode(message, &out);
    printf("%.*s\n", (int)out.len, (const char *)out.data);
    sf_buf_fini(&out);
}

void sf_cli_print_pretty(const ProtobufCMessage *message)
{
    struct sf_buf out = {0};
    sf_pbjson_encode_pretty(message, &out);
    printf("%.*s\n", (int)out.len, (const char *)out.data);
    sf_buf_fini(&out);
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
    for (size_t i = 0; i < table->columns; i++)
        table->cells[table->cell_count + i] = sf_strdup(cells[i] == NULL ? "-" : cells[i]);
    table->cell_count = count;
}

void sf_cli_table_end(struct sf_cli_table *table)
{
    size_t rows = table->columns == 0 ? 0 : table->cell_count / table->columns;
    for (size_t row = 0; row < rows; row++) {
        for (size_t col = 0; col < table->columns; col++) {
            size_t width = 0;
            for (size_t r = 0; r < rows; r++) {
                size_t len = strlen(table->cells[r * table->columns + col]);
                width = len > width ? len : width;
            }
            bool last = col + 1 == table->columns;
            printf("%-*s%s", last ? 0 : (int)width, table->cells[row * table->columns + col],
                   last ? "\n" : "  ");
        }
    }
    for (size_t i = 0; i < table->cell_count; i++)
        free(table->cells[i]);
    free(table->cells);
    *table = (struct sf_cli_table){0};
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
    strftime(date, sizeof(date), "%Y-%m-%d %H:%M:%S", &tm);
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
