// SPDX-License-Identifier: Apache-2.0
// The rows of one step and the layers that each row runs through. Full prefill and decode run every row through all
// layers; in the schedule of a reuse method, rows may enter late, from a stored hidden state, or leave early.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "engine/backend/choose.h"
#include "engine/backend/operations.h"
#include "engine/kv/kv_cache.h"
#include "engine/text/tokenizer.h"

namespace baton {

/// A row runs through layers [enter, leave); its cached K and V of all other layers are unchanged. A row with enter > 0
/// starts from its cache's hidden state, which must be that of layer `enter`, and keeps the cached K and V of that
/// layer too, since they belong to the same hidden state. A placed row that enters at layer 0 also keeps K and V of
/// layer 0, which depend on the token alone.
struct RowPath {
  std::int32_t enter = 0;
  std::int32_t leave = 0;
  std::int32_t detection = -1;  // index into StepRows::detections
  bool placed = false;          // the cache holds K and V of this token at this position
  bool anew = false;            // another model made K and V, so those of layer `enter` are computed too

  bool keeps(std::int32_t layer) const { return layer == enter && !anew && (enter > 0 || placed); }
  /// Number of layers whose K and V are computed.
  std::int32_t computed() const { return leave - enter - (keeps(enter) ? 1 : 0); }
};

/// At `layer`, K and V of the detection's rows are computed and stored; then only the chosen rows run on, up to
/// `leave`.
struct Detection {
  /// deviation[i]: the deviation of the i-th row of this detection, in the step's order, from the values that were
  /// cached before (Operations::value_deviation). attention[i]: the fraction of their attention that the readers give
  /// to that row's token in this layer, the mean over readers and heads; empty without readers. Returns one flag for
  /// each row. Called on the thread of the step.
  using Choose = std::function<std::vector<bool>(std::span<const float> deviation, std::span<const float> attention)>;
  std::int32_t layer = 0;
  std::int32_t leave = 0;
  Choose choose;
  ValueMeasure measure = ValueMeasure::cosine;
  std::int32_t readers_begin = 0;  // the readers: rows of the step at these positions of the same cache
  std::int32_t readers_end = 0;
};

/// Row i is `token[i]` at `position[i]` of the cache `sequence[i]`. The rows may be in any order. Each position that a
/// row attends to must be committed, placed, or a row of the same step.
struct StepRows {
  std::vector<KvCache*> caches;
  std::vector<const KvCache*> unsummed;  // caches whose KvCache::received() the rows of this step leave as it is
  std::vector<std::int32_t> sequence;    // [T] index into caches
  std::vector<std::int32_t> position;    // [T]
  std::vector<TokenId> token;            // [T]
  std::vector<RowPath> path;             // [T], or empty: all rows through all layers
  std::vector<Detection> detections;
  std::vector<std::int32_t> logits_rows;  // rows whose logits are needed; they run through the last layer
  std::vector<TokenChoice> choices;       // choices for the first of logits_rows, made by the backend
  /// Called before each layer on the thread of the step, to place the KV and hidden states of this layer that are still
  /// being uploaded. Null: the caches are complete.
  std::function<void(std::int32_t layer)> before_layer;

  std::int64_t size() const { return static_cast<std::int64_t>(token.size()); }
  void clear();
  /// Returns the index of the cache, which is added when it is new.
  std::int32_t add_cache(KvCache* cache);
  void add_row(std::int32_t cache, std::int32_t at, TokenId id);
};

}  // namespace baton
