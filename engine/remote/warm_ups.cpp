// SPDX-License-Identifier: Apache-2.0
#include "engine/remote/warm_ups.h"

#include <algorithm>
#include <utility>

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
  if (!followed) return;
  std::vector<TokenId>& known = decoded_[request];
  known.insert(known.end(), tokens.begin() + static_cast<std::ptrdiff_t>(std::min(known.size(), tokens.size())),
               tokens.end());
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

}  // namespace baton
