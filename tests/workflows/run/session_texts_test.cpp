// SPDX-License-Identifier: Apache-2.0
// Texts of a session: each is tokenized once for its tokenizer, however often it stands in a prompt.
#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <mutex>
#include <utility>

#include "tests/support/plans.h"
#include "workflows/run/executor.h"

namespace baton {
namespace {

using test::PlanBuilder;
using test::Scripted;
using test::ScriptedEngine;

/// Counts how often each text was tokenized.
class CountingTokenizer : public test::ByteTokenizer {
 public:
  std::vector<TokenId> encode_piece(std::string_view text, SpecialTokens special, PieceStart start,
                                    const std::stop_token& stop = {}) const override {
    {
      const std::lock_guard lock(mutex_);
      ++counts_[{std::string(text), special}];
    }
    return ByteTokenizer::encode_piece(text, special, start, stop);
  }
  std::map<std::pair<std::string, SpecialTokens>, int> counts() const {
    const std::lock_guard lock(mutex_);
    return counts_;
  }

 private:
  mutable std::mutex mutex_;
  mutable std::map<std::pair<std::string, SpecialTokens>, int> counts_;
};

struct Session {
  std::size_t forgotten = 0;  // turns that no longer held all of the conversation
  std::vector<std::string> prompts;
};

/// A conversation of `turns` runs whose prompts become too long on the way.
Session talk(const std::shared_ptr<const Tokenizer>& tokenizer, int turns, bool share_texts) {
  const std::string answer(100, 'a');
  const auto engine = std::make_shared<ScriptedEngine>(
      [&](const std::string&) {
        Scripted scripted{answer};
        scripted.tokens = std::vector<TokenId>(answer.begin(), answer.end());
        return scripted;
      },
      test::toy_model(std::make_shared<test::ChatMl>(), tokenizer, 4096));
  Session session;
  SessionMemory memory;
  for (int i = 0; i < turns; ++i) {
    PlanBuilder team;
    team.add("friend", {});
    RunRequest request = team.request(engine);
    request.inputs["question"] = "question number " + std::to_string(i);
    request.memory = memory;
    request.on_memory = [&](const SessionMemory* now) {
      REQUIRE(now != nullptr);
      memory = *now;
      for (auto& [agent, conversation] : memory) {
        if (share_texts) continue;
        auto alone = std::make_shared<Conversation>(*conversation);
        alone->texts = nullptr;
        conversation = std::move(alone);
      }
    };
    const RunRecord record = run_plan(request);
    REQUIRE(record.state == RunState::ok);
    const std::optional<HistoryRecord>& history = record.agents[0].history;
    if (history && history->forgotten > 0) ++session.forgotten;
  }
  session.prompts = engine->prompts;
  return session;
}

}  // namespace

TEST_CASE("in a session of 30 turns each text is tokenized once", "[executor][session]") {
  const auto tokenizer = std::make_shared<const CountingTokenizer>();
  const Session session = talk(tokenizer, 30, true);
  CHECK(session.forgotten > 0);
  const auto counts = tokenizer->counts();
  CHECK(counts.size() > 30);
  for (const auto& [text, count] : counts) {
    INFO(text.first);
    CHECK(count == 1);
  }
}

TEST_CASE("without shared texts a session tokenizes texts again", "[executor][session]") {
  const auto tokenizer = std::make_shared<const CountingTokenizer>();
  talk(tokenizer, 30, false);
  const auto counts = tokenizer->counts();
  CHECK(std::any_of(counts.begin(), counts.end(), [](const auto& text) { return text.second > 1; }));
}

TEST_CASE("prompts of a session are the same when no text is shared between its runs", "[executor][session]") {
  const auto tokenizer = std::make_shared<const test::ByteTokenizer>();
  const Session shared = talk(tokenizer, 30, true), alone = talk(tokenizer, 30, false);
  CHECK(shared.prompts == alone.prompts);
  CHECK(shared.forgotten == alone.forgotten);
}

}  // namespace baton
