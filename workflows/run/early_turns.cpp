// SPDX-License-Identifier: Apache-2.0
#include "workflows/run/early_turns.h"

#include <algorithm>

#include "agents/prompt.h"

namespace baton {
namespace {

constexpr std::int64_t kToolTokens = 1024;    // of a result that is not known yet
constexpr std::size_t kLongText = 64u << 10;  // bytes, of a value that is turned into ids here

}  // namespace

EarlyTurns::EarlyTurns(const Plan& plan, const RunProgress& state)
    : plan_(plan), state_(state), turns_(plan.steps.size()) {}

bool EarlyTurns::wants(std::size_t step) const {
  return plan_.reuse.method->ahead && !plan_.steps[step].needs.empty() && !plan_.steps[step].when;
}

void EarlyTurns::add(std::size_t step, PromptFrame frame, std::shared_ptr<InferenceEngine> engine) {
  turns_[step].frame = std::move(frame);
  turns_[step].engine = std::move(engine);
  refresh(step);
}

void EarlyTurns::began(std::size_t step, const InferenceEngine* engine, RequestId request) {
  turns_[step].decoding = engine;
  turns_[step].request = request;
  refresh_readers(step);
}

void EarlyTurns::ended(std::size_t step) { turns_[step].decoding = nullptr; }

EarlyId EarlyTurns::take(std::size_t step) {
  turns_[step].done = true;
  return std::exchange(turns_[step].id, 0);
}

void EarlyTurns::over(std::size_t step) {
  turns_[step].decoding = nullptr;
  if (const EarlyId id = take(step); id != 0) turns_[step].engine->forget(id);
  refresh_readers(step);
}

void EarlyTurns::stop() {
  for (std::size_t step = 0; step < turns_.size(); ++step) {
    if (const EarlyId id = take(step); id != 0) turns_[step].engine->forget(id);
  }
}

void EarlyTurns::refresh_readers(std::size_t step) {
  const PlanStep& source = plan_.steps[step];
  for (std::size_t i = step + 1; i < turns_.size(); ++i) {
    const PlanStep& reader = plan_.steps[i];
    const bool needs = std::binary_search(reader.needs.begin(), reader.needs.end(), static_cast<int>(step));
    const bool reads = std::any_of(reader.slots.begin(), reader.slots.end(), [&](const SlotSource& slot) {
      return slot.step == static_cast<int>(step) ||  // and the last agent to decide, the newest of each other
             (reader.decides && slot.step >= 0 &&
              plan_.steps[static_cast<std::size_t>(slot.step)].agent == source.agent);
    });
    if (needs || reads) refresh(i);
  }
}

/// Something of what the step reads is there or on its way: memory is not spent on turns that are far off.
bool EarlyTurns::is_near(const PlanStep& step) const {
  const auto begun = [&](int need) {
    const TurnProgress& turn = state_.turn(static_cast<std::size_t>(need));
    return turn.phase == TurnProgress::Phase::over || turns_[static_cast<std::size_t>(need)].decoding != nullptr;
  };
  const bool reads = std::any_of(step.slots.begin(), step.slots.end(), [&](const SlotSource& slot) {
    return slot.kind == SlotSource::Kind::agent_output && begun(slot.step);
  });
  return reads || std::all_of(step.needs.begin(), step.needs.end(), begun);
}

/// What cannot be told costs its first token time, and nothing else.
void EarlyTurns::refresh(std::size_t step) {
  Turn& turn = turns_[step];
  if (!turn.frame || turn.done || !is_near(plan_.steps[step])) return;
  try {
    tell(step);
  } catch (const std::exception&) {
    if (const EarlyId id = take(step); id != 0) turn.engine->forget(id);
  }
}

void EarlyTurns::tell(std::size_t step) {
  Turn& turn = turns_[step];
  const PlanStep& planned = plan_.steps[step];
  const ModelText& model = turn.engine->text();
  const std::vector<SlotInput> values = state_.slot_inputs(step, *model.tokenizer);
  std::vector<EarlyPart> parts;
  bool complete = true;  // as far as it was looked at
  std::int64_t longest = planned.max_tokens + 1;
  for (const PromptPart& part : *turn.frame) {
    const SlotSource* source = part.tokens.empty() ? planned.slot(part.slot) : nullptr;
    const std::vector<TokenId>* tokens = &part.tokens;
    if (source != nullptr) {
      const bool known = state_.known(step, *source);
      tokens =
          known ? ids_of(values[static_cast<std::size_t>(source - planned.slots.data())], *model.tokenizer) : nullptr;
    }
    if (tokens != nullptr) {
      longest += static_cast<std::int64_t>(tokens->size());
      if (complete) parts.push_back({*tokens});
      continue;
    }
    const bool answer = source->kind == SlotSource::Kind::agent_output;
    const auto from = static_cast<std::size_t>(source->step);
    longest += answer ? plan_.steps[from].max_tokens : kToolTokens;
    const bool follows = answer && turns_[from].decoding == turn.engine.get();
    if (complete && follows) parts.push_back({{}, turns_[from].request});
    complete = complete && follows;
  }
  const auto needed = static_cast<std::int32_t>(std::min<std::int64_t>(longest, turn.engine->info().context));
  if (turn.id != 0 && needed > turn.longest) {  // more came than was reckoned with
    turn.engine->forget(turn.id);
    turn.id = 0;
  }
  if (turn.id != 0) {
    turn.engine->update(turn.id, std::move(parts), complete);
  } else if (!parts.empty()) {
    turn.longest = needed;
    ReuseOptions exact = plan_.reuse;
    exact.tolerance = 0.0f;
    exact.record = false;
    turn.id = turn.engine->prepare({std::move(parts), complete, needed, exact});
  }
}

/// The ids of a value that is known; null where making them would hold up the run.
const std::vector<TokenId>* EarlyTurns::ids_of(const SlotInput& value, const Tokenizer& tokenizer) {
  if (value.tokens != nullptr) return value.tokens;
  const auto [at, added] = ids_.try_emplace({value.text.data(), &tokenizer});
  if (value.text.size() > kLongText) return nullptr;
  if (added && !value.text.empty()) at->second = tokenizer.encode(value.text, SpecialTokens::as_text);
  return &at->second;
}

PromptFrame make_frame(const PlanStep& step, const ModelText& model, const std::map<std::string, std::string>& inputs) {
  std::vector<PromptPart> frame = build_frame(model, step.messages);
  for (PromptPart& part : frame) {
    const SlotSource* source = part.slot.empty() ? nullptr : step.slot(part.slot);
    if (source == nullptr || source->kind != SlotSource::Kind::input) continue;
    const auto value = inputs.find(source->name);
    if (value != inputs.end() && !value->second.empty())
      part.tokens = model.tokenizer->encode(value->second, SpecialTokens::as_text);
  }
  return std::make_shared<const std::vector<PromptPart>>(std::move(frame));
}

}  // namespace baton
