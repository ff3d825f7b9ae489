// SPDX-License-Identifier: Apache-2.0
// Constraints on answers: the first byte chooses a regular expression, GBNF or a JSON Schema. What compiles has a text,
// every text that was begun can go on or is complete, and a complete text of a schema of which all is
// enforced is valid JSON of it.
#include "engine/text/constrain/grammar.h"

#include <cstdint>
#include <cstdlib>

#include "engine/text/schema/schema.h"

namespace {

constexpr std::size_t kMaxWalk = 400;  // bytes

void require(bool condition) {
  if (!condition) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 1) return 0;
  const std::string text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const int kind = data[0] % 3;
  if (kind == 2 && !baton::check_json_schema(text).empty()) return 0;
  std::shared_ptr<const baton::Grammar> grammar;
  try {
    grammar = kind == 0   ? baton::regex_grammar(text)
              : kind == 1 ? baton::gbnf_grammar(text)
                          : baton::schema_grammar(text);
  } catch (const baton::ConstraintError&) {
    return 0;
  }
  baton::GrammarStates states(grammar);
  std::string walked;
  try {
    baton::GrammarStates::State* state = states.start();
    while (walked.size() < kMaxWalk && !state->complete()) {
      unsigned byte = data[walked.size() % size], tried = 0;
      while (tried < 256 && states.next(state, static_cast<std::uint8_t>(byte))->dead())
        ++tried, byte = (byte + 1) % 256;
      if (tried == 256) {
        require(state->places->ends);
        break;
      }
      walked += static_cast<char>(byte);
      state = states.next(state, static_cast<std::uint8_t>(byte));
    }
    if (kind == 2 && state->places->ends && grammar->unenforced().empty())
      require(baton::check_json(walked, text).empty());
  } catch (const std::runtime_error&) {  // too ambiguous
  }
  return 0;
}
