/* The contract's own description: a serialized google.protobuf.FileDescriptorSet of every file that
 * the build generates code from, imports first. Reflection serves it and the JSON codec derives its
 * side tables from it. */
#ifndef SF_CONTRACT_DESCRIPTOR_SET_H
#define SF_CONTRACT_DESCRIPTOR_SET_H

#include <stddef.h>
#include <stdint.h>

/* First byte; valid for ever. */
extern const uint8_t sf_contract_descriptor_set[];

/* Number of bytes. */
extern const size_t sf_contract_descriptor_set_size;

#endif
