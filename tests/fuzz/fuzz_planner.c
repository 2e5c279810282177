/* Any document against a schema with vectors, nested fields and a strict policy: the walk takes
 * only what the validator takes, and never leaves the text. */
#include "base/json.h"
#include "base/limits.h"
#include "unit/gateway/gateway_fixture.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct state_fixture f = {0};
    struct sf_view body = sf_view_bytes(data, size);

    state_init(&f);
    state_field(&f, "a", F(TEXT), 0);
    state_field(&f, "v", F(DENSE_VECTOR), 2);
    state_field(&f, "o.p.q", F(INT64), 0);
    state_field(&f, "o.v", F(DENSE_VECTOR), 1);
    for (int strict = 0; strict < 2; strict++) {
        struct sf_plan_schema *schema;
        struct sf_diag diag;
        sf_modality_mask touched = 0;
        sf_diag_init(&diag);
        if (strict)
            f.state.undeclared_fields =
                SEARCHFABRIC__V1__UNDECLARED_FIELD_POLICY__UNDECLARED_FIELD_POLICY_REJECT;
        schema = sf_plan_schema_new(&f.state);
        enum sf_err err = sf_plan_row(schema, OP(CREATE), body, 0, &diag, &touched);
        SF_ASSERT(err == SF_OK || err == SF_BAD_REQUEST);
        if (err == SF_OK)
            SF_ASSERT(touched != 0 && sf_json_valid(body, SF_LIMIT_JSON_DEPTH));
        else
            SF_ASSERT(sf_diag_get(&diag, "violation") != NULL);
        sf_plan_schema_destroy(schema);
    }
    return 0;
}
