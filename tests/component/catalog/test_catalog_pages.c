/*
 * Page tokens: each bound fact changed in turn, every bit flipped, time to live and key rotation to
 * the millisecond, on both lists. Each rejection is SF_BAD_REQUEST with page_token_reason and
 * writes nothing. Source: note 10.2, OP-51.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base64.h"
#include "component/catalog/reject_world.h"

#define TTL_MS 900000

struct fixture {
    struct world *w;
    uint64_t ns, other;
    SF_PB(RequestMeta) meta;
    SF_PB(PageRequest) page;
    SF_PB(ListNamespacesRequest) namespaces;
    SF_PB(ListCollectionsRequest) collections;
    const char *token[2]; /* of page 1 of either list */
    int64_t expires_ms;
};

static const char *const methods[2] = {"ListNamespaces", "ListCollections"};

/* Bound facts, in the order of the claims. */
enum fact { METHOD, IDENTITY, CLIENT_ID, CLIENT_KIND, PRINCIPAL, SCOPE, PREFIX, PAGE_SIZE, FACTS };

/* One page of list 0 or 1 as `identity`: its one name, NULL when it was refused. */
static const char *page_as(struct fixture *f, const char *identity, int which, const char *token)
{
    f->page.page_token = (char *)(uintptr_t)token;
    if (which == 0) {
        const SF_PB(ListNamespacesResponse) *got =
            world_call_as(f->w, identity, methods[0], &f->namespaces);
        if (got == NULL)
            return NULL;
        assert_int_equal(got->n_namespaces, 1);
        f->token[0] = got->next_page->token;
        f->expires_ms = got->next_page->expires_at_unix_ms;
        return got->namespaces[0]->namespace_name;
    }
    const SF_PB(ListCollectionsResponse) *got =
        world_call_as(f->w, identity, methods[1], &f->collections);
    if (got == NULL)
        return NULL;
    assert_int_equal(got->n_collections, 1);
    f->token[1] = got->next_page->token;
    f->expires_ms = got->next_page->expires_at_unix_ms;
    return got->collections[0]->collection_name;
}

static void set_subject(struct fixture *f, const char *subject)
{
    f->meta._principal_subject_case =
        subject == NULL ? 0 : SEARCHFABRIC__V1__REQUEST_META___PRINCIPAL_SUBJECT_PRINCIPAL_SUBJECT;
    f->meta.principal_subject = (char *)(uintptr_t)(subject == NULL ? "" : subject);
}

/* The request that the tokens are made for. */
static void as_bound(struct fixture *f, bool subject)
{
    f->meta.client_id = (char *)"client";
    f->meta.client_kind = SF_PBE(CLIENT_KIND, CONTROL_ADMIN);
    set_subject(f, subject ? "me" : NULL);
    f->page.page_size = 1;
    f->namespaces.prefix = f->collections.prefix = (char *)"n";
    f->collections.namespace_id = f->ns;
}

static int setup(void **state)
{
    static struct fixture f;
    f = (struct fixture){.w = world_new(true)};
    struct world *w = f.w;
    f.ns = world_namespace(w, "1", "na");
    f.other = world_namespace(w, "2", "nb");
    world_namespace(w, "3", "nc");
    for (int i = 0; i < 3; i++) {
        char name[3] = {'n', (char)('a' + i), '\0'}, key[4] = {'c', name[1], '1', '\0'};
        world_collection(w, key, f.ns, name);
        key[2] = '2';
        world_collection(w, key, f.other, name);
    }
    searchfabric__v1__request_meta__init(&f.meta);
    searchfabric__v1__page_request__init(&f.page);
    searchfabric__v1__list_namespaces_request__init(&f.namespaces);
    searchfabric__v1__list_collections_request__init(&f.collections);
    f.namespaces.meta = f.collections.meta = &f.meta;
    f.namespaces.page = f.collections.page = &f.page;
    as_bound(&f, false);
    *state = &f;
    return 0;
}

static int teardown(void **state)
{
    world_destroy(((struct fixture *)*state)->w);
    return 0;
}

static const char *reason_of(struct fixture *f)
{
    assert_int_equal(f->w->diag.err, SF_BAD_REQUEST);
    assert_string_equal(sf_diag_get(&f->w->diag, "field"), "page.page_token");
    assert_string_equal(sf_diag_get(&f->w->diag, "violation"), "rejected");
    const char *reason = sf_diag_get(&f->w->diag, "page_token_reason");
    assert_non_null(reason);
    return reason;
}

static void rejected(struct fixture *f, const char *identity, int which, const char *token,
                     const char *reason)
{
    const char *before = reject_mark(f->w);
    assert_null(page_as(f, identity, which, token));
    assert_string_equal(reason_of(f), reason);
    assert_string_equal(reject_mark(f->w), before);
}

/* Tokens of both lists for the bound request. */
static void make_tokens(struct fixture *f, const char *out[2])
{
    for (int which = 0; which < 2; which++) {
        assert_string_equal(page_as(f, "loopback", which, ""), "na");
        out[which] = f->token[which];
    }
}

/* Presents a token of list `which` with one fact changed; the request is as bound afterwards. */
static void change(struct fixture *f, enum fact fact, int which, const char *token, bool subject)
{
    const char *identity = "loopback";
    int list = which;
    switch (fact) {
    case METHOD:
        list = 1 - which;
        break;
    case IDENTITY:
        identity = "searchfabric:operator";
        break;
    case CLIENT_ID:
        f->meta.client_id = (char *)"client2";
        break;
    case CLIENT_KIND:
        f->meta.client_kind = SF_PBE(CLIENT_KIND, ES_QUERY_GATEWAY);
        break;
    case PRINCIPAL:
        set_subject(f, subject ? "you" : "me");
        rejected(f, identity, list, token, "binding_mismatch");
        set_subject(f, subject ? NULL : "you");
        break;
    case SCOPE:
        if (which == 0)
            return; /* namespaces have none */
        f->collections.namespace_id = f->other;
        break;
    case PREFIX:
        f->namespaces.prefix = f->collections.prefix = (char *)"";
        rejected(f, identity, list, token, "binding_mismatch");
        f->namespaces.prefix = f->collections.prefix = (char *)"na";
        break;
    default:
        f->page.page_size = 2;
        break;
    }
    rejected(f, identity, list, token, "binding_mismatch");
    as_bound(f, subject);
}

static void test_bound_facts(void **state)
{
    struct fixture *f = *state;
    SF_PROVES("CCS-10.2-09", "CCS-10.2-10", "CCS-10.2-11", "CCS-10.2-12", "CCS-10.2-13",
              "CCS-10.2-14");
    for (int subject = 0; subject < 2; subject++) {
        const char *tokens[2];
        as_bound(f, subject != 0);
        make_tokens(f, tokens);
        for (int which = 0; which < 2; which++) {
            for (int fact = 0; fact < FACTS; fact++) {
                change(f, (enum fact)fact, which, tokens[which], subject != 0);
                /* unchanged it serves what follows the last seen name, as often as wanted */
                assert_string_equal(page_as(f, "loopback", which, tokens[which]), "nb");
            }
            f->page.page_size = 0; /* the bound size */
            assert_string_equal(page_as(f, "loopback", which, tokens[which]), "nb");
            const char *last = f->token[which];
            f->page.page_size = 1;
            assert_string_equal(page_as(f, "loopback", which, last), "nc");
            assert_string_equal(f->token[which], "");
            assert_int_equal(f->expires_ms, 0);
        }
    }
}

/* A correlation id is bound to nothing. */
static void test_unbound(void **state)
{
    struct fixture *f = *state;
    const char *tokens[2];
    make_tokens(f, tokens);
    f->meta._correlation_id_case = SEARCHFABRIC__V1__REQUEST_META___CORRELATION_ID_CORRELATION_ID;
    f->meta.correlation_id = (char *)"other";
    assert_string_equal(page_as(f, "loopback", 0, tokens[0]), "nb");
    assert_string_equal(page_as(f, "loopback", 1, tokens[1]), "nb");
}

static const char *encode(struct fixture *f, const struct sf_buf *raw, size_t len)
{
    struct sf_buf text = {0};
    sf_base64_url_encode(sf_view_bytes(raw->data, len), &text);
    const char *out = sf_arena_str(f->w->arena, sf_buf_view(&text));
    sf_buf_fini(&text);
    return out;
}

static void test_altered(void **state)
{
    struct fixture *f = *state;
    SF_PROVES("CCS-10.2-15");
    const char *tokens[2];
    struct sf_buf raw = {0};
    char text[64];
    make_tokens(f, tokens);
    assert_true(sf_base64_url_decode(sf_view_str(tokens[1]), &raw));
    for (size_t bit = 0; bit < raw.len * 8; bit++) {
        raw.data[bit / 8] ^= (uint8_t)(1u << (bit % 8));
        assert_null(page_as(f, "loopback", 1, encode(f, &raw, raw.len)));
        const char *reason = reason_of(f);
        assert_true(strcmp(reason, "signature") == 0 || strcmp(reason, "malformed") == 0 ||
                    strcmp(reason, "unknown_key") == 0);
        raw.data[bit / 8] ^= (uint8_t)(1u << (bit % 8));
    }
    for (size_t len = 1; len < raw.len; len++) {
        assert_null(page_as(f, "loopback", 1, encode(f, &raw, len)));
        reason_of(f);
    }
    assert_string_equal(page_as(f, "loopback", 1, encode(f, &raw, raw.len)), "nb");
    sf_buf_append(&raw, "x", 1);
    assert_null(page_as(f, "loopback", 1, encode(f, &raw, raw.len)));
    sf_buf_fini(&raw);
    static const char *const nonsense[] = {"=", "a", "a b", "+/", "\xc3\xa9", "AAAA"};
    for (size_t i = 0; i < SF_ARRAY_LEN(nonsense); i++)
        rejected(f, "loopback", 0, nonsense[i], "malformed");
    snprintf(text, sizeof(text), "%.8s=", tokens[0]);
    rejected(f, "loopback", 0, text, "malformed");
}

static void test_time_to_live(void **state)
{
    struct fixture *f = *state;
    SF_PROVES("CCS-10.2-15", "CCS-10.2-17");
    const char *tokens[2];
    make_tokens(f, tokens);
    assert_true(f->expires_ms == WORLD_UNIX_MS + TTL_MS);
    sf_clock_manual_advance(&f->w->clock, TTL_MS - 1);
    for (int which = 0; which < 2; which++)
        assert_string_equal(page_as(f, "loopback", which, tokens[which]), "nb");
    sf_clock_manual_advance(&f->w->clock, 1);
    for (int which = 0; which < 2; which++)
        rejected(f, "loopback", which, tokens[which], "expired");
}

/* ---- rotation ----------------------------------------------------------------------------- */

#define SECRET(digits) digits digits digits digits digits digits digits digits

static void write_ring(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    assert_int_equal(close(fd), 0);
}

static void reload(struct fixture *f, const char *path, const char *state_of_old)
{
    char text[512];
    snprintf(text, sizeof(text),
             "keys:\n  - {id: k2, secret: " SECRET("0badcafe") ", state: signing}\n%s%s%s",
             state_of_old[0] == '\0' ? "" : "  - {id: k1, secret: " SECRET("00c0ffee"),
             state_of_old, state_of_old[0] == '\0' ? "" : "}\n");
    write_ring(path, text);
    assert_int_equal(sf_keyring_reload(f->w->keyring, &f->w->diag), SF_OK);
}

static void test_rotation(void **state)
{
    struct fixture *f = *state;
    SF_PROVES("CCS-10.2-15");
    char folder[] = "/tmp/sf-pages-XXXXXX", path[64], overlap[80];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/ring.yaml", folder);
    write_ring(path, "keys:\n  - {id: k1, secret: " SECRET("00c0ffee") ", state: signing}\n");
    world_stop(f->w);
    sf_keyring_destroy(f->w->keyring);
    assert_int_equal(sf_keyring_load(path, &f->w->diag, &f->w->keyring), SF_OK);
    assert_int_equal(world_open(f->w), SF_OK);
    const char *old[2], *fresh[2];
    make_tokens(f, old);
    snprintf(overlap, sizeof(overlap), ", state: overlap, verify_until_unix_ms: %lld",
             (long long)(WORLD_UNIX_MS + 300000));
    reload(f, path, overlap);
    make_tokens(f, fresh);
    assert_string_not_equal(fresh[0], old[0]);
    sf_clock_manual_advance(&f->w->clock, 299999);
    for (int which = 0; which < 2; which++) {
        assert_string_equal(page_as(f, "loopback", which, old[which]), "nb");
        assert_string_equal(page_as(f, "loopback", which, fresh[which]), "nb");
    }
    sf_clock_manual_advance(&f->w->clock, 1); /* the window is over, the token's time is not */
    for (int which = 0; which < 2; which++) {
        rejected(f, "loopback", which, old[which], "unknown_key");
        assert_string_equal(page_as(f, "loopback", which, fresh[which]), "nb");
    }
    reload(f, path, ", state: overlap"); /* without an end */
    assert_string_equal(page_as(f, "loopback", 0, old[0]), "nb");
    reload(f, path, ", state: retired");
    rejected(f, "loopback", 0, old[0], "unknown_key");
    reload(f, path, "");
    rejected(f, "loopback", 0, old[0], "unknown_key");
    assert_string_equal(page_as(f, "loopback", 0, fresh[0]), "nb");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(folder), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_bound_facts, setup, teardown),
        cmocka_unit_test_setup_teardown(test_unbound, setup, teardown),
        cmocka_unit_test_setup_teardown(test_altered, setup, teardown),
        cmocka_unit_test_setup_teardown(test_time_to_live, setup, teardown),
        cmocka_unit_test_setup_teardown(test_rotation, setup, teardown),
    };
    return SF_RUN_TESTS("catalog_pages", tests);
}
