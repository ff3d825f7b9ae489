// SPDX-License-Identifier: Apache-2.0
// Admission: decides which requests begin, and with what KV. Requests begin in the order of arrival, except those that
// follow a running prompt: they wait for it, and count towards the limits as if they ran, so that no later request
// takes their place. A probe (relay_probe.h) begins only if no request waits, and is dropped if a request needs its
// place. Whether there is room is a pure function of a snapshot.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/loop/kv_lookup.h"
#include "engine/loop/request_end.h"
#include "engine/loop/step_runner.h"

namespace baton {

/// What admission knows when it looks at the next request.
struct AdmissionSnapshot {
  std::int32_t max_sequences = 0;
  std::int32_t running = 0;
  std::int32_t following = 0;        // waiting requests that follow a running prompt
  std::int64_t budget_bytes = 0;     // budget of all KV except segments
  std::int64_t running_bytes = 0;    // caches of the running requests
  std::int64_t following_bytes = 0;  // caches that the following requests will have
  std::int64_t request_bytes = 0;    // the cache that the request will have
  std::int64_t early_bytes = 0;      // caches of early prompts
  std::int64_t own_early_bytes = 0;  // cache of the request's own early prompt, included in early_bytes
  bool has_probe = false;            // a probe runs; it is ended if a request needs its place
};

enum class Admit : std::uint8_t {
  wait,         // wait until other requests end
  drop_probe,   // end the running probe, and look again
  evict_early,  // evict the early prompt that is needed last, and look again; if there is none, exceed the budget
  begin,
};

/// Returns whether the request has a place, before it is known whether it follows another prompt.
Admit find_place(const AdmissionSnapshot& now);
/// Returns what must be evicted so that the request's cache fits the budget.
Admit make_room(const AdmissionSnapshot& now);
/// True if a probe may begin: at least half of the budget must stay free for requests.
bool probe_fits(const AdmissionSnapshot& now);
/// True if a request should begin on approximate KV: its prompt has many rows left, its answer is not forced, and no
/// choice needs the exact prompt first. `left`: rows of the prompt that were not computed ahead.
bool begins_tentatively(const GenerationRequest& request, const ReuseDecision& decision, bool has_choices,
                        std::int32_t left, std::int32_t min_left);

/// Used by the engine's thread only.
class Admission {
 public:
  Admission(EngineParts& parts, RequestEnd& end, StepRunner& runner)
      : parts_(parts), end_(end), runner_(runner), keeper_(parts) {}

  /// Begins the requests that have a place.
  void admit();
  /// Begins a probe if no request waits.
  void admit_probe();
  /// Begins the checks of tentative answers that have ended, or whose exact prompt is complete.
  void begin_checks();

 private:
  AdmissionSnapshot snapshot(const Sequence& next) const;
  bool begin(SequenceList::iterator at);
  PromptKv kv_of(const RequestState& next);
  bool wait_for_store(Sequence& next);
  bool follows_reader(const Sequence& next) const;
  bool is_read(const FromStore& stored) const;
  void look_for_beginning(Sequence& next);
  void take_beginning(Sequence& next);
  void look_for_texts(Sequence& next);
  void take_texts(Sequence& next);
  bool wait_for_beginning(Sequence& next);
  bool wait_for_texts(Sequence& next);
  std::int32_t known_beginning_of(const Sequence& next);
  bool starts_tentatively(const Sequence& sequence) const;
  EarlyId twin_of(const Sequence& sequence);
  void begin_check(Sequence& sequence);
  PromptTime time_for(const Sequence& sequence) const;
  std::vector<float> start(Sequence& sequence);

  EngineParts& parts_;
  RequestEnd& end_;
  StepRunner& runner_;
  KvKeeper keeper_;
};

}  // namespace baton
