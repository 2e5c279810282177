/* Loading of YAML text through libcyaml with its messages turned into diagnostics. */
#ifndef SF_BASE_YAML_PRIV_H
#define SF_BASE_YAML_PRIV_H

#include <cyaml/cyaml.h>

#include "base/diag.h"
#include "base/view.h"

/* Loads `text` under `schema` (a mapping); `name` is the file's name for messages. Free *out_data
 * with sf_yaml_free; it is NULL when the text holds comments only. Error: SF_ERR_CONFIG, the
 * message starting with name:line when known. */
SF_MUST_USE enum sf_err sf_yaml_load(const char *name, struct sf_view text,
                                     const cyaml_schema_value_t *schema, struct sf_diag *diag,
                                     void **out_data);

/* Frees what sf_yaml_load gave; NULL is fine. */
void sf_yaml_free(const cyaml_schema_value_t *schema, void *data);

#endif
