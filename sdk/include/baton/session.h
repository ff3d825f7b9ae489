// SPDX-License-Identifier: Apache-2.0
// A session: runs of one workflow whose agents remember the runs before.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <baton/engine.h>

namespace baton::inline v1 {

/// A message of the conversation of an agent.
struct Message {
  std::string role;  // system, user, assistant
  std::string text;
};

/// Each agent remembers its last turn of every run (`remember` in the workflow limits how many): its prompt in the next
/// run is the conversation so far, and behind it the messages that are not system messages and stand behind the last
/// assistant's message of its `prompt`. The KV of the conversation is kept and continued, so that only the new messages
/// are computed; what a method handed over approximately stays approximate. A run that does not end in state "ok"
/// leaves nothing. AgentRecord::history says what an agent remembered.
///
/// A handle: copies share the session. All members are safe from any thread; one run at a time. The KV counts towards
/// the engine's budget: what is evicted is computed again.
class Session {
 public:
  /// Starts a run, as Engine::start does, without RunOptions::finished. Throws what that throws, and InputError while
  /// another run of the session has not ended.
  Run start(const RunOptions& options = {}) const;

  /// Starts a run and waits for its end.
  RunRecord run(const RunOptions& options = {}) const;

  /// Runs that are remembered, and the maximum number of them that rewind() can forget.
  int runs() const;
  int rewindable() const;

  /// Forgets the last runs, of which there must be `runs`: the session is as it was before them. Throws InputError for
  /// more than rewindable(), for less than 0, and while a run has not ended.
  void rewind(int runs = 1) const;

  /// Another session that remembers the same, and shares its KV.
  Session fork() const;

  /// What the agent remembers, the system messages first. Throws InputError for an unknown agent.
  std::vector<Message> messages(const std::string& agent) const;

  /// Writes what the agents remember, with its KV, into a checksummed file; an existing file is replaced atomically. A
  /// run that has not ended is not in it. Throws ResourceError when writing fails.
  void save(const std::filesystem::path& file) const;

  /// For the library's own use.
  struct State;
  explicit Session(std::shared_ptr<State> state) : state_(std::move(state)) {}

 private:
  std::shared_ptr<State> state_;
};

}  // namespace baton::inline v1
