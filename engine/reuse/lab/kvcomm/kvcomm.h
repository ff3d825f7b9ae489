// SPDX-License-Identifier: Apache-2.0
// kvcomm: KVComm (arXiv 2510.12872) as its authors published it. The KV of a placeholder gets the offsets that earlier
// texts, the anchors, had in the same place of the same prompt. Each rule names the section or equation of the paper
// and the function of the authors' program (github.com/FastMAS/KVCOMM, KVCOMM/llm/kvcomm_engine.py) that it was checked
// against. docs/methods.md says where both differ and which of them this method follows.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/reuse/method.h"
#include "engine/reuse/options.h"
#include "engine/reuse/prompt_part.h"

namespace baton {

struct KvcommOptions {
  std::int32_t size = 20;   // V: anchors of one pool (section 4.1)
  std::int32_t window = 5;  // the oldest anchors, of which the least activated one is evicted
  float gamma = 0.3f;       // the gate's threshold, as a fraction of the largest possible entropy (eq. 5)
  float top_p = 0.9f;       // the nucleus of weights whose anchors count as activated
  std::string pool;         // name of the pools; pools of different names share nothing
};

/// KV of n tokens in all layers, of each layer [n, 2 K D] bf16: keys before RoPE, then values. Host memory.
struct KvcommRows {
  KvWidth shape;
  std::int32_t length = 0;  // n
  std::vector<std::uint16_t> kv;

  std::int64_t bytes() const { return static_cast<std::int64_t>(kv.size() * sizeof(std::uint16_t)); }
  /// Returns row `token` of a layer, [2 K D].
  std::span<const std::uint16_t> row(std::int32_t layer, std::int32_t token) const;
  std::span<std::uint16_t> row(std::int32_t layer, std::int32_t token);
};

/// A text of a pool. All but its activations is immutable.
struct KvcommAnchor {
  std::shared_ptr<const KvcommRows> base;  // the KV that was handed over
  std::vector<TokenId> tokens;
  KvcommRows offset;     // the KV in the prompt minus the base
  KvcommRows following;  // the KV in the prompt of the fixed text behind the placeholder
  std::int64_t activations = 0;
};

/// The anchors of one placeholder of one prompt, the oldest first.
using KvcommPool = std::vector<std::shared_ptr<KvcommAnchor>>;

/// What the gate says of a text.
struct KvcommGate {
  bool becomes_anchor = true;
  std::vector<std::size_t> usable;     // the anchors that are at least as long as the text, by index
  std::vector<double> distances;       // [usable] Euclidean, of the values of all layers and tokens
  std::vector<double> weights;         // [usable] softmax of the negative distances
  double entropy = 0.0;                // nats
  std::vector<std::size_t> activated;  // the nucleus, by index into the pool; empty if the text becomes an anchor
};

/// Decides whether a text becomes an anchor (eq. 5; predict_as_anchor): if fewer than two anchors are at least as long,
/// or the entropy of its weights exceeds gamma log(usable anchors).
KvcommGate kvcomm_gate(const KvcommOptions& options, const KvcommPool& pool, const KvcommRows& text);

/// Returns the anchors that count as activated by these weights (predict_as_anchor), by index into the weights: the
/// largest, while their sum stays below top_p. If the first alone reaches it, all anchors count.
std::vector<std::size_t> kvcomm_nucleus(std::span<const double> weights, double top_p);

/// Returns the anchor that leaves a full pool (section 3.3; update_anchor): the least activated of the `window` oldest,
/// of equals the oldest. The pool must not be empty.
std::size_t kvcomm_evicted(const KvcommPool& pool, std::int32_t window);

/// Returns [anchors * n], or [anchors * values]: the weights of each anchor, which sum to 1 over the anchors.
struct KvcommWeights {
  std::vector<double> keys, values;
};
/// A weight per anchor and token (eq. 6, section 6.4.4; _compute_anchor_weight_entry): a softmax over the anchors of
/// the negative mean |difference|, over layers, heads and channels, of the token's keys, and of its values, from those
/// of the anchor's token of the same index.
KvcommWeights kvcomm_token_weights(const KvcommPool& usable, const KvcommRows& text);
/// A weight per anchor, layer and channel for the fixed text behind the placeholder (eq. 7;
/// _compute_anchor_weight_entry): a softmax over the anchors of the negative Euclidean distance, over tokens, of the
/// placeholder's channel from that of the anchor's last n tokens.
KvcommWeights kvcomm_channel_weights(const KvcommPool& usable, const KvcommRows& text);

/// Returns the correction of a text (eq. 6; offset_kv_cache_pair), [n, 2 K D] of each layer, 0 in the first.
KvcommRows kvcomm_offset(const KvcommPool& usable, const KvcommRows& text);
/// Returns the KV of the fixed text behind it (eq. 7; offset_kv_cache_pair). The weights sum to 1, so the base KV of
/// the fixed text cancels out. All anchors must have as many tokens of it.
KvcommRows kvcomm_following(const KvcommPool& usable, const KvcommRows& text);

const Method& kvcomm_method();

class MethodState;
/// The pools in the state that kvcomm_method() keeps in an engine, by place, for tests. Threads: while the engine is
/// idle. Throws std::bad_cast for another state.
const std::map<PlaceKey, KvcommPool>& kvcomm_pools_of(const MethodState& state);

}  // namespace baton
