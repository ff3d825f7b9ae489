// SPDX-License-Identifier: Apache-2.0
// Chat templates that do their worst: values that double, chains of objects, macros that call themselves, searches
// without end, loops in loops.
#pragma once

#include <random>
#include <string>

namespace baton::test {

/// Mostly valid in its syntax, so that it runs.
std::string hostile_template(std::mt19937& random);

}  // namespace baton::test
