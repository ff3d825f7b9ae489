// The one idea of the engine: a layer runs over a set of rows. Prefill is all rows of a prompt, a decode step is one
// row of each running sequence, parallel agents are more rows of the same step.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/kv/kv_cache.h"
#include "engine/model/model.h"

namespace baton {

/// The rows of one step: row i is `token[i]` at `position[i]` of the cache `sequence[i]`. Any order, any scattering;
/// each position that a row attends to must be committed or be a row of the same step.
struct StepRows {
  std::vector<KvCache*> caches;
  std::vector<std::int32_t> sequence;     // [T] index into caches
  std::vector<std::int32_t> position;     // [T]
  std::vector<TokenId> token;             // [T]
  std::vector<std::int32_t> logits_rows;  // rows whose logits are wanted

  std::int64_t size() const { return static_cast<std::int64_t>(token.size()); }
  void clear();
  /// Index of the cache, added when it is new.
  std::int32_t add_cache(KvCache* cache);
  void add_row(std::int32_t cache, std::int32_t at, TokenId id);
};

/// Runs rows through all layers of a model. Owns the activations, which grow to the largest step seen and then stay.
/// One thread at a time; the model and backend must outlive it.
class Forward {
 public:
  Forward(Backend& backend, const Model& model);

  /// Writes keys and values of all rows into their caches (committing is the caller's) and returns the logits
  /// [logits_rows, V] f32 in the order asked for; valid until the next call.
  std::span<const float> run(const StepRows& rows);

 private:
  void reserve(std::int64_t rows, std::int64_t logits_rows);
  void prepare(const StepRows& rows);
  void run_layer(std::int32_t layer, const StepRows& rows);

  Backend& backend_;
  const Model& model_;
  std::int64_t row_capacity_ = 0;
  std::int64_t logits_capacity_ = 0;
  std::int64_t row_count_ = 0;

  Buffer x_;         // [T, C] residual stream
  Buffer normed_;    // [T, C]
  Buffer qkv_;       // [T, (H + 2K) D]
  Buffer attended_;  // [T, H D]
  Buffer delta_;     // [T, C] what attention or the MLP adds
  Buffer gate_up_;   // [T, 2F]
  Buffer hidden_;    // [T, F]
  Buffer cos_;       // [T, D/2]
  Buffer sin_;       // [T, D/2]
  Buffer last_;      // [logits rows, C]
  Buffer logits_;    // [logits rows, V]
  std::vector<float> host_angles_;
  std::vector<float> host_logits_;
  std::vector<KvSlab> slabs_;
  std::vector<std::int32_t> whole_;     // [T] first key of each row without a window: 0
  std::vector<std::int32_t> windowed_;  // [T] first key inside the window of the current layer
  std::int32_t window_ = 0;             // that windowed_ was made for
};

}  // namespace baton
