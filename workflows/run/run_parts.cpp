// SPDX-License-Identifier: Apache-2.0
#include "workflows/run/run_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <system_error>

#include "engine/base/errors.h"
#include "engine/engine.h"

namespace baton {

TaskQueue::~TaskQueue() {
  while (first_) first_ = std::move(first_->next_);  // not by recursion: there may be many
}

void TaskQueue::post(std::unique_ptr<Task> task) noexcept {
  if (!task) return;
  const std::lock_guard lock(mutex_);
  Task* const posted = task.get();
  (last_ == nullptr ? first_ : last_->next_) = std::move(task);
  last_ = posted;
  changed_.notify_one();  // with the lock: the queue may end as soon as the task has run
}

std::unique_ptr<Task> TaskQueue::take(std::optional<Clock::time_point> until) {
  std::unique_lock lock(mutex_);
  const auto over = [this] { return first_ != nullptr || closed_; };
  if (until) {
    changed_.wait_until(lock, *until, over);
  } else {
    changed_.wait(lock, over);
  }
  if (!first_) return nullptr;
  std::unique_ptr<Task> task = std::move(first_);
  first_ = std::move(task->next_);
  if (!first_) last_ = nullptr;
  return task;
}

void TaskQueue::close() noexcept {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  changed_.notify_all();
}

Workers::Workers(std::size_t threads) {
  threads_.reserve(threads);
  try {
    while (threads_.size() < threads) {
      threads_.emplace_back([this] {
        while (const std::unique_ptr<Task> task = tasks_.take()) {
          if (!stopping_) try_to([&] { task->run(); });
        }
      });
    }
  } catch (const std::system_error& error) {
    if (threads_.empty()) {
      throw EngineError(EngineError::Kind::memory,
                        fmt::format("the run cannot start a thread: {}", error.code().message()));
    }
  } catch (...) {
    stop();
    throw;
  }
}

Workers::~Workers() { stop(); }

void Workers::stop() noexcept {
  stopping_ = true;
  tasks_.close();
  for (std::thread& thread : threads_) thread.join();
}

namespace {

std::atomic<std::uint64_t> begun_runs{0};           // in this process
constexpr const char* kNoMemory = "out of memory";  // so short that a std::string of it allocates nothing

/// The texts that the session has tokenized so far.
std::shared_ptr<TextIds> texts_of(const SessionMemory& memory) {
  for (const auto& [agent, conversation] : memory) {
    if (conversation && conversation->texts) return conversation->texts;
  }
  return std::make_shared<TextIds>();
}

}  // namespace

RunParts::RunParts(const RunRequest& run_request)
    : request(run_request),
      plan(*run_request.plan),
      number(++begun_runs),
      texts(texts_of(run_request.memory)),
      progress(plan, run_request.inputs),
      segments(plan),
      early(plan, progress, *texts),
      memory(run_request, progress, texts),
      events(run_request.on_event),
      earlier_calls(run_request.calls) {}

void RunEvents::emit(const Event& event) {
  if (!callback_ || failed_) return;
  try {
    callback_(event);
    return;
  } catch (const std::exception& error) {
    failed_ = true;
    error_ = kNoMemory;
    error_ = fmt::format("the event callback threw: {}", message_of(error));
  } catch (...) {
    failed_ = true;
    error_ = "the event callback threw";
  }
}

void RunEvents::warn(const PlannedTurn& turn, WarningCode code, const std::string& what) {
  warn({fmt::format("agent '{}': {}", turn.id, what), code, turn.agent, turn.id});
}

void RunEvents::warn(Warning warning) {
  constexpr std::size_t kMaxWarnings = 256;  // in a record
  const auto same = [&](const WarningRecord& one) {
    const bool about_turn = !warning.turn.empty() && one.turn == warning.turn;
    return one.code == warning.code && (about_turn || one.message == warning.message);
  };
  const auto known = std::find_if(warnings_.begin(), warnings_.end(), same);
  if (known != warnings_.end())
    ++known->count;
  else if (warnings_.size() + 1 < kMaxWarnings)
    warnings_.push_back({warning.code, warning.agent, warning.turn, warning.message});
  else if (warnings_.size() < kMaxWarnings)
    warnings_.push_back({WarningCode::other, "", "", "more warnings, which are in the run's events"});
  else
    ++warnings_.back().count;
  emit(Event(std::move(warning)));
}

std::set<std::size_t> RunSegments::readers_of(const SlotSource& source, std::size_t but) const {
  std::set<std::size_t> readers;
  for (std::size_t turn = 0; turn < plan_.turns.size(); ++turn) {
    const PlannedTurn& reader = plan_.turns[turn];
    if (turn != but && !over_[turn] && reader.has_prompt() && shows_source(reader, source)) readers.insert(turn);
  }
  return readers;
}

std::set<std::size_t> RunSegments::readers_of_output(std::size_t turn) const {
  SlotSource source;
  source.kind = SlotSource::Kind::agent_output;
  source.turn = static_cast<int>(turn);
  return readers_of(source, turn);
}

void RunSegments::attach(std::size_t turn, const InferenceEngine* engine, std::vector<PromptPart>& prompt) const {
  for (PromptPart& part : prompt) {
    const SlotSource* source = part.slot.empty() ? nullptr : plan_.turns[turn].slot(part.slot);
    if (source == nullptr) continue;
    const Entry* found = find(engine, part.tokens);
    part.segment = found == nullptr ? nullptr : found->handle;
    if (!part.segment && reads_other_models(*plan_.reuse.method)) attach_portable(engine, part);
    const std::set<std::size_t> readers = readers_of(*source, turn);
    const bool refused = part.segment && plan_.reuse.max_hops > 0 && part.segment->hops >= plan_.reuse.max_hops;
    part.readers = part.segment && !refused ? 0 : static_cast<std::int64_t>(readers.size());
    part.export_kv = read_by_other_models(turn, readers);
  }
}

void RunSegments::attach_portable(const InferenceEngine* engine, PromptPart& part) const {
  for (const Entry& entry : entries_) {
    if (entry.engine == engine || entry.text != part.tokens) continue;
    const std::string difference = kv_difference(entry.engine->info().kv, engine->info().kv);
    if (difference.empty()) part.imported_kv = entry.engine->exported_kv(entry.handle);
    if (part.imported_kv) return;
    part.why_no_kv = difference.empty() ? "its KV, of another model, was evicted: over the memory budget"
                                        : "of another model, whose KV does not fit: " + difference;
  }
}

bool RunSegments::read_by_other_models(std::size_t turn, const std::set<std::size_t>& readers) const {
  return reads_other_models(*plan_.reuse.method) &&
         std::any_of(readers.begin(), readers.end(),
                     [&](std::size_t reader) { return plan_.turns[reader].model != plan_.turns[turn].model; });
}

void RunSegments::take(std::size_t turn, const InferenceEngine* engine, const std::vector<PromptPart>& prompt,
                       const GenerationResult& result, const TokenText& answer) {
  for (std::size_t i = 0; i < prompt.size() && i < result.segments.size(); ++i) {
    const SlotSource* source = prompt[i].slot.empty() ? nullptr : plan_.turns[turn].slot(prompt[i].slot);
    if (source != nullptr) keep(engine, prompt[i].tokens, result.segments[i], readers_of(*source, turn));
  }
  keep(engine, answer, result.output, readers_of_output(turn));
}

const RunSegments::Entry* RunSegments::find(const InferenceEngine* engine, const TokenText& text) const {
  const auto found_by = [&](const auto& is_text) {
    const auto at = std::find_if(entries_.begin(), entries_.end(),
                                 [&](const Entry& entry) { return entry.engine == engine && is_text(entry.text); });
    return at == entries_.end() ? nullptr : &*at;
  };
  const Entry* same = found_by([&](const TokenText& known) { return known.is(text); });
  return same != nullptr ? same : found_by([&](const TokenText& known) { return known == text; });
}

void RunSegments::keep(const InferenceEngine* engine, const TokenText& text, SegmentHandle handle,
                       std::set<std::size_t> readers) {
  if (!handle || readers.empty()) return;
  const Entry* known = find(engine, text);
  if (known == nullptr) {
    entries_.push_back({engine, text, std::move(handle), std::move(readers)});
    return;
  }
  Entry& entry = entries_[static_cast<std::size_t>(known - entries_.data())];
  entry.readers.merge(readers);
  if (handle->hops < entry.handle->hops) entry.handle = std::move(handle);
}

void RunSegments::turn_over(std::size_t turn) {
  over_[turn] = true;
  std::erase_if(entries_, [&](Entry& entry) {
    entry.readers.erase(turn);
    return entry.readers.empty();
  });
}

RunMemory::RunMemory(const RunRequest& request, const RunProgress& progress, std::shared_ptr<TextIds> texts)
    : request_(request),
      plan_(*request.plan),
      progress_(progress),
      texts_(std::move(texts)),
      remembered_(request.plan->turns.size()) {}

bool RunMemory::remembers(std::size_t turn) const {
  const PlannedTurn& planned = plan_.turns[turn];
  return request_.on_memory && planned.remember != 0 && can_continue(planned.messages);
}

std::shared_ptr<const Conversation> RunMemory::of(std::size_t turn) const {
  const auto found = request_.memory.find(plan_.turns[turn].agent);
  return found == request_.memory.end() || !remembers(turn) ? nullptr : found->second;
}

std::optional<HistoryRecord> RunMemory::history(std::size_t turn, std::size_t kept) const {
  const std::shared_ptr<const Conversation> memory = of(turn);
  if (!memory) return std::nullopt;
  HistoryRecord history;
  history.runs = static_cast<int>(kept);
  history.forgotten = static_cast<int>(memory->exchanges.size() - kept);
  if (history.forgotten == 0) history.tokens = static_cast<std::int64_t>(memory->tokens.size());
  return history;
}

void RunMemory::remember(std::size_t turn, std::size_t kept, const std::vector<PromptPart>& prompt,
                         const std::vector<PromptPart>& bare, const GenerationResult& answer, const TokenText& ids,
                         const std::shared_ptr<const Tokenizer>& tokenizer) {
  if (!remembers(turn)) return;
  auto conversation = std::make_shared<Conversation>();
  const ThinkSpec::Keep keep = plan_.turns[turn].think.keep.value_or(ThinkSpec::Keep::none);
  const std::shared_ptr<const Conversation> before = of(turn);
  // What was kept of the last answer's thinking goes when there is a newer answer.
  const auto joined = [&](const std::vector<PromptPart>& parts) {
    std::vector<TokenId> tokens;
    for (const PromptPart& part : parts) {
      const bool thought = tokens.empty() && before && !before->bare.empty() && part.tokens == before->tokens;
      const TokenText& kept_part = thought ? before->bare : part.tokens;
      tokens.insert(tokens.end(), kept_part.begin(), kept_part.end());
    }
    return tokens;
  };
  std::vector<TokenId> tokens = joined(keep == ThinkSpec::Keep::none ? bare : prompt);
  // A role marker that the model wrote is text from here on, as it is for other agents.
  const bool as_text =
      ids.empty() || std::any_of(ids.begin(), ids.end(), [&](TokenId id) { return tokenizer->is_special(id); });
  const TokenText said = as_text ? texts_->of(tokenizer, answer.text, TextIds::Kind::data) : ids;
  tokens.insert(tokens.end(), said.begin(), said.end());
  conversation->tokens = std::move(tokens);
  if (keep == ThinkSpec::Keep::last) {
    std::vector<TokenId> without = joined(bare);
    without.insert(without.end(), said.begin(), said.end());
    if (without != conversation->tokens.ids()) conversation->bare = std::move(without);
  }
  conversation->context = answer.context;
  conversation->texts = texts_;

  const auto text_of = [&](const PromptMessage& message) {
    SaidMessage said_message{message.role, {}, message.calls};
    for (const PromptPiece& piece : message.pieces)
      said_message.text += piece.slot.empty() ? std::string_view(piece.text) : progress_.slot_text(turn, piece.slot);
    return said_message;
  };
  const TurnMessages messages = messages_of(plan_.turns[turn].messages);
  if (const std::shared_ptr<const Conversation> memory = of(turn)) {
    conversation->head = memory->head;
    const auto& exchanges = memory->exchanges;
    conversation->exchanges.assign(exchanges.end() - static_cast<std::ptrdiff_t>(kept), exchanges.end());
  } else {
    for (const PromptMessage& message : messages.head) conversation->head.push_back(text_of(message));
  }
  std::vector<SaidMessage>& exchange = conversation->exchanges.emplace_back();
  for (const PromptMessage& message : messages.next) exchange.push_back(text_of(message));
  exchange.push_back({"assistant", answer.text});
  remembered_[turn] = std::move(conversation);
}

void RunMemory::keep(bool ended_well) noexcept {
  if (!request_.on_memory) return;
  SessionMemory memory;
  const bool kept = ended_well && try_to([&] {
                      memory = request_.memory;
                      for (std::size_t i = 0; i < remembered_.size(); ++i) {
                        if (remembered_[i] && progress_.turn(i).record.state == TurnState::ok)
                          memory[plan_.turns[i].agent] = remembered_[i];
                      }
                    });
  request_.on_memory(kept ? &memory : nullptr);
}

}  // namespace baton
