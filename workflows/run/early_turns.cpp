// SPDX-License-Identifier: Apache-2.0
#include "workflows/run/early_turns.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "agents/prompts/prompt.h"
#include "workflows/run/turn_thinking.h"

namespace baton {
namespace {

constexpr std::int64_t kToolTokens = 1024;    // reserved for the unknown result of a tool
constexpr std::size_t kLongText = 64u << 10;  // bytes, of a value that is turned into ids here

}  // namespace

EarlyTurns::EarlyTurns(const Plan& plan, const RunProgress& state, TextIds& texts)
    : plan_(plan), state_(state), turns_(plan.turns.size()), texts_(texts) {}

bool EarlyTurns::wants(std::size_t turn) const {
  const PlannedTurn& planned = plan_.turns[turn];
  return computes_ahead(*plan_.reuse_of(planned).method) && planned.has_prompt() && !planned.needs.empty() &&
         !planned.when;
}

void EarlyTurns::add(std::size_t turn, PromptFrame frame, std::shared_ptr<InferenceEngine> engine,
                     const Conversation* memory, bool remembers) {
  turns_[turn].remembers = remembers;
  if (memory != nullptr) turns_[turn].context = memory->context;
  turns_[turn].frame = std::move(frame);
  turns_[turn].engine = std::move(engine);
  refresh(turn);
}

void EarlyTurns::began(std::size_t turn, const InferenceEngine* engine, RequestId request) {
  turns_[turn].decoding = engine;
  turns_[turn].request = request;
  refresh_readers(turn);
}

void EarlyTurns::ended(std::size_t turn) { turns_[turn].decoding = nullptr; }

EarlyId EarlyTurns::take(std::size_t turn) {
  turns_[turn].done = true;
  return std::exchange(turns_[turn].id, 0);
}

void EarlyTurns::over(std::size_t turn) {
  turns_[turn].decoding = nullptr;
  if (const EarlyId id = take(turn); id != 0) turns_[turn].engine->forget(id);
  refresh_readers(turn);
}

void EarlyTurns::stop() {
  stop_.request_stop();
  for (std::size_t turn = 0; turn < turns_.size(); ++turn) {
    if (const EarlyId id = take(turn); id != 0) turns_[turn].engine->forget(id);
  }
}

void EarlyTurns::refresh_readers(std::size_t turn) {
  const PlannedTurn& source = plan_.turns[turn];
  for (std::size_t i = turn + 1; i < turns_.size(); ++i) {
    const PlannedTurn& reader = plan_.turns[i];
    const bool needs = std::binary_search(reader.needs.begin(), reader.needs.end(), static_cast<int>(turn));
    const bool reads = std::any_of(reader.slots.begin(), reader.slots.end(), [&](const SlotSource& slot) {
      return slot.turn == static_cast<int>(turn) ||  // and the last agent to decide, the newest of each other
             (reader.decides && slot.turn >= 0 &&
              plan_.turns[static_cast<std::size_t>(slot.turn)].agent == source.agent);
    });
    if (needs || reads) refresh(i);
  }
}

/// True when an input of the turn is complete or being decoded: no memory is spent on turns that are far off.
bool EarlyTurns::is_near(const PlannedTurn& turn) const {
  const auto begun = [&](int need) {
    const TurnProgress& state = state_.turn(static_cast<std::size_t>(need));
    return state.phase == TurnProgress::Phase::over || turns_[static_cast<std::size_t>(need)].decoding != nullptr;
  };
  const bool reads = std::any_of(turn.slots.begin(), turn.slots.end(), [&](const SlotSource& slot) {
    return slot.kind == SlotSource::Kind::agent_output && begun(slot.turn);
  });
  return reads || std::all_of(turn.needs.begin(), turn.needs.end(), begun);
}

/// An engine that is told too little computes less ahead; the result is the same.
void EarlyTurns::refresh(std::size_t turn) {
  Turn& early = turns_[turn];
  if (!early.frame || early.done || !is_near(plan_.turns[turn])) return;
  try {
    tell(turn);
  } catch (const std::exception&) {
    if (const EarlyId id = take(turn); id != 0) early.engine->forget(id);
  }
}

void EarlyTurns::tell(std::size_t turn) {
  Turn& early = turns_[turn];
  const PlannedTurn& planned = plan_.turns[turn];
  const ModelText& model = early.engine->text();
  const std::vector<SlotInput> values = state_.slot_inputs(turn, *model.tokenizer);
  std::vector<EarlyPart> parts;
  bool complete = true;  // every part seen so far is known
  std::int64_t longest = planned.max_tokens + 1 + most_thinking(model, planned);
  NextPiece next(*model.tokenizer);
  for (const FramePart& part : *early.frame) {
    const SlotSource* source = part.is_known() ? nullptr : planned.slot(part.slot);
    std::optional<TokenText> tokens;
    const SlotSource* slot = part.slot.empty() ? nullptr : planned.slot(part.slot);
    const bool handed_over =
        slot != nullptr ? hands_over(*slot->method) : parts.empty() && early.context && early.context->hops > 0;
    if (source != nullptr) {
      const bool known = state_.known(turn, *source);
      if (known)
        tokens = ids_of(values[static_cast<std::size_t>(source - planned.slots.data())], next.start(), model.tokenizer);
    } else {
      tokens = tokens_of_part(model, part, next.start(), stop_.get_token(), &texts_);
    }
    if (tokens) {
      next.follow(*tokens);
      longest += static_cast<std::int64_t>(tokens->size());
      if (complete) parts.push_back({std::move(*tokens), 0, handed_over, part.slot});
      continue;
    }
    next.follow_unknown();
    const bool answer = source->kind == SlotSource::Kind::agent_output;
    const auto from = static_cast<std::size_t>(source->turn);
    longest += answer ? plan_.turns[from].max_tokens : kToolTokens;
    const bool follows = answer && turns_[from].decoding == early.engine.get();
    if (complete && follows) parts.push_back({{}, turns_[from].request, handed_over, part.slot});
    complete = complete && follows;
  }
  const auto needed = static_cast<std::int32_t>(std::min<std::int64_t>(longest, early.engine->info().context));
  if (early.id != 0 && needed > early.longest) {  // the prompt is longer than the engine was told
    early.engine->forget(early.id);
    early.id = 0;
  }
  if (early.id != 0) {
    early.engine->update(early.id, std::move(parts), complete);
  } else if (!parts.empty()) {
    early.longest = needed;
    const ReuseOptions reuse = plan_.reuse_of(planned);
    const bool keeps_context = (planned.calls || early.remembers) && reuses_prefixes(*reuse.method);
    early.id =
        early.engine->prepare({std::move(parts), complete, needed, reuse, planned.id, early.context, keeps_context});
  }
}

/// The token ids of a known value; nothing if tokenizing it would delay the run.
std::optional<TokenText> EarlyTurns::ids_of(const SlotInput& value, PieceStart start,
                                            const std::shared_ptr<const Tokenizer>& tokenizer) {
  if (!value.tokens.empty()) return value.tokens;
  if (value.text.empty()) return TokenText();
  if (value.text.size() > kLongText) return std::nullopt;
  TokenText& ids = ids_[{value.text.data(), tokenizer.get(), start}];
  if (ids.empty()) ids = texts_.of(tokenizer, value.text, TextIds::Kind::data, start);
  return ids;
}

PromptFrame make_frame(const PlannedTurn& turn, const ModelText& model,
                       const std::map<std::string, std::string>& inputs, const Conversation* memory,
                       const std::stop_token& stop, TextIds* texts) {
  std::vector<FramePart> frame = frame_of(model, turn, turn.messages, memory, stop, texts);
  NextPiece next(*model.tokenizer);
  bool known = true;  // what stands in front
  for (FramePart& part : frame) {
    if (!part.is_known()) {
      const SlotSource* source = turn.slot(part.slot);
      const bool input = source != nullptr && source->kind == SlotSource::Kind::input;
      const auto value = input ? inputs.find(source->name) : inputs.end();
      if (value != inputs.end() && known) {
        part.tokens = ids_of_text(texts, model.tokenizer, value->second, TextIds::Kind::data, next.start(), stop);
        next.follow(part.tokens);
      } else if (value == inputs.end() || !value->second.empty()) {
        known = false;
        next.follow_unknown();
      }
      continue;
    }
    const TokenText tokens = tokens_of_part(model, part, next.start(), stop, texts);
    // Behind an unknown value, a text of blanks alone may be taken by the special token in front of the value.
    const bool stays = std::any_of(part.text.begin(), part.text.end(), [](char c) { return c > ' ' && c < 0x7f; });
    if (part.slot.empty() && !tokens.empty() && (part.text.empty() || stays)) known = true;
    next.follow(tokens);
  }
  return std::make_shared<const std::vector<FramePart>>(std::move(frame));
}

}  // namespace baton
