// SPDX-License-Identifier: Apache-2.0
#include "engine/loop/request_end.h"

#include <algorithm>

namespace baton {

void RequestEnd::end(const Sequence* sequence, FinishReason reason, const char* error) noexcept {
  SequenceList& running = parts_.running;
  const auto found = std::find_if(running.begin(), running.end(), [&](const auto& s) { return s.get() == sequence; });
  if (found != running.end()) end(running, found, reason, error);
}

void RequestEnd::end(SequenceList& list, SequenceList::iterator at, FinishReason reason, const char* error) noexcept {
  std::unique_ptr<Sequence> sequence = std::move(*at);
  list.erase(at);
  end(std::move(sequence), reason, error);
}

void RequestEnd::end(std::unique_ptr<Sequence> sequence, FinishReason reason, const char* error) noexcept {
  if (reason != FinishReason::eos) {
    sequence->keep_chosen();
    try_to([&] { keeper_.keep_for_followers(*sequence); });
  }
  parts_.ahead.forget(sequence->request().early);  // an early prompt that the request never took over
  try {
    sequence->close(reason, error);
  } catch (const std::exception& wrong) {
    reason = FinishReason::error;
    sequence->fail(message_of(wrong));
  }
  const std::vector<TokenId>* answer = reason == FinishReason::eos ? &sequence->result().tokens : nullptr;
  if (!try_to([&] { parts_.ahead.ended(sequence->id(), answer); })) parts_.ahead.clear();
  try_to([&] {
    parts_.states.on_end(sequence->id(), sequence->result().tokens,
                         sequence->cache_bytes() > 0 ? sequence->cache().length() - sequence->state.prompt_length : 0);
  });
  if (answer != nullptr) {
    try_to([&] { keeper_.store_all(*sequence); });
    try_to([&] { keeper_.give_texts(*sequence); });
    try_to([&] { make_probe_of(*sequence); });
  }
  count_kv();
  try_to([&] { sequence->deliver(); });  // the host's own on_finished may throw
}

/// Whatever goes wrong here loses a measurement, never an answer.
void RequestEnd::make_probe_of(Sequence& ended) {
  auto probe = parts_.measuring.probe_of(ended.request(), ended.state.decision, ended.result(), ended.state.measured);
  if (!probe) return;
  ReuseDecision decision = as_asked(probe->reuse);
  const RequestId id = parts_.inbox.next_id();
  parts_.probes.push_back(
      std::make_unique<Sequence>(id, std::move(*probe), std::move(decision), *parts_.model, nullptr));
  parts_.probes.back()->state.probe = true;
}

bool RequestEnd::drop_probe() noexcept {
  SequenceList& running = parts_.running;
  const auto found = std::find_if(running.begin(), running.end(), [](const auto& one) { return one->state.probe; });
  if (found == running.end()) return false;
  end(running, found, FinishReason::cancelled, "");
  return true;
}

void RequestEnd::count_kv() noexcept {
  bool busy = false;
  try_to([&] { busy = has_work_ahead(parts_); });
  parts_.counters.set_kv(kv_bytes(parts_.running) + parts_.ahead.bytes(), busy);
}

}  // namespace baton
