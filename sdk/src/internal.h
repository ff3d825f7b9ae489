// SPDX-License-Identifier: Apache-2.0
// The internals that the public classes share: threads inside callbacks, objects that belong to a process, a workflow
// once it is read, where its models are, how a run is started, and how fast a model runs.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "agents/mcp/server.h"
#include "agents/tools/tool.h"
#include "engine/base/errors.h"
#include "engine/base/system/process.h"
#include "engine/local_engine.h"
#include "workflows/compile.h"
#include "workflows/format/diagnostics.h"
#include "workflows/format/spec.h"
#include "workflows/run/executor.h"

#include <baton/baton.h>
#include <baton/preview.h>
#include <baton/rates.h>
#include <baton/system.h>

namespace baton::inline v1 {

/// Threads inside the callbacks of one run or of one engine, where a wait for what the callback holds up would never
/// end. All members are safe from any thread.
class InCallback {
 public:
  class Scope {
   public:
    explicit Scope(InCallback& in) : in_(in) {
      const std::lock_guard lock(in_.mutex_);
      in_.threads_.push_back(std::this_thread::get_id());
    }
    ~Scope() {
      const std::lock_guard lock(in_.mutex_);
      in_.threads_.erase(std::find(in_.threads_.begin(), in_.threads_.end(), std::this_thread::get_id()));
    }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    InCallback& in_;
  };

  /// True when the calling thread is one of them.
  bool here() const {
    const std::lock_guard lock(mutex_);
    return std::find(threads_.begin(), threads_.end(), std::this_thread::get_id()) != threads_.end();
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::thread::id> threads_;  // one for each callback that a thread is in
};

/// The callback, counted in `in` while it is called; none for none.
template <typename... Arguments>
std::function<void(Arguments...)> counted(std::shared_ptr<InCallback> in, std::function<void(Arguments...)> callback) {
  if (!callback) return {};
  return [in = std::move(in), callback = std::move(callback)](Arguments... arguments) {
    const InCallback::Scope scope(*in);
    callback(arguments...);
  };
}

// An object with threads belongs to the process that made it. In a child of fork() those threads do not exist
// and their locks may be held, so that not even a destructor touches it there.

class Owner {
 public:
  bool here() const { return process_number() == process_; }

 private:
  std::int64_t process_ = process_number();
};

/// An object that is destroyed in the process that made it, and left alone in its children.
template <typename T, typename... Arguments>
std::shared_ptr<T> make_owned(Arguments&&... arguments) {
  return std::shared_ptr<T>(new T(std::forward<Arguments>(arguments)...), [owner = Owner()](T* object) {
    if (owner.here()) {
      delete object;
      return;
    }
    try_to([&] {
      static std::vector<T*>& left_alone = *new std::vector<T*>;  // reachable, so that it is no leak
      left_alone.push_back(object);
    });
  });
}

}  // namespace baton::inline v1

namespace baton::inline v1 {

class RunRecorder;

struct Workflow::Impl {
  std::shared_ptr<const Plan> plan;
  std::shared_ptr<const ToolRegistry> tools;
  std::string fingerprint;
  std::string file;  // as it was given; empty: a text
  WorkflowOptions options;
};

/// The registry of the built-in tools and the host's.
std::shared_ptr<const ToolRegistry> make_registry(const Tools& tools);

/// Where a model of the workflow is, and with which settings. An empty name is the default model, which `replacement`
/// (a path or a name, or empty) stands for. Throws ResourceError.
struct LocatedModel {
  std::filesystem::path folder;  // for a model on a server, its tokenizer's folder, or empty
  ModelSpec spec;
};
LocatedModel locate_model(const WorkflowSpec& spec, const std::string& name, const std::string& replacement);

/// Asks the server of a model on one. `slowdown`: as EngineOptions::slowdown. Throws ResourceError, and Interrupted
/// soon after a stop was requested.
std::shared_ptr<InferenceEngine> open_served_model(const LocatedModel& located, double slowdown,
                                                   const std::stop_token& stop = {});

/// Models on servers, each opened once. Any thread.
class ServedModels {
 public:
  /// As open_served_model. `warn` is told what speaks against a server or its tokenizer when it is opened.
  std::shared_ptr<InferenceEngine> open(const LocatedModel& located, double slowdown,
                                        const std::function<void(const std::string&)>& warn,
                                        const std::stop_token& stop);

 private:
  std::mutex mutex_;                                                // held while one is opened
  std::map<std::string, std::shared_ptr<InferenceEngine>> opened_;  // by all that names a model
};

/// Configuration, tokenizer and chat template; no weights, no device. Throws ResourceError.
std::shared_ptr<const Model> open_model_text(const LocatedModel& located);

/// Throws InputError for a time that is not of the form of RunOptions::local_time.
std::int64_t seconds_of_option(const std::string& local_time);

Preview make_preview(const Workflow& workflow, const PreviewOptions& options, const std::string& replacement_model);

/// Starts the thread of a run; `prepare` runs on it first and may complete the request. Its `stop` is requested when
/// the run is stopped or its time has passed; it may throw Interrupted then. Any other exception comes out of
/// Run::get(). What `prepare` returns is called after the run, and then `on_end`. `in_engine` knows the threads inside
/// the engine's callbacks, where nobody may wait for the run. `recorder` may be null.
Run start_run(RunRequest request, std::shared_ptr<InCallback> in_engine,
              std::function<std::function<void()>(RunRequest& request, const std::stop_token& stop)> prepare,
              std::function<void()> on_end, std::unique_ptr<RunRecorder> recorder);

/// Engine::start with what the agents remember; see RunRequest::on_memory, whose last call with null may be repeated.
/// `servers`: see servers_of.
Run start_run(const Engine& engine, const Workflow& workflow, const RunOptions& options, SessionMemory memory,
              std::function<void(const SessionMemory* memory)> on_memory, std::shared_ptr<McpServers> servers);

// A plan with its models opened and its servers started, for a run and for other parts of the library.

struct OpenPlan {
  std::shared_ptr<const Plan> plan;  // with the layers that its method recomputes, if the file leaves them open
  std::map<std::string, std::shared_ptr<LocalEngine>> engines;      // by ModelSpec name, of the models in this process
  std::map<std::string, std::shared_ptr<InferenceEngine>> servers;  // the same, of those on servers
  double load_ms = 0.0;     // opening these models, whenever that was; each counts once
  double measure_ms = 0.0;  // measuring them now, at their first use by the workflow's method

  /// Each engine of this process once, in the order of the plan's turns.
  std::vector<std::shared_ptr<LocalEngine>> distinct_engines() const;
};

/// Opens those of the workflow's models that are not open yet, and measures the layers that its method needs to know.
/// When stopped it may leave the latter out. Throws ResourceError, and WorkflowError for a setting that does not fit a
/// model.
OpenPlan open_models(const Engine& engine, const Workflow& workflow, const std::stop_token& stop = {});

/// The sessions that Engine::session and Engine::restore return.
Session new_session(const Engine& engine, const Workflow& workflow);
Session restored_session(const Engine& engine, const Workflow& workflow, const std::filesystem::path& file);

// The servers of a run: what a workflow names under `mcp` is started, and its tools become those of the plan.

/// The servers that a workflow names; none is started yet. Null: it names none.
std::shared_ptr<McpServers> servers_of(const Workflow& workflow);

/// Throws InputError if the workflow names servers and the host allows none.
void check_allowed(const WorkflowSpec& spec, bool allowed);

/// Starts those that do not run, and completes the request: its plan, its tools and its record have them. If one
/// that is required cannot be started, or lacks a tool, the request says why no turn can start. Throws Interrupted.
void start_servers(const std::shared_ptr<McpServers>& servers, RunRequest& request, const std::stop_token& stop);

/// Runs `make` and gives what the engine throws its public type.
template <typename Make>
auto with_resource_errors(Make make) {
  using Kind = ResourceError::Kind;
  try {
    return make();
  } catch (const ModelError& error) {
    throw ResourceError(Kind::model, error.what());
  } catch (const BackendError& error) {
    throw ResourceError(Kind::device, error.what());
  } catch (const EngineError& error) {
    throw ResourceError(Kind::memory, error.what());
  } catch (const std::bad_alloc&) {
    throw ResourceError(Kind::memory, "out of memory");
  } catch (const std::filesystem::filesystem_error& error) {
    throw ResourceError(Kind::model, error.what());
  } catch (const std::system_error& error) {
    throw ResourceError(Kind::memory, std::string("the system cannot start a thread: ") + error.code().message());
  }
}

// How fast an opened model runs: prefill and decode of the bare model, and prompt rows in its decode steps.

struct RatesToMeasure {
  std::vector<int> prefill;  // prompt lengths in tokens
  std::vector<DecodeStep> decode;
  double gemm_gflops = 0;  // limits of the machine, by which shares are given; 0: unknown
  double bandwidth_gbs = 0;
  std::function<bool(const std::string& what)> go_on;  // called before each measurement; false: stop
};

/// Adds what was measured to `prefill` and `decode`.
void measure_rates(std::vector<PrefillRate>& prefill, std::vector<DecodeRate>& decode, Backend& backend,
                   const Model& model, const RatesToMeasure& what);

/// Returns the bytes of weights that a decode step reads: of tables, a token reads a row. Of a mixture of experts: all.
std::int64_t bytes_of_step(const Model& model);

/// Measures what prompt rows in a decode step cost.
RowCosts measure_row_costs(Backend& backend, const Model& model, const std::function<bool()>& stopped);

}  // namespace baton::inline v1
