// SPDX-License-Identifier: Apache-2.0
#include "agents/conversation.h"  // of the layers below: before any public header

#include "sdk/src/internal.h"

#include <baton/session.h>
#include <fmt/format.h>

#include <deque>
#include <mutex>

#include "sdk/src/open_models.h"
#include "sdk/src/session_file.h"

namespace baton::inline v1 {

struct Session::State {
  static constexpr std::size_t kMaxPast = 64;

  State(const Engine& of_engine, const Workflow& of_workflow, SavedSession saved)
      : engine(of_engine), workflow(of_workflow), runs(saved.runs) {
    past.push_back(std::move(saved.memory));
  }

  Engine engine;
  Workflow workflow;
  mutable std::mutex mutex;
  std::deque<SessionMemory> past;  // after each of the last runs; the last is the present
  int runs = 0;
  bool running = false;

  /// The mutex is held.
  void must_be_still(const char* call) const {
    if (running) throw InputError(fmt::format("session: {}: a run of the session has not ended", call));
  }
  void over(const SessionMemory* memory) {
    const std::lock_guard lock(mutex);
    running = false;
    if (memory == nullptr) return;
    past.push_back(*memory);
    if (past.size() > kMaxPast + 1) past.pop_front();
    ++runs;
  }
};

Session Engine::session(const Workflow& workflow) const {
  return Session(std::make_shared<Session::State>(*this, workflow, SavedSession{}));
}

Session Engine::restore(const Workflow& workflow, const std::filesystem::path& file) const {
  const OpenPlan open = open_models(*this, workflow);
  return Session(std::make_shared<Session::State>(*this, workflow, read_session(file, open)));
}

Run Session::start(const RunOptions& options) const {
  SessionMemory memory;
  {
    const std::lock_guard lock(state_->mutex);
    state_->must_be_still("start");
    memory = state_->past.back();
    state_->running = true;
  }
  try {
    return start_run(state_->engine, state_->workflow, options, std::move(memory),
                     [state = state_](const SessionMemory* now) { state->over(now); });
  } catch (...) {
    state_->over(nullptr);
    throw;
  }
}

RunRecord Session::run(const RunOptions& options) const { return start(options).get(); }

int Session::runs() const {
  const std::lock_guard lock(state_->mutex);
  return state_->runs;
}

int Session::rewindable() const {
  const std::lock_guard lock(state_->mutex);
  return static_cast<int>(state_->past.size()) - 1;
}

void Session::rewind(int runs) const {
  const std::lock_guard lock(state_->mutex);
  state_->must_be_still("rewind");
  const auto possible = static_cast<int>(state_->past.size()) - 1;
  if (runs < 0 || runs > possible)
    throw InputError(fmt::format("session: rewind: expected from 0 to {} runs, found {}", possible, runs));
  state_->past.erase(state_->past.end() - runs, state_->past.end());
  state_->runs -= runs;
}

Session Session::fork() const {
  const std::lock_guard lock(state_->mutex);
  auto state = std::make_shared<State>(state_->engine, state_->workflow, SavedSession{});
  state->past = state_->past;
  state->runs = state_->runs;
  return Session(std::move(state));
}

std::vector<Message> Session::messages(const std::string& agent) const {
  if (state_->workflow.impl().plan->spec->agent(agent) == nullptr)
    throw InputError(fmt::format("session: the workflow has no agent '{}'", agent));
  const std::lock_guard lock(state_->mutex);
  std::vector<Message> messages;
  const auto found = state_->past.back().find(agent);
  if (found == state_->past.back().end()) return messages;
  for (const SaidMessage& said : found->second->head) messages.push_back({said.role, said.text});
  for (const auto& exchange : found->second->exchanges) {
    for (const SaidMessage& said : exchange) messages.push_back({said.role, said.text});
  }
  return messages;
}

void Session::save(const std::filesystem::path& file) const {
  SavedSession saved;
  {
    const std::lock_guard lock(state_->mutex);
    state_->must_be_still("save");
    saved = {state_->past.back(), state_->runs};
  }
  write_session(file, saved, open_models(state_->engine, state_->workflow));
}

}  // namespace baton::inline v1
