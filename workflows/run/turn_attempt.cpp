// SPDX-License-Identifier: Apache-2.0
// TurnAttempt: one turn of a run, attempt after attempt; and the calls of its model.
#include "workflows/run/turn_attempt.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "engine/base/errors.h"
#include "engine/base/json/json_parts.h"
#include "engine/base/utf8.h"
#include "workflows/format/output.h"
#include "workflows/format/placeholder.h"
#include "workflows/run/run_parts.h"

namespace baton {

std::optional<CallsInput> TurnCalls::read(const GenerationResult& result, const PlannedTurn& turn,
                                          const std::shared_ptr<InferenceEngine>& engine, const ToolFormat& format,
                                          const ToolRegistry& tools, const std::stop_token& stop) const {
  CallsInput input;
  input.left = turn.calls->limits().max_calls - calls_;
  if (input.left <= 0) return std::nullopt;
  // The form may have special tokens, which are not in the text.
  const Tokenizer& tokenizer = *engine->text().tokenizer;
  std::string answer = result.text;
  if (format.has_special_tokens()) {
    answer = marked_answer(tokenizer, result.tokens);
    const bool spelled = engine->info().device == "server" && answer.find(kSpecialMark) == std::string::npos;
    if (spelled) answer = marked_text(tokenizer, answer);  // a server may give spellings in place of ids
  }
  input.calls = calls_in(answer, format, *turn.calls);
  if (input.calls.empty()) return std::nullopt;

  input.turn = &turn;
  input.engine = engine;
  input.format = format;
  input.stop = stop;
  input.start = result.tokens.empty() ? tokenizer.start_inside() : tokenizer.start_after(result.tokens.back());
  for (const ModelCall& call : input.calls) {
    const auto made = made_.find({call.tool, call.arguments});
    const bool again = made != made_.end() && !turn.calls->limits().repeat;
    input.known.push_back(again ? std::optional(made->second) : std::nullopt);
    ToolInput& tool = input.tools.emplace_back();
    tool.name = call.tool;
    const CallableTool* known = turn.calls->find(call.tool);
    if (known == nullptr) continue;  // the call has a problem
    tool.tool = known->own ? known->own.get() : tools.find(call.tool);
    tool.call.options = known->options;
    tool.call.timeout = turn.calls->limits().timeout;
    tool.call.arguments = call.arguments;
    tool.call.stop = input.stop;
  }
  return input;
}

void TurnCalls::add(const GenerationResult& result, const CallsInput& calls, std::vector<PromptPart> prompt,
                    const AgentRecord& record) {
  ++generations_;
  calls_ += static_cast<int>(calls.calls.size());
  if (calls.goes_in_circles()) calls_ = calls.turn->calls->limits().max_calls;
  record_ = record;
  record_.tools.clear();
  context_ = result.context;
  thinking_.add_answer(result.tokens);
  start_ = calls.start;
  prompt_ = std::move(prompt);
  if (!result.tokens.empty()) prompt_.push_back({{}, result.tokens});
}

void TurnCalls::add_results(PreparedTurn called) {
  for (const ToolOutcome& tool : called.tools) made_.try_emplace({tool.tool, tool.arguments}, tool.result);
  thinking_.begin(std::move(called.start), called.prompt);
  leave_out(called.shorter);
  Results& results = results_.emplace_back();
  results.begin = prompt_.size();
  results.end = prompt_.size() + called.prompt.size();
  for (const ToolOutcome& tool : called.tools) results.what.tools.push_back(tool.tool);
  results.what.start = start_;
  results.what.tokens = static_cast<std::size_t>(token_count(called.prompt));
  for (PromptPart& part : called.prompt) prompt_.push_back(std::move(part));
  constraint_ = std::move(called.constraint);
}

std::vector<EarlierResults> TurnCalls::earlier() const {
  std::vector<EarlierResults> all;
  for (const Results& results : results_) {
    if (!results.left_out) all.push_back(results.what);
  }
  return all;
}

/// The first results that are still there are replaced.
void TurnCalls::leave_out(std::vector<std::vector<PromptPart>>& shorter) {
  std::size_t next = 0;
  std::ptrdiff_t moved = 0;
  for (Results& results : results_) {
    results.begin += moved;
    results.end += moved;
    if (results.left_out || next == shorter.size()) continue;
    std::vector<PromptPart>& parts = shorter[next++];
    const auto begin = prompt_.begin() + static_cast<std::ptrdiff_t>(results.begin);
    const auto size = static_cast<std::ptrdiff_t>(results.end - results.begin);
    const auto grown = static_cast<std::ptrdiff_t>(parts.size()) - size;
    prompt_.erase(begin, begin + size);
    prompt_.insert(prompt_.begin() + static_cast<std::ptrdiff_t>(results.begin), parts.begin(), parts.end());
    results.end += grown;
    moved += grown;
    results.left_out = true;
  }
}

namespace {

/// Blanks between thinking and an answer are no part of that.
void trim_answer(GenerationResult& result, AgentRecord& record) {
  const std::size_t begin = std::min(result.text.find_first_not_of(utf8::kBlanks), result.text.size());
  if (begin == 0) return;
  result.text.erase(0, begin);
  record.output = result.text;
}

/// Finds where an answer begins behind its header; null: it has none. A call has another header, and no such place.
std::shared_ptr<ThinkingReader> header_of_answer(const PlannedTurn& turn, const ToolFormat& format) {
  std::string header = format.syntax.text_open;
  std::erase(header, kSpecialMark);
  if (turn.calls == nullptr || header.empty()) return nullptr;
  return std::make_shared<ThinkingReader>(ThinkingMarks{"", std::move(header)});
}

/// The engine generates fewer tokens than the turn may have if the context ends before.
std::string truncation(const PlannedTurn& turn, const AgentRecord& record, bool messages) {
  const std::int64_t thinking = messages ? record.thinking_tokens : 0;  // the server counts it, too
  return fmt::format(
      "the answer was cut off after {} tokens, {}{}", record.output_tokens + thinking,
      thinking > 0 ? fmt::format("{} of them for thinking, ", thinking) : "",
      record.output_tokens + thinking >= turn.max_tokens ? "its max_tokens" : "where the model's context ends");
}

/// Warns of what does not fit the context, or was made to. `engine`: null for a turn without a prompt, which has none.
void warn_of_left_out(RunEvents& events, const PlannedTurn& turn, const PreparedTurn& prepared,
                      const InferenceEngine* engine) {
  for (const Warning& warning : prepared.warnings)
    events.warn(turn, warning.code,
                fmt::format("{}; the context has {} tokens", warning.message, engine->info().context));
}

/// The placeholder of an input of type messages whose messages are in the turn's prompt; empty: there is none.
std::string input_of_messages(const WorkflowSpec& spec, const PlannedTurn& turn) {
  const AgentSpec* agent = spec.agent(turn.agent);
  if (agent == nullptr) return {};
  for (const MessageSpec& message : agent->messages) {
    if (message.role.empty()) return message.items.front().pieces.front().placeholder;
  }
  return {};
}

/// What follows if an engine refuses a request. If the prompt is too long, the error says what the largest part of it
/// is; if that is an input, and most of what was asked for, the cause is the caller's.
AttemptFailure after_refusal(const EngineError& error, const RunRequest& run, const PlannedTurn& turn,
                             const std::vector<PromptPart>& prompt) {
  using Kind = EngineError::Kind;
  AttemptFailure failure{.error = error.what(), .may_retry = error.kind == Kind::memory};
  if (error.kind == Kind::memory || error.kind == Kind::over_budget) failure.kind = ErrorKind::resources;
  if (error.kind != Kind::too_long && error.kind != Kind::over_budget) return failure;
  std::map<std::string_view, std::int64_t> tokens;  // by placeholder
  for (const PromptPart& part : prompt) tokens[part.slot] += static_cast<std::int64_t>(part.tokens.size());
  const auto largest =
      std::max_element(tokens.begin(), tokens.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  if (largest == tokens.end()) return failure;
  std::string name(largest->first);
  const SlotSource* source = turn.slot(name);
  bool is_input = source != nullptr && source->kind == SlotSource::Kind::input;
  if (name.empty()) {
    name = input_of_messages(*run.plan->spec, turn);
    // Fixed text has no placeholder either: the messages have at least a byte for each of their tokens.
    const auto given = run.inputs.find(name);
    is_input = given != run.inputs.end() && static_cast<std::int64_t>(given->second.size()) >= largest->second;
    if (!is_input) name.clear();
  }
  const std::int64_t asked = token_count(prompt) + (error.kind == Kind::over_budget ? turn.max_tokens : 0);
  const bool most = 2 * largest->second > asked;
  if (error.kind == Kind::over_budget && !most) return failure;  // it is the answer's tokens
  failure.error += fmt::format("; of the prompt's tokens, {} are {}", largest->second,
                               is_input       ? fmt::format("those of input '{}'", name)
                               : name.empty() ? std::string("those of its fixed text")
                                              : fmt::format("those of '{}'", name));
  if (is_input && most) failure.kind = ErrorKind::input;
  return failure;
}

}  // namespace

TurnAttempt::TurnAttempt(RunParts& run, TurnHost& host, std::size_t turn)
    : run_(run), host_(host), turn_(turn), planned_(run.plan.turns[turn]), state_(run.progress.turn(turn)) {}

void TurnAttempt::set_ready() {
  if (times_.ready == Clock::time_point{}) times_.ready = Clock::now();
}

void TurnAttempt::start(std::shared_ptr<InferenceEngine> engine) {
  engine_ = std::move(engine);
  if (++number_ > 1) {
    if (planned_.asks() && !state_.record.output.empty())
      state_.refused = fmt::format("'{}' was refused: {}", beginning(state_.record.output, 60), state_.record.error);
    times_ = {Clock::now(), {}, {}};
    state_.record.output.clear();
    state_.record.probabilities.clear();
    calls_ = {};
    state_.record.truncated = false;
    state_.record.thinking.clear();
    state_.record.thinking_tokens = 0;
    state_.record.error.clear();
  }
  state_.record.attempts = number_;
  limit_.begin();
  if (planned_.timeout.count() > 0) {
    limit_.set_due(Clock::now() + planned_.timeout);
    host_.wake_at(*limit_.due());
  }
  advance();
}

/// A later attempt has its prompt already, unless the one before it failed the check of its output.
void TurnAttempt::advance() {
  try {
    if (!prepared_) return prepare();
    TurnThinking& thinking = calls_.thinking();
    if (calls_.generations() == 0 && !thinking.is_done()) thinking.begin(prepared_->start, prepared_->prompt);
    const RunRequest& asked = run_.request;
    if (asked.forced.contains(planned_.id) && !asked.forced_thinking.contains(planned_.id)) thinking.leave_out();
    submit();
  } catch (const EngineError& error) {
    return fail(after_refusal(error, run_.request, planned_, submitted_));
  } catch (const std::bad_alloc& error) {
    return fail({.error = message_of(error), .kind = ErrorKind::resources});
  } catch (const std::exception& error) {
    return fail({.error = error.what()});
  }
  submitted();
}

ToolInput TurnAttempt::tool_input(const ToolSpec& spec) {
  ToolInput tool;
  tool.tool = run_.tools->find(spec.tool);
  tool.name = spec.tool;
  if (!spec.from.empty()) tool.call.text = run_.progress.slot_text(turn_, spec.from);
  tool.call.options = spec.options;
  try {
    const auto value = [&](const std::string& name) { return run_.progress.slot_text(turn_, name); };
    for (const auto& [option, text] : spec.filled) tool.call.options[option] = filled_option(option, text, value);
  } catch (const std::runtime_error& error) {
    tool.refused = error.what();
  }
  tool.call.stop = limit_.token();
  if (spec.tool != kAskTool) return tool;

  Asked asked{planned_.agent, planned_.round, tool.call.options["question"]};
  asked.turn = planned_.id;
  if (const AgentSpec* agent = run_.plan.spec->agent(planned_.agent)) asked.choices = agent->output.texts;
  // An answer that was given in advance counts for the first attempt.
  const auto given = run_.request.answers.find(planned_.id);
  const bool known = given != run_.request.answers.end() && number_ == 1;
  if (!known && tool.refused.empty()) run_.events.emit(asked);
  ask_host(tool, std::move(asked), run_.request.on_ask, known ? &given->second : nullptr);
  return tool;
}

void TurnAttempt::prepare() {
  TurnInput input;
  input.turn = &planned_;
  input.engine = engine_;
  input.stop = limit_.token();
  input.texts = run_.texts;
  input.local_seconds = run_.request.local_seconds;
  if (engine_) {
    input.memory = run_.memory.of(turn_);
    input.slots = run_.progress.slot_inputs(turn_, *engine_->text().tokenizer);
  }
  if (failed_.empty()) {
    input.frame = run_.early.frame(turn_);
    for (const ToolSpec& tool : planned_.tools) input.tools.push_back(tool_input(tool));
  } else {
    input.messages = messages_after(planned_, failed_);
    input.tool_text = state_.tool_text;
  }
  auto prepared = std::make_shared<PreparedTurn>();
  auto reply = make_task([this, prepared] { on_prepared(std::move(*prepared)); });
  run_on_worker(run_, prepare_turn, std::move(input), std::move(prepared), std::move(reply));
  phase_ = AttemptPhase::preparing;
}

void TurnAttempt::on_prepared(PreparedTurn prepared) {
  phase_ = AttemptPhase::idle;
  for (const ToolOutcome& tool : prepared.tools) report(tool, 0);
  warn_of_left_out(run_.events, planned_, prepared, engine_.get());
  if (prepared.waits && limit_.why().empty() && !run_.ending) {
    phase_ = AttemptPhase::asked;
    limit_.clear_due();
    return host_.schedule();
  }
  if (!prepared.tools.empty() && prepared.error.empty()) {
    state_.has_tool_text = true;
    state_.tool_text = std::move(prepared.tool_text);
    times_.ready = prepared.ready;
  }
  if (run_.ending) {
    over(TurnState::cancelled);
  } else if (!limit_.why().empty()) {
    fail({.error = limit_.why(), .timed_out = true});
  } else if (!prepared.error.empty()) {
    fail({.error = prepared.error, .may_retry = prepared.may_retry});
  } else if (!planned_.has_prompt()) {
    GenerationResult result;
    state_.record.output = result.text = state_.tool_text;
    accept(std::move(result), {}, {});
  } else {
    prepared.tools = {};
    prepared_ = std::move(prepared);
    phase_ = AttemptPhase::held;
  }
  host_.submit_held();
  host_.schedule();
}

void TurnAttempt::release() {
  phase_ = AttemptPhase::idle;
  advance();
}

void TurnAttempt::submit() {
  AgentRecord& record = state_.record;
  TurnThinking& thinking = calls_.thinking();
  const bool behind = thinking.is_done();                     // the prompt goes on behind the thinking
  const bool continues = calls_.generations() > 0 || behind;  // its beginning was a prompt before
  std::vector<PromptPart>& prompt = behind                     ? thinking.prompt()
                                    : calls_.generations() > 0 ? calls_.prompt()
                                                               : prepared_->prompt;
  record.prompt_tokens = engine_->info().tokens_of(static_cast<std::size_t>(token_count(prompt)));

  GenerationRequest request;
  request.reuse = run_.plan.reuse_of(planned_);
  request.reader = planned_.id;
  request.run = run_.number;
  if (run_.plan.reuse.record) {
    run_.segments.attach(turn_, engine_.get(), prompt);
    if (continues) {  // its texts became segments in the first generation
      for (PromptPart& part : prompt) part.readers = 0;
    }
    request.output_readers = run_.segments.output_readers(turn_);
    request.export_output = run_.segments.export_output(turn_);
    request.output_slot = placeholder_name({Placeholder::Kind::agent, planned_.agent, 0});
  }
  const std::shared_ptr<const Conversation> memory = run_.memory.of(turn_);
  request.context = behind && thinking.context() ? thinking.context()
                    : calls_.generations() > 0   ? calls_.context()
                    : memory                     ? memory->context
                                                 : nullptr;
  request.keep_context =
      (planned_.calls || run_.memory.remembers(turn_) || thinking.is_next()) && reuses_prefixes(*request.reuse.method);
  if (!continues) {
    record.slots = slot_records(run_.progress, turn_, planned_, prompt);
    record.history = run_.memory.history(turn_, prepared_->kept);
    if (record.history && record.history->forgotten > 0) {
      run_.events.warn(planned_, WarningCode::history_forgotten,
                       fmt::format("the first {} of the {} runs that it remembered were forgotten",
                                   record.history->forgotten, memory->exchanges.size()));
    }
  }
  if (!continues && run_.request.on_prompt) {
    std::vector<TokenId> ids;
    if (engine_->info().ids_per_token == 1)
      for (const PromptPart& part : prompt) ids.insert(ids.end(), part.tokens.begin(), part.tokens.end());
    run_.request.on_prompt(planned_.id, prompt_text(engine_->text(), prompt), std::move(ids));
  }
  submitted_ = prompt;  // NOLINT(clang-analyzer-cplusplus.Move): behind thinking it is another one
  const bool again = !continues && number_ < planned_.retry.attempts;
  request.prompt = again ? prompt : std::move(prompt);
  if (const auto forced = run_.request.forced.find(planned_.id); forced != run_.request.forced.end())
    request.forced = forced->second;
  request.sampling = planned_.sampling;
  request.sampling.seed = attempt_seed(run_.request.seed.value_or(planned_.sampling.seed), planned_.id, number_);
  request.max_tokens = planned_.max_tokens;
  request.stop = planned_.stop;
  request.constraint = calls_.generations() > 0 ? calls_.constraint() : prepared_->constraint;
  if (request.constraint && thinking.has_thought()) request.constraint = request.constraint->behind_blanks();
  request.choices = prepared_->choices;
  if (thinking.is_next()) {
    if (!thinking.ask(request, planned_, *engine_, run_.texts.get())) return submit();
    const auto thought = run_.request.forced_thinking.find(planned_.id);
    request.forced = thought == run_.request.forced_thinking.end() ? std::vector<TokenId>() : thought->second;
  }
  request.callbacks = callbacks();
  request.early = run_.early.take(turn_);  // last: from here on it is the engine's to forget
  times_.submitted = Clock::now();
  request_ = engine_->submit(std::move(request));
  phase_ = AttemptPhase::generating;
}

/// The request will end, so what fails here ends the run, not the attempt. After the submit, so that a slow callback
/// does not delay the prompt; the engine's posts are still handled later.
void TurnAttempt::submitted() {
  TurnThinking& thinking = calls_.thinking();
  if (!thinking.is_asked()) run_.early.began(turn_, engine_.get(), request_);
  if (calls_.generations() > 0 || thinking.has_request()) return;
  const AgentRecord& record = state_.record;
  run_.events.emit(AgentStarted{record.agent, record.role, record.round, record.prompt_tokens});
}

namespace {

/// Adds what TokenChance says of the token and of the `count` likeliest, from the logits [V] that it was chosen from.
void add_chances(Token& token, std::span<const float> logits, int count, const Tokenizer& tokenizer) {
  const float most = *std::max_element(logits.begin(), logits.end());
  double sum = 0.0;
  for (const float one : logits) sum += std::exp(static_cast<double>(one) - static_cast<double>(most));
  const double all = static_cast<double>(most) + std::log(sum);
  const auto chance = [&](TokenId id) {
    std::string bytes = tokenizer.token_bytes(id);
    if (bytes.empty()) bytes = tokenizer.decode(std::span(&id, 1), false);  // a special token
    return TokenChance{id, std::move(bytes), static_cast<double>(logits[static_cast<std::size_t>(id)]) - all};
  };
  if (token.id >= 0 && static_cast<std::size_t>(token.id) < logits.size()) token.chance = chance(token.id);
  if (count == 0) return;
  std::vector<TokenId> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  const auto end = ids.begin() + std::min<std::ptrdiff_t>(count, static_cast<std::ptrdiff_t>(ids.size()));
  const auto likelier = [&](TokenId a, TokenId b) {
    const float left = logits[static_cast<std::size_t>(a)], right = logits[static_cast<std::size_t>(b)];
    return left != right ? left > right : a < b;
  };
  std::partial_sort(ids.begin(), end, ids.end(), likelier);
  for (auto id = ids.begin(); id != end; ++id) token.top.push_back(chance(*id));
}

}  // namespace

/// The callbacks run on the engine's thread and only post. The run waits for on_finished, so that it outlives them.
GenerationCallbacks TurnAttempt::callbacks() {
  GenerationCallbacks callbacks;
  callbacks.on_prefilled = [this, mailbox = run_.mailbox](const GenerationResult& so_far) {
    mailbox->post(make_task(
        [this, when = Clock::now(), kv = kv_record(so_far), uses = so_far.uses] { on_prefilled(when, kv, uses); }));
  };
  callbacks.on_prefill_progress = [this, mailbox = run_.mailbox](std::int64_t tokens, std::int64_t prompt_tokens) {
    mailbox->post(make_task([this, tokens, prompt_tokens] {
      run_.events.emit(PrefillProgress{state_.record.agent, state_.record.round, tokens, prompt_tokens});
    }));
  };
  const auto row = std::make_shared<std::vector<float>>();  // the logits that the next token is chosen from
  const std::optional<int> top = run_.request.top_logprobs;
  if (run_.request.on_logits || top) {
    callbacks.on_logits = [tap = run_.request.on_logits, id = planned_.id, row, top](std::span<const float> logits) {
      if (top) row->assign(logits.begin(), logits.end());
      if (tap) tap(id, logits);
    };
  }
  const bool thinks = calls_.thinking().is_asked();
  const auto blank = std::make_shared<bool>(calls_.thinking().has_thought());  // nothing but blanks so far
  const std::shared_ptr<ThinkingReader> header = thinks ? nullptr : header_of_answer(planned_, prepared_->format);
  callbacks.on_token = [this, thinks, blank, header, row, top, mailbox = run_.mailbox](TokenId id,
                                                                                       const std::string& text) {
    Token made{{}, 0, id, text};
    if (top && !thinks && !row->empty()) add_chances(made, *row, *top, *engine_->text().tokenizer);
    mailbox->post(make_task([this, thinks, blank, header, id, token = std::move(made), when = Clock::now()]() mutable {
      if (times_.first_token == Clock::time_point{}) times_.first_token = when;
      token.agent = state_.record.agent;
      token.round = state_.record.round;
      if (header && !header->ended()) {
        header->push(engine_->text().tokenizer->decode(std::span(&id, 1), false));
        token.text.clear();
      }
      if (*blank) token.text.erase(0, std::min(token.text.find_first_not_of(utf8::kBlanks), token.text.size()));
      *blank = *blank && token.text.empty();
      run_.events.emit(thinks ? Event(ThinkingToken{std::move(token)}) : Event(std::move(token)));
    }));
  };
  callbacks.on_thinking = [this, mailbox = run_.mailbox](const std::string& text) {
    mailbox->post(make_task([this, text, when = Clock::now()] {
      if (times_.first_token == Clock::time_point{}) times_.first_token = when;
      run_.events.emit(ThinkingToken{{state_.record.agent, state_.record.round, 0, text}});
    }));
  };
  if (!thinks) {
    callbacks.on_tentative_token = [this, mailbox = run_.mailbox](TokenId id, const std::string& text) {
      mailbox->post(make_task([this, id, text] {
        run_.events.emit(TentativeToken{{state_.record.agent, state_.record.round, id, text}});
      }));
    };
  }
  callbacks.on_confirmed = [this, mailbox = run_.mailbox](std::int64_t kept, std::int64_t tentative) {
    mailbox->post(make_task([this, kept, tentative] {
      run_.events.emit(Confirmed{state_.record.agent, state_.record.round, kept, tentative});
    }));
  };
  auto result = std::make_shared<GenerationResult>();
  auto reply = std::make_shared<std::unique_ptr<Task>>(make_task([this, result] { on_finished(std::move(*result)); }));
  callbacks.on_finished = [mailbox = run_.mailbox, result, reply](GenerationResult made) {
    *result = std::move(made);
    mailbox->post(std::move(*reply));
  };
  return callbacks;
}

void TurnAttempt::on_prefilled(Clock::time_point when, KvRecord kv, const std::vector<PartUse>& uses) {
  AgentRecord& record = state_.record;
  for (std::size_t i = 0; i < uses.size() && i < submitted_.size(); ++i) {
    if (uses[i].lost)
      run_.events.warn(
          planned_, WarningCode::hand_over_lost,
          fmt::format("the KV of '{}' was lost, so that it is computed again: {}", submitted_[i].slot, uses[i].reason));
  }
  if (calls_.generations() == 0 && !calls_.thinking().is_done()) {
    fill_slots(record.slots, submitted_, uses, engine_->info().kv.layers());
    for (const SlotRecord& slot : record.slots) {
      const SlotSource& source = *planned_.slot(slot.name);
      if (source.kind != SlotSource::Kind::agent_output || slot.tokens == 0) continue;
      const std::string& author = run_.plan.turns[static_cast<std::size_t>(source.turn)].agent;
      run_.events.emit(Relayed{author, record.agent, record.round, slot});
    }
  }
  run_.events.emit(Prefill{record.agent, record.round, kv, milliseconds(when - times_.submitted)});
}

void TurnAttempt::on_finished(GenerationResult result) {
  AgentRecord& record = state_.record;
  phase_ = AttemptPhase::idle;
  run_.early.ended(turn_);
  TurnThinking& thinking = calls_.thinking();
  // A header of special tokens and words.
  const bool header = planned_.calls && !prepared_->format.syntax.text_open.empty() && !thinking.is_asked();
  if (header) result.text = text_of_answer(marked_answer(*engine_->text().tokenizer, result.tokens), prepared_->format);
  fill_record(record, result, times_);
  if (!thinking.is_asked() && !thinking.is_done()) {  // what a server has separated
    record.thinking = utf8::trimmed(result.thinking);
    record.thinking_tokens = result.thinking_tokens;
  }
  if (record.history && calls_.generations() == 0 && !thinking.is_done())
    record.history->continued = std::min(result.continued_tokens, record.history->tokens);
  if (!result.lost_kv.empty())
    run_.events.warn(planned_, WarningCode::hand_over_lost,
                     fmt::format("KV was lost, so that it is computed again: {}", result.lost_kv));
  if (thinking.is_asked()) {
    take_thinking(result);
    if (result.reason != FinishReason::cancelled && result.reason != FinishReason::error && !run_.ending) {
      advance();
      return host_.schedule();
    }
  }
  if (thinking.has_thought()) trim_answer(result, record);
  thinking.add_to(record);
  if (calls_.generations() > 0) add_earlier(record, calls_.record(), calls_.generations() + 1);
  if (call_tools(result)) return;
  limit_.clear_due();
  const TokenText answer = std::move(result.tokens);
  if (run_.plan.reuse.record) run_.segments.take(turn_, engine_.get(), submitted_, result, answer);
  const std::vector<PromptPart> prompt = std::exchange(submitted_, {});
  if (result.reason == FinishReason::cancelled && run_.ending) {
    state_.has_output = !record.output.empty();
    over(TurnState::cancelled);
  } else if (result.reason == FinishReason::cancelled) {
    const bool timed_out = !limit_.why().empty();
    fail({.error = timed_out ? limit_.why() : "cancelled by the engine", .timed_out = timed_out});
  } else if (result.reason == FinishReason::error) {
    fail({.error = result.error});
  } else {
    accept(std::move(result), answer, prompt);
  }
  host_.schedule();
}

void TurnAttempt::take_thinking(const GenerationResult& result) {
  GenerationResult prompt_only = result;
  prompt_only.output = nullptr;
  if (run_.plan.reuse.record) run_.segments.take(turn_, engine_.get(), submitted_, prompt_only, {});
  calls_.thinking().take(result, std::exchange(submitted_, {}), engine_->text(), state_.record, run_.texts.get());
}

/// Returns false if the result is an answer, without calls.
bool TurnAttempt::call_tools(const GenerationResult& result) {
  const bool ended = result.reason == FinishReason::cancelled || result.reason == FinishReason::error;
  if (planned_.calls == nullptr || ended || run_.ending || run_.request.forced.contains(planned_.id)) return false;
  std::optional<CallsInput> input =
      calls_.read(result, planned_, engine_, prepared_->format, *run_.tools, limit_.token());
  if (!input) return false;
  input->texts = run_.texts;
  input->used = static_cast<std::size_t>(token_count(submitted_)) + result.tokens.size();
  input->earlier = calls_.earlier();
  input->local_seconds = run_.request.local_seconds;
  input->inputs = &run_.request.inputs;
  if (planned_.summary) input->summary_engine = run_.request.engines.at(planned_.summary->model);
  GenerationResult prompt_only = result;  // nobody reads calls
  prompt_only.output = nullptr;
  if (run_.plan.reuse.record) run_.segments.take(turn_, engine_.get(), submitted_, prompt_only, {});
  calls_.add(result, *input, std::exchange(submitted_, {}), state_.record);
  const auto by_model = [](const ToolUse& use) { return use.generation > 0; };
  const auto& uses = state_.record.tools;
  const int first = 1 + static_cast<int>(std::count_if(uses.begin(), uses.end(), by_model));
  CallRound::Hooks hooks;
  hooks.on_outcome = [this](const ToolOutcome& outcome, int call) { report(outcome, call); };
  hooks.on_asking = [this](bool asking) {
    asking ? limit_.pause() : limit_.go_on();
    host_.asking(asking);
    if (limit_.due()) host_.wake_at(*limit_.due());
  };
  hooks.on_end = [this](PreparedTurn called) { on_called(std::move(called)); };
  hooks.on_suspended = [this] {
    phase_ = AttemptPhase::asked;
    limit_.clear_due();
    host_.schedule();
  };
  phase_ = AttemptPhase::calling;
  calls_.round() = std::make_unique<CallRound>(run_, std::move(*input), first, std::move(hooks));
  calls_.round()->begin();
  return true;
}

void TurnAttempt::on_called(PreparedTurn called) {
  phase_ = AttemptPhase::idle;
  warn_of_left_out(run_.events, planned_, called, engine_.get());
  std::vector<ToolUse>& uses = state_.record.tools;
  for (std::size_t i = 0; i < called.left_out.size() && called.left_out.size() <= uses.size(); ++i) {
    ToolUse& use = uses[uses.size() - called.left_out.size() + i];
    use.left_out = called.left_out[i];
    if (i < called.tools.size()) use.summary = called.tools[i].summary.value_or("");
  }
  const auto ok = [](const ToolOutcome& tool) { return tool.result.ok; };
  if (run_.ending) {
    over(TurnState::cancelled);
  } else if (!limit_.why().empty()) {
    fail({.error = limit_.why(), .timed_out = true});
  } else if (!called.failed_tool.empty()) {
    fail({.error = called.failed_tool});
  } else if (!called.error.empty()) {
    fail({.error = called.error, .may_retry = false});
  } else if (planned_.calls->limits().direct && std::all_of(called.tools.begin(), called.tools.end(), ok)) {
    limit_.clear_due();
    GenerationResult result;
    for (const ToolOutcome& tool : called.tools) result.text += (result.text.empty() ? "" : "\n") + tool.result.text;
    state_.record.output = result.text;
    state_.record.truncated = false;
    std::vector<PromptPart>& prompt = calls_.prompt();  // as if the model had repeated the results
    prompt.insert(prompt.end(), called.prompt.begin(), called.prompt.end());
    calls_.thinking().begin({}, called.prompt);
    result.context = calls_.context();
    accept(std::move(result), {}, prompt);
  } else {
    calls_.add_results(std::move(called));
    advance();
  }
  host_.schedule();
}

/// The record and the event of a tool that has returned. `call`: the number of the model's call; 0: it is none.
void TurnAttempt::report(const ToolOutcome& tool, int call) {
  AgentRecord& record = state_.record;
  const ToolResult& result = tool.result;
  record.tools.push_back(
      {tool.tool, tool.arguments, result.code, result.ok, result.text, tool.wall_ms, calls_.generations()});
  run_.events.emit(ToolCalled{record.agent, record.round, tool.tool, result.ok, result.text, tool.wall_ms,
                              tool.arguments, result.code, record.turn, call});
  const bool is_output = !planned_.has_prompt();  // which is checked as a whole
  if (!is_output && result.ok && planned_.on_empty != OnEmpty::accept && utf8::trimmed(result.text).empty())
    run_.events.warn(planned_, WarningCode::result_empty, fmt::format("the result of tool '{}' is empty", tool.tool));
}

/// `answer`: the ids of the result; `prompt`: that of the last generation.
void TurnAttempt::accept(GenerationResult result, const TokenText& answer, const std::vector<PromptPart>& prompt) {
  if (state_.record.truncated)
    run_.events.warn(planned_, WarningCode::answer_cut_off,
                     truncation(planned_, state_.record, !result.thinking.empty()));
  if (result.reason == FinishReason::other)
    run_.events.warn(
        planned_, WarningCode::finish_unknown,
        fmt::format("the server ended the answer for a reason that is unknown here: '{}'", result.server_reason));
  if (!fits(result)) return;
  state_.has_output = true;
  if (engine_) {
    const std::shared_ptr<const Tokenizer>& tokenizer = engine_->text().tokenizer;
    // The ids are handed on unchanged, unless the model wrote a role marker, which may only be handed on as text, or
    // blanks behind its thinking, which are no part of the answer.
    const TurnThinking& thinking = calls_.thinking();
    const bool plain =
        std::none_of(answer.begin(), answer.end(), [&](TokenId id) { return tokenizer->is_special(id); }) &&
        (!thinking.has_thought() || tokenizer->decode(answer.ids(), true) == result.text);
    run_.memory.remember(turn_, prepared_->kept, prompt, thinking.has_bare_prompt() ? thinking.bare_prompt() : prompt,
                         result, plain ? answer : TokenText(), tokenizer);
    if (plain) state_.tokens = answer;
    state_.tokenizer = tokenizer;
  }
  over(TurnState::ok);
}

/// Checks the output and takes the answer from it. Fails the attempt and returns false if the output does not do.
bool TurnAttempt::fits(GenerationResult& result) {
  const OutputSpec any;
  const AgentSpec* agent = run_.plan.spec->agent(planned_.agent);
  const OutputSpec& output = agent == nullptr ? any : agent->output;
  AgentRecord& record = state_.record;
  CheckedOutput checked = check_output(output, planned_.grammar.get(), result.text);
  const bool is_empty = planned_.on_empty != OnEmpty::accept && utf8::trimmed(result.text).empty();
  const bool refuses = is_empty && planned_.on_empty == OnEmpty::fail;
  if (refuses && checked.problem.empty()) checked.problem = "the output is empty";
  if (!checked.problem.empty() && planned_.enforce && record.truncated)
    checked.problem = fmt::format("the output was cut off before it was complete: {}", checked.problem);
  const bool last = number_ >= planned_.retry.attempts;
  if (!checked.problem.empty() && (output.required || refuses || !last)) {
    if (!last && engine_) failed_.push_back({std::move(result.text), checked.problem});
    prepared_.reset();
    fail({.error = std::move(checked.problem)});
    return false;
  }
  if (!checked.problem.empty()) run_.events.warn(planned_, WarningCode::output_unfit, checked.problem);
  for (std::size_t i = 0; i < result.choices.size(); ++i)
    record.probabilities.emplace_back(planned_.choices[i], result.choices[i]);
  if (is_empty && checked.problem.empty()) run_.events.warn(planned_, WarningCode::output_empty, "the output is empty");
  if (checked.problem.empty() && output.has_answer()) run_.progress.set_answer(turn_, std::move(checked.answer));
  return true;
}

void TurnAttempt::fail(const AttemptFailure& failure) {
  limit_.clear_due();
  state_.record.error = failure.error;
  const AfterFailure next = after_failure(planned_, number_, failure.may_retry, run_.ending);
  if (next.again) {
    run_.events.warn(planned_, WarningCode::attempt_failed,
                     fmt::format("attempt {} of {} failed: {}", number_, planned_.retry.attempts, failure.error));
    phase_ = AttemptPhase::pausing;
    limit_.set_due(Clock::now() + next.pause);
    host_.wake_at(*limit_.due());
    return;
  }
  if (run_.ending) return over(TurnState::failed);

  const std::string message = fmt::format("agent '{}' failed: {}", planned_.id, failure.error);
  if (!next.ends_run) run_.events.warn({message, WarningCode::turn_failed, planned_.agent, planned_.id});
  if (next.fallback) {
    state_.record.output = planned_.fallback;
    state_.has_output = true;
  }
  over(TurnState::failed);
  if (next.ends_run) host_.attempt_failed(failure, message);
}

void TurnAttempt::on_timer() {
  limit_.clear_due();
  if (phase_ == AttemptPhase::idle) return;
  if (phase_ == AttemptPhase::pausing) {
    if (run_.ending) return over(TurnState::cancelled);
    phase_ = AttemptPhase::idle;
    start(engine_);
    return host_.schedule();
  }
  limit_.cut_off(fmt::format("the attempt took longer than {} ms", planned_.timeout.count()));
  if (phase_ == AttemptPhase::generating) try_to([&] { engine_->cancel(request_); });  // else it ends by itself
  if (phase_ != AttemptPhase::held) return;
  phase_ = AttemptPhase::idle;
  fail({.error = limit_.why(), .timed_out = true});
  host_.schedule();
}

void TurnAttempt::stop_work() {
  limit_.request_stop();
  if (phase_ == AttemptPhase::generating) try_to([&] { engine_->cancel(request_); });  // else it ends by itself
}

void TurnAttempt::over(TurnState state) {
  phase_ = AttemptPhase::idle;
  limit_.clear_due();
  if (prepared_) prepared_->prompt = {};
  if (!planned_.has_prompt()) {  // a fallback, or nothing
    state_.has_tool_text = state_.has_output && try_to([&] { state_.tool_text = state_.record.output; });
  }
  if (state == TurnState::cancelled) try_to([&] { state_.record.error = host_.error(); });
  host_.close(turn_, state);
}

}  // namespace baton
