// SPDX-License-Identifier: Apache-2.0
// The rows of one step, and which layers each of them runs through. Full prefill and decode run every row through all
// layers; a reuse method is a schedule: rows that enter late, from a stored hidden state, or leave early.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "engine/backend/choose.h"
#include "engine/kv/kv_cache.h"
#include "engine/text/tokenizer.h"

namespace baton {

/// A row runs through layers [enter, leave); its cached K and V of all other layers stay as they are. A row with
/// enter > 0 starts from its cache's hidden state (which must be that of layer `enter`), and keeps K and V of that
/// layer too: they belong to the same hidden state. So does a placed row that enters at layer 0: there K and V
/// depend on the token alone.
struct RowPath {
  std::int32_t enter = 0;
  std::int32_t leave = 0;
  std::int32_t detection = -1;  // index into StepRows::detections
  bool placed = false;          // K and V of this token are in the cache, at this position
  bool anew = false;            // but another model made them: those of layer `enter` are computed too

  bool keeps(std::int32_t layer) const { return layer == enter && !anew && (enter > 0 || placed); }
  /// Layers whose K and V are computed.
  std::int32_t computed() const { return leave - enter - (keeps(enter) ? 1 : 0); }
};

/// At `layer`, K and V of the detection's rows are computed and kept; then only the chosen rows go on, up to `leave`.
struct Detection {
  std::int32_t layer = 0;
  std::int32_t leave = 0;
  /// deviation[i]: of the i-th row of this detection, in the step's order (Operations::value_deviation against the
  /// values that were cached before). Returns one flag each. Called on the thread of the step.
  std::function<std::vector<bool>(std::span<const float> deviation)> choose;
};

/// Row i is `token[i]` at `position[i]` of the cache `sequence[i]`. Any order, any scattering; each position that a row
/// attends to must be committed, placed, or a row of the same step.
struct StepRows {
  std::vector<KvCache*> caches;
  std::vector<std::int32_t> sequence;  // [T] index into caches
  std::vector<std::int32_t> position;  // [T]
  std::vector<TokenId> token;          // [T]
  std::vector<RowPath> path;           // [T], or empty: all rows through all layers
  std::vector<Detection> detections;
  std::vector<std::int32_t> logits_rows;  // rows whose logits are wanted; they run through the last layer
  std::vector<TokenChoice> choices;       // of the first of those: their tokens are chosen where the logits are
  /// Called before each layer on the thread of the step, to give the backend what the layer's rows wait for: KV and
  /// hidden states that are to be in their caches and are not yet. Null: all is there.
  std::function<void(std::int32_t layer)> before_layer;

  std::int64_t size() const { return static_cast<std::int64_t>(token.size()); }
  void clear();
  /// Index of the cache, added when it is new.
  std::int32_t add_cache(KvCache* cache);
  void add_row(std::int32_t cache, std::int32_t at, TokenId id);
};

}  // namespace baton
