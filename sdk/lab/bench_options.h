// SPDX-License-Identifier: Apache-2.0
// Checks of the options of run_bench, before anything is opened.
#pragma once

#include <baton/lab/bench.h>

#include <string>
#include <vector>

namespace baton::inline v1::lab {

/// The bare model alone is measured: no agents.
inline bool only_rates(const BenchOptions& options) { return options.methods == std::vector<std::string>{"none"}; }

/// Throws InputError, which names the option, unless `value` is one of `known`.
void check_name(const char* name, const std::string& value, const std::vector<std::string>& known);

/// Throws InputError unless `activations` is f32, or bf16 with a dtype of bf16.
void check_activations(const std::string& activations, const std::string& dtype);

/// Throws InputError with the option, its value and what is expected.
void check(const BenchOptions& options);

}  // namespace baton::inline v1::lab
