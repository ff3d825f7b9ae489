// SPDX-License-Identifier: Apache-2.0
// Profiling a model: finds the layers that RelayCaching recomputes, from how far decoded KV differs from the KV of a
// full prefill.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

namespace baton::inline v1::lab {

/// The layers, from 0: reused tokens enter at the input of `start` (l_s), are compared and chosen at `detect` (l_d),
/// and the chosen ones run up to and with `end` (l_e).
struct ProfiledRange {
  int start = 0;
  int detect = 0;
  int end = 0;
  double agreement = 0;  // fraction of the resamples of the hand-overs that gave the same three layers, 0 to 1
  double start_agreement = 0;
  double detect_agreement = 0;
  double end_agreement = 0;
};

/// The effect of recomputing reused tokens in some layers: the KL divergence from full prefill that is left, as a
/// fraction of that of direct reuse. NaN: not measured.
struct ProfiledEffect {
  int start = 0;  // the layers found by their effect, as in ProfiledRange
  int detect = 0;
  int end = 0;
  double kl_direct = 0;             // of direct reuse, nats per token
  double weighty = 0;               // effective number of hand-overs that kl_direct rests on: a measure of certainty
  std::vector<double> left_start;   // for each layer l: all reused tokens are recomputed from l to the last
  std::vector<double> left_end;     // all reused tokens are recomputed from `start` to l
  std::vector<double> left_detect;  // tokens chosen in l are recomputed up to `end`, at equal cost
};

/// What a model's hand-overs show, layer by layer, and the layers that follow from it.
struct ModelProfile {
  std::filesystem::path model;
  std::string fingerprint;               // of configuration and weights
  std::string source;                    // of the hand-overs: "synthetic", or the name given with the data
  int hand_overs = 0;                    // that were measured
  int left_out = 0;                      // answers that were too short, or prompts longer than the context
  std::int64_t tokens = 0;               // compared
  std::vector<double> similarity;        // for each layer: mean cosine of decoded and prefilled values, -1 to 1
  std::vector<double> similarity_error;  // its standard error; NaN: unknown
  std::vector<double> correlation;       // of the tokens' deviations in this layer and the next, -1 to 1; NaN: unknown
  std::vector<double> correlation_error;
  ProfiledRange slope;  // both readings of RelayCaching's eq. 3 (docs/lab.md)
  ProfiledRange level;
  std::optional<ProfiledEffect> effect;
  std::string reading;  // which of them counts: "slope", "level" or "effect"
  std::string json;     // the profile as its file holds it

  /// The layers of `reading`; for `effect` the agreements are 0.
  ProfiledRange range() const {
    if (reading == "effect" && effect) return {effect->start, effect->detect, effect->end};
    return reading == "level" ? level : slope;
  }
};

/// An answer inside a later prompt, as token ids of the model.
struct HandOver {
  std::vector<std::int32_t> producer;  // the prompt that was answered
  std::vector<std::int32_t> answer;    // empty: the model decodes one
  std::vector<std::int32_t> before;    // the later prompt before the answer; `after`: behind it
  std::vector<std::int32_t> after;
};

/// What a profile is measured on.
struct ProfileOptions {
  std::string model{};             // a folder or a bare name
  std::string device = "auto";     // auto, cpu, cuda, cuda:N
  int threads = 0;                 // CPU threads; 0: one per core
  int hand_overs = 24;             // synthetic hand-overs when there is no data
  int max_tokens = 128;            // of an answer
  std::uint64_t seed = 0;          // of the synthetic hand-overs and of the resamples
  std::string reading = "effect";  // takes longest: 2 to 3 times as many short answers as the model has layers
  std::vector<HandOver> data{};    // real hand-overs in place of synthetic ones
  std::string source{};            // name of `data`
  std::function<void(const std::string& model, double share)> on_load{};  // as in EngineOptions
  std::function<void(double share)> on_progress{};                        // 0 to 1, on the calling thread
  std::function<void(const std::string& message)> on_warning{};           // the same thread: why `auto` took the CPU
  std::stop_token stop{};
};

/// Opens the model and measures; writes nothing. Empty when it was stopped. Throws ResourceError (model, device,
/// memory, fewer than 4 layers, no answer long enough) and InputError for invalid options.
std::optional<ModelProfile> profile_model(const ProfileOptions& options);

/// Writes baton.profile.json into the model's folder, where runs find it; if that is not writable, into the user's
/// cache: $XDG_CACHE_HOME/baton/profiles or ~/.cache/baton/profiles. The file is written atomically. Returns the file;
/// throws ResourceError when neither can be written.
std::filesystem::path save_profile(const ModelProfile& profile);

/// What method auto expects of rectification on a model, at one fraction of reuse.
struct MeasuredLevel {
  double reuse = 0;       // fraction of the entries of handed-over texts that is reused
  double divergence = 0;  // mean KL divergence from full prefill, nats per token
  double high = 0;        // 95 % of the turns are expected to stay below this
};

struct LevelProfile {
  std::filesystem::path model;
  std::string fingerprint;            // of configuration and weights
  int hand_overs = 0;                 // that were measured
  std::vector<MeasuredLevel> levels;  // the highest reuse first
  double guard_scale = 0;             // divergence expected for each unit of what a prompt's guard measures
  std::string json;                   // the levels as their file holds them
};

/// Opens the model and measures its relay levels on synthetic hand-overs, of which half are lists of facts; writes
/// nothing. `reading`, `max_tokens` and `data` are ignored. Runs of method auto need no such file: they learn the
/// levels from their own turns. Empty when it was stopped. Throws ResourceError (also if nothing could be measured) and
/// InputError.
std::optional<LevelProfile> profile_levels(const ProfileOptions& options);

/// Writes baton.levels.json into the model's folder, as save_profile(ModelProfile) does its file.
std::filesystem::path save_profile(const LevelProfile& profile);

/// Layers [start, end] that a reader recomputes for all tokens of KV that another model made (DroidSpeak), and the KL
/// divergence from full prefill that is left, as a fraction of that of unchanged KV.
struct LayerGroup {
  int start = 0;
  int end = 0;
  double left = 0;
};

/// What the hand-overs from one model to another show, group by group of layers (DroidSpeak).
struct PairProfile {
  std::filesystem::path author;  // the models' folders
  std::filesystem::path reader;
  int layers = 0;                // of each
  std::string source;            // of the hand-overs
  int hand_overs = 0;            // that were measured
  std::int64_t tokens = 0;       // compared
  double kl_direct = 0;          // of reading the KV unchanged, nats per token
  double weighty = 0;            // as in ProfiledEffect
  std::vector<LayerGroup> best;  // the Pareto-optimal groups, fewer layers first
  LayerGroup group;              // the cheapest group within PairOptions::left; without one all layers
  std::string json;              // all groups, as the pair's file holds them
};

/// The other model of a pair, and the groups of layers that are tried.
struct PairOptions {
  std::string
      author{};       // the model that decodes the answers: a folder or a bare name; ProfileOptions::model reads them
  int step = 2;       // groups begin at multiples of `step` and have a multiple of `step` layers
  double left = 0.1;  // maximum of LayerGroup::left
};

/// Opens both models and measures; writes nothing. `reading` is ignored. Empty when it was stopped. Throws
/// ResourceError (also where the models' vocabularies or shapes differ) and InputError.
std::optional<PairProfile> profile_pair(const ProfileOptions& options, const PairOptions& pair);

/// Writes the pair's profile into the user's cache, where runs with method droidspeak find it. Returns the file; throws
/// ResourceError when it cannot be written.
std::filesystem::path save_profile(const PairProfile& profile);

}  // namespace baton::inline v1::lab
