/* What several commands read from their command lines in the same way. */
#include "cli/cli_priv.h"

#include <fcntl.h>
#include <inttypes.h>
#include <unistd.h>

#include "base/text.h"

bool sf_cli_parse_server(struct sf_cli *cli, const char *text)
{
    const char *colon = strrchr(text, ':');
    uint64_t port = 0;

    if (colon == NULL || !sf_parse_u64(sf_view_str(colon + 1), &port) || port == 0 || port > 65535)
        return false;
    struct sf_view host = sf_view_bytes(text, (size_t)(colon - text));
    bool bracketed = host.len >= 2 && host.ptr[0] == '[' && host.ptr[host.len - 1] == ']';
    if (bracketed)
        host = sf_view_bytes(text + 1, host.len - 2);
    else if (memchr(text, ':', host.len) != NULL)
        return false; /* an IPv6 address without brackets: where it ends is a guess */
    if (host.len == 0)
        return false;
    cli->host = sf_arena_str(cli->arena, host);
    cli->port = (uint16_t)port;
    return true;
}

bool sf_cli_check_key(struct sf_diag *diag, const char *key)
{
    for (const char *at = key; *at != '\0'; at++) {
        if ((unsigned char)*at < ' ' || *at == 0x7f) {
            sf_diag_set(diag, SF_BAD_REQUEST, "--key holds a control character");
            return false;
        }
    }
    return sf_identity_check("--key", sf_view_str(key), 1, SF_CLI_KEY_MAX_SCALARS, diag) == SF_OK;
}

error_t sf_cli_take_word(const char **words, size_t capacity, const char *arg,
                         const struct argp_state *state)
{
    if (state->arg_num >= capacity)
        return ARGP_ERR_UNKNOWN;
    words[state->arg_num] = arg;
    return 0;
}

uint32_t sf_cli_take_limit(const char *arg, const struct argp_state *state)
{
    uint64_t limit = 0;

    if (!sf_parse_u64(sf_view_str(arg), &limit) || limit == 0 || limit > UINT32_MAX)
        argp_error(state, "--limit wants a whole number of 1 to %" PRIu32, UINT32_MAX);
    return (uint32_t)limit;
}

uint32_t sf_cli_page_size(const struct sf_cli_list *list)
{
    return list->limit < SF_LIMIT_LIST_PAGE_ENTRIES ? list->limit : 0;
}

bool sf_cli_take_list(struct sf_cli_list *list, int key, const char *arg,
                      const struct argp_state *state)
{
    if (key == SF_CLI_FLAG_PREFIX)
        list->prefix = arg;
    else if (key == SF_CLI_FLAG_LIMIT)
        list->limit = sf_cli_take_limit(arg, state);
    else
        return false;
    return true;
}

bool sf_cli_dir_has(const char *dir, const char *name)
{
    int fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    bool has = fd >= 0 && faccessat(fd, name, F_OK, 0) == 0;

    if (fd >= 0)
        (void)close(fd);
    return has;
}
