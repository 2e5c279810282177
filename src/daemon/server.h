/*
 * One searchfabricd process: every role on embedded parts, wired through channels. Private to the
 * daemon.
 */
#ifndef SF_DAEMON_SERVER_H
#define SF_DAEMON_SERVER_H

#include "base/config.h"

struct sf_server;

/* What the command line says beside the configuration. */
struct sf_server_options {
    const struct sf_config *config; /* must outlive the server */
    bool demo;                      /* the namespace of the indices is created */
    bool accept_clock_jump;         /* the clock may be more than a day past the last timestamp */
};

/* Starts everything and returns when it serves. Blocks (main thread). On error nothing is left. */
SF_MUST_USE enum sf_err sf_server_start(const struct sf_server_options *options,
                                        struct sf_diag *diag, struct sf_server **out_server);

/* Reads the key ring again; on error the present one stays in force. */
SF_MUST_USE enum sf_err sf_server_reload(struct sf_server *server, struct sf_diag *diag);

/* Graceful end: edges first, then what stands behind them. Blocks. NULL is fine. */
void sf_server_stop(struct sf_server *server);

#endif
