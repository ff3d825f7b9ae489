// SPDX-License-Identifier: Apache-2.0
// One run of a workflow: its events, its end and its record.
#pragma once

#include <chrono>
#include <cstddef>
#include <iterator>
#include <memory>
#include <optional>

#include <baton/event.h>

namespace baton::inline v1 {

class Run;

/// The events of a run in order, as a range that is read once: `for (const auto& event : run.events())`. Reading waits
/// for the next event; the range ends after RunFinished. It must not outlive its Run.
class EventRange {
 public:
  class Iterator {
   public:
    using iterator_category = std::input_iterator_tag;
    using iterator_concept = std::input_iterator_tag;
    using value_type = Event;
    using difference_type = std::ptrdiff_t;
    using pointer = const Event*;
    using reference = const Event&;

    const Event& operator*() const { return event_; }
    const Event* operator->() const { return &event_; }
    Iterator& operator++();
    void operator++(int) { ++*this; }
    bool operator==(std::default_sentinel_t) const { return run_ == nullptr; }

   private:
    friend class EventRange;
    const Run* run_ = nullptr;
    Event event_;
  };

  Iterator begin() const;  // waits for the first event
  std::default_sentinel_t end() const { return {}; }

 private:
  friend class Run;
  explicit EventRange(const Run* run) : run_(run) {}
  const Run* run_;
};

/// Owns a run. Its members are safe from any thread, except moving and destroying it. A moved-from Run can only be
/// assigned to or destroyed.
class Run {
 public:
  Run(Run&&) noexcept;
  Run& operator=(Run&&) noexcept;  // cancels the run that was owned before
  /// Cancels the run if it is not over, and waits for its end. In the run's own on_event and tools, and in its engine's
  /// callbacks, it does not wait.
  ~Run();

  /// Events are kept until they are read; with several readers, each event reaches one of them. If the destructor
  /// does not wait, reading throws InputError.
  EventRange events() const { return EventRange(this); }

  /// Waits for the end. Failures of agents, timeouts and stops are reported by the record's state, not thrown. Throws
  /// ResourceError when a model could not be opened, WorkflowError when a setting does not fit the model, InputError
  /// where the destructor does not wait, and rethrows what on_event threw. May be called again.
  RunRecord get() const;

  /// Waits at most `time` (below 0: 0) for the end; where get() throws InputError, only with 0. True: the run is over.
  bool wait_for(std::chrono::milliseconds time) const;

  /// Ends the run soon, in state "cancelled" unless it was over; the record keeps what the agents wrote so far.
  void stop() noexcept;

  /// Ends the run soon; the texts of this run are dropped from the record.
  void cancel() noexcept;

  /// For the library's own use.
  struct State;
  explicit Run(std::shared_ptr<State> state) : state_(std::move(state)) {}
  enum class Next { event, pending, over };
  /// Waits for the next event, at most `time` if given. over: the run has ended and no event is left.
  Next next(Event& event, std::optional<std::chrono::milliseconds> time = {}) const;

 private:
  std::shared_ptr<State> state_;
};

}  // namespace baton::inline v1
