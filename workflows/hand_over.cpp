#include "workflows/hand_over.h"

namespace baton {

std::set<std::size_t> HandOver::readers_of(const SlotSource& source, std::size_t but) const {
  std::set<std::size_t> readers;
  for (std::size_t step = 0; step < plan_.steps.size(); ++step) {
    if (step != but && !over_[step] && shows_source(plan_.steps[step], source)) readers.insert(step);
  }
  return readers;
}

std::set<std::size_t> HandOver::readers_of_output(std::size_t step) const {
  SlotSource source;
  source.kind = SlotSource::Kind::agent_output;
  source.step = static_cast<int>(step);
  return readers_of(source, step);
}

void HandOver::attach(std::size_t step, const Engine* engine, std::vector<PromptPart>& prompt) const {
  for (PromptPart& part : prompt) {
    const SlotSource* source = part.slot.empty() ? nullptr : plan_.steps[step].slot(part.slot);
    if (source == nullptr) continue;
    const auto found = entries_.find({engine, part.tokens});
    part.segment = found == entries_.end() ? nullptr : found->second.handle;
    part.readers = part.segment ? 0 : static_cast<std::int64_t>(readers_of(*source, step).size());
  }
}

void HandOver::take(std::size_t step, const Engine* engine, const std::vector<PromptPart>& prompt,
                    const GenerationResult& result) {
  for (std::size_t i = 0; i < prompt.size() && i < result.segments.size(); ++i) {
    const SlotSource* source = prompt[i].slot.empty() ? nullptr : plan_.steps[step].slot(prompt[i].slot);
    if (source != nullptr) keep(engine, prompt[i].tokens, result.segments[i], readers_of(*source, step));
  }
  keep(engine, result.tokens, result.output, readers_of_output(step));
}

void HandOver::keep(const Engine* engine, const std::vector<TokenId>& tokens, SegmentHandle handle,
                    std::set<std::size_t> readers) {
  if (!handle || readers.empty()) return;
  const auto [entry, added] = entries_.try_emplace({engine, tokens}, Entry{handle, readers});
  if (added) return;
  entry->second.readers.merge(readers);
  if (handle->hops < entry->second.handle->hops) entry->second.handle = std::move(handle);
}

void HandOver::step_over(std::size_t step) {
  over_[step] = true;
  for (auto entry = entries_.begin(); entry != entries_.end();) {
    entry->second.readers.erase(step);
    entry = entry->second.readers.empty() ? entries_.erase(entry) : std::next(entry);
  }
}

}  // namespace baton
