// SPDX-License-Identifier: Apache-2.0
// Steps that ask (`ask`), answered by the person at the terminal.
#pragma once

#include <optional>
#include <stop_token>
#include <string>

#include <baton/baton.h>

namespace baton::cli {

/// True when somebody can be asked: standard input and standard error are terminals.
bool can_ask();

/// Shows the question and reads a line, again where the answer is not one of the choices. Nothing: the input has ended,
/// or a stop was requested.
std::optional<std::string> ask_person(const Asked& asked, const std::stop_token& stop);

/// The question as text, with its choices.
std::string question_text(const Asked& asked);

}  // namespace baton::cli
