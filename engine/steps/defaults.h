// What an engine does where its options leave it to the device.
#pragma once

#include "engine/engine.h"

namespace baton {

EngineOptions with_defaults(EngineOptions options, const BackendInfo& device);

}  // namespace baton
