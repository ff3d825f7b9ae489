// SPDX-License-Identifier: Apache-2.0
// The states of runs and turns, the reasons why generation ended and the kinds of errors, each with its name in JSON.
// Plain data (see run_record.h).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace baton {

/// How a run ended. suspended: it waits for an answer from the host (`ask`).
enum class RunState : std::uint8_t { ok, failed, cancelled, timeout, suspended };

/// skipped: the turn never began, because its condition did not hold or the run had ended.
enum class TurnState : std::uint8_t { ok, failed, skipped, cancelled };

/// eos: the model ended its answer; stop: a stop string; length: max_tokens; other: a reason of a server that is not
/// known here, which a warning quotes.
enum class FinishReason : std::uint8_t { eos, stop, length, cancelled, error, other };

/// Who caused a run to fail. Its exit code and its HTTP status follow from that. agent: the workflow's, a turn
/// failed; resources: memory, a device or a model; host: a callback of the host threw; input: the caller's, whose
/// inputs make a prompt that the model's context or the memory for KV never holds.
enum class ErrorKind : std::uint8_t { agent, resources, host, input };

/// What a warning is about (docs/cli.md has the table). The names are stable.
enum class WarningCode : std::uint8_t {
  other,
  not_enforced,
  server_missing,
  tools_left_out,
  answer_cut_off,
  output_empty,
  result_empty,
  output_unfit,
  finish_unknown,
  result_cut,
  result_summarised,
  results_dropped,
  no_summary,
  history_forgotten,
  attempt_failed,
  turn_failed,
  call_denied,
  output_unread,
  hand_over_lost,
};

/// The names of an enumeration's values, in order; JSON and the C interface use the same names.
template <typename Enum>
inline constexpr std::array<std::string_view, 0> kNamesOf{};
template <>
inline constexpr std::array<std::string_view, 5> kNamesOf<RunState>{"ok", "failed", "cancelled", "timeout",
                                                                    "suspended"};
template <>
inline constexpr std::array<std::string_view, 4> kNamesOf<TurnState>{"ok", "failed", "skipped", "cancelled"};
template <>
inline constexpr std::array<std::string_view, 6> kNamesOf<FinishReason>{"eos",       "stop",  "length",
                                                                        "cancelled", "error", "other"};
template <>
inline constexpr std::array<std::string_view, 4> kNamesOf<ErrorKind>{"agent", "resources", "host", "input"};
template <>
inline constexpr std::array<std::string_view, 19> kNamesOf<WarningCode>{
    "other",         "not_enforced",      "server_missing", "tools_left_out", "answer_cut_off",    "output_empty",
    "result_empty",  "output_unfit",      "finish_unknown", "result_cut",     "result_summarised", "results_dropped",
    "no_summary",    "history_forgotten", "attempt_failed", "turn_failed",    "call_denied",       "output_unread",
    "hand_over_lost"};

/// Returns the name of a value.
template <typename Enum>
requires(!kNamesOf<Enum>.empty()) constexpr std::string_view name_of(Enum value) {
  return kNamesOf<Enum>[static_cast<std::size_t>(value)];
}

/// Returns the name of a value, or an empty name without a value.
template <typename Enum>
constexpr std::string_view name_of(const std::optional<Enum>& value) {
  return value ? name_of(*value) : std::string_view();
}

}  // namespace baton
