// SPDX-License-Identifier: Apache-2.0
// The methods by which the KV of a prompt comes into being: one table, one row for each. Names are parsed where they
// enter (workflow files, command lines, the C++ face); everything else reads traits. A new method is a schedule in a
// file of its own, an id here and a row in methods.cpp (docs/methods.md explains each method).
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
};

struct Method {
  /// Whether a prompt takes exact KV of a beginning that it shares with an earlier prompt.
  enum class Prefixes : std::uint8_t { never, optional, always };  // optional: as ReuseOptions::prefix says
  /// What ReuseOptions::range has to be: start < detect < end, or a group [start, end] with detect = start.
  enum class Layers : std::uint8_t { none, detection, group };

  MethodId id = MethodId::full;
  std::string_view name;
  std::string_view summary;  // one sentence for people
  bool exact = false;        // the outputs are those of full prefill, token for token
  Prefixes prefixes = Prefixes::optional;
  bool segments = false;  // KV of segments is reused, so the prompt's KV is approximate
  bool ahead = false;     // prompts are computed before all of their text is known
  Layers layers = Layers::none;
  bool hidden_states = false;  // reused tokens enter at range.start from the hidden states that their author left
  bool models = false;         // the author of a segment may be another model of the same shapes
  bool anchors = false;        // KV is corrected by anchors, which learn from each prompt
  bool corrections = false;    // KV is corrected by what was learned for its placeholder, where something was
  bool chosen_tokens = false;  // a chosen fraction of the reused tokens is recomputed
  PromptSchedule (*schedule)(const ReuseOptions& options, const ScheduleInput& input) = nullptr;
};

/// All rows, in the order of MethodId.
std::span<const Method> methods();
const Method& method_of(MethodId id);
/// The method of a name, or null.
const Method* find_method(std::string_view name);

}  // namespace baton
