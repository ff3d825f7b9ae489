// SPDX-License-Identifier: Apache-2.0
// A workflow file from anywhere: it is refused with errors that have a place, or it can be planned and printed.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "workflows/compile.h"

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

void check(const baton::Plan& plan) {
  require(!plan.turns.empty());
  for (int i = 0; i < static_cast<int>(plan.turns.size()); ++i) {
    const baton::PlannedTurn& turn = plan.turns[static_cast<std::size_t>(i)];
    for (const int need : turn.needs) require(need >= 0 && need < i);
    for (const baton::SlotSource& slot : turn.slots) require(slot.turn >= -1 && slot.turn <= i);
    for (const baton::PromptMessage& message : turn.messages) {
      for (const baton::PromptPiece& piece : message.pieces) {
        require(piece.text.empty() != piece.slot.empty());
        require(piece.slot.empty() || turn.slot(piece.slot) != nullptr);
      }
    }
  }
  for (const char* format : {"ascii", "mermaid", "dot", "json"}) require(!baton::format_graph(plan, format).empty());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    check(baton::compile(text, "nowhere/fuzz.yaml"));
  } catch (const baton::WorkflowError& error) {
    require(!error.items.empty());
    for (const baton::Diagnostic& item : error.items) {
      require(item.code.size() == 5 && !item.message.empty() && !item.file.empty());
      require(item.line >= 0 && item.column >= 0 && item.length >= 1);
    }
  }
  return 0;
}
