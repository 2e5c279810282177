/*
 * Model: a page token is the shared signed wrapper around PageTokenClaims, as URL-safe text. It
 * binds method, authenticated caller, client id and kind, principal (its absence too), scope,
 * literal prefix, page size and the last name seen; nothing of the catalog's state, so each page is
 * served from the newest projection (note section 10.2, OP-51).
 */
#include "catalog/catalog_rules.h"

#include "base/base64.h"

#define PAGE_TTL_MS     (15 * 60 * 1000)
#define MAX_TOKEN_CHARS 8192

enum sf_token_reason sf_catalog_page_decode(struct sf_keyring *keyring, int64_t now_unix_ms,
                                            struct sf_view text, struct sf_arena *arena,
                                            const SF_PB(PageTokenClaims) * *out_claims)
{
    struct sf_buf token = {0};
    struct sf_view claims;
    ProtobufCMessage *message = NULL;
    struct sf_diag diag;
    enum sf_token_reason reason = SF_TOKEN_MALFORMED;
    if (text.len <= MAX_TOKEN_CHARS && sf_base64_url_decode(text, &token))
        reason = sf_token_verify(keyring, SF_TOKEN_PAGE, now_unix_ms, sf_buf_view(&token), &claims);
    if (reason == SF_TOKEN_OK && sf_pb_unpack(&searchfabric__v1__page_token_claims__descriptor,
                                              claims, arena, &diag, &message) != SF_OK)
        reason = SF_TOKEN_MALFORMED;
    *out_claims = (const SF_PB(PageTokenClaims) *)message;
    sf_buf_fini(&token);
    return reason;
}

void sf_catalog_page_encode(struct sf_keyring *keyring, int64_t now_unix_ms,
                            int64_t expires_unix_ms, struct sf_view claims, struct sf_buf *out)
{
    struct sf_buf token = {0};
    sf_token_sign(keyring, SF_TOKEN_PAGE, now_unix_ms, expires_unix_ms, claims, &token);
    sf_base64_url_encode(sf_buf_view(&token), out);
    sf_buf_fini(&token);
}

static enum sf_err refuse_token(struct sf_diag *diag, const char *reason)
{
    sf_diag_bad_field(diag, "page.page_token", "rejected", "the page token is not accepted: %s",
                      reason);
    sf_diag_detail(diag, "page_token_reason", "%s", reason);
    return SF_BAD_REQUEST;
}

static void fill_claims(struct sf_call *call, const SF_PB(RequestMeta) * meta,
                        uint64_t namespace_id, const char *prefix, uint32_t size,
                        SF_PB(PageTokenClaims) * claims)
{
    searchfabric__v1__page_token_claims__init(claims);
    claims->rpc_method = (char *)(uintptr_t)sf_call_method(call);
    claims->authenticated_client_identity_hash =
        (char *)(uintptr_t)sf_call_identity(call)->hash_hex;
    claims->client_id = meta->client_id;
    claims->client_kind = meta->client_kind;
    if (meta->_principal_subject_case != 0) {
        claims->_principal_subject_case =
            SEARCHFABRIC__V1__PAGE_TOKEN_CLAIMS___PRINCIPAL_SUBJECT_PRINCIPAL_SUBJECT;
        claims->principal_subject = meta->principal_subject;
    }
    claims->namespace_id = namespace_id;
    claims->prefix = (char *)(uintptr_t)prefix;
    claims->page_size = size;
}

/* True when the token was made for exactly this request. */
static bool bound_to(const SF_PB(PageTokenClaims) * claims, struct sf_call *call,
                     const SF_PB(RequestMeta) * meta, uint64_t namespace_id, const char *prefix)
{
    bool subject = meta->_principal_subject_case != 0;
    return strcmp(claims->rpc_method, sf_call_method(call)) == 0 &&
           strcmp(claims->authenticated_client_identity_hash, sf_call_identity(call)->hash_hex) ==
               0 &&
           strcmp(claims->client_id, meta->client_id) == 0 &&
           claims->client_kind == meta->client_kind &&
           (claims->_principal_subject_case != 0) == subject &&
           (!subject || strcmp(claims->principal_subject, meta->principal_subject) == 0) &&
           claims->namespace_id == namespace_id && strcmp(claims->prefix, prefix) == 0;
}

static uint32_t effective_size(uint32_t wanted)
{
    if (wanted == 0)
        return SF_LIMIT_PAGE_SIZE_DEFAULT;
    return wanted > SF_LIMIT_PAGE_SIZE_MAX ? SF_LIMIT_PAGE_SIZE_MAX : wanted;
}

enum sf_err sf_catalog_page_open(struct sf_catalog *catalog, struct sf_call *call,
                                 const SF_PB(RequestMeta) * meta, uint64_t namespace_id,
                                 const char *prefix, const SF_PB(PageRequest) * page,
                                 struct sf_catalog_page *out_page)
{
    struct sf_diag *diag = sf_call_diag(call);
    *out_page =
        (struct sf_catalog_page){.size = effective_size(page == NULL ? 0 : page->page_size)};
    if (page == NULL || page->page_token[0] == '\0')
        return SF_OK;
    const SF_PB(PageTokenClaims) *claims = NULL;
    enum sf_token_reason reason =
        sf_catalog_page_decode(catalog->deps.keyring, sf_clock_unix_ms(catalog->deps.clock),
                               sf_view_str(page->page_token), sf_call_arena(call), &claims);
    if (reason != SF_TOKEN_OK)
        return refuse_token(diag, sf_token_reason_text(reason));
    if (!bound_to(claims, call, meta, namespace_id, prefix) ||
        (page->page_size != 0 && effective_size(page->page_size) != claims->page_size))
        return refuse_token(diag, "binding_mismatch");
    out_page->size = claims->page_size;
    out_page->after = sf_view_str(claims->last_seen_key);
    return SF_OK;
}

SF_PB(NextPage) * sf_catalog_page_next(struct sf_catalog *catalog, struct sf_call *call,
                                       const SF_PB(RequestMeta) * meta, uint64_t namespace_id,
                                       const char *prefix, uint32_t size, const char *last_seen)
{
    struct sf_arena *arena = sf_call_arena(call);
    SF_PB(NextPage) *next = sf_arena_alloc(arena, sizeof(*next));
    if (next == NULL)
        return NULL;
    searchfabric__v1__next_page__init(next);
    if (last_seen == NULL)
        return next;
    SF_PB(PageTokenClaims) claims;
    struct sf_buf bytes = {0};
    struct sf_buf text = {0};
    fill_claims(call, meta, namespace_id, prefix, size, &claims);
    claims.last_seen_key = (char *)(uintptr_t)last_seen;
    sf_pb_pack(&claims.base, &bytes);
    int64_t now_ms = sf_clock_unix_ms(catalog->deps.clock);
    next->expires_at_unix_ms = now_ms + PAGE_TTL_MS;
    sf_catalog_page_encode(catalog->deps.keyring, now_ms, next->expires_at_unix_ms,
                           sf_buf_view(&bytes), &text);
    next->token = sf_arena_str(arena, sf_buf_view(&text));
    sf_buf_fini(&bytes);
    sf_buf_fini(&text);
    return next->token == NULL ? NULL : next;
}
