// One run as an event loop. The loop and every change of state live on the calling thread; a small pool opens models,
// runs tools and tokenises; engines call back from their own threads and only post here.
#include "workflows/executor_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/thread_pool.hpp>
#include <optional>

#include "workflows/output_check.h"
#include "workflows/run_state.h"
#include "workflows/turn_record.h"

namespace baton {
namespace {

namespace asio = boost::asio;

constexpr std::size_t kMostThreads = 8;
constexpr Milliseconds kLongestBackoff{60000};

/// All that an engine's thread holds of a run. Its last post may still be returning when the run is gone, so it shares
/// the queue but neither the run nor the engines: the last reference to an engine must not go on the engine's thread.
struct Mailbox {
  asio::io_context io;
  asio::strand<asio::io_context::executor_type> order = asio::make_strand(io);  // keeps what one thread posts in order

  template <typename Handler>
  void post(Handler handler) {
    asio::post(order, std::move(handler));
  }
};

/// What a turn needs while it runs.
struct Attempt {
  explicit Attempt(asio::io_context& io) : timer(io) {}

  enum class Phase : std::uint8_t { idle, preparing, generating, pausing };
  Phase phase = Phase::idle;
  int number = 0;                  // from 1
  std::shared_ptr<Engine> engine;
  std::vector<PromptPart> prompt;  // kept while another attempt may need it
  RequestId request = 0;
  TurnTimes times;
  asio::steady_timer timer;        // the attempt's timeout, or the pause before the next one
  std::stop_source tools;
  std::string cut;                 // why it was cut off: its timeout
};

struct Failure {
  std::string error;
  std::string kind = "agent";
  bool may_retry = true;
  bool timed_out = false;
};

class Run {
 public:
  Run(const RunRequest& request, const std::map<std::string, std::string>& inputs)
      : request_(request), plan_(*request.plan), inputs_(inputs), state_(plan_, inputs_), run_timer_(mailbox_->io) {
    for (std::size_t i = 0; i < state_.size(); ++i) attempts_.push_back(std::make_unique<Attempt>(mailbox_->io));
  }

  RunRecord run();

 private:
  const PlanStep& planned(std::size_t step) const { return plan_.steps[step]; }

  void start();
  void open_engines();
  void schedule();
  bool round_may_start(std::size_t step);
  void skip(std::size_t step, const std::string& reason);

  void start_attempt(std::size_t step);
  void advance(std::size_t step);
  void prepare(std::size_t step);
  void on_prepared(std::size_t step, PreparedTurn prepared);
  void submit(std::size_t step);
  GenerationCallbacks callbacks(std::size_t step);
  void on_prefilled(std::size_t step, Clock::time_point when);
  void on_finished(std::size_t step, GenerationResult result);
  void accept(std::size_t step, GenerationResult result);
  void fail_attempt(std::size_t step, Failure failure);
  void cut_off(std::size_t step, int attempt);
  void turn_over(std::size_t step, const std::string& turn_state);

  void end(const std::string& run_state, const std::string& error, const std::string& kind);
  void settle();
  void finish();
  void emit(const Event& event);
  void warn(std::string message) { emit(Warning{std::move(message)}); }

  const RunRequest& request_;
  const Plan& plan_;
  const std::map<std::string, std::string>& inputs_;
  const std::shared_ptr<Mailbox> mailbox_ = std::make_shared<Mailbox>();
  const Clock::time_point begin_ = Clock::now();

  RunState state_;
  RunRecord record_;
  std::vector<std::unique_ptr<Attempt>> attempts_;
  std::map<std::string, std::shared_ptr<Engine>> engines_;
  std::shared_ptr<const ToolRegistry> tools_;
  asio::steady_timer run_timer_;
  std::optional<asio::executor_work_guard<asio::io_context::executor_type>> work_;
  std::optional<std::stop_callback<std::function<void()>>> on_stop_;
  std::optional<asio::thread_pool> pool_;  // joined before anything above goes

  int running_ = 0;         // turns that have begun and are not over
  int rounds_checked_ = 0;  // `until` was asked after these rounds
  bool stopped_early_ = false;
  bool opening_ = false;    // the engines
  bool ending_ = false;     // nothing new starts
  bool finished_ = false;
  std::string callback_error_;
};

RunRecord Run::run() {
  work_.emplace(mailbox_->io.get_executor());
  mailbox_->post([this] { start(); });
  for (bool again = true; again;) {
    try {
      mailbox_->io.run();
      again = false;
    } catch (const std::exception& error) {
      end("failed", error.what(), "host");
      settle();
    }
  }
  if (pool_) pool_->join();
  return std::move(record_);
}

void Run::start() {
  record_.workflow = plan_.spec->name;
  record_.relay = plan_.relay;
  record_.seed = request_.seed.value_or(plan_.spec->defaults.seed.value_or(0));
  tools_ = request_.tools ? request_.tools : std::make_shared<const ToolRegistry>(ToolRegistry::with_builtins());
  on_stop_.emplace(request_.stop, [this] {
    mailbox_->post([this] {
      end("cancelled", "stopped", "");
      settle();
    });
  });
  if (request_.timeout.count() > 0) {
    run_timer_.expires_at(begin_ + request_.timeout);
    run_timer_.async_wait([this](const boost::system::error_code& error) {
      if (error) return;
      end("timeout", fmt::format("the run took longer than {} ms", request_.timeout.count()), "");
      settle();
    });
  }
  emit(RunStarted{plan_.spec->name, static_cast<int>(plan_.steps.size())});

  std::size_t threads = std::min(std::max<std::size_t>(plan_.steps.size(), 1), kMostThreads);
  if (const int limit = plan_.spec->topology.max_parallel; limit > 0) threads = std::min(threads, static_cast<std::size_t>(limit));
  pool_.emplace(threads);
  open_engines();
}

/// All models of the plan before the first turn: a model that does not open costs no work, and no turn waits for one.
void Run::open_engines() {
  std::vector<std::string> models;
  for (const PlanStep& step : plan_.steps) {
    if (std::find(models.begin(), models.end(), step.model) == models.end()) models.push_back(step.model);
  }
  opening_ = true;
  asio::post(*pool_, [this, models] {
    std::map<std::string, std::shared_ptr<Engine>> engines;
    std::string problem;
    try {
      for (const std::string& model : models) {
        std::shared_ptr<Engine> engine = request_.engines(model);
        if (!engine) throw std::runtime_error("there is no engine for the model '" + model + "'");
        engines.emplace(model, std::move(engine));
      }
    } catch (const std::exception& error) {
      problem = error.what();
    } catch (...) {
      problem = "the models could not be opened";
    }
    mailbox_->post([this, engines = std::move(engines), problem]() mutable {
      opening_ = false;
      engines_ = std::move(engines);
      if (!problem.empty()) end("failed", problem, "resources");
      schedule();
    });
  });
}

void Run::schedule() {
  // Ascending order is enough for a skipped step to free the ones behind it: needs are always smaller.
  const int limit = plan_.spec->topology.max_parallel;
  for (std::size_t i = 0; i < state_.size() && !ending_; ++i) {
    const PlanStep& step = planned(i);
    if (state_.turn(i).phase != TurnState::Phase::waiting || !state_.needs_over(i) || !round_may_start(i)) continue;
    if (stopped_early_ && !step.decides) {
      skip(i, "the rounds ended early");
      continue;
    }
    if (step.when && !state_.holds(*step.when, i)) {
      skip(i, "its condition does not hold");
      continue;
    }
    Attempt& attempt = *attempts_[i];
    if (attempt.times.ready == Clock::time_point{}) attempt.times.ready = Clock::now();
    if (limit > 0 && running_ >= limit) continue;
    attempt.engine = engines_.at(step.model);
    state_.turn(i).phase = TurnState::Phase::running;
    ++running_;
    start_attempt(i);
  }
  settle();
}

/// With `until`, a round starts only when the one before it is over and did not end the rounds.
bool Run::round_may_start(std::size_t step) {
  const std::optional<ConditionSpec>& until = plan_.spec->topology.until;
  const int before = planned(step).round - 1;
  if (!until || planned(step).decides || before < 1 || stopped_early_ || rounds_checked_ >= before) return true;
  if (!state_.round_over(before)) return false;
  rounds_checked_ = before;
  stopped_early_ = state_.holds(*until, step);
  return true;
}

void Run::skip(std::size_t step, const std::string& reason) {
  TurnState& turn = state_.turn(step);
  turn.record.error = reason;
  ++running_;
  turn_over(step, "skipped");
}

void Run::start_attempt(std::size_t step) {
  Attempt& attempt = *attempts_[step];
  TurnState& turn = state_.turn(step);
  if (++attempt.number > 1) {
    attempt.times = {Clock::now(), {}, {}};
    turn.record.output.clear();
    turn.record.error.clear();
  }
  turn.record.attempts = attempt.number;
  attempt.cut.clear();
  attempt.tools = {};
  if (const Milliseconds timeout = planned(step).timeout; timeout.count() > 0) {
    attempt.timer.expires_after(timeout);
    attempt.timer.async_wait([this, step, number = attempt.number](const boost::system::error_code& error) {
      if (!error) cut_off(step, number);
    });
  }
  advance(step);
}

/// A later attempt has its prompt already.
void Run::advance(std::size_t step) {
  try {
    if (attempts_[step]->prompt.empty()) {
      prepare(step);
    } else {
      submit(step);
    }
  } catch (const EngineError& error) {
    const bool memory = error.kind == EngineError::Kind::memory;  // the other kinds would be the same next time
    fail_attempt(step, {.error = error.what(), .kind = memory ? "resources" : "agent", .may_retry = memory});
  } catch (const std::exception& error) {
    fail_attempt(step, {.error = error.what()});
  }
}

void Run::prepare(std::size_t step) {
  Attempt& attempt = *attempts_[step];
  attempt.phase = Attempt::Phase::preparing;
  TurnInput input;
  input.step = &planned(step);
  input.engine = attempt.engine;
  input.slots = state_.slot_inputs(step, *attempt.engine->model().tokenizer);
  for (const ToolSpec& spec : planned(step).tools) {
    ToolInput& tool = input.tools.emplace_back();
    tool.tool = tools_->find(spec.tool);
    tool.name = spec.tool;
    if (!spec.from.empty()) tool.call.text = state_.slot_text(step, spec.from);
    tool.call.options = spec.options;
    tool.call.stop = attempt.tools.get_token();
  }
  asio::post(*pool_, [this, step, input = std::move(input)]() mutable {
    PreparedTurn prepared = prepare_turn(input);
    input = {};
    mailbox_->post([this, step, prepared = std::move(prepared)]() mutable { on_prepared(step, std::move(prepared)); });
  });
}

void Run::on_prepared(std::size_t step, PreparedTurn prepared) {
  Attempt& attempt = *attempts_[step];
  TurnState& turn = state_.turn(step);
  for (const ToolOutcome& tool : prepared.tools) {
    emit(ToolCalled{turn.record.agent, turn.record.round, tool.tool, tool.result.ok, tool.result.text, tool.wall_ms});
  }
  if (!prepared.tools.empty()) {
    turn.has_tool_text = true;
    turn.tool_text = std::move(prepared.tool_text);
    attempt.times.ready = prepared.ready;
  }
  if (ending_) {
    turn_over(step, "cancelled");
  } else if (!attempt.cut.empty()) {
    fail_attempt(step, {.error = attempt.cut, .timed_out = true});
  } else if (!prepared.error.empty()) {
    fail_attempt(step, {.error = prepared.error, .may_retry = false});
  } else {
    attempt.prompt = std::move(prepared.prompt);
    advance(step);
  }
  schedule();
}

void Run::submit(std::size_t step) {
  Attempt& attempt = *attempts_[step];
  const PlanStep& planned_step = planned(step);
  AgentRecord& record = state_.turn(step).record;
  record.slots = slot_records(state_, step, planned_step, attempt.prompt);
  record.prompt_tokens = token_count(attempt.prompt);

  GenerationRequest request;
  if (attempt.number < planned_step.retry.attempts) {
    request.prompt = attempt.prompt;
  } else {
    request.prompt = std::move(attempt.prompt);
  }
  request.sampling = planned_step.sampling;
  request.sampling.seed = attempt_seed(request_.seed.value_or(planned_step.sampling.seed), planned_step.id, attempt.number);
  request.max_tokens = planned_step.max_tokens;
  request.stop = planned_step.stop;
  request.callbacks = callbacks(step);
  attempt.times.submitted = Clock::now();
  attempt.request = attempt.engine->submit(std::move(request));
  attempt.phase = Attempt::Phase::generating;

  // After the submit, so that a slow callback does not hold the prompt up; what the engine posts still comes later.
  emit(AgentStarted{record.agent, record.role, record.round, record.prompt_tokens});
  for (const SlotRecord& slot : record.slots) {
    const SlotSource& source = *planned_step.slot(slot.name);
    if (source.kind != SlotSource::Kind::agent_output || slot.tokens == 0) continue;
    emit(Relayed{planned(static_cast<std::size_t>(source.step)).agent, record.agent, record.round, slot});
  }
}

/// These run on the engine's thread: they only post. The run waits for on_finished, so it is there for each of them.
GenerationCallbacks Run::callbacks(std::size_t step) {
  GenerationCallbacks callbacks;
  callbacks.on_prefilled = [this, mailbox = mailbox_, step] {
    mailbox->post([this, step, when = Clock::now()] { on_prefilled(step, when); });
  };
  callbacks.on_token = [this, mailbox = mailbox_, step](TokenId id, const std::string& text) {
    mailbox->post([this, step, id, text, when = Clock::now()] {
      Attempt& attempt = *attempts_[step];
      if (attempt.times.first_token == Clock::time_point{}) attempt.times.first_token = when;
      const AgentRecord& record = state_.turn(step).record;
      emit(Token{record.agent, record.round, id, text});
    });
  };
  callbacks.on_finished = [this, mailbox = mailbox_, step](GenerationResult result) {
    mailbox->post([this, step, result = std::move(result)]() mutable { on_finished(step, std::move(result)); });
  };
  return callbacks;
}

void Run::on_prefilled(std::size_t step, Clock::time_point when) {
  const Attempt& attempt = *attempts_[step];
  const AgentRecord& record = state_.turn(step).record;
  const std::int64_t entries = record.prompt_tokens * attempt.engine->model().config.layers;
  emit(Prefill{record.agent, record.round, kv_record(entries, entries), ms_between(attempt.times.submitted, when)});
}

void Run::on_finished(std::size_t step, GenerationResult result) {
  Attempt& attempt = *attempts_[step];
  AgentRecord& record = state_.turn(step).record;
  attempt.timer.cancel();
  attempt.phase = Attempt::Phase::idle;
  fill_record(record, result, attempt.times);
  if (result.reason == FinishReason::cancelled && ending_) {
    state_.turn(step).has_output = !record.output.empty();
    turn_over(step, "cancelled");
  } else if (result.reason == FinishReason::cancelled) {
    const bool timed_out = !attempt.cut.empty();
    fail_attempt(step, {.error = timed_out ? attempt.cut : "cancelled by the engine", .timed_out = timed_out});
  } else if (result.reason == FinishReason::error) {
    fail_attempt(step, {.error = result.error});
  } else {
    accept(step, std::move(result));
  }
  schedule();
}

void Run::accept(std::size_t step, GenerationResult result) {
  TurnState& turn = state_.turn(step);
  if (const AgentSpec* agent = plan_.spec->agent(planned(step).agent)) {
    const CheckedOutput checked = check_output(agent->output, result.text);
    // Who asks for retries wants an answer; without them a text that holds none is still the agent's output.
    if (!checked.problem.empty() && planned(step).retry.attempts > 1) {
      fail_attempt(step, {.error = checked.problem});
      return;
    }
    if (!checked.problem.empty()) warn(fmt::format("agent '{}': {}", planned(step).id, checked.problem));
    turn.record.answer = checked.answer;
  }
  turn.has_output = true;
  // The ids move on as they are, unless the model wrote a role marker: that may only be handed over as text.
  const Tokenizer& tokenizer = *attempts_[step]->engine->model().tokenizer;
  const bool plain = std::none_of(result.tokens.begin(), result.tokens.end(), [&](TokenId id) { return tokenizer.is_special(id); });
  if (plain) {
    turn.tokens = std::move(result.tokens);
    turn.tokenizer = attempts_[step]->engine->model().tokenizer;
  }
  turn_over(step, "ok");
}

void Run::fail_attempt(std::size_t step, Failure failure) {
  Attempt& attempt = *attempts_[step];
  const PlanStep& planned_step = planned(step);
  TurnState& turn = state_.turn(step);
  attempt.timer.cancel();
  turn.record.error = failure.error;
  if (ending_) {
    turn_over(step, "failed");
    return;
  }
  if (failure.may_retry && attempt.number < planned_step.retry.attempts) {
    const int doublings = std::min(attempt.number - 1, 16);
    const Milliseconds pause = std::min(planned_step.retry.backoff * (1 << doublings), kLongestBackoff);
    warn(fmt::format("agent '{}': attempt {} of {} failed: {}", planned_step.id, attempt.number, planned_step.retry.attempts, failure.error));
    attempt.phase = Attempt::Phase::pausing;
    attempt.timer.expires_after(pause);
    attempt.timer.async_wait([this, step](const boost::system::error_code& error) {
      if (error || attempts_[step]->phase != Attempt::Phase::pausing) return;
      start_attempt(step);
      schedule();
    });
    return;
  }

  const std::string message = fmt::format("agent '{}' failed: {}", planned_step.id, failure.error);
  if (planned_step.on_error != OnError::fail) warn(message);
  if (planned_step.on_error == OnError::fallback) {
    turn.record.output = planned_step.fallback;
    turn.has_output = true;
  }
  turn_over(step, "failed");
  if (planned_step.on_error == OnError::fail) end(failure.timed_out ? "timeout" : "failed", message, failure.kind);
}

/// The attempt's time is up.
void Run::cut_off(std::size_t step, int number) {
  Attempt& attempt = *attempts_[step];
  if (attempt.number != number) return;
  if (attempt.phase != Attempt::Phase::preparing && attempt.phase != Attempt::Phase::generating) return;
  attempt.cut = fmt::format("took longer than {} ms", planned(step).timeout.count());
  attempt.tools.request_stop();
  if (attempt.phase == Attempt::Phase::generating) attempt.engine->cancel(attempt.request);
}

void Run::turn_over(std::size_t step, const std::string& turn_state) {
  TurnState& turn = state_.turn(step);
  Attempt& attempt = *attempts_[step];
  turn.phase = TurnState::Phase::over;
  turn.record.state = turn_state;
  if (turn_state == "cancelled") turn.record.error = record_.error;
  --running_;
  attempt.phase = Attempt::Phase::idle;
  attempt.timer.cancel();
  attempt.prompt = {};
  emit(AgentFinished{turn.record});
}

/// Nothing new starts; what runs is told to stop and waited for. The first reason to end counts.
void Run::end(const std::string& run_state, const std::string& error, const std::string& kind) {
  if (ending_) return;
  ending_ = true;
  record_.state = run_state;
  record_.error = error;
  record_.error_kind = kind;
  for (std::size_t i = 0; i < state_.size(); ++i) {
    Attempt& attempt = *attempts_[i];
    attempt.tools.request_stop();
    if (attempt.phase == Attempt::Phase::generating) attempt.engine->cancel(attempt.request);
    if (attempt.phase == Attempt::Phase::pausing) turn_over(i, "cancelled");
  }
}

void Run::settle() {
  if (finished_) return;
  const bool over = ending_ ? running_ == 0 && !opening_ : state_.all_over() && !opening_;
  if (over) finish();
}

void Run::finish() {
  finished_ = ending_ = true;
  on_stop_.reset();  // from here on nobody can stop the run
  run_timer_.cancel();
  for (std::size_t i = 0; i < state_.size(); ++i) {
    TurnState& turn = state_.turn(i);
    if (turn.phase == TurnState::Phase::waiting) skip(i, "not started: " + record_.error);
    record_.agents.push_back(turn.record);
  }
  record_.outputs = state_.outputs();
  if (!plan_.steps.empty() && engines_.count(plan_.steps.front().model) != 0) {
    const Engine& engine = *engines_.at(plan_.steps.front().model);
    record_.model_path = engine.model().path.string();
    record_.model_fingerprint = engine.model().fingerprint;
    record_.device = engine.device().name;
  }
  std::vector<const Engine*> counted;
  for (const auto& [name, engine] : engines_) {
    if (std::find(counted.begin(), counted.end(), engine.get()) != counted.end()) continue;
    counted.push_back(engine.get());
    const EngineStats stats = engine->stats();
    record_.memory.weights_bytes += stats.weights_bytes;
    record_.memory.kv_peak_bytes += stats.kv_peak_bytes;
  }
  const auto note_callback_error = [this] {
    if (callback_error_.empty()) return;
    record_.state = "failed";
    record_.error = callback_error_;
    record_.error_kind = "host";
  };
  note_callback_error();
  record_.wall_ms = ms_between(begin_, Clock::now());
  emit(RunFinished{record_});
  note_callback_error();
  work_.reset();
}

/// A callback that throws ends the run and is not called again.
void Run::emit(const Event& event) {
  if (!request_.on_event || !callback_error_.empty()) return;
  try {
    request_.on_event(event);
    return;
  } catch (const std::exception& error) {
    callback_error_ = fmt::format("the event callback threw: {}", error.what());
  } catch (...) {
    callback_error_ = "the event callback threw";
  }
  mailbox_->post([this] {  // not from within whatever was being done
    end("failed", callback_error_, "host");
    settle();
  });
}

}  // namespace

RunRecord execute_run(const RunRequest& request, const std::map<std::string, std::string>& inputs) {
  return Run(request, inputs).run();
}

}  // namespace baton
