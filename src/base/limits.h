/*
 * Every limit of the product, with its reason. A limit passed is an ordinary, tested error; nothing
 * grows without one. Lengths of text are in Unicode scalars where the name says so, else in bytes.
 */
#ifndef SF_BASE_LIMITS_H
#define SF_BASE_LIMITS_H

/* Identity strings (CCS note 3.1, OP-55; allocator A-19). */
#define SF_LIMIT_IDEMPOTENCY_KEY_SCALARS   128
#define SF_LIMIT_CORRELATION_ID_SCALARS    128
#define SF_LIMIT_CLIENT_ID_SCALARS         256
#define SF_LIMIT_PRINCIPAL_SUBJECT_SCALARS 256
#define SF_LIMIT_NAME_SCALARS              128
#define SF_LIMIT_SCHEMA_TOKEN_SCALARS      64

/* Files that an operator writes: far above any real one, so that a wrong path is told at once. */
#define SF_LIMIT_CONFIG_FILE_BYTES  (256u << 10)
#define SF_LIMIT_KEYRING_FILE_BYTES (64u << 10)
#define SF_LIMIT_KEYRING_KEYS       64u

/* Admin port: connections at once. Operator's service: bytes of one GetObject answer, half an RPC
 * message. */
#define SF_LIMIT_ADMIN_CONNECTIONS  64u
#define SF_LIMIT_OPERATOR_GET_BYTES (4u << 20)

/* Log: lines a second of one WARN or ERROR, which a peer or a broken disk may cause in a loop. */
#define SF_LIMIT_LOG_LINES_PER_SECOND 100u

/* Metrics: series of one name; label values may come from outside. */
#define SF_LIMIT_METRIC_SERIES 256u

/* Object store: S3's key limit, and a bound on one control object, far above the largest we write.
 */
#define SF_LIMIT_OBJECT_KEY_BYTES  1024
#define SF_LIMIT_OBJECT_BYTES      (64u << 20)
#define SF_LIMIT_LIST_PAGE_ENTRIES 1000
/* Embedded store: bodies of one write; bounds its memory and its sync. */
#define SF_LIMIT_STORE_MERGE_BYTES ((size_t)32 << 20)

/* Projection: connections of one process. Store identity: shards of either kind. Oracle: timestamps
 * of one request. */
#define SF_LIMIT_SQL_CONNECTIONS 64u
#define SF_LIMIT_SHARDS          65536u
#define SF_LIMIT_TSO_PER_REQUEST 65536u

/* gRPC: one message, the metadata of one call, calls of one connection, bytes held for peers. */
#define SF_LIMIT_RPC_MESSAGE_BYTES     (8u << 20)
#define SF_LIMIT_RPC_METADATA_BYTES    (16u << 10)
#define SF_LIMIT_RPC_STREAMS_PER_CONN  256
#define SF_LIMIT_RPC_CONN_BUDGET_BYTES (32u << 20)
#define SF_LIMIT_RPC_PROC_BUDGET_BYTES (256u << 20)
#define SF_LIMIT_RPC_CONNECTIONS       4096
#define SF_LIMIT_RPC_ARENA_BYTES       (48u << 20) /* one call: message, unpacked form and answer */

#define SF_LIMIT_RPC_STREAM_BUDGET_BYTES                                                           \
    (4u << 20) /* unsent messages of one stream and direction */

/* gRPC windows: what one stream and one connection may send ahead; 256 streams of 256 KiB stay near
 * the connection's byte budget. */
#define SF_LIMIT_RPC_STREAM_WINDOW_BYTES (256u << 10)
#define SF_LIMIT_RPC_CONN_WINDOW_BYTES   (4u << 20)

/* gRPC abuse: calls of one process; frames without content (empty DATA, PING, SETTINGS, PRIORITY,
 * WINDOW_UPDATE) and stream resets that one connection may send in a burst and per second; ms for a
 * unary request to arrive, for the answer to a keepalive ping, and for a drain notice. */
#define SF_LIMIT_RPC_CALLS             65536u
#define SF_LIMIT_RPC_GLITCH_BURST      10000
#define SF_LIMIT_RPC_GLITCH_PER_SECOND 1000
#define SF_LIMIT_RPC_RESET_BURST       1000
#define SF_LIMIT_RPC_RESET_PER_SECOND  200
#define SF_LIMIT_RPC_REQUEST_MS        60000
#define SF_LIMIT_RPC_PING_ANSWER_MS    10000
#define SF_LIMIT_RPC_DRAIN_NOTICE_MS   1000

/* Protobuf scan before unpack: recursion, elements and memory that one message may claim. */
#define SF_LIMIT_PB_DEPTH    64
#define SF_LIMIT_PB_ELEMENTS (1u << 20)

/* JSON text: containers open at once; a message of the deepest kind above opens two a level. */
#define SF_LIMIT_JSON_DEPTH 128

/* Allocator: the ceiling a collection's policy may ask for. */
#define SF_LIMIT_ALLOC_PLAN_ITEMS 65536
/* Items that a replay record keeps one by one; longer plans are kept as runs of ids. */
#define SF_LIMIT_ALLOC_PLAIN_ITEMS 16
/* Allocator: one receipt; a mixed plan of the most items carries 8,192 bytes of flags. */
#define SF_LIMIT_RECEIPT_BYTES (16u << 10)
/* Allocator, per loop (defaults): collections in memory, requests waiting for one collection and
 * in all, remembered answers. */
#define SF_LIMIT_ALLOC_LANES       65536
#define SF_LIMIT_ALLOC_LANE_OPS    4096
#define SF_LIMIT_ALLOC_LOOP_OPS    65536
#define SF_LIMIT_ALLOC_CACHE_BYTES (16u << 20)
/* Allocator: requests and plan items of one group, so that its state object stays far below
 * SF_LIMIT_OBJECT_BYTES; applies that wait for their replay object, and their packed bytes (a third
 * of their JSON), before the lane stops to finish them; tries of one durable step before the caller
 * is told to come back. */
#define SF_LIMIT_ALLOC_GROUP_OPS     1024
#define SF_LIMIT_ALLOC_GROUP_ITEMS   131072
#define SF_LIMIT_ALLOC_PENDING       64
#define SF_LIMIT_ALLOC_PENDING_BYTES (8u << 20)
#define SF_LIMIT_ALLOC_TRIES         6
/* Allocator, range leases: the least and the most ids that a range may be set to have, for a crash
 * burns up to two of them; requests a second that make a collection hot, at most. Defaults: from 50
 * requests a second on, 64 to 65,536 ids; no lease within ten seconds of an explicit id, which
 * would burn its tail; ownership is looked at again before a range that was not extended for five
 * seconds is used on. */
#define SF_LIMIT_ALLOC_LEASE_IDS        (1u << 20)
#define SF_LIMIT_ALLOC_LEASE_PER_S      1000000u
#define SF_LIMIT_ALLOC_LEASE_HOT_PER_S  50u
#define SF_LIMIT_ALLOC_LEASE_MIN_IDS    64u
#define SF_LIMIT_ALLOC_LEASE_MAX_IDS    65536u
#define SF_LIMIT_ALLOC_LEASE_QUIET_MS   10000u
#define SF_LIMIT_ALLOC_LEASE_CONFIRM_MS 5000u
/* Allocator: full request records in the log, per loop and second; the rest is counted. */
#define SF_LIMIT_ALLOC_LOG_PER_SECOND 100
/* Allocator artifacts (failure audit, recovery segments, operational export), each: entries and
 * bytes that wait to be written, then further ones are dropped; of these, in one write. One id run
 * takes at most 30 bytes, so the largest plan fits. Bytes of a text in a failure-audit object; what
 * is longer was refused for that and is cut. */
#define SF_LIMIT_ALLOC_FEED_ENTRIES       16384
#define SF_LIMIT_ALLOC_FEED_BYTES         (32u << 20)
#define SF_LIMIT_ALLOC_FEED_BATCH_ENTRIES 1024
#define SF_LIMIT_ALLOC_FEED_BATCH_BYTES   (4u << 20)
#define SF_LIMIT_ALLOC_AUDIT_TEXT_BYTES   1024
/* Allocator retention: the shortest one, above any gateway's retries; objects that one round
 * looks at, and keys whose deletes are listed at once or in doubt, then no further removal begins.
 */
#define SF_LIMIT_ALLOC_RETENTION_MIN_MS  604800000u
#define SF_LIMIT_ALLOC_RETENTION_OBJECTS 50000
#define SF_LIMIT_ALLOC_REMOVALS          4096

/* Ingest: rows and body bytes of one batch; one document. */
#define SF_LIMIT_BATCH_ENTRIES  65536
#define SF_LIMIT_DOCUMENT_BYTES (4u << 20)

/* Quota: units of a rate or burst, so that a thousandfold fits 64 bits; classes and name prefixes
 * of a configuration; requests of one namespace that wait; namespaces held in memory, then idle
 * ones are forgotten. */
#define SF_LIMIT_QUOTA_UNITS      UINT64_C(1000000000000000)
#define SF_LIMIT_QUOTA_CLASSES    64u
#define SF_LIMIT_QUOTA_POLICIES   1024u
#define SF_LIMIT_QUOTA_CALLERS    1024u
#define SF_LIMIT_QUOTA_WAITING    4096u
#define SF_LIMIT_QUOTA_NAMESPACES 65536u
#define SF_LIMIT_QUOTA_DIMENSION  64  /* scalars of throttled_dimension */
#define SF_LIMIT_QUOTA_ID         128 /* scalars of lease_holder_id, lease_request_id */

/* Pagination (OP-51). */
#define SF_LIMIT_PAGE_SIZE_DEFAULT 100
#define SF_LIMIT_PAGE_SIZE_MAX     1000

/* Ingest gateway: what one stream may have under way; then reading pauses. A batch is encoded in
 * one RPC message, so its bytes share that limit. */
#define SF_LIMIT_INGEST_INFLIGHT_BATCHES 256
#define SF_LIMIT_INGEST_INFLIGHT_BYTES   (32u << 20)
#define SF_LIMIT_BATCH_BYTES             (8u << 20)
#define SF_LIMIT_INGEST_CACHE_ENTRIES    4096 /* admission states kept by a gateway loop */

/* Elasticsearch edge: connections have a thread each; a body is held whole; a bulk is cut into
 * plans of this many items and bytes, well below the batch limits. The two cuts are part of how
 * keys are derived: changing them changes what a retried Idempotency-Key means. */
#define SF_LIMIT_ES_CONNECTIONS  256
#define SF_LIMIT_ES_BODY_BYTES   (100u << 20)
#define SF_LIMIT_ES_BODIES_BYTES (400u << 20) /* bodies of all requests together */
#define SF_LIMIT_ES_ACTION_BYTES (16u << 10)  /* one action line of a bulk */
#define SF_LIMIT_ES_BULK_ITEMS   200000       /* actions of one bulk request */
#define SF_LIMIT_ES_PLAN_ITEMS   4096
#define SF_LIMIT_ES_PLAN_BYTES   (4u << 20)
#define SF_LIMIT_ES_NAME_CACHE   4096 /* resolved index names */

/* Catalog: the shortest replay retention, above the time that a put or delete in doubt may still
 * land (an hour) and the age of an owner's look at the boundary. */
#define SF_LIMIT_REPLAY_RETENTION_MIN_MS 7200000u

/* Catalog checkpoints: rows and bytes of text of one shard, so that a cutter and a reader hold
 * little whatever the catalog's size; memory of one shard's rows (the largest row fits); shards of
 * one checkpoint, so that its manifest stays an object. */
#define SF_LIMIT_CHECKPOINT_SHARD_ROWS  10000u
#define SF_LIMIT_CHECKPOINT_SHARD_BYTES ((size_t)8 << 20)
#define SF_LIMIT_CHECKPOINT_ARENA_BYTES ((size_t)256 << 20)
#define SF_LIMIT_CHECKPOINT_SHARDS      65536u

/* Publishing: memory that one walk of a committed lineage may take; slices of one manifest, so that
 * building it does not hold a reactor for long. */
#define SF_LIMIT_MANIFEST_CHAIN_BYTES (1u << 30)
#define SF_LIMIT_MANIFEST_SLICES      1024
/* Commit: the size at which a WAL chunk is closed, at most. With the batch that crosses it a chunk
 * stays below SF_LIMIT_OBJECT_BYTES, and its smallest rows, which grow about fivefold when decoded,
 * below the arena that recovery has for one chunk. */
#define SF_LIMIT_WAL_CHUNK_BYTES       (32u << 20)
#define SF_LIMIT_WAL_CHUNK_ARENA_BYTES (256u << 20)
/* Commit: intents (no rows) of one shard that recovery may hold. */
#define SF_LIMIT_COMMIT_RECOVERY_BYTES (1u << 30)

#endif
