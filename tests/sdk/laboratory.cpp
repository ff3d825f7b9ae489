// SPDX-License-Identifier: Apache-2.0
// Tests of the laboratory know the laboratory's methods and keys, too.
#include "engine/reuse/lab/lab_methods.h"

namespace {

[[maybe_unused]] const bool kHasLaboratory = (baton::register_lab_methods(), true);

}  // namespace
