// SPDX-License-Identifier: Apache-2.0
// The engine: holds the models on their device and runs workflows.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include <baton/event.h>
#include <baton/run.h>
#include <baton/run_record.h>
#include <baton/workflow.h>

namespace baton::inline v1 {

struct Preview;
struct PreviewOptions;

struct EngineOptions {
  /// A model folder or a bare name, in place of each workflow's default model. Empty: the workflows' own models.
  /// A bare name is looked for in $BATON_MODEL_PATH, beside the program and in the library's prefix (docs/cli.md).
  std::string model{};
  std::string device = "auto";  // auto, cpu, cuda, cuda:N
  int threads = 0;              // CPU threads; 0: one per core
  std::int64_t kv_budget = 0;   // bytes of KV cache per model; 0: half of the free memory
  /// By how much computing prompts ahead (lockstep) may lengthen the decode steps of running agents on average, as a
  /// part of a step, to 10; 0: 0.25 on the CPU, 0.1 on a GPU.
  double slowdown = 0.0;
  /// A folder in which anchors (method anchors) are kept between processes, one file for each model: read when a model
  /// is opened, written when the engine goes. A file that cannot be used is left alone, and said so. Empty: not kept.
  std::string anchors_folder{};
  /// Something went wrong that does not end anything. Called on the thread at work; do not throw.
  std::function<void(const std::string& message)> on_warning{};
  std::string kv_dtype{};  // bf16 or f32, in place of the models' own; empty: theirs
  /// While weights are read: the model's path and the share done, 0 to 1. Called on the thread that loads; do not
  /// throw.
  std::function<void(const std::string& model, double share)> on_load{};
  /// The same while a model is profiled, at the first use of method rectify or droidspeak (baton/profile.h).
  std::function<void(const std::string& model, double share)> on_profile{};
};

struct RunOptions {
  std::map<std::string, std::string> inputs{};
  std::optional<std::uint64_t> seed{};   // over the workflow's own
  std::chrono::milliseconds timeout{0};  // of the whole run; 0: none. The record's state is then "timeout"
  std::stop_token stop{};                // the same as Run::stop()
  /// Called in order, never twice at once for one run, on a thread of the library: return soon. A throw stops the run
  /// and comes out of Run::get().
  EventCallback on_event{};
  /// Teacher forcing, to compare methods on equal texts: by turn ("solver", in later rounds "solver#2") the token ids
  /// that the turn's answer shall be, whatever the model would choose.
  std::map<std::string, std::vector<std::int32_t>> forced_outputs{};
  /// Called with the logits [vocabulary] of each token before it is chosen, once more after the last; on a thread of
  /// the library, for several turns at once: return soon, do not throw.
  std::function<void(const std::string& turn, std::span<const float> logits)> on_logits{};
};

/// A handle: copies share the same models. All members are safe from any thread. Models stay open, and runs may go on,
/// until the last copy and the last Run are gone.
class Engine {
 public:
  /// Reads no weights yet: see prepare(). Throws ResourceError when `options.model` is not found, naming where it was
  /// looked for, and InputError for an option that is out of its range.
  static Engine open(const EngineOptions& options = {});

  /// Opens the models that a workflow needs, so that its first run does not wait. Throws ResourceError, and
  /// WorkflowError for layers of `relay` that a model does not have.
  void prepare(const Workflow& workflow) const;

  /// Starts a run and returns at once; models that are not open yet are opened by the run.
  /// Throws InputError for a missing or unknown input, a negative timeout, and forced outputs of unknown turns.
  Run start(const Workflow& workflow, const RunOptions& options = {}) const;

  /// What the turns' prompts will be, and what they will need (include baton/preview.h). Reads a model's configuration
  /// and tokenizer, no weights. Throws ResourceError and InputError (for an unknown input; a missing one is shown as
  /// unknown).
  Preview preview(const Workflow& workflow) const;
  Preview preview(const Workflow& workflow, const PreviewOptions& options) const;

  /// start and get in one.
  RunRecord run(const Workflow& workflow, const RunOptions& options = {}) const;

  /// For the library's own use.
  struct Impl;
  Impl& impl() const { return *impl_; }

 private:
  explicit Engine(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<Impl> impl_;
};

}  // namespace baton::inline v1
