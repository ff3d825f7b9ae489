// SPDX-License-Identifier: Apache-2.0
// The defaults of engine options that depend on the device.
#pragma once

#include "engine/local_engine.h"

namespace baton {

LocalEngineOptions with_defaults(LocalEngineOptions options, const BackendInfo& device);

}  // namespace baton
