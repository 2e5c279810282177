"""What tests of the allocator share: expected refusals, its state object."""
from harness import refused, sf, state_key


def state(a, ref):
    return a.json_object(state_key(ref))


def next_id(a, ref):
    return int(state(a, ref)["next_doc_id"])


def burned(call, doc_id):
    error = refused("SF_VERSION_CONFLICT", call, "allocator.reservation_conflict",
                    {"doc_id": str(doc_id), "allocator_conflict_reason": "below_watermark_burned_gap"},
                    conflict_reason=sf.ALLOCATOR_RESERVATION_CONFLICT_REASON_BELOW_WATERMARK_BURNED_GAP)
    found = error.context.allocator.reservation_conflict.doc_id
    assert found.WhichOneof("id_value") == "u64" and found.u64 == doc_id


def limited(call, scope, configured, requested):
    enum = {"allocator_plan_items": sf.ALLOCATOR_LIMIT_SCOPE_PLAN_ITEMS,
            "allocator_forward_reservation_window": sf.ALLOCATOR_LIMIT_SCOPE_FORWARD_RESERVATION_WINDOW,
            "allocator_identity_space_remaining": sf.ALLOCATOR_LIMIT_SCOPE_IDENTITY_SPACE_REMAINING}[scope]
    refused("SF_TOO_MANY_OPERATIONS", call, "allocator.limit_rejection",
            {"limit_scope": scope, "configured_limit": str(configured), "requested_value": str(requested)},
            limit_scope=enum, configured_limit=configured, requested_value=requested)
