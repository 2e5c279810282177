/*
 * YAML through libcyaml. The library reports an error as a few log lines, the first with the
 * reason, then a trace of where it was ("in mapping field 'x' (line: 3, column: 5)"); they are
 * gathered into one message that starts with file:line, the form editors jump to.
 */
#include "base/yaml_priv.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"

/* What one load has logged. */
struct gathered {
    char text[256]; /* the reason */
    char trace[96]; /* innermost place, without its prefix */
    int line;       /* its line, 0 when unknown */
};

static void *yaml_mem(void *ctx, void *ptr, size_t size)
{
    (void)ctx;
    if (size == 0) {
        free(ptr);
        return NULL;
    }
    return sf_realloc(ptr, size);
}

/* Drops the "Load: " in front and white space at both ends. */
static const char *trim(char *text)
{
    size_t n = strlen(text);

    while (n > 0 && (text[n - 1] == '\n' || text[n - 1] == ' '))
        text[--n] = '\0';
    if (strncmp(text, "Load: ", 6) == 0)
        text += 6;
    while (*text == ' ')
        text++;
    return text;
}

static void gather(cyaml_log_t level, void *ctx, const char *fmt, va_list args)
{
    struct gathered *g = ctx;
    char line[256];

    (void)level;
    (void)vsnprintf(line, sizeof(line), fmt, args);
    const char *text = trim(line);
    if (text[0] == '\0' || strncmp(text, "Backtrace", 9) == 0)
        return;
    const char *place = strstr(text, "(line: ");
    if (place == NULL) {
        if (g->text[0] == '\0')
            (void)snprintf(g->text, sizeof(g->text), "%s", text);
    } else if (g->line == 0) {
        g->line = (int)strtol(place + 7, NULL, 10);
        (void)snprintf(g->trace, sizeof(g->trace), "%.*s", (int)(place - text), text);
        (void)trim(g->trace);
    }
}

enum sf_err sf_yaml_load(const char *name, struct sf_view text, const cyaml_schema_value_t *schema,
                         struct sf_diag *diag, void **out_data)
{
    struct gathered g = {0};
    const cyaml_config_t config = {.log_fn = gather,
                                   .log_ctx = &g,
                                   .log_level = CYAML_LOG_WARNING,
                                   .mem_fn = yaml_mem,
                                   .flags = CYAML_CFG_NO_ALIAS};
    cyaml_data_t *data = NULL;

    if (text.len == 0)
        return sf_diag_set(diag, SF_ERR_CONFIG, "%s is empty", name);
    cyaml_err_t rc = cyaml_load_data(text.ptr, text.len, &config, schema, &data, NULL);
    if (rc == CYAML_OK) {
        *out_data = data;
        return SF_OK;
    }
    const char *reason = g.text[0] != '\0' ? g.text : cyaml_strerror(rc);
    if (g.line > 0)
        return sf_diag_set(diag, SF_ERR_CONFIG, "%s:%d: %s, %s", name, g.line, reason, g.trace);
    return sf_diag_set(diag, SF_ERR_CONFIG, "%s: %s", name, reason);
}

void sf_yaml_free(const cyaml_schema_value_t *schema, void *data)
{
    const cyaml_config_t config = {.mem_fn = yaml_mem};

    if (data != NULL)
        (void)cyaml_free(&config, schema, data, 0);
}
