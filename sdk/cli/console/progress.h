// SPDX-License-Identifier: Apache-2.0
// What a user sees of long work: loading a model, profiling it.
#pragma once

#include <functional>
#include <string>

namespace baton::cli {

/// Returns a callback that takes a file and the fraction of the work on it that is done, 0 to 1. On a terminal it
/// redraws one line, which goes at the end; elsewhere it prints a line when the work has taken a second, and then every
/// five seconds, so that short work is silent.
std::function<void(const std::string& path, double fraction)> progress_line(std::string doing);

}  // namespace baton::cli
