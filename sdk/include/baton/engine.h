// SPDX-License-Identifier: Apache-2.0
// The engine: holds the models on their device and runs workflows.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include <baton/run.h>
#include <baton/workflow.h>

namespace baton::inline v1 {

struct Preview;
struct PreviewOptions;
class Session;

/// Which models run, where, and within what bounds.
struct EngineOptions {
  /// A path, a name or "hf:ORG/NAME", in place of each workflow's default model. Empty: the workflows' own models.
  /// A bare name is looked for in $BATON_MODEL_PATH, next to the program and in the library's prefix (docs/cli.md).
  std::string model{};
  std::string device = "auto";  // auto, cpu, cuda, cuda:N
  int threads = 0;              // CPU threads; 0: one per core
  std::int64_t kv_budget = 0;   // bytes of KV cache per model; 0: half of the free memory
  /// By how much computing prompts, also ahead of their turns (lockstep), may lengthen the decode steps of running
  /// agents on average, as a fraction, 0 to 10; 0: 0.67 on the CPU (60 % of the speed is left), 0.1 on a GPU.
  double slowdown = 0.0;
  bool drafts = true;  // tokens that repeat earlier text are checked several in a step (docs/methods.md, "Drafts")
  /// A folder for what methods learn from prompts, one file per model: read when it is opened, written when the engine
  /// is destroyed. A file that cannot be used is left unchanged, with a warning. Empty: it is not kept.
  std::string learned_folder{};
  /// Called for problems that end no run, on the thread that met the problem; must not throw. Here, in on_load,
  /// on_profile and on_logits, waiting for a run of the engine, prepare() and finish_measuring() throw InputError.
  std::function<void(const std::string& message)> on_warning{};
  /// A folder for KV that outlives the process, in place of the workflow's `relay.store.disk`; empty: the workflow's.
  /// `store_budget`: bytes of all its files; 0: the workflow's, else 10 GiB. If it cannot be used, nothing is kept,
  /// with a warning.
  std::string store{};
  std::int64_t store_budget = 0;
  std::string kv_dtype{};  // bf16 or f32, in place of the type that the workflow gives; empty: the workflow's
  /// Called while weights are read, with the fraction read, 0 to 1, on the thread that loads; must not throw.
  std::function<void(const std::string& model, double share)> on_load{};
  /// The same while a model is profiled, which only programs with the laboratory ask for (baton/lab/profile.h).
  std::function<void(const std::string& model, double share)> on_profile{};
  /// Whether runs may start the programs and open the addresses that a workflow names under `mcp`; else InputError.
  bool allow_servers = false;
};

/// What a run is given, and who hears of it.
struct RunOptions {
  std::map<std::string, std::string> inputs{};  // UTF-8
  std::optional<std::uint64_t> seed{};          // takes precedence over the workflow's
  /// What chat templates show as now: "2026-01-31T13:00:00", as RunRecord::local_time; empty: the host's local time.
  std::string local_time{};
  /// Limit of the whole run, with opening its models (state "timeout"); 0: none. It stands still while a call of a
  /// model waits for on_ask.
  std::chrono::milliseconds timeout{0};
  std::stop_token stop{};  // a request has the effect of Run::stop()
  /// Called in order on a thread of the library; must return soon. An exception stops the run; Run::get() rethrows it.
  EventCallback on_event{};
  /// Called once, after the last event, when the run is over and get() waits no more, also if no event said so
  /// because a model could not be opened. On a thread of the library; must return soon and not throw.
  std::function<void()> on_end{};
  /// Teacher forcing, to compare methods on equal texts: by turn ("solver", in later rounds "solver#2") the token ids
  /// of the turn's answer, which replace the model's choices.
  std::map<std::string, std::vector<std::int32_t>> forced_outputs{};
  /// The same of the thinking before an answer: the ids of its ThinkingToken events. A turn of `forced_outputs` that is
  /// not here does not think.
  std::map<std::string, std::vector<std::int32_t>> forced_thinking{};
  /// Turns of an earlier run with the same workflow, inputs and models, which are not computed again: in state "ok", or
  /// "failed" where `on_error` lets a run go on, with all that they needed. InputError if they do not fit.
  std::vector<AgentFinished> finished{};
  /// Answers steps that ask, on threads of the library, concurrently for several; may take its time until a stop. A
  /// throw fails the attempt. No answer: the run ends "suspended"; one with its `finished` and `answers` goes on.
  std::function<std::optional<std::string>(const Asked& asked, const std::stop_token& stop)> on_ask{};
  std::map<std::string, std::string> answers{};  // to steps that ask, by turn, and to calls ("solver#2/1"); not asked
  /// What an interrupted run did with calls of models in turns that had not ended (CallBegun, CallDecided, ToolCalled).
  /// A turn that makes such a call again gets its answer and its result; a call whose outcome is unknown is not
  /// repeated, and the model is told so.
  std::vector<EarlierCall> calls{};
  /// Called with the logits [V] of each token before the token is chosen, and once more after the last token; on a
  /// thread of the library, concurrently for several turns. Must return soon and not throw.
  std::function<void(const std::string& turn, std::span<const float> logits)> on_logits{};
  /// Token events have the log probability of their token, and those of so many of the likeliest (0 to 20). Nothing:
  /// they have none. Each token then takes the logits to the host. A model on a server gives none, so that the turn
  /// fails.
  std::optional<int> top_logprobs{};
  /// A new folder for the record that `baton run --record` writes (docs/cpp.md, "Recording"). What cannot be written
  /// ends no run: RunRecord::record_error. `record_resumed`: the record is that of the run of `finished`, and replaced.
  std::filesystem::path record{};
  bool record_resumed = false;
};

/// A handle: copies share the same models. All members are safe from any thread. Models stay open, and runs may
/// continue, until the last copy and the last Run are destroyed.
class Engine {
 public:
  /// Reads no weights yet: see prepare(). Throws ResourceError when `options.model` is not found (the message lists the
  /// folders that were searched), and InputError for an option that is out of range.
  static Engine open(const EngineOptions& options = {});

  /// Opens the models that a workflow needs, so that its first run does not wait. Throws ResourceError,
  /// WorkflowError for layers of `relay` that a model does not have, and InputError in a callback of the engine.
  void prepare(const Workflow& workflow) const;

  /// Starts a run and returns at once; models that are not open yet are opened by the run.
  /// Throws InputError for inputs and options that do not fit the workflow, and for servers that are not allowed.
  Run start(const Workflow& workflow, const RunOptions& options = {}) const;

  /// The turns' prompts and their memory needs (include baton/preview.h). Reads a model's configuration and tokenizer,
  /// no weights. Throws ResourceError, and InputError for an unknown input; a missing one is shown as unknown.
  Preview preview(const Workflow& workflow) const;
  Preview preview(const Workflow& workflow, const PreviewOptions& options) const;

  /// Runs a workflow and waits for its end: start() and Run::get().
  RunRecord run(const Workflow& workflow, const RunOptions& options = {}) const;

  /// Begins a session of a workflow (include baton/session.h): runs whose agents remember the runs before.
  Session session(const Workflow& workflow) const;
  /// Continues a session that Session::save wrote, in this or another process, token for token. Opens the models.
  /// Throws ResourceError as prepare() does, and InputError for a file that is damaged or of another workflow or model.
  Session restore(const Workflow& workflow, const std::filesystem::path& file) const;

  /// Waits, at most `time` (as wait_for), while turns of method auto are measured for places about which too little is
  /// known, after a run has ended (docs/methods.md, "Auto"). Nobody has to: what is not measured when the engine ends
  /// is measured by later runs. False: not finished.
  bool finish_measuring(std::chrono::milliseconds time, const std::stop_token& stop = {}) const;

  /// For the library's own use.
  struct Impl;
  Impl& impl() const { return *impl_; }
  const std::shared_ptr<Impl>& shared_impl() const { return impl_; }

 private:
  explicit Engine(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<Impl> impl_;
};

}  // namespace baton::inline v1
