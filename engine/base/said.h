// SPDX-License-Identifier: Apache-2.0
// What a server says in its own words, made fit for a message of ours.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace baton {

/// The text on one line, without control characters, at most `max_bytes`.
std::string said(std::string_view text, std::size_t max_bytes = 400);

}  // namespace baton
