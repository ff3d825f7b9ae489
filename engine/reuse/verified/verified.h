// SPDX-License-Identifier: Apache-2.0
// Method verified: options are RectifyOptions; engine/loop/ starts a request tentatively and checks what it wrote.
#pragma once

#include "engine/reuse/method.h"

namespace baton {

const Method& verified_method();

}  // namespace baton
