// SPDX-License-Identifier: Apache-2.0
// Calibration: what has been measured of one model, by which reuse methods decide.
#pragma once

#include <memory>

#include "engine/reuse/auto/levels.h"
#include "engine/reuse/options.h"
#include "engine/reuse/place.h"

namespace baton {

/// A plain record of data; an engine keeps one (LocalEngine::calibration).
struct Calibration {
  LayerRange range;        // the layers that method rectify recomputes; invalid until the model has been profiled
  LayerRange paper_range;  // the same by RelayCaching's own profiler
  RelayLevels levels;      // what rectification leaves on this model; empty until the model has been profiled
  RelayHistory history;    // what was measured in the places of prompts
  std::shared_ptr<const Corrections> corrections;  // learned corrections of texts in the slots of prompts; null: none
};

}  // namespace baton
