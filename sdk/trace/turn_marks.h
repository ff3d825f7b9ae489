// SPDX-License-Identifier: Apache-2.0
// What the turns of a run did when, by the run's events: a report's timeline and a trace (docs/traces.md) are made of
// it. All times are in milliseconds since the run started.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <baton/event.h>
#include <baton/run_record.h>

namespace baton {

struct ToolMarks {
  double begin_ms = 0, end_ms = 0;
  std::string tool;
  bool ok = true;
};

/// A prompt that the model was given, and its answer.
struct ModelCallMarks {
  double started_ms = 0;
  std::optional<double> prefilled_ms, first_token_ms, last_token_ms;
  std::int64_t prompt_tokens = 0;  // 0: unknown
  std::int64_t tokens = 0;         // of the answer, as far as they were seen
  KvRecord kv{};
  std::vector<ToolMarks> tools{};  // that the answer called, one behind the other
};

struct TurnMarks {
  std::vector<ToolMarks> tools{};                       // before the prompt
  std::vector<std::vector<ModelCallMarks>> attempts{};  // none of them is empty
  std::optional<double> over_ms;                        // empty: the turn did not run here
  std::vector<std::size_t> inputs{};                    // turns whose answers it read
  /// The same agent had another turn in the same round. Events do not tell the two apart, so that nothing but
  /// `over_ms` is known.
  bool shares_name = false;
};

/// Collects the events of one run.
class RunMarks {
 public:
  /// Keeps no texts. Of what nobody would look at, as thousands of attempts of one turn, the rest is left out.
  void add(const Event& event, double t_ms);

  /// One for each turn of `record`, which is that of the same run.
  std::vector<TurnMarks> turns(const RunRecord& record) const;

 private:
  using Name = std::pair<std::string, int>;  // agent, round
  struct End {
    double t_ms = 0, ttft_ms = 0, decode_ms = 0;
  };
  struct Seen {
    TurnMarks marks;
    std::vector<std::pair<std::string, std::string>> relayed;  // agent, placeholder
    std::vector<End> ends;
  };

  static void tell_apart(std::vector<End> ends, const RunRecord& record, const std::vector<std::size_t>& same,
                         std::vector<TurnMarks>& turns);
  Seen* seen_of(const std::string& agent, int round);
  ModelCallMarks* answering(const std::string& agent, int round);
  void add_tool(const ToolCalled& event, double t_ms);

  std::map<Name, Seen> seen_;
};

}  // namespace baton
