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

/// eos: the model ended its answer; stop: a stop string; length: max_tokens.
enum class FinishReason : std::uint8_t { eos, stop, length, cancelled, error };

/// The cause of a failed run. agent: a turn failed; resources: memory, a device or a model; host: a callback of the
/// host threw.
enum class ErrorKind : std::uint8_t { agent, resources, host };

/// The names of an enumeration's values, in order; JSON and the C interface use the same names.
template <typename Enum>
inline constexpr std::array<std::string_view, 0> kNamesOf{};
template <>
inline constexpr std::array<std::string_view, 5> kNamesOf<RunState>{"ok", "failed", "cancelled", "timeout",
                                                                    "suspended"};
template <>
inline constexpr std::array<std::string_view, 4> kNamesOf<TurnState>{"ok", "failed", "skipped", "cancelled"};
template <>
inline constexpr std::array<std::string_view, 5> kNamesOf<FinishReason>{"eos", "stop", "length", "cancelled", "error"};
template <>
inline constexpr std::array<std::string_view, 3> kNamesOf<ErrorKind>{"agent", "resources", "host"};

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
