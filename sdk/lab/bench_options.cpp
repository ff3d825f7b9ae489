// SPDX-License-Identifier: Apache-2.0
#include "sdk/lab/bench_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdint>

#include "sdk/src/internal.h"

namespace baton::inline v1::lab {
namespace {

void check_number(const char* name, std::int64_t value, std::int64_t least, std::int64_t most) {
  if (value < least || value > most)
    throw InputError(fmt::format("{}: expected a value in [{}, {}], found {}", name, least, most, value));
}

void check_numbers(const char* name, const std::vector<int>& values, std::int64_t most) {
  if (values.empty()) throw InputError(fmt::format("{}: expected at least one value", name));
  for (const int value : values) check_number(name, value, 1, most);
}

}  // namespace

void check_name(const char* name, const std::string& value, const std::vector<std::string>& known) {
  if (std::find(known.begin(), known.end(), value) != known.end()) return;
  throw InputError(fmt::format("{}: unknown value '{}'; expected one of {}", name, value, fmt::join(known, ", ")));
}

void check_activations(const std::string& activations, const std::string& dtype) {
  check_name("activations", activations, {"f32", "bf16"});
  if (activations == "bf16" && dtype != "bf16")
    throw InputError(fmt::format("activations: bf16 has no effect with dtype {}; expected dtype bf16", dtype));
}

void check(const BenchOptions& options) {
  if (options.shape.empty() == options.model.empty()) throw InputError("shape: expected either a shape or a model");
  if (!options.shape.empty()) check_name("shape", options.shape, bench_shapes());
  if (options.layers != 0 && options.shape.empty())
    throw InputError("layers: only a shape can be measured with another number of layers");
  check_number("layers", options.layers, 0, 1024);
  check_number("agents", options.agents, 1, 32);
  check_numbers("prefix", options.prefix, 1 << 20);
  check_number("question", options.question, 1, 1 << 20);
  check_numbers("output", options.output, 1 << 20);
  check_number("repeat", options.repeat, 0, 1000);
  check_name("dtype", options.dtype, {"bf16", "f32"});
  check_activations(options.activations, options.dtype);
  if (!only_rates(options)) {
    for (const std::string& method : options.methods) check_name("methods", method, bench_methods());
  }
  if (options.row_methods != std::vector<std::string>{"none"}) {
    for (const std::string& method : options.row_methods) check_name("row_methods", method, bench_methods());
  }
  for (const int texts : options.learned) check_number("anchors", texts, 1, 1000);
  for (const int tokens : options.prefill) check_number("prefill", tokens, 1, 1 << 20);
  for (const auto& [rows, depth] : options.decode) {
    check_number("decode", rows, 1, 4096);
    check_number("decode", depth, 1, 1 << 20);
  }
  if (options.select.empty()) throw InputError("select: expected at least one value");
  for (const double select : options.select) {
    if (!(select > 0.0 && select <= 1.0))
      throw InputError(fmt::format("select: expected a value in (0, 1], found {}", select));
  }
}

}  // namespace baton::inline v1::lab
