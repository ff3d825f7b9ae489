// SPDX-License-Identifier: Apache-2.0
// Method: a way to obtain the KV of a prompt. Each method has a folder, engine/reuse/METHOD/, and describes itself with
// one constant of this type; engine/registry.h lists the methods. The traits and hooks are read in engine/reuse/ alone:
// other code calls the functions of this file, options.h, decision.h, method_state.h and schedule.h.
// A method declares the keys that it adds to `relay:` of workflow files, of which workflows/format makes the format's
// table, and reads its own options from what a file gives.
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

/// What holds for a method. Traits that a method does not name are false or none.
struct MethodTraits {
  /// Whether a prompt reuses the exact KV of a prefix that it shares with an earlier prompt.
  enum class Prefixes : std::uint8_t { never, optional, always };  // optional: as ReuseOptions::prefix says
  /// The required form of the layer range: detection: start < detect < end; group: [start, end], detect = start.
  enum class Layers : std::uint8_t { none, detection, group };

  bool exact = false;  // the outputs are those of full prefill, token for token
  Prefixes prefixes = Prefixes::optional;
  bool segments = false;  // the KV of segments is reused, so the prompt's KV is approximate
  bool ahead = false;     // prompts are prefilled before all of their text is known
  Layers layers = Layers::none;
  bool hidden_states = false;  // reused tokens enter at range.start from their author's hidden states
  bool models = false;         // the author of a segment may be another model of the same shapes
  bool learns = false;         // its state learns from each prompt, so only texts with a segment are taken
  bool tentative = false;      // an agent may start on approximate KV, and is checked when the exact KV is there
  bool measures = false;       // turns are measured for their places (engine/loop/relay_probe.h)
};

/// Budgets of the state that a method keeps in one engine.
struct StateBudget {
  std::int64_t bytes = 0;
};

struct Method {
  std::string_view name;
  std::string_view summary;  // one sentence for `--help` and pages
  std::string_view alias;    // another name in files and options, or empty
  MethodTraits traits;

  PromptSchedule (*schedule)(const ReuseOptions&, const ReuseDecision&, const ScheduleInput&) = nullptr;
  /// Decides about one prompt by what is known of the model. Null: as the options ask.
  void (*decide)(const ReuseOptions&, const Calibration&, PlaceId, ReuseDecision&) = nullptr;
  /// Behind options.h; null: 0, 1, false, 0, no problem.
  double (*asked_reuse)(const ReuseOptions&) = nullptr;
  double (*max_reuse)(const ReuseOptions&, const LayerRange&, std::int32_t layers) = nullptr;
  bool (*reads_attention)(const ReuseOptions&) = nullptr;
  double (*wanted_ttft_ms)(const ReuseOptions&) = nullptr;
  std::string (*problem)(const ReuseOptions&) = nullptr;
  bool (*wants_paper_range)(const ReuseOptions&) = nullptr;
  /// The methods that the record names for segments and for tokens computed ahead. Null: this one.
  const Method& (*segments_by)() = nullptr;
  const Method& (*ahead_by)() = nullptr;
  /// Makes the state that the method keeps in an engine; methods with the same function share one. Null: none.
  std::unique_ptr<MethodState> (*make_state)(Backend&, const Model&, const StateBudget&) = nullptr;
  /// Sets the options to recompute this fraction of the reused tokens, `tokens` in each segment. Null: the method
  /// chooses no tokens.
  void (*recompute)(ReuseOptions&, double share, std::int32_t tokens) = nullptr;
  /// Sets the options so that the method's state gives each text of a prompt as a sample (MethodState::on_sample), and
  /// corrects none. Null: its state gives no samples.
  void (*observe)(ReuseOptions&) = nullptr;
  /// The method's keys in workflow files, and how they are read into its options. Null: it has none.
  std::vector<MethodKey> (*keys)() = nullptr;
  void (*read)(GivenKeys&, ReuseOptions&) = nullptr;
  /// The options of a method that rectifies texts. Null: it does not.
  const RectifyOptions* (*rectify_options)(const ReuseOptions&) = nullptr;
};

/// The exact ways in which a part of a prompt can be obtained, whatever the method: computed, as a prefix, ahead.
const Method& full_method();
const Method& prefix_method();
const Method& lockstep_method();

/// The outputs are those of full prefill, token for token.
bool is_exact(const Method& method);
/// KV of segments is reused.
bool hands_over(const Method& method);
/// Prompts are prefilled before all of their text is known.
bool computes_ahead(const Method& method);
/// KV of segments is handed over or texts are computed ahead, and which of both is decided for each prompt.
bool decides(const Method& method);
/// The author of a segment may be another model.
bool reads_other_models(const Method& method);
/// Exact prefixes are reused if the options allow it; always reused.
bool reuses_prefixes(const Method& method);
bool always_reuses_prefixes(const Method& method);
/// Layers are recomputed whose range is measured for a model, or for a pair of models.
bool needs_range(const Method& method);
bool needs_group(const Method& method);
/// Reused tokens enter from their author's hidden states.
bool needs_hidden_states(const Method& method);
/// A fraction of the reused tokens is chosen and recomputed.
bool chooses_tokens(const Method& method);
/// The method's state learns from prompts.
bool learns(const Method& method);
/// The method chooses by the relay levels of a model and the history of places (engine/reuse/auto/levels.h).
bool uses_levels(const Method& method);
/// An agent may start on approximate KV, and is checked when the exact KV is there.
bool may_begin_tentatively(const Method& method);

struct MethodKey {
  enum class Type : std::uint8_t { boolean, integer, number, number_above, choice, text, time_limit };
  static constexpr double kNoLimit = std::numeric_limits<std::int32_t>::max();

  std::string name;  // "tolerance"; in a section: "select.share"
  Type type = Type::boolean;
  double low = 0.0, high = kNoLimit;  // of numbers; number_above: `low` itself is not allowed
  std::vector<std::string> words;     // of a choice
  std::string standard;               // the default, as the documents say it
  std::string doc;
  /// The key stands under `relay.lab`, which only programs with the laboratory accept (register_lab_methods).
  bool lab = false;
  bool only_here = false;  // an error if the file's method has no such key; otherwise it is ignored then
};

/// What a file gives under `relay`. Values have the type that the key declares.
class GivenKeys {
 public:
  virtual ~GivenKeys() = default;
  virtual bool has(std::string_view name) const = 0;
  virtual std::optional<std::string> text(std::string_view name) const = 0;
  virtual std::optional<std::int64_t> integer(std::string_view name) const = 0;
  virtual std::optional<float> number(std::string_view name) const = 0;
  virtual std::optional<bool> boolean(std::string_view name) const = 0;
  virtual std::optional<double> milliseconds(std::string_view name) const = 0;
  /// Reports a mistake at a key that is there.
  virtual void error(std::string_view name, const std::string& message, const std::string& help = {}) = 0;

  /// Reports those of the keys that are given although another setting leaves them without an effect.
  void refuse(std::initializer_list<std::string_view> names, const std::string& because);
};

/// Reads the keys of options.method into its options.
void read_keys(GivenKeys& given, ReuseOptions& options);

/// `reuse`, for the methods that choose tokens.
MethodKey reuse_key();

}  // namespace baton
