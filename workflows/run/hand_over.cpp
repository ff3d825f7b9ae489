// SPDX-License-Identifier: Apache-2.0
#include "workflows/run/hand_over.h"

#include <algorithm>

namespace baton {

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
    const auto found = entries_.find({engine, part.tokens});
    part.segment = found == entries_.end() ? nullptr : found->second.handle;
    if (!part.segment && plan_.reuse.method->models) attach_portable(engine, part);
    const std::set<std::size_t> readers = readers_of(*source, turn);
    const bool refused = part.segment && plan_.reuse.max_hops > 0 && part.segment->hops >= plan_.reuse.max_hops;
    part.readers = part.segment && !refused ? 0 : static_cast<std::int64_t>(readers.size());
    part.export_kv = read_by_other_models(turn, readers);
  }
}

void RunSegments::attach_portable(const InferenceEngine* engine, PromptPart& part) const {
  for (const auto& [key, entry] : entries_) {
    const InferenceEngine* author = key.first;
    if (author == engine || key.second != part.tokens) continue;
    const std::string difference = kv_difference(author->info().kv, engine->info().kv);
    if (difference.empty()) part.imported_kv = author->exported_kv(entry.handle);
    if (part.imported_kv) return;
    part.why_no_kv = difference.empty() ? "its KV, of another model, was evicted: over the memory budget"
                                        : "of another model, whose KV does not fit: " + difference;
  }
}

bool RunSegments::read_by_other_models(std::size_t turn, const std::set<std::size_t>& readers) const {
  return plan_.reuse.method->models && std::any_of(readers.begin(), readers.end(), [&](std::size_t reader) {
           return plan_.turns[reader].model != plan_.turns[turn].model;
         });
}

void RunSegments::take(std::size_t turn, const InferenceEngine* engine, const std::vector<PromptPart>& prompt,
                       const GenerationResult& result) {
  for (std::size_t i = 0; i < prompt.size() && i < result.segments.size(); ++i) {
    const SlotSource* source = prompt[i].slot.empty() ? nullptr : plan_.turns[turn].slot(prompt[i].slot);
    if (source != nullptr) keep(engine, prompt[i].tokens, result.segments[i], readers_of(*source, turn));
  }
  keep(engine, result.tokens, result.output, readers_of_output(turn));
}

void RunSegments::keep(const InferenceEngine* engine, const std::vector<TokenId>& tokens, SegmentHandle handle,
                       std::set<std::size_t> readers) {
  if (!handle || readers.empty()) return;
  const auto [entry, added] = entries_.try_emplace({engine, tokens}, Entry{handle, readers});
  if (added) return;
  entry->second.readers.merge(readers);
  if (handle->hops < entry->second.handle->hops) entry->second.handle = std::move(handle);
}

void RunSegments::turn_over(std::size_t turn) {
  over_[turn] = true;
  for (auto entry = entries_.begin(); entry != entries_.end();) {
    entry->second.readers.erase(turn);
    entry = entry->second.readers.empty() ? entries_.erase(entry) : std::next(entry);
  }
}

}  // namespace baton
