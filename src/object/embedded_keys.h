/*
 * What the embedded store's committer knows of keys without asking the database. Two tables: the
 * keys of the present merge, exact, because the database does not hold them yet; and the keys that
 * were written last, of fixed size, by hash.
 *
 * The second one makes a create-only put cheap whose caller looked before: the look says up to
 * which sequence number it saw everything (a mark), and a key that nothing was written to since is
 * absent still. It answers only what is certain; for everything else the database is asked.
 *
 * Sequence numbers are those of the store: each write of a key takes a higher one. Committer only.
 */
#ifndef SF_OBJECT_EMBEDDED_KEYS_H
#define SF_OBJECT_EMBEDDED_KEYS_H

#include "base/view.h"

struct sf_embedded_keys;

struct sf_embedded_keys *sf_embedded_keys_new(void);
void sf_embedded_keys_destroy(struct sf_embedded_keys *keys);

/* Starts a merge of at most `most_keys` writes; the one before it is in the database, or nothing is
 * written any more. Keys given to it live as long as the merge. */
void sf_embedded_keys_begin(struct sf_embedded_keys *keys, size_t most_keys);

/* Hash of a key, for the calls below. */
uint64_t sf_embedded_keys_hash(const struct sf_embedded_keys *keys, struct sf_view key);

/* Notes a write in the present merge: `removed`, or put. */
void sf_embedded_keys_note(struct sf_embedded_keys *keys, struct sf_view key, uint64_t hash,
                           uint64_t sequence, bool removed);

/* True when the present merge wrote the key: its sequence number, 0 when it was removed. */
bool sf_embedded_keys_in_merge(const struct sf_embedded_keys *keys, struct sf_view key,
                               uint64_t hash, uint64_t *out_sequence);

/* True when the key is certainly absent: a look that saw every sequence number below `mark` did not
 * find it, and nothing was written to it since. */
bool sf_embedded_keys_absent(const struct sf_embedded_keys *keys, uint64_t hash, uint64_t mark);

/* True when the newest write of the key is certainly the put `sequence`, which was one of it. */
bool sf_embedded_keys_stands(const struct sf_embedded_keys *keys, uint64_t hash, uint64_t sequence);

#endif
