// SPDX-License-Identifier: Apache-2.0
// Method: a way to obtain the KV of a prompt. Each method has a folder, engine/reuse/METHOD/, and describes itself with
// one constant of this type; engine/registry.h lists the methods. Only engine/reuse/ reads the traits and hooks: other
// code calls the functions of this file, options.h, decision.h, method_state.h and schedule.h.
// A method declares the keys that it adds to `relay:` in workflow files, and reads its own options from their values.
// workflows/format builds the table of the file format from these declarations.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace baton {

class Backend;
class GivenKeys;
class MethodState;
struct MethodKey;
struct Calibration;
struct LayerRange;
struct Model;
struct PromptSchedule;
struct RectifyOptions;
struct ReuseDecision;
struct ReuseOptions;
struct ScheduleInput;
using PlaceId = std::uint64_t;

/// Properties of a method. By default `prefixes` is optional, and all others are false or none.
struct MethodTraits {
  /// Whether a prompt reuses the exact KV of a prefix that it has in common with an earlier prompt.
  enum class Prefixes : std::uint8_t { never, optional, always };  // optional: if ReuseOptions::prefix is set
  /// The layer range that a method requires. detection: start < detect < end; group: [start, end], detect = start.
  enum class Layers : std::uint8_t { none, detection, group };

  bool exact = false;  // outputs equal those of full prefill, token for token
  Prefixes prefixes = Prefixes::optional;
  bool segments = false;  // segments' KV is reused, so the prompt's KV is approximate
  bool ahead = false;     // prompts are prefilled before all of their text is known
  Layers layers = Layers::none;
  bool hidden_states = false;  // reused tokens enter layer range.start with the hidden states of their author
  bool models = false;         // a segment may come from another model of the same shapes
  bool learns = false;     // its state learns from each prompt; only segments are taken, no text of a running prompt
  bool tentative = false;  // an agent may start on approximate KV; its answer is checked on exact KV
  bool measures = false;   // probes measure turns, for the history of places (engine/loop/relay_probe.h)
};

/// The budget of the state that a method keeps in one engine.
struct StateBudget {
  std::int64_t bytes = 0;
};

struct Method {
  std::string_view name;
  std::string_view summary;  // one sentence for `--help` and pages
  std::string_view alias;    // another name in files and options, or empty
  MethodTraits traits;

  PromptSchedule (*schedule)(const ReuseOptions&, const ReuseDecision&, const ScheduleInput&) = nullptr;
  /// Decides how one prompt is reused, by the calibration of the model. Null: the options decide.
  void (*decide)(const ReuseOptions&, const Calibration&, PlaceId, ReuseDecision&) = nullptr;
  /// The functions of options.h with these names call the next six hooks; problem_of() calls `problem`. A null hook
  /// counts as one that returns, in this order: 0, 1, false, 0, an empty text, false.
  double (*asked_reuse)(const ReuseOptions&) = nullptr;
  double (*max_reuse)(const ReuseOptions&, const LayerRange&, std::int32_t layers) = nullptr;
  bool (*reads_attention)(const ReuseOptions&) = nullptr;
  double (*wanted_ttft_ms)(const ReuseOptions&) = nullptr;
  std::string (*problem)(const ReuseOptions&) = nullptr;
  bool (*wants_paper_range)(const ReuseOptions&) = nullptr;
  /// The methods that the run record names for segments and for tokens computed ahead. Null: this method.
  const Method& (*segments_by)() = nullptr;
  const Method& (*ahead_by)() = nullptr;
  /// Makes the state that the method keeps in an engine; methods with the same function share one. Null: no state.
  std::unique_ptr<MethodState> (*make_state)(Backend&, const Model&, const StateBudget&) = nullptr;
  /// Sets the options so that `share` (a fraction) of the reused tokens is recomputed, `tokens` of each segment. Null:
  /// the method chooses no tokens.
  void (*recompute)(ReuseOptions&, double share, std::int32_t tokens) = nullptr;
  /// Sets the options so that the method's state reports each text of a prompt as a sample (MethodState::on_sample) and
  /// corrects no text. Null: the state reports no samples.
  void (*observe)(ReuseOptions&) = nullptr;
  /// Returns the method's keys in workflow files; reads them into its options. Null: the method has no keys.
  std::vector<MethodKey> (*keys)() = nullptr;
  void (*read)(GivenKeys&, ReuseOptions&) = nullptr;
  /// Returns the options by which the method rectifies texts. Null: it does not rectify.
  const RectifyOptions* (*rectify_options)(const ReuseOptions&) = nullptr;
};

/// The exact ways to obtain a part of a prompt, with any method: compute it, reuse a prefix, compute it ahead.
const Method& full_method();
const Method& prefix_method();
const Method& lockstep_method();

/// True if outputs equal those of full prefill, token for token.
bool is_exact(const Method& method);
/// True if KV of segments is reused.
bool hands_over(const Method& method);
/// True if prompts are prefilled before all of their text is known.
bool computes_ahead(const Method& method);
/// True if the method decides for each prompt whether KV of segments is handed over or texts are computed ahead.
bool decides(const Method& method);
/// True if the author of a segment may be another model.
bool reads_other_models(const Method& method);
/// True if exact prefixes may be reused.
bool reuses_prefixes(const Method& method);
/// True if exact prefixes are reused even if ReuseOptions::prefix is not set.
bool always_reuses_prefixes(const Method& method);
/// True if layers are recomputed in a range that is measured for a model (needs_range) or a pair of models
/// (needs_group).
bool needs_range(const Method& method);
bool needs_group(const Method& method);
/// True if reused tokens enter with the hidden states of their author.
bool needs_hidden_states(const Method& method);
/// True if a fraction of the reused tokens is chosen and recomputed.
bool chooses_tokens(const Method& method);
/// True if the method's state learns from prompts.
bool learns(const Method& method);
/// True if the method decides by the relay levels of a model and the history of places (engine/reuse/auto/levels.h).
bool uses_levels(const Method& method);
/// True if an agent may start on approximate KV; its answer is checked on exact KV.
bool may_begin_tentatively(const Method& method);

/// A key of a method in workflow files.
struct MethodKey {
  enum class Type : std::uint8_t { boolean, integer, number, number_above, choice, text, time_limit };
  static constexpr double kNoLimit = std::numeric_limits<std::int32_t>::max();

  std::string name;  // such as "tolerance", or "select.share" for a key in a section
  Type type = Type::boolean;
  double low = 0.0, high = kNoLimit;  // bounds of a number; number_above excludes `low` itself
  std::vector<std::string> words;     // the allowed values of a choice
  std::string standard;               // the default, as the documentation states it
  std::string doc;
  /// The key belongs under `relay.lab`, which only programs that call register_lab_methods() accept.
  bool lab = false;
  bool only_here = false;  // with a method that has no such key: true: an error; false: ignored
};

/// The keys that a file sets under `relay`. Values have the type that the key declares.
class GivenKeys {
 public:
  virtual ~GivenKeys() = default;
  virtual bool has(std::string_view name) const = 0;
  virtual std::optional<std::string> text(std::string_view name) const = 0;
  virtual std::optional<std::int64_t> integer(std::string_view name) const = 0;
  virtual std::optional<float> number(std::string_view name) const = 0;
  virtual std::optional<bool> boolean(std::string_view name) const = 0;
  virtual std::optional<double> milliseconds(std::string_view name) const = 0;
  /// Reports a mistake in the value of a key that the file sets.
  virtual void error(std::string_view name, const std::string& message, const std::string& help = {}) = 0;

  /// Reports each of these keys that the file sets, although another setting makes it ineffective. The message is
  /// "`name` has no effect " and `because`.
  void refuse(std::initializer_list<std::string_view> names, const std::string& because);
};

/// Reads the keys of options.method from the file into its options.
void read_keys(GivenKeys& given, ReuseOptions& options);

/// Returns the key `reuse`, for the methods that choose tokens.
MethodKey reuse_key();

}  // namespace baton
