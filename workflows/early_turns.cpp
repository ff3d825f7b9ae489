#include "workflows/early_turns.h"

#include <algorithm>

#include "agents/prompt.h"

namespace baton {
namespace {

constexpr std::int64_t kToolTokens = 1024;  // of a result that is not known yet; a longer one is computed in full

}  // namespace

EarlyTurns::EarlyTurns(const Plan& plan, const RunState& state)
    : plan_(plan), state_(state), turns_(plan.steps.size()) {}

bool EarlyTurns::wants(std::size_t step) const {
  return plan_.reuse.method == "lockstep" && !plan_.steps[step].needs.empty() && !plan_.steps[step].when;
}

void EarlyTurns::add(std::size_t step, PromptFrame frame, std::shared_ptr<Engine> engine) {
  turns_[step].frame = std::move(frame);
  turns_[step].engine = std::move(engine);
  refresh(step);
}

void EarlyTurns::began(std::size_t step, const Engine* engine, RequestId request) {
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
    const TurnState& turn = state_.turn(static_cast<std::size_t>(need));
    return turn.phase == TurnState::Phase::over || turns_[static_cast<std::size_t>(need)].decoding != nullptr;
  };
  const bool reads = std::any_of(step.slots.begin(), step.slots.end(), [&](const SlotSource& slot) {
    return slot.kind == SlotSource::Kind::agent_output && begun(slot.step);
  });
  return reads || std::all_of(step.needs.begin(), step.needs.end(), begun);
}

std::int32_t EarlyTurns::longest(std::size_t step) const {
  std::int64_t tokens = plan_.steps[step].max_tokens;
  for (const PromptPart& part : *turns_[step].frame) {
    tokens += static_cast<std::int64_t>(part.tokens.size());
    if (part.slot.empty() || !part.tokens.empty()) continue;
    const SlotSource& source = *plan_.steps[step].slot(part.slot);
    if (source.kind == SlotSource::Kind::agent_output)
      tokens += plan_.steps[static_cast<std::size_t>(source.step)].max_tokens;
    if (source.kind == SlotSource::Kind::tool_result) tokens += kToolTokens;
  }
  return static_cast<std::int32_t>(std::min<std::int64_t>(tokens, turns_[step].engine->model().options.context));
}

void EarlyTurns::refresh(std::size_t step) {
  Turn& turn = turns_[step];
  const PlanStep& planned = plan_.steps[step];
  if (!turn.frame || turn.done || !is_near(planned)) return;
  const Tokenizer& tokenizer = *turn.engine->model().tokenizer;
  const std::vector<SlotInput> values = state_.slot_inputs(step, tokenizer);
  std::vector<EarlyPart> parts;
  bool complete = true;
  for (const PromptPart& part : *turn.frame) {
    if (!part.tokens.empty()) {
      parts.push_back({part.tokens});
      continue;
    }
    const SlotSource& source = *planned.slot(part.slot);
    if (state_.known(step, source)) {
      const SlotInput& value = values[static_cast<std::size_t>(&source - planned.slots.data())];
      parts.push_back({value.tokens != nullptr ? *value.tokens
                       : value.text.empty()    ? std::vector<TokenId>()
                                               : tokenizer.encode(value.text, SpecialTokens::as_text)});
      continue;
    }
    const Turn* from =
        source.kind == SlotSource::Kind::agent_output ? &turns_[static_cast<std::size_t>(source.step)] : nullptr;
    complete = from != nullptr && from->decoding == turn.engine.get();
    if (!complete) break;
    parts.push_back({{}, from->request});
  }
  if (turn.id != 0) {
    turn.engine->update(turn.id, std::move(parts), complete);
  } else if (!parts.empty()) {
    turn.id = turn.engine->prepare({std::move(parts), complete, longest(step), plan_.reuse});
  }
}

PromptFrame make_frame(const PlanStep& step, const Model& model, const std::map<std::string, std::string>& inputs) {
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
