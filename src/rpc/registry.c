/* The table of served methods: one entry per path, looked up by each call. */
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "rpc/rpc_priv.h"

void sf_rpc_registry_init(struct sf_rpc_registry *registry,
                          const struct sf_service *const *services, size_t count,
                          size_t first_index)
{
    registry->routes = sf_map_new();
    for (size_t s = 0; s < count; s++) {
        for (size_t m = 0; m < services[s]->method_count; m++) {
            const struct sf_method *method = &services[s]->methods[m];
            struct sf_rpc_route *route = sf_calloc(1, sizeof(*route));
            char *path = NULL;
            SF_ASSERT((method->unary == NULL) != (method->stream == NULL));
            SF_ASSERT(asprintf(&path, "/%s/%s", services[s]->full_name, method->name) > 0);
            *route = (struct sf_rpc_route){path, services[s], method,
                                           first_index + sf_map_count(registry->routes)};
            SF_ASSERT(sf_map_put(registry->routes, sf_view_str(path), route) == NULL);
        }
    }
}

static void route_free(void *value)
{
    struct sf_rpc_route *route = value;

    free((void *)(uintptr_t)route->path);
    free(route);
}

void sf_rpc_registry_fini(struct sf_rpc_registry *registry)
{
    sf_map_destroy(registry->routes, route_free);
    registry->routes = NULL;
}

const struct sf_rpc_route *sf_rpc_registry_find(const struct sf_rpc_registry *registry,
                                                struct sf_view path)
{
    return sf_map_get(registry->routes, path);
}

size_t sf_rpc_registry_count(const struct sf_rpc_registry *registry)
{
    return sf_map_count(registry->routes);
}
