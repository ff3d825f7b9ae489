// SPDX-License-Identifier: Apache-2.0
#include "engine/remote/remote_engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "engine/base/errors.h"
#include "engine/base/utf8.h"
#include "engine/local_engine.h"
#include "engine/remote/server_api.h"

namespace baton {
namespace {

constexpr double kNewest = 0.2;  // weight of the newest interval in the average
constexpr double kCredit = 4.0;  // intervals: what was allowed and not used is not kept for longer

}  // namespace

void DecodePace::token(RequestId request, Clock::time_point now) {
  const auto [last, first] = last_.try_emplace(request, now);
  const double interval = milliseconds(now - last->second);
  last->second = now;
  const bool busy = busy_;
  busy_ = in_flight_ > 0;
  if (first) return;
  if (!busy) quiet_ms_ = quiet_ms_ > 0.0 ? quiet_ms_ + kNewest * (interval - quiet_ms_) : std::max(interval, 1e-3);
  if (busy && quiet_ms_ > 0.0) owed_ms_ += interval - quiet_ms_;  // noise adds up to nothing
  owed_ms_ = std::max(owed_ms_ - slowdown_ * quiet_ms_, -kCredit * slowdown_ * quiet_ms_);
}

namespace {

// A turn that is submitted meanwhile waits for a request. Shorter ones cost more than they give: on a CPU each takes
// llama-server about four decode steps, whatever its length.
constexpr double kRequestMs = 600.0;
constexpr double kMaxTokens = 4096.0;
constexpr double kMaxBlocks = 8.0;  // are worth a request of the first prompt, whose rest its turn computes
constexpr std::size_t kLater = 2;   // times as many of the others, which wait for more than one answer

}  // namespace

void WarmUps::update(EarlyId id, std::vector<EarlyPart> parts, bool complete) {
  const auto found = prompts_.find(id);
  if (found == prompts_.end()) return;
  found->second.prompt.parts = std::move(parts);
  found->second.prompt.complete = complete;
  forget_decoded();
}

WarmUps::Warmth WarmUps::take(EarlyId id) {
  const auto found = prompts_.find(id);
  if (found == prompts_.end()) return {};
  const Warmth warmth = found->second.warmth;
  prompts_.erase(found);
  forget_decoded();
  return warmth;
}

void WarmUps::decoded(RequestId request, const std::vector<TokenId>& tokens) {
  const bool followed = std::any_of(prompts_.begin(), prompts_.end(), [&](const auto& one) {
    const auto& parts = one.second.prompt.parts;
    return std::any_of(parts.begin(), parts.end(), [&](const EarlyPart& part) { return part.decoded_by == request; });
  });
  if (followed) decoded_[request] = tokens;  // the last of them may have changed
}

void WarmUps::forget_decoded() {
  std::erase_if(decoded_, [&](const auto& entry) {
    return std::none_of(prompts_.begin(), prompts_.end(), [&](const auto& one) {
      const auto& parts = one.second.prompt.parts;
      return std::any_of(parts.begin(), parts.end(),
                         [&](const EarlyPart& part) { return part.decoded_by == entry.first; });
    });
  });
}

/// Up to the first part that is still being decoded, and its tokens.
std::vector<TokenId> WarmUps::known(const EarlyPrompt& prompt) const {
  std::vector<TokenId> tokens;
  for (const EarlyPart& part : prompt.parts) {
    const auto decoded = part.decoded_by == 0 ? decoded_.end() : decoded_.find(part.decoded_by);
    if (part.decoded_by == 0)
      tokens.insert(tokens.end(), part.tokens.begin(), part.tokens.end());
    else if (decoded != decoded_.end())
      tokens.insert(tokens.end(), decoded->second.begin(), decoded->second.end());
    if (part.decoded_by != 0) break;
  }
  return tokens;
}

std::size_t WarmUps::known_size(const EarlyPrompt& prompt) const {
  std::size_t size = 0;
  for (const EarlyPart& part : prompt.parts) {
    const auto decoded = part.decoded_by == 0 ? decoded_.end() : decoded_.find(part.decoded_by);
    size += part.decoded_by == 0 ? part.tokens.size() : decoded != decoded_.end() ? decoded->second.size() : 0;
    if (part.decoded_by != 0) break;
  }
  return size;
}

std::optional<EarlyId> WarmUps::next() const {
  const bool busy = std::any_of(prompts_.begin(), prompts_.end(), [](const auto& one) { return one.second.under_way; });
  if (busy) return std::nullopt;
  std::optional<EarlyId> first;
  for (const auto& [id, waiting] : prompts_) {
    const std::size_t worth = id == prompts_.begin()->first ? worth_ : kLater * worth_;
    if (known_size(waiting.prompt) < waiting.sent + worth) continue;
    if (waiting.warmth.slot >= 0) return id;
    if (!first) first = id;
  }
  return first;
}

bool WarmUps::has_slot(EarlyId id) const {
  const auto found = prompts_.find(id);
  return found != prompts_.end() && found->second.warmth.slot >= 0;
}

bool WarmUps::choose_slot(EarlyId id, const std::vector<int>& idle) {
  const auto found = prompts_.find(id);
  if (found == prompts_.end()) return false;
  std::vector<int> taken;
  for (const auto& [other, waiting] : prompts_) {
    if (waiting.warmth.slot >= 0) taken.push_back(waiting.warmth.slot);
  }
  if (static_cast<int>(taken.size()) + 1 >= slots_) return false;
  const auto free = std::find_if(idle.begin(), idle.end(), [&](int slot) {
    return slot >= 0 && slot < slots_ && std::find(taken.begin(), taken.end(), slot) == taken.end();
  });
  if (free == idle.end()) return false;
  found->second.warmth.slot = *free;
  return true;
}

std::optional<WarmUps::Sent> WarmUps::send(EarlyId id) {
  const auto found = prompts_.find(id);
  if (found == prompts_.end()) return std::nullopt;
  Waiting& waiting = found->second;
  Sent sent{id, known(waiting.prompt), waiting.warmth.slot};
  sent.prompt.resize(std::min(sent.prompt.size(), waiting.sent + static_cast<std::size_t>(most_)));
  waiting.under_way = true;
  waiting.known = std::exchange(waiting.sent, sent.prompt.size());
  return sent;
}

void WarmUps::arrived(EarlyId id, std::int64_t cached, int slot, double ms) {
  const auto found = prompts_.find(id);
  if (found == prompts_.end()) return;
  Waiting& waiting = found->second;
  const auto known = static_cast<std::int64_t>(waiting.known);
  const auto computed = static_cast<double>(waiting.sent) - static_cast<double>(cached < 0 ? known : cached);
  if (const auto block = static_cast<double>(block_); computed >= block && ms > 0.0) {
    most_ = std::clamp(computed * kRequestMs / ms, std::max(most_ / 2.0, block), std::min(most_ * 2.0, kMaxTokens));
    worth_ = static_cast<std::size_t>(std::clamp(most_, block, kMaxBlocks * block));
  }
  waiting.under_way = false;
  if (slot >= 0) waiting.warmth.slot = slot;
  std::int64_t& before = waiting.warmth.before;
  if (before < 0 || (cached > known && before + static_cast<std::int64_t>(block_) >= known))
    before = std::max<std::int64_t>(cached, 0);  // what no request of ours can have put there, up to a block at its end
}

void WarmUps::failed(EarlyId id) {
  if (const auto found = prompts_.find(id); found != prompts_.end()) found->second.under_way = false;
}

namespace {

constexpr std::size_t kMaxEvent = std::size_t{16} << 20;  // bytes of one event of a stream
constexpr std::chrono::milliseconds kHold(100);           // until the server is asked again for an idle slot
constexpr long kRefused = 400;                            // the status of a request that the server does not take
constexpr const char* kNumerics = "exact up to the server's numerics";

std::vector<TokenId> ids_of(const std::vector<PromptPart>& parts) {
  std::vector<TokenId> ids;
  for (const PromptPart& part : parts) ids.insert(ids.end(), part.tokens.begin(), part.tokens.end());
  return ids;
}

/// When a request was submitted and asked, and when the tokens of its answer came.
class AnswerTimes {
 public:
  void ask() { asked_ = Clock::now(); }
  /// Notes that tokens came now. Returns the time.
  Clock::time_point token() {
    last_ = Clock::now();
    if (!has_begun()) first_ = last_;
    return last_;
  }
  bool has_begun() const { return first_ != Clock::time_point{}; }
  /// Fills in the times of the result. `prompt_ms`: what the server says of the prompt; below 0: nothing.
  void describe(double prompt_ms, GenerationResult& result) const {
    if (!has_begun()) return;
    result.ttft_ms = milliseconds(first_ - submitted_);
    result.decode_ms = milliseconds(last_ - first_);
    result.prefill_ms = prompt_ms >= 0 ? prompt_ms : milliseconds(first_ - asked_);
    result.queue_ms = std::max(0.0, result.ttft_ms - result.prefill_ms);
  }

 private:
  Clock::time_point submitted_ = Clock::now(), asked_, first_, last_;
};

}  // namespace

namespace {

/// What of an answer is thinking: all of it if the request is for thinking alone; otherwise, of a server that takes
/// messages, what the server or known markers separate from the answer.
class AnswerThinking {
 public:
  AnswerThinking(const GenerationRequest& request, bool ids) {
    if (request.thinking)
      reader_.emplace(*request.thinking);
    else if (!ids)
      splitter_.emplace();
  }

  /// Leaves the answer's text alone in the piece. Returns the new text of the thinking.
  std::string separate(ServerPiece& piece) {
    if (!splitter_ || (piece.text.empty() && piece.thinking.empty())) return {};
    std::string thinking = std::move(piece.thinking);
    if (!thinking.empty()) splitter_->thought_elsewhere();
    ThinkingSplitter::Texts texts = splitter_->push(piece.text);
    piece.text = std::move(texts.answer);
    thinking += texts.thinking;
    ++(splitter_->answers() && !piece.text.empty() ? answer_events_ : thinking_events_);
    text_ += thinking;
    return thinking;
  }

  /// Takes text of a request for thinking alone. Returns what of it is certain.
  std::string read(std::string_view text) {
    std::string certain;
    while (!text.empty() && !reader_->over()) {  // an event may hold the end and the beginning of the answer
      const std::size_t size = std::max<std::size_t>(utf8::scan(text, 0).bytes, 1);
      certain += reader_->push(text.substr(0, size));
      text.remove_prefix(std::min(size, text.size()));
    }
    text_ += certain;
    return certain;
  }

  /// The answer ends. Returns what was held back, each for whom it is.
  ThinkingSplitter::Texts finish() {
    ThinkingSplitter::Texts texts;
    if (reader_) texts.thinking = reader_->finish();
    if (splitter_) texts = splitter_->finish();
    text_ += texts.thinking;
    return texts;
  }

  /// Leaves the tokens of the thinking alone in the answer to a request for it, and finds what is missing behind them.
  void cut(ServerAnswer& answer, const ThinkingMarks& marks) {
    const std::string text = answer.text();
    if (!reader_->begun()) return answer.keep(0), void();
    const std::size_t first = std::min(text.find_first_not_of(utf8::kBlanks), text.size());
    const std::size_t begin = marks.begin.empty() ? 0 : first + marks.begin.size(), end = text.find(marks.end, begin);
    rest_ = marks.end;
    if (end == std::string::npos) return;
    const std::size_t behind = end + marks.end.size();
    std::size_t kept = answer.keep(std::min(text.find_first_not_of(utf8::kBlanks, behind), text.size()));
    if (kept < begin) answer.append(std::string_view(text).substr(kept, begin - kept), SpecialTokens::recognise);
    kept = std::max(kept, begin);
    if (kept < end) answer.append(std::string_view(text).substr(kept, end - kept), SpecialTokens::as_text);
    kept = std::max(kept, end);
    rest_ = text.substr(std::min(kept, behind), behind - std::min(kept, behind));
  }

  bool alone() const { return reader_.has_value(); }
  /// Thinking that was not asked for alone has begun, by its marker or in a field of its own.
  bool has_begun() const { return splitter_ && splitter_->thought(); }
  /// Thinking was asked for alone, and the last token belongs to the answer.
  bool over() const { return reader_ && reader_->over(); }
  /// Thinking was asked for alone, and its end was written.
  bool ended() const { return reader_ && (reader_->over() || reader_->ended()); }
  bool empty() const { return text_.empty(); }

  /// `told`: tokens of the thinking by the server's count; below 0: it does not say.
  void describe(GenerationResult& result, std::int64_t told) const {
    if (reader_) {
      result.text = text_;
      result.thought = reader_->begun();
      result.thinking_rest = rest_;
    }
    if (!splitter_) return;
    const std::int64_t events = thinking_events_ + answer_events_;
    if (result.output_tokens <= 0) result.output_tokens = events;
    if (!splitter_->thought()) return;
    const double share = events > 0 ? static_cast<double>(thinking_events_) / static_cast<double>(events) : 0.0;
    const auto guess = static_cast<std::int64_t>(share * static_cast<double>(result.output_tokens) + 0.5);
    result.thinking = text_;
    result.thinking_tokens = std::clamp<std::int64_t>(told > 0 ? told : guess, 0, result.output_tokens);
    result.output_tokens -= result.thinking_tokens;
  }

 private:
  std::optional<ThinkingReader> reader_;
  std::optional<ThinkingSplitter> splitter_;
  std::string text_, rest_;
  std::int64_t thinking_events_ = 0, answer_events_ = 0;
};

/// Ends a request while its answer still comes.
class EnoughRead final : public std::exception {};

}  // namespace

/// A request that has not finished.
struct RemoteEngine::Live {
  Live(RequestId of, GenerationRequest what, const Parts& parts)
      : id(of),
        request(std::move(what)),
        prompt(ids_of(request.prompt)),
        answer(*parts.text->tokenizer, parts.on_plain),
        thinking(request, parts.api->ids()),
        pauses(parts.patience) {
    begin(parts);
  }

  /// Nothing has been answered.
  void begin(const Parts& parts) {
    const bool cuts = own_stops.empty() && parts.api->cuts_stops();
    const std::vector<std::string>& stops = own_stops.empty() ? request.stop : own_stops;
    answer = ServerAnswer(*parts.text->tokenizer, parts.on_plain, cuts ? std::vector<std::string>() : stops);
    thinking = AnswerThinking(request, parts.api->ids());
    seen = {};
  }

  RequestId id;
  GenerationRequest request;
  std::vector<TokenId> prompt;
  std::vector<std::string> own_stops;  // found here, since the server would look for them in the thinking, too
  ServerAnswer answer;
  AnswerThinking thinking;
  enum class Next : std::uint8_t { read, end, again } next = Next::read;
  std::unique_ptr<EventStream> events;  // events of this attempt
  HttpLoop::CallId call = 0;
  AttemptPauses pauses;
  EarlyId early = 0;
  WarmUps::Warmth warmth;
  ServerPiece seen;  // the counts and times that the server told last
  bool prefilled = false;
  AnswerTimes times;

  void note(const ServerPiece& piece) {
    const auto keep = [](auto& mine, auto theirs) { mine = theirs >= 0 ? theirs : mine; };
    keep(seen.prompt, piece.prompt);
    keep(seen.thinking_tokens, piece.thinking_tokens);
    keep(seen.cached, piece.cached);
    keep(seen.prompt_ms, piece.prompt_ms);
    keep(seen.decode_ms, piece.decode_ms);
    if (piece.reason) {
      seen.reason = piece.reason;
      seen.server_reason = piece.server_reason;
    }
    seen.last = seen.last || piece.last;
  }
  /// A server that takes messages looks for stop texts in the thinking, too. When it sends the first thinking, and
  /// nothing was told yet, it is asked again without them. Returns false if there is no need to.
  bool ask_without_stops() {
    if (request.stop.empty() || !answer.text().empty()) return false;
    next = Next::again;
    return true;
  }
  void tell(const ThinkingSplitter::Texts& texts) const {
    const GenerationCallbacks& callbacks = request.callbacks;
    if (!texts.thinking.empty() && callbacks.on_thinking) callbacks.on_thinking(texts.thinking);
    if (!texts.answer.empty() && callbacks.on_token)
      callbacks.on_token(answer.tokens().empty() ? 0 : answer.tokens().back(), texts.answer);
  }
  /// `ids`: the server takes and tells the ids of tokens.
  GenerationResult result(bool ids, const EngineInfo& info) const;
};

RemoteEngine::RemoteEngine(Parts parts)
    : parts_(std::move(parts)),
      loop_(parts_.server->loop()),
      warm_ups_(std::max(parts_.api->cache_block(), 1), parts_.slots),
      pace_(parts_.slowdown > 0.0 ? parts_.slowdown : kSlowdownCpu) {}

/// Every accepted request ends, those too whose submit the loop has not seen yet.
RemoteEngine::~RemoteEngine() {
  closing_ = true;
  const auto end_all = [this] {
    held_ = true;
    while (!live_.empty()) finish(*live_.begin()->second, FinishReason::cancelled);
    closed_.set_value();
  };
  // Without memory there is room again when the loop has taken what was posted before.
  while (!try_to([&] { loop_.post(end_all); })) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  closed_.get_future().wait();
  parts_.server.reset();  // and the loop's thread, before what it uses
}

/// A refused request ends its early prompt too: its caller has given it away.
RequestId RemoteEngine::submit(GenerationRequest request) {
  const EarlyId early = request.early;
  try {
    return accept(std::move(request));
  } catch (...) {
    if (early != 0) try_to([&] { forget(early); });
    throw;
  }
}

RequestId RemoteEngine::accept(GenerationRequest request) {
  const auto invalid = [&](const std::string& why) {
    return EngineError(EngineError::Kind::invalid, parts_.server->problem(why));
  };
  if (const std::string why = parts_.api->refusal(request); !why.empty()) throw invalid(why);
  if (const std::string wrong = request.sampling.problem(); !wrong.empty()) throw invalid(wrong);
  if (std::count(request.stop.begin(), request.stop.end(), "") > 0) throw invalid("a stop text is empty");
  if (request.max_tokens < 1)
    throw invalid(fmt::format("max_tokens: expected at least 1, found {}", request.max_tokens));
  if (closing_) throw invalid("the engine is closing and accepts no more requests");
  const RequestId id = ++last_id_;
  auto live = std::make_unique<Live>(id, std::move(request), parts_);
  const auto length = static_cast<std::int64_t>(live->prompt.size());
  if (length == 0) throw invalid("the prompt is empty");
  if (parts_.api->ids() && parts_.info.context > 0) {
    if (length >= parts_.info.context)
      throw EngineError(EngineError::Kind::too_long,
                        fmt::format("the prompt has {} tokens and leaves no room for an answer in the context of {}",
                                    length, parts_.info.context));
    auto& max_tokens = live->request.max_tokens;
    max_tokens = static_cast<std::int32_t>(std::min<std::int64_t>(max_tokens, parts_.info.context - length));
  }
  LiveMap one;  // the loop moves its node, which needs no memory
  one.emplace(id, std::move(live));
  loop_.post([this, node = std::make_shared<LiveMap::node_type>(one.extract(id))] {
    start(*live_.insert(std::move(*node)).position->second);
  });
  return id;
}

void RemoteEngine::cancel(RequestId id) {
  loop_.post([this, id] {
    if (const auto found = live_.find(id); found != live_.end()) finish(*found->second, FinishReason::cancelled);
  });
}

EarlyId RemoteEngine::prepare(EarlyPrompt prompt) {
  if (parts_.api->cache_block() == 0 || (parts_.has_slots() && parts_.slots < 2)) return 0;
  const EarlyId id = ++last_id_;
  loop_.post([this, id, prompt = std::move(prompt)]() mutable {
    warm_ups_.add(id, std::move(prompt));
    send_ahead();
  });
  return id;
}

void RemoteEngine::update(EarlyId id, std::vector<EarlyPart> parts, bool complete) {
  loop_.post([this, id, parts = std::move(parts), complete]() mutable {
    warm_ups_.update(id, std::move(parts), complete);
    send_ahead();
  });
}

void RemoteEngine::forget(EarlyId id) {
  loop_.post([this, id] { warm_ups_.take(id); });
}

/// Does a part of a request. What it throws ends the request; so if it ends the request itself, that is its last
/// act.
template <class Work>
void RemoteEngine::or_end(Live& live, const Work& work) noexcept {
  try {
    work();
  } catch (const std::exception& error) {
    finish(live, FinishReason::error, message_of(error));
  }
}

void RemoteEngine::start(Live& live) noexcept {
  or_end(live, [&] {
    if (live.early == 0 && live.request.early != 0) {  // not when it is tried again
      live.early = live.request.early;
      live.warmth = warm_ups_.take(live.early);
    }
    ask(live);
  });
}

/// `live` outlives the call: finish() cancels what is under way.
void RemoteEngine::ask(Live& live) {
  if (model_thinks_ && !live.request.stop.empty()) live.own_stops = std::exchange(live.request.stop, {});
  live.begin(parts_);
  ServerRequest request = parts_.api->answer(live.request, live.prompt, live.warmth.slot);
  HttpCall call = parts_.server->call(request.path, std::move(request.body));
  live.times.ask();
  live.events = std::make_unique<EventStream>([this, &live](std::string_view event) { take(live, event); });
  call.on_bytes = [&live](std::string_view bytes) {
    live.events->add(bytes);
    if (live.events->held() > kMaxEvent)
      throw std::runtime_error(fmt::format("an event of its answer has more than {} MiB", kMaxEvent >> 20));
  };
  call.on_end = [this, &live](const HttpEnd& end) { ended(live, end); };
  live.call = loop_.start(std::move(call));
}

/// What it throws ends the request; so does an error that the server sends in its stream.
void RemoteEngine::take(Live& live, std::string_view event) {
  if (live.seen.last || live.next != Live::Next::read) return;
  ServerPiece piece = parts_.api->read(event);
  const GenerationCallbacks& callbacks = live.request.callbacks;
  if (!piece.error.empty()) throw std::runtime_error("it sent an error: " + piece.error);
  live.note(piece);
  if (piece.progress) {
    if (callbacks.on_prefill_progress && piece.processed > 0 && piece.processed < piece.prompt)
      callbacks.on_prefill_progress(piece.processed, piece.prompt);
    return;
  }
  const bool empty = piece.text.empty() && piece.ids.empty() && piece.thinking.empty();
  const std::string thinking = live.thinking.separate(piece);
  const bool thinks = live.thinking.has_begun();  // also if a stop text comes right behind the marker
  model_thinks_ = model_thinks_ || thinks;
  if (thinks && live.ask_without_stops()) throw EnoughRead();
  piece.spelled = live.thinking.alone();
  std::string text = live.answer.add(std::move(piece));
  if (live.thinking.alone()) text = live.thinking.read(text);
  if (empty) return;
  const Clock::time_point now = live.times.token();
  if (live.seen.cached >= 0) prefilled(live);
  pace_.token(live.id, now);
  try_to([&] { warm_ups_.decoded(live.id, live.answer.tokens()); });
  live.tell({thinking, text});
  send_ahead();
  if (!live.thinking.over() && (live.own_stops.empty() || !live.answer.stopped())) return;
  live.next = Live::Next::end;
  throw EnoughRead();
}

void RemoteEngine::ended(Live& live, const HttpEnd& end) noexcept {
  live.call = 0;
  const Live::Next next = std::exchange(live.next, Live::Next::read);
  if (next == Live::Next::again) return start(live);
  if (next == Live::Next::end) return finish(live, FinishReason::stop);
  or_end(live, [&] {
    const bool whole = end.ok() && (live.seen.last || live.seen.reason);
    if (whole) return finish(live, live.seen.reason.value_or(FinishReason::eos));
    HttpEnd how = end;
    if (how.ok()) {
      how.problem = "its answer ended before it was complete";
      how.passing = true;
    }
    const std::string problem = parts_.server->problem(how);
    const std::optional<double> pause = live.times.has_begun() ? std::nullopt : live.pauses.next(how);
    if (!pause) return finish(live, FinishReason::error, problem);
    attempt_again(live.id, *pause);
  });
}

void RemoteEngine::attempt_again(RequestId id, double pause) {
  const auto when = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(pause));
  loop_.at(when, [this, id] {
    const auto found = live_.find(id);
    if (found == live_.end()) return;  // cancelled
    Live& live = *found->second;
    if (parts_.identity_path.empty()) return start(live);
    or_end(live, [&] { check_identity(live); });
  });
}

/// Asks the server that did not answer whether it still has the model whose ids the prompt consists of.
void RemoteEngine::check_identity(Live& live) {
  HttpCall call = parts_.server->call(parts_.identity_path, "");
  auto body = std::make_shared<std::string>();
  call.on_bytes = [body](std::string_view bytes) { *body += bytes; };
  call.max_bytes = kMaxEvent;
  call.on_end = [this, &live, body](const HttpEnd& end) {
    live.call = 0;
    if (!end.ok()) return ended(live, end);
    or_end(live, [&] {
      std::string now;
      if (try_to([&] { now = parts_.identity_of(*body); }) && now == parts_.identity) return start(live);
      const std::string problem =
          parts_.server->problem(fmt::format("it has another model now: '{}'; expected '{}'", now, parts_.identity));
      finish(live, FinishReason::error, problem);
    });
  };
  live.call = loop_.start(std::move(call));
}

/// Ends the request; `live` is no more. Whatever fails, its on_finished is called.
void RemoteEngine::finish(Live& live, FinishReason reason, std::string_view error) noexcept {
  if (live.call != 0) loop_.cancel(live.call);
  pace_.ended(live.id);
  if (live.thinking.ended() && (reason == FinishReason::eos || reason == FinishReason::length))
    reason = FinishReason::stop;
  const bool whole = reason != FinishReason::error && reason != FinishReason::cancelled;
  try_to([&] {
    ThinkingSplitter::Texts held = live.thinking.finish();
    ServerPiece piece;
    piece.text = std::move(held.answer);
    held.answer = live.answer.add(std::move(piece)) + live.answer.end();
    if (live.thinking.alone()) {
      held.answer = std::exchange(held.thinking, {});
      live.thinking.cut(live.answer, *live.request.thinking);
    }
    if (whole) live.tell(held);
  });
  GenerationResult result;
  const bool made = try_to([&] {
    result = live.result(parts_.api->ids(), parts_.info);
    result.error = error;
  });
  if (!made) {
    reason = FinishReason::error;
    try_to([&] { result.error = "out of memory"; });
  }
  result.reason = reason;
  if (whole) prefilled(live);
  const GenerationCallbacks callbacks = std::move(live.request.callbacks);
  live_.erase(live.id);
  if (callbacks.on_finished) try_to([&] { callbacks.on_finished(std::move(result)); });
  if (live_.empty()) return hold();  // for the turn that waited for this answer
  send_ahead();
}

/// Once, when the counts of the prompt are known: some servers tell them at the end of the answer.
void RemoteEngine::prefilled(Live& live) noexcept {
  if (std::exchange(live.prefilled, true) || !live.request.callbacks.on_prefilled) return;
  try_to([&] { live.request.callbacks.on_prefilled(live.result(parts_.api->ids(), parts_.info)); });
}

/// A server's layers are unknown: an entry of KV is a token.
GenerationResult RemoteEngine::Live::result(bool ids, const EngineInfo& info) const {
  GenerationResult made;
  made.tokens = answer.tokens();
  made.text = answer.text();
  made.server_reason = seen.server_reason;
  if (!ids) made.output_tokens = answer.generated();
  thinking.describe(made, seen.thinking_tokens);
  made.prompt_tokens = seen.prompt > 0 ? seen.prompt : info.tokens_of(prompt.size());
  const std::int64_t cached = std::clamp<std::int64_t>(seen.cached, 0, made.prompt_tokens);
  const std::int64_t before = warmth.before < 0 ? cached : std::min(warmth.before, cached);
  made.kv_entries = made.prompt_tokens;
  made.kv_computed = made.prompt_tokens - before;
  made.kv_ahead = cached - before;
  made.continued_tokens = before;
  std::int64_t begin = 0;
  for (const PromptPart& part : request.prompt) {
    const std::int64_t end = begin + static_cast<std::int64_t>(part.tokens.size());
    const auto within = [&](std::int64_t from, std::int64_t to) {
      return std::max<std::int64_t>(0, std::min(to, end) - std::max(from, begin));
    };
    PartUse& use = made.uses.emplace_back();
    if (!ids) {
      use.reason = "on a server that takes messages; its tokens are counted in bytes";
      begin = end;
      continue;
    }
    use.reused_tokens = use.kv_reused = use.kv_reusable = within(0, before);
    use.ahead_tokens = within(before, cached);
    if (use.ahead_tokens > 0) {
      use.method = &lockstep_method();
      use.reason = fmt::format("in the server's cache, sent ahead; {}", kNumerics);
    } else if (use.reused_tokens > 0) {
      use.method = &prefix_method();
      use.reason = fmt::format("in the server's cache; {}", kNumerics);
    } else {
      use.reason = seen.cached < 0 ? "on a server that does not tell what its cache had" : "computed by the server";
    }
    begin = end;
  }
  times.describe(seen.prompt_ms, made);
  return made;
}

/// Sends what is due of the waiting prompts, one request for each prompt at a time.
void RemoteEngine::send_ahead() noexcept {
  const bool prefilling =
      std::any_of(live_.begin(), live_.end(), [](const auto& one) { return !one.second->times.has_begun(); });
  if (prefilling) return;  // what was submitted has priority
  while (!held_ && pace_.may_send()) {
    const std::optional<EarlyId> id = warm_ups_.next();
    if (!id) return;
    const bool has_place = !parts_.has_slots() || warm_ups_.has_slot(*id);
    if (!try_to([&] { has_place ? warm(*id) : choose_slot(*id); })) return hold();
    if (!has_place) return;
  }
}

void RemoteEngine::hold() noexcept {
  if (std::exchange(held_, true)) return;
  const bool waits = try_to([&] {
    loop_.at(Clock::now() + kHold, [this] {
      held_ = false;
      send_ahead();
    });
  });
  held_ = waits;
}

void RemoteEngine::choose_slot(EarlyId id) {
  if (choosing_) return;
  HttpCall call = parts_.server->call(parts_.api->slots_path(), "");
  auto body = std::make_shared<std::string>();
  call.on_bytes = [body](std::string_view bytes) { *body += bytes; };
  call.max_bytes = kMaxEvent;
  call.on_end = [this, id, body](const HttpEnd& end) {
    choosing_ = false;
    bool chosen = false;
    if (end.ok()) try_to([&] { chosen = warm_ups_.choose_slot(id, parts_.api->idle_slots(*body)); });
    if (!chosen) return hold();
    send_ahead();
  };
  loop_.start(std::move(call));
  choosing_ = true;
}

void RemoteEngine::warm(EarlyId id) {
  const std::optional<WarmUps::Sent> sent = warm_ups_.send(id);
  if (!sent) return;
  pace_.sent();
  try {
    ServerRequest request = parts_.api->warm_up(sent->prompt, sent->slot, warm_ups_yield_);
    HttpCall call = parts_.server->call(request.path, std::move(request.body));
    auto body = std::make_shared<std::string>();
    call.on_bytes = [body](std::string_view bytes) { *body += bytes; };
    call.max_bytes = kMaxEvent;
    call.on_end = [this, id, body, since = Clock::now()](const HttpEnd& end) {
      pace_.answered();
      ServerPiece piece;
      const bool read = end.ok() && try_to([&] { piece = parts_.api->read(*body); }) && piece.error.empty();
      if (!read) {
        warm_ups_yield_ = warm_ups_yield_ && end.status != kRefused;
        warm_ups_.failed(id);
        return hold();
      }
      for (const auto& [request_id, live] : live_) {  // which may have taken the prompt over meanwhile
        if (live->early == id && live->warmth.before < 0) live->warmth.before = std::max<std::int64_t>(piece.cached, 0);
      }
      warm_ups_.arrived(id, piece.cached, piece.slot, milliseconds(Clock::now() - since));
      send_ahead();
    };
    loop_.start(std::move(call));
  } catch (...) {
    pace_.answered();
    warm_ups_.failed(id);
    throw;
  }
}

}  // namespace baton
