// SPDX-License-Identifier: Apache-2.0
// What agents remember between the runs of a session: the conversation of the last turn of each agent in a run. Every
// turn of an agent continues what the agent remembered when the run began.
#include <fmt/format.h>

#include "workflows/run/executor_loop.h"

namespace baton {

bool RunLoop::remembers(std::size_t turn) const {
  const PlannedTurn& planned_turn = planned(turn);
  return request_.on_memory && planned_turn.remember != 0 && can_continue(planned_turn.messages);
}

std::shared_ptr<const Conversation> RunLoop::memory_of(std::size_t turn) const {
  const auto found = request_.memory.find(planned(turn).agent);
  return found == request_.memory.end() || !remembers(turn) ? nullptr : found->second;
}

std::optional<HistoryRecord> RunLoop::history_of(std::size_t turn) {
  const Attempt& attempt = *attempts_[turn];
  if (!attempt.memory) return std::nullopt;
  HistoryRecord history;
  history.runs = static_cast<int>(attempt.kept);
  history.forgotten = static_cast<int>(attempt.memory->exchanges.size() - attempt.kept);
  if (history.forgotten == 0) {
    history.tokens = static_cast<std::int64_t>(attempt.memory->tokens.size());
  } else {
    warn(fmt::format("agent '{}': the first {} of the {} runs that it remembered were forgotten", planned(turn).id,
                     history.forgotten, attempt.memory->exchanges.size()));
  }
  return history;
}

/// `prompt`: that of the last generation.
void RunLoop::remember(std::size_t turn, const std::vector<PromptPart>& prompt, const GenerationResult& answer) {
  if (!remembers(turn)) return;
  Attempt& attempt = *attempts_[turn];
  const Tokenizer& tokenizer = *attempt.engine->text().tokenizer;
  auto conversation = std::make_shared<Conversation>();
  for (const PromptPart& part : prompt)
    conversation->tokens.insert(conversation->tokens.end(), part.tokens.begin(), part.tokens.end());
  // A role marker that the model wrote is text from here on, as it is for others (accept).
  const bool as_text = answer.tokens.empty() || std::any_of(answer.tokens.begin(), answer.tokens.end(),
                                                            [&](TokenId id) { return tokenizer.is_special(id); });
  const std::vector<TokenId> said = as_text ? tokenizer.encode(answer.text, SpecialTokens::as_text) : answer.tokens;
  conversation->tokens.insert(conversation->tokens.end(), said.begin(), said.end());
  conversation->context = answer.context;

  const auto text_of = [&](const PromptMessage& message) {
    SaidMessage said_message{message.role, {}};
    for (const PromptPiece& piece : message.pieces)
      said_message.text += piece.slot.empty() ? std::string_view(piece.text) : state_.slot_text(turn, piece.slot);
    return said_message;
  };
  const TurnMessages messages = messages_of(planned(turn).messages);
  if (attempt.memory) {
    conversation->head = attempt.memory->head;
    const auto& exchanges = attempt.memory->exchanges;
    conversation->exchanges.assign(exchanges.end() - static_cast<std::ptrdiff_t>(attempt.kept), exchanges.end());
  } else {
    for (const PromptMessage& message : messages.head) conversation->head.push_back(text_of(message));
  }
  std::vector<SaidMessage>& exchange = conversation->exchanges.emplace_back();
  for (const PromptMessage& message : messages.next) exchange.push_back(text_of(message));
  exchange.push_back({"assistant", answer.text});
  attempt.remembered = std::move(conversation);
}

/// A run that did not end well leaves nothing.
void RunLoop::keep_memory() noexcept {
  if (!request_.on_memory) return;
  SessionMemory memory;
  const bool kept = record_.state == RunState::ok && try_to([&] {
                      memory = request_.memory;
                      for (std::size_t i = 0; i < attempts_.size(); ++i) {
                        if (attempts_[i]->remembered && state_.turn(i).record.state == TurnState::ok)
                          memory[planned(i).agent] = attempts_[i]->remembered;
                      }
                    });
  request_.on_memory(kept ? &memory : nullptr);
}

}  // namespace baton
