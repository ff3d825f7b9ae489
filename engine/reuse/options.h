// SPDX-License-Identifier: Apache-2.0
// The reuse options of a request: the method, what holds for every method, and the method's own options, whose type the
// method alone knows (engine/reuse/METHOD/).
#pragma once

#include <any>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/reuse/method.h"

namespace baton {

/// The layers that a method recomputes (docs/methods.md). Layers count from 0.
struct LayerRange {
  std::int32_t start = 0;   // l_s: reused tokens enter here from their hidden states; 0: from their embeddings
  std::int32_t detect = 0;  // l_d: values are compared and tokens are chosen
  std::int32_t end = 0;     // l_e: the last layer of the chosen tokens
  bool operator==(const LayerRange&) const = default;
  bool given() const { return *this != LayerRange{}; }
  bool valid(std::int32_t layers) const { return 0 <= start && start < detect && detect < end && end < layers; }

  /// The layers if a profile names no others (docs/decisions/rectify.md); not valid in models of fewer than
  /// three layers.
  static LayerRange by_depth(std::int32_t layers) { return {layers / 8, layers / 8 + 1, layers * 2 / 3}; }

  /// The group of layers [first, last], in which no token is chosen.
  static LayerRange group(std::int32_t first, std::int32_t last) { return {first, first, last}; }
  bool is_group(std::int32_t layers) const { return 0 <= start && start == detect && start < end && end < layers; }
};

/// Whether the KV of a prompt may be approximate.
enum class Exactness : std::uint8_t {
  as_method,     // as the method has it
  exact,         // nothing is handed over approximately
  exact_reader,  // the same, because the prompt's agent is declared exact
};

struct ReuseOptions {
  const Method* method = &full_method();
  Exactness exactness = Exactness::as_method;
  /// The layers that readers recompute; authors keep hidden states at the first. Not given: those of the model.
  LayerRange range;
  /// The last layers of larger ranges with the same first layer that were measured, ascending.
  std::vector<std::int32_t> larger_ends{};
  std::any own{};                // the method's own options; empty: its defaults
  std::int32_t min_tokens = 32;  // shorter segments are computed in full
  std::int32_t max_hops = 0;     // above 0: so are segments of at least this many hops (Segment::hops)
  bool prefix = true;            // methods other than full also reuse exact prefixes
  bool store = false;            // KV is also taken from the engine's store, if it has one, and left there
  bool record = false;           // the output and the slots become segments
};

/// Returns the method's own options of type T; T's defaults if there are none of this type.
template <class T>
const T& own(const ReuseOptions& reuse) {
  static const T defaults{};
  const T* found = std::any_cast<T>(&reuse.own);
  return found != nullptr ? *found : defaults;
}
/// The same, to be changed.
template <class T>
T& own(ReuseOptions& reuse) {
  if (std::any_cast<T>(&reuse.own) == nullptr) reuse.own = T{};
  return *std::any_cast<T>(&reuse.own);
}

/// True when segments may be placed, so that the prompt's KV is approximate.
bool takes_segments(const ReuseOptions& reuse);
/// True when readers may choose tokens by the attention that these received from their author. A request whose method
/// reads no segments does not say how its own are read.
bool reads_attention(const ReuseOptions& reuse);
/// The method that obtains the KV of a segment, and of tokens that were computed ahead, for the record.
const Method& segment_method(const ReuseOptions& reuse);
const Method& ahead_method(const ReuseOptions& reuse);
/// The fraction of the segments' (token, layer) entries that is to stay reused; 0: the method's other options decide.
double asked_reuse(const ReuseOptions& reuse);
/// The largest such fraction: what is computed for every token, whatever is chosen, cannot be reused.
double max_reuse(const ReuseOptions& reuse, const LayerRange& range, std::int32_t layers);
/// The time in which the first token should come, in milliseconds; 0: no method looks at it.
double wanted_ttft_ms(const ReuseOptions& reuse);
/// True when a missing layer range is that of RelayCaching's own profiler.
bool wants_paper_range(const ReuseOptions& reuse);
/// Returns what is invalid in the options, or empty.
std::string problem_of(const ReuseOptions& reuse);

/// For Method::problem: a message unless the value is a fraction, or not negative; appended to `problem` if that is
/// empty.
void expect_fraction(std::string& problem, const char* what, double value);
void expect_not_negative(std::string& problem, const char* what, double value);

/// takes_prefixes: prompts with these options reuse an exact cached prefix. keeps_prefixes: they also add theirs to the
/// cache.
bool takes_prefixes(const ReuseOptions& reuse);
bool keeps_prefixes(const ReuseOptions& reuse);

}  // namespace baton
