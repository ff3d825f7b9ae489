// SPDX-License-Identifier: Apache-2.0
// What an engine does where its options leave it to the device.
#pragma once

#include "engine/local_engine.h"

namespace baton {

LocalEngineOptions with_defaults(LocalEngineOptions options, const BackendInfo& device);

}  // namespace baton
