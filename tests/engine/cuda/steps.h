// SPDX-License-Identifier: Apache-2.0
// Steps over some sequences of a small model, for tests of steps that come again.
#pragma once

#include "tests/engine/cuda/models.h"

namespace baton::test {

/// A model, the caches of some sequences, and what steps over them give.
class Steps {
 public:
  Steps(std::unique_ptr<Backend> backend, const TinyOptions& options, std::int32_t sequences, bool keeps_all)
      : backend_(std::move(backend)), model_(make_tiny_model(*backend_, options)), forward_(*backend_, *model_) {
    KvLayout layout = model_->kv_layout();
    if (keeps_all) {
      layout.raw_keys = layout.received = true;
      layout.hidden_width = model_->config.width;
      layout.hidden_layer = 1;
    }
    for (std::int32_t i = 0; i < sequences; ++i) caches_.emplace_back(*backend_, layout, 300);
  }

  /// Runs `counts[i]` rows of sequence i; logits of the last of each, or the chosen ids before them.
  std::vector<float> run(const std::vector<std::int32_t>& counts, const std::vector<TokenChoice>& choices, int salt) {
    StepRows rows;
    for (std::size_t i = 0; i < counts.size(); ++i) {
      if (counts[i] == 0) continue;
      const std::int32_t cache = rows.add_cache(&caches_[i]);
      for (std::int32_t row = 0; row < counts[i]; ++row)
        rows.add_row(cache, caches_[i].length() + row, (salt + 31 * row + static_cast<int>(i)) % 256);
      rows.logits_rows.push_back(static_cast<std::int32_t>(rows.size()) - 1);
    }
    rows.choices.assign(choices.begin(), choices.begin() + static_cast<std::ptrdiff_t>(
                                                               std::min(choices.size(), rows.logits_rows.size())));
    const std::span<const float> logits = forward_.run(rows);
    std::vector<float> result;
    for (const ChosenToken& chosen : forward_.chosen()) {
      result.push_back(static_cast<float>(chosen.id));
      result.push_back(chosen.entropy);
    }
    result.insert(result.end(), logits.begin(), logits.end());
    for (std::size_t i = 0; i < counts.size(); ++i) caches_[i].commit(caches_[i].length() + counts[i]);
    return result;
  }

  /// All that the caches hold.
  std::vector<std::byte> kept() {
    std::vector<std::byte> all;
    for (KvCache& cache : caches_) {
      std::vector<std::byte> bytes(cache.bytes());
      backend_->copy_to_host(bytes, cache.slab(0).keys);
      all.insert(all.end(), bytes.begin(), bytes.end());
    }
    return all;
  }

  void rehearse() { forward_.rehearse(); }
  /// A new sequence in the place of an old one.
  void begin_anew(std::size_t i) {
    const KvLayout layout = caches_[i].layout();
    caches_[i] = KvCache(*backend_, layout, 300);
  }
  void take_back(std::size_t i, std::int32_t tokens) { caches_[i].truncate(caches_[i].length() - tokens); }
  std::int32_t length(std::size_t i) const { return caches_[i].length(); }
  const StepTimes& times() const { return forward_.times(); }

 private:
  std::unique_ptr<Backend> backend_;
  std::shared_ptr<const Model> model_;
  Forward forward_;
  std::vector<KvCache> caches_;
};

}  // namespace baton::test
