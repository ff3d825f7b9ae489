// SPDX-License-Identifier: Apache-2.0
// The methods by which KV is handed on (docs/methods.md), as workflow files and records name them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace baton::inline v1 {

/// A method and what holds for it.
struct ReuseMethod {
  std::string name;       // "rectify"
  std::string alias;      // another name in files and options, or empty
  std::string summary;    // one sentence for people
  bool exact = false;     // the outputs are those of full prefill, token for token
  bool reuses = false;    // KV of earlier prompts is reused; only `full` reuses none
  bool prefixes = false;  // exact KV of equal beginnings is always reused
  bool segments = false;  // KV of earlier texts is reused wherever they stand in a prompt
  bool ahead = false;     // prompts are computed before all of their text is known
  bool learns = false;    // KV is corrected by what was learned from earlier prompts
  bool models = false;    // KV may come from another model
  bool group = false;     // recomputes a group of layers, which is measured for each pair of models
};

/// All of them, in the order in which tables show them.
const std::vector<ReuseMethod>& reuse_methods();
/// The method of a name; null for an unknown one.
const ReuseMethod* find_reuse_method(std::string_view name);

}  // namespace baton::inline v1
