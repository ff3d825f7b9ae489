// SPDX-License-Identifier: Apache-2.0
// The attempts of one turn: tools and prompt, the engine, then an output, another attempt, or a failure.
#include <fmt/format.h>

#include <algorithm>

#include "engine/base/errors.h"
#include "workflows/format/output.h"
#include "workflows/format/placeholder.h"
#include "workflows/run/executor_loop.h"

namespace baton {
namespace {

constexpr Milliseconds kMaxBackoff{60000};

/// The engine generates fewer tokens than the turn may have where the context ends before.
std::string truncation(const PlannedTurn& turn, const AgentRecord& record) {
  return fmt::format("agent '{}': the answer was cut off after {} tokens, {}", turn.id, record.output_tokens,
                     record.output_tokens >= turn.max_tokens ? "its max_tokens" : "where the model's context ends");
}

}  // namespace

void RunLoop::start_attempt(std::size_t turn) {
  Attempt& attempt = *attempts_[turn];
  TurnProgress& state = state_.turn(turn);
  if (++attempt.number > 1) {
    attempt.times = {Clock::now(), {}, {}};
    state.record.output.clear();
    state.record.probabilities.clear();
    attempt.calls = {};
    state.record.truncated = false;
    state.record.error.clear();
  }
  state.record.attempts = attempt.number;
  attempt.cut.clear();
  attempt.stop = {};
  if (const Milliseconds timeout = planned(turn).timeout; timeout.count() > 0) {
    attempt.due = Clock::now() + timeout;
    wake_at(*attempt.due);
  }
  advance(turn);
}

/// A later attempt has its prompt already, unless the one before it failed the check of its output.
void RunLoop::advance(std::size_t turn) {
  try {
    if (!attempts_[turn]->prepared) return prepare(turn);
    submit(turn);
  } catch (const EngineError& error) {
    const bool memory = error.kind == EngineError::Kind::memory;  // the other kinds would be the same next time
    return fail_attempt(
        turn, {.error = error.what(), .kind = memory ? ErrorKind::resources : ErrorKind::agent, .may_retry = memory});
  } catch (const std::bad_alloc& error) {
    return fail_attempt(turn, {.error = message_of(error), .kind = ErrorKind::resources});
  } catch (const std::exception& error) {
    return fail_attempt(turn, {.error = error.what()});
  }
  submitted(turn);
}

ToolInput RunLoop::tool_input(std::size_t turn, const ToolSpec& spec) const {
  ToolInput tool;
  tool.tool = tools_->find(spec.tool);
  tool.name = spec.tool;
  if (!spec.from.empty()) tool.call.text = state_.slot_text(turn, spec.from);
  tool.call.options = spec.options;
  try {
    const auto value = [&](const std::string& name) { return state_.slot_text(turn, name); };
    for (const auto& [option, text] : spec.filled) tool.call.options[option] = filled_option(option, text, value);
  } catch (const std::runtime_error& error) {
    tool.refused = error.what();
  }
  tool.call.stop = attempts_[turn]->stop.get_token();
  return tool;
}

void RunLoop::prepare(std::size_t turn) {
  Attempt& attempt = *attempts_[turn];
  TurnInput input;
  input.turn = &planned(turn);
  input.engine = attempt.engine;
  input.stop = attempt.stop.get_token();
  input.memory = attempt.memory = attempt.engine ? memory_of(turn) : nullptr;
  if (attempt.engine) input.slots = state_.slot_inputs(turn, *attempt.engine->text().tokenizer);
  if (attempt.failed.empty()) {
    input.frame = early_.frame(turn);
    for (const ToolSpec& tool : planned(turn).tools)
      input.tools.push_back(tool.tool == kAskTool ? question(turn, tool) : tool_input(turn, tool));
  } else {
    input.messages = messages_after(planned(turn), attempt.failed);
    input.tool_text = state_.turn(turn).tool_text;
  }
  auto prepared = std::make_shared<PreparedTurn>();
  auto reply = make_task([this, turn, prepared] { on_prepared(turn, std::move(*prepared)); });
  on_worker(prepare_turn, std::move(input), std::move(prepared), std::move(reply));
  attempt.phase = Attempt::Phase::preparing;
}

void RunLoop::on_prepared(std::size_t turn, PreparedTurn prepared) {
  Attempt& attempt = *attempts_[turn];
  attempt.phase = Attempt::Phase::idle;
  TurnProgress& state = state_.turn(turn);
  report(turn, prepared.tools);
  if (prepared.waits && attempt.cut.empty() && !ending_) {
    attempt.phase = Attempt::Phase::asked;
    attempt.due.reset();
    return schedule();
  }
  if (!prepared.tools.empty()) {
    state.has_tool_text = true;
    state.tool_text = std::move(prepared.tool_text);
    attempt.times.ready = prepared.ready;
  }
  if (ending_) {
    turn_over(turn, TurnState::cancelled);
  } else if (!attempt.cut.empty()) {
    fail_attempt(turn, {.error = attempt.cut, .timed_out = true});
  } else if (!prepared.error.empty()) {
    fail_attempt(turn, {.error = prepared.error, .may_retry = prepared.may_retry});
  } else if (!planned(turn).has_prompt()) {
    GenerationResult result;
    state.record.output = result.text = state.tool_text;
    accept(turn, std::move(result), {});
  } else {
    attempt.prompt = std::move(prepared.prompt);
    attempt.kept = prepared.kept;
    attempt.choices = std::move(prepared.choices);
    attempt.format = std::move(prepared.format);
    attempt.constraint = std::move(prepared.constraint);
    attempt.prepared = true;
    attempt.phase = Attempt::Phase::held;
  }
  submit_held();
  schedule();
}

/// Of prompts that hold the same text, the engine's first computes it and the others get it from there: their answers
/// must not depend on which worker was faster. Turns with tools are not waited for.
bool RunLoop::follows_preparing(std::size_t turn) const {
  if (!plan_.reuse.record) return false;
  for (std::size_t i = 0; i < turn; ++i) {
    if (attempts_[i]->phase == Attempt::Phase::preparing && planned(i).tools.empty()) return true;
  }
  return false;
}

void RunLoop::submit_held() {
  for (std::size_t i = 0; i < attempts_.size() && !ending_; ++i) {
    if (attempts_[i]->phase != Attempt::Phase::held || follows_preparing(i)) continue;
    attempts_[i]->phase = Attempt::Phase::idle;
    advance(i);
  }
}

void RunLoop::submit(std::size_t turn) {
  Attempt& attempt = *attempts_[turn];
  const PlannedTurn& planned_turn = planned(turn);
  AgentRecord& record = state_.turn(turn).record;
  const bool continues = attempt.calls.generations > 0;  // the prompt follows calls
  std::vector<PromptPart>& prompt = continues ? attempt.calls.prompt : attempt.prompt;
  record.prompt_tokens = token_count(prompt);

  GenerationRequest request;
  request.reuse = plan_.reuse_of(planned_turn);
  request.reader = planned_turn.id;
  request.run = number_;
  if (plan_.reuse.record) {
    hand_over_.attach(turn, attempt.engine.get(), prompt);
    if (continues) {  // its texts became segments in the first generation
      for (PromptPart& part : prompt) part.readers = 0;
    }
    request.output_readers = hand_over_.output_readers(turn);
    request.export_output = hand_over_.export_output(turn);
    request.output_slot = placeholder_name({Placeholder::Kind::agent, planned_turn.agent, 0});
  }
  request.context = continues ? attempt.calls.context : attempt.memory ? attempt.memory->context : nullptr;
  request.keep_context =
      (planned_turn.calls || remembers(turn)) && request.reuse.method->prefixes != Method::Prefixes::never;
  if (!continues) {
    record.slots = slot_records(state_, turn, planned_turn, prompt);
    record.history = history_of(turn);
  }
  attempt.submitted = prompt;
  const bool again = !continues && attempt.number < planned_turn.retry.attempts;
  request.prompt = again ? prompt : std::move(prompt);
  if (const auto forced = request_.forced.find(planned_turn.id); forced != request_.forced.end())
    request.forced = forced->second;
  request.sampling = planned_turn.sampling;
  request.sampling.seed =
      attempt_seed(request_.seed.value_or(planned_turn.sampling.seed), planned_turn.id, attempt.number);
  request.max_tokens = planned_turn.max_tokens;
  request.stop = planned_turn.stop;
  request.constraint = continues ? attempt.calls.constraint : attempt.constraint;
  request.choices = attempt.choices;
  request.callbacks = callbacks(turn);
  request.early = early_.take(turn);  // last: from here on it is the engine's to forget
  attempt.times.submitted = Clock::now();
  attempt.request = attempt.engine->submit(std::move(request));
  attempt.phase = Attempt::Phase::generating;
}

/// The request will end, so what fails here ends the run, not the attempt. After the submit, so that a slow callback
/// does not delay the prompt; the engine's posts are still handled later.
void RunLoop::submitted(std::size_t turn) {
  const Attempt& attempt = *attempts_[turn];
  early_.began(turn, attempt.engine.get(), attempt.request);
  if (attempt.calls.generations > 0) return;
  const AgentRecord& record = state_.turn(turn).record;
  emit(AgentStarted{record.agent, record.role, record.round, record.prompt_tokens});
}

/// The callbacks run on the engine's thread and only post. The run waits for on_finished, so that it outlives them.
GenerationCallbacks RunLoop::callbacks(std::size_t turn) {
  GenerationCallbacks callbacks;
  callbacks.on_prefilled = [this, mailbox = mailbox_, turn](const GenerationResult& so_far) {
    mailbox->post(make_task([this, turn, when = Clock::now(), kv = kv_record(so_far), uses = so_far.uses] {
      on_prefilled(turn, when, kv, uses);
    }));
  };
  callbacks.on_prefill_progress = [this, mailbox = mailbox_, turn](std::int64_t tokens, std::int64_t prompt_tokens) {
    mailbox->post(make_task([this, turn, tokens, prompt_tokens] {
      const AgentRecord& record = state_.turn(turn).record;
      emit(PrefillProgress{record.agent, record.round, tokens, prompt_tokens});
    }));
  };
  if (request_.on_logits) {
    callbacks.on_logits = [tap = request_.on_logits, id = planned(turn).id](std::span<const float> logits) {
      tap(id, logits);
    };
  }
  callbacks.on_token = [this, mailbox = mailbox_, turn](TokenId id, const std::string& text) {
    mailbox->post(make_task([this, turn, id, text, when = Clock::now()] {
      Attempt& attempt = *attempts_[turn];
      if (attempt.times.first_token == Clock::time_point{}) attempt.times.first_token = when;
      const AgentRecord& record = state_.turn(turn).record;
      emit(Token{record.agent, record.round, id, text});
    }));
  };
  callbacks.on_tentative_token = [this, mailbox = mailbox_, turn](TokenId id, const std::string& text) {
    mailbox->post(make_task([this, turn, id, text] {
      const AgentRecord& record = state_.turn(turn).record;
      emit(TentativeToken{{record.agent, record.round, id, text}});
    }));
  };
  callbacks.on_confirmed = [this, mailbox = mailbox_, turn](std::int64_t kept, std::int64_t tentative) {
    mailbox->post(make_task([this, turn, kept, tentative] {
      const AgentRecord& record = state_.turn(turn).record;
      emit(Confirmed{record.agent, record.round, kept, tentative});
    }));
  };
  auto result = std::make_shared<GenerationResult>();
  auto reply = std::make_shared<std::unique_ptr<Task>>(
      make_task([this, turn, result] { on_finished(turn, std::move(*result)); }));
  callbacks.on_finished = [mailbox = mailbox_, result, reply](GenerationResult made) {
    *result = std::move(made);
    mailbox->post(std::move(*reply));
  };
  return callbacks;
}

void RunLoop::on_prefilled(std::size_t turn, Clock::time_point when, KvRecord kv, const std::vector<PartUse>& uses) {
  const Attempt& attempt = *attempts_[turn];
  AgentRecord& record = state_.turn(turn).record;
  if (attempt.calls.generations == 0) {
    fill_slots(record.slots, attempt.submitted, uses, attempt.engine->info().kv.layers);
    for (const SlotRecord& slot : record.slots) {
      const SlotSource& source = *planned(turn).slot(slot.name);
      if (source.kind != SlotSource::Kind::agent_output || slot.tokens == 0) continue;
      emit(Relayed{planned(static_cast<std::size_t>(source.turn)).agent, record.agent, record.round, slot});
    }
  }
  emit(Prefill{record.agent, record.round, kv, milliseconds(when - attempt.times.submitted)});
}

void RunLoop::on_finished(std::size_t turn, GenerationResult result) {
  Attempt& attempt = *attempts_[turn];
  AgentRecord& record = state_.turn(turn).record;
  attempt.phase = Attempt::Phase::idle;
  early_.ended(turn);
  fill_record(record, result, attempt.times);
  if (record.history && attempt.calls.generations == 0)
    record.history->continued = std::min(result.continued_tokens, record.history->tokens);
  if (attempt.calls.generations > 0) add_earlier(record, attempt.calls.record, attempt.calls.generations + 1);
  if (call_tools(turn, result)) return;
  attempt.due.reset();
  if (plan_.reuse.record) hand_over_.take(turn, attempt.engine.get(), attempt.submitted, result);
  const std::vector<PromptPart> prompt = std::exchange(attempt.submitted, {});
  if (result.reason == FinishReason::cancelled && ending_) {
    state_.turn(turn).has_output = !record.output.empty();
    turn_over(turn, TurnState::cancelled);
  } else if (result.reason == FinishReason::cancelled) {
    const bool timed_out = !attempt.cut.empty();
    fail_attempt(turn, {.error = timed_out ? attempt.cut : "cancelled by the engine", .timed_out = timed_out});
  } else if (result.reason == FinishReason::error) {
    fail_attempt(turn, {.error = result.error});
  } else {
    accept(turn, std::move(result), prompt);
  }
  schedule();
}

void RunLoop::accept(std::size_t turn, GenerationResult result, const std::vector<PromptPart>& prompt) {
  Attempt& attempt = *attempts_[turn];
  TurnProgress& state = state_.turn(turn);
  if (state.record.truncated) warn(truncation(planned(turn), state.record));
  if (const AgentSpec* agent = plan_.spec->agent(planned(turn).agent)) {
    CheckedOutput checked = check_output(agent->output, planned(turn).grammar.get(), result.text);
    if (!checked.problem.empty() && planned(turn).enforce && state.record.truncated)
      checked.problem = fmt::format("the output was cut off before it was complete: {}", checked.problem);
    const bool last = attempt.number >= planned(turn).retry.attempts;
    if (!checked.problem.empty() && (agent->output.required || !last)) {
      if (!last && attempt.engine) attempt.failed.push_back({std::move(result.text), checked.problem});
      attempt.prepared = false;
      fail_attempt(turn, {.error = std::move(checked.problem)});
      return;
    }
    if (!checked.problem.empty()) warn(fmt::format("agent '{}': {}", planned(turn).id, checked.problem));
    for (std::size_t i = 0; i < result.choices.size(); ++i)
      state.record.probabilities.emplace_back(planned(turn).choices[i], result.choices[i]);
    if (checked.problem.empty() && agent->output.has_answer()) state_.set_answer(turn, std::move(checked.answer));
  }
  state.has_output = true;
  if (attempt.engine) {
    remember(turn, prompt, result);
    // The ids are handed on unchanged, unless the model wrote a role marker, which may only be handed on as text.
    const std::shared_ptr<const Tokenizer>& tokenizer = attempt.engine->text().tokenizer;
    const bool plain =
        std::none_of(result.tokens.begin(), result.tokens.end(), [&](TokenId id) { return tokenizer->is_special(id); });
    if (plain) state.tokens = std::move(result.tokens);
    state.tokenizer = tokenizer;
  }
  turn_over(turn, TurnState::ok);
}

void RunLoop::fail_attempt(std::size_t turn, Failure failure) {
  Attempt& attempt = *attempts_[turn];
  const PlannedTurn& planned_turn = planned(turn);
  TurnProgress& state = state_.turn(turn);
  attempt.due.reset();
  state.record.error = failure.error;
  if (ending_) {
    turn_over(turn, TurnState::failed);
    return;
  }
  if (failure.may_retry && attempt.number < planned_turn.retry.attempts) {
    const int doublings = std::min(attempt.number - 1, 16);
    const Milliseconds pause =
        std::min(std::min(planned_turn.retry.backoff, kMaxBackoff) * (1 << doublings), kMaxBackoff);
    warn(fmt::format("agent '{}': attempt {} of {} failed: {}", planned_turn.id, attempt.number,
                     planned_turn.retry.attempts, failure.error));
    attempt.phase = Attempt::Phase::pausing;
    attempt.due = Clock::now() + pause;
    wake_at(*attempt.due);
    return;
  }

  const std::string message = fmt::format("agent '{}' failed: {}", planned_turn.id, failure.error);
  if (planned_turn.on_error != OnError::fail) warn(message);
  if (planned_turn.on_error == OnError::fallback) {
    state.record.output = planned_turn.fallback;
    state.has_output = true;
  }
  turn_over(turn, TurnState::failed);
  if (planned_turn.on_error == OnError::fail)
    end(failure.timed_out ? RunState::timeout : RunState::failed, message, failure.kind);
}

/// The attempt's time is up.
void RunLoop::cut_off(std::size_t turn) {
  Attempt& attempt = *attempts_[turn];
  if (attempt.phase == Attempt::Phase::idle) return;
  attempt.cut = fmt::format("the attempt took longer than {} ms", planned(turn).timeout.count());
  attempt.stop.request_stop();
  if (attempt.phase == Attempt::Phase::generating)
    try_to([&] { attempt.engine->cancel(attempt.request); });  // else it ends by itself
  if (attempt.phase != Attempt::Phase::held) return;
  attempt.phase = Attempt::Phase::idle;
  fail_attempt(turn, {.error = attempt.cut, .timed_out = true});
  schedule();
}

/// The end of a turn that had begun.
void RunLoop::turn_over(std::size_t turn, TurnState turn_state) {
  Attempt& attempt = *attempts_[turn];
  attempt.phase = Attempt::Phase::idle;
  attempt.due.reset();
  attempt.prompt = {};
  if (TurnProgress& state = state_.turn(turn); !planned(turn).has_prompt()) {  // a fallback, or nothing
    state.has_tool_text = state.has_output && try_to([&] { state.tool_text = state.record.output; });
  }
  if (turn_state == TurnState::cancelled) try_to([&] { state_.turn(turn).record.error = record_.error; });
  close(turn, turn_state);
}

}  // namespace baton
