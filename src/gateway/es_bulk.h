/*
 * The body of a bulk request: action lines and document lines. Pure; fuzzed. Documents and ids are
 * slices of the body, never copied or changed. Private to the gateway.
 */
#ifndef SF_GATEWAY_ES_BULK_H
#define SF_GATEWAY_ES_BULK_H

#include "base/arena.h"
#include "base/view.h"

/* What an action line asks for. */
enum sf_es_action {
    SF_ES_ACTION_INDEX,
    SF_ES_ACTION_CREATE,
    SF_ES_ACTION_UPDATE,
    SF_ES_ACTION_DELETE
};

/* Member name of the action in requests and answers: "index", "create", "update", "delete". */
const char *sf_es_action_text(enum sf_es_action action);

/* An error as Elasticsearch words it. status 0 = none. */
struct sf_es_error {
    int status;         /* HTTP */
    const char *type;   /* static text, "illegal_argument_exception" */
    const char *reason; /* for people, in the request's arena or static */
};

/* One action with its document. */
struct sf_es_bulk_item {
    enum sf_es_action action; /* as sent */
    bool has_id;              /* _id was given */
    struct sf_view index;     /* decoded, in the arena; empty = none was named */
    struct sf_view id;        /* decoded, in the arena; valid with has_id */
    struct sf_view source;    /* the document line, without its line end; empty for delete */
    uint32_t line;            /* of the action, from 1 */
    struct sf_es_error error; /* the item alone is refused: a parameter that is not served */
};

/* Splits `body` (which must outlive the items) into items in `arena`. `default_index` is the index
 * of the path, empty for none. False when the request as a whole is refused; then *out_error says
 * why. Lines end with LF or CR LF; empty lines between actions are passed over; the last line must
 * be ended. */
bool sf_es_bulk_parse(struct sf_view body, struct sf_view default_index, struct sf_arena *arena,
                      struct sf_es_bulk_item **out_items, size_t *out_count,
                      struct sf_es_error *out_error);

#endif
