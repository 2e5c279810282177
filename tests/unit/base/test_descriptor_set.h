/* The serialized FileDescriptorSet of test.proto. */
#ifndef SF_TESTS_TEST_DESCRIPTOR_SET_H
#define SF_TESTS_TEST_DESCRIPTOR_SET_H

#include <stddef.h>
#include <stdint.h>

extern const uint8_t sf_test_descriptor_set[];
extern const size_t sf_test_descriptor_set_size;

#endif
