/* Scenario of contending manifest publishers. */
#ifndef SF_TESTS_SIM_PUBLISH_H
#define SF_TESTS_SIM_PUBLISH_H

#include "fault/sim/sim.h"

void run_publish(struct sim *sim);

#endif
