// SPDX-License-Identifier: Apache-2.0
// Calibration: what has been measured of one model, by which reuse methods decide. ReuseDecision: what is decided about
// one prompt. A request's options are what was asked for and are never changed.
#pragma once

#include <memory>
#include <string>

#include "engine/kv/kv_cache.h"
#include "engine/reuse/auto/levels.h"
#include "engine/reuse/options.h"
#include "engine/reuse/prompt_part.h"

namespace baton {

/// A plain record of data; an engine keeps one (LocalEngine::calibration).
struct Calibration {
  LayerRange range;        // the layers that method rectify recomputes; invalid until the model has been profiled
  LayerRange paper_range;  // the same by RelayCaching's own profiler
  RelayLevels levels;      // what rectification leaves on this model; empty until the model has been profiled
  RelayHistory history;    // what was measured in the places of prompts
  std::shared_ptr<const Corrections> corrections;  // learned corrections of texts in the slots of prompts; null: none
};

struct ReuseDecision {
  bool exact = false;       // nothing is handed over approximately
  std::string reason;       // why the prompt is exact, for the record; empty: as asked
  LayerRange range;         // the layers that are recomputed, and at whose first authors keep hidden states
  double reuse = 0.0;       // above 0: as many tokens are recomputed as leave this fraction of the entries reused
  float predicted = -1.0f;  // the expected divergence, nats per token; below 0: unknown
  float tolerance = 0.0f;   // the accepted divergence, nats per token
  std::string basis;        // what `predicted` rests on: "3 measured turns of this place: "; empty: the model's levels
  float max_left = -1.0f;   // the prompt is computed in full when its guard measures more; below 0: never
  bool measured = false;    // the turn may be measured for its place
  /// Above 0: an answer decides exactly where its best two alternatives are closer than near_tie(). A mean divergence
  /// says nothing about a decision that hangs in the balance.
  float tie_factor = 0.0f;
};

/// How far apart, in nats, the best two alternatives must be for the decision to stand on KV that was handed over.
/// `nats`: the divergence that is expected of the prompt, per token; below 0: unknown. `tokens`: of the alternatives'
/// texts, whose errors add up. 0: any decision stands.
double near_tie(const ReuseDecision& decision, float nats, std::size_t tokens);

/// Decides about a prompt as its options ask, without a model's calibration.
ReuseDecision as_asked(const ReuseOptions& reuse);
/// Decides that a prompt is exact, for a reason that holds for the model.
ReuseDecision exact_because(const ReuseOptions& reuse, std::string reason);
/// Decides about an early prompt: as decide(), but the layer range is not checked.
ReuseDecision decide_early(const ReuseOptions& reuse, const Calibration& calibration, PlaceId place);
/// Decides about a prompt of a model with L layers. Throws std::invalid_argument when the method needs a layer range
/// and neither options nor calibration have a valid one, and when more is to be reused than the method can.
ReuseDecision decide(const ReuseOptions& reuse, const Calibration& calibration, PlaceId place, std::int32_t layers);

/// True when segments may be placed, so that the prompt's KV is approximate.
bool takes_segments(const ReuseOptions& reuse, const ReuseDecision& decision);
/// True when a text that a running prompt of the same run computes is waited for and handed over.
bool takes_running_texts(const ReuseOptions& reuse, const ReuseDecision& decision);
/// True when an early prompt ends before the first text that its request takes as a segment.
bool ends_at_segments(const ReuseOptions& reuse, const ReuseDecision& decision);
/// Adds what the request's cache keeps for its own use and for later readers: keys before RoPE, hidden states of the
/// range's first layer (`width` values), received attention.
void add_captured(KvLayout& layout, const ReuseOptions& reuse, const LayerRange& range, std::int32_t width);
/// Why a segment was placed, for the record; empty if nothing was expected of it.
std::string reason_of(const ReuseDecision& decision);

}  // namespace baton
