// SPDX-License-Identifier: Apache-2.0
// What is behind the handles of baton/c.h that more than one file opens.
#pragma once

#include "sdk/src/c_support.h"

struct baton_workflow {
  baton::Workflow workflow;
};
