// SPDX-License-Identifier: Apache-2.0
// The methods by which the KV of a prompt is obtained: one table with one row for each method. Names are parsed where
// they enter (workflow files, command lines, the public interfaces); all other code reads traits. A new method is a
// schedule in a file of its own, an id here and a row in methods.cpp (docs/methods.md explains each method).
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace baton {

struct ReuseOptions;
struct ScheduleInput;
struct PromptSchedule;

enum class MethodId : std::uint8_t {
  full,
  prefix,
  lockstep,
  direct,
  epic,
  cacheblend,
  rectify,
  anchors,
  droidspeak,
  automatic,
  verified,
};

struct Method {
  /// Whether a prompt reuses the exact KV of a prefix that it shares with an earlier prompt.
  enum class Prefixes : std::uint8_t { never, optional, always };  // optional: as ReuseOptions::prefix says
  /// The required form of ReuseOptions::range: detection: start < detect < end; group: [start, end], detect = start.
  enum class Layers : std::uint8_t { none, detection, group };

  MethodId id = MethodId::full;
  std::string_view name;
  std::string_view summary;  // one sentence for `--help` and pages
  bool exact = false;        // the outputs are those of full prefill, token for token
  Prefixes prefixes = Prefixes::optional;
  bool segments = false;  // the KV of segments is reused, so the prompt's KV is approximate
  bool ahead = false;     // prompts are prefilled before all of their text is known
  Layers layers = Layers::none;
  bool hidden_states = false;  // reused tokens enter at range.start from their author's hidden states
  bool models = false;         // the author of a segment may be another model of the same shapes
  bool anchors = false;        // KV is corrected by anchors, which learn from each prompt
  bool corrections = false;    // KV is corrected by the learned correction of its placeholder, if there is one
  bool chosen_tokens = false;  // a chosen fraction of the reused tokens is recomputed
  PromptSchedule (*schedule)(const ReuseOptions& options, const ScheduleInput& input) = nullptr;
};

/// Returns all rows, in the order of MethodId.
std::span<const Method> methods();
const Method& method_of(MethodId id);
/// Returns the method of a name, or null for an unknown name.
const Method* find_method(std::string_view name);

}  // namespace baton
