// SPDX-License-Identifier: Apache-2.0
#include "agents/tools/tool.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <span>
#include <stdexcept>
#include <utility>

#include "agents/tools/python_tool.h"
#include "engine/base/utf8.h"

namespace baton {
namespace {

/// Returns the backticks that a line begins with (after blanks), when there are at least three.
std::size_t fence_length(std::string_view line) {
  const std::size_t begin = line.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return 0;
  const std::size_t end = std::min(line.find_first_not_of('`', begin), line.size());
  return end - begin >= 3 ? end - begin : 0;
}

bool closes(std::string_view line, std::size_t opening) {
  return fence_length(line) >= opening && line.find_last_not_of(" \t\r`") == std::string_view::npos;
}

}  // namespace

bool is_tool_name(std::string_view name) {
  constexpr std::size_t kMax = 64;
  return !name.empty() && name.size() <= kMax && std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
           c == '.';
  });
}

std::optional<std::string> last_code_block(std::string_view text) {
  std::optional<std::string_view> last;
  std::size_t opening = 0;  // length of the open fence; 0: none
  std::size_t begin = 0;    // begin of the block inside the open fence
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = text.substr(at, end - at);
    if (opening == 0) {
      opening = fence_length(line);
      begin = std::min(end + 1, text.size());
    } else if (closes(line, opening)) {
      last = text.substr(begin, at - begin);
      opening = 0;
    }
    at = end + 1;
  }
  if (opening != 0 && begin < text.size()) last = text.substr(begin);
  if (!last) return std::nullopt;
  if (last->ends_with('\n')) last->remove_suffix(1);
  return std::string(*last);
}

ToolRegistry ToolRegistry::with_builtins() {
  ToolRegistry registry;
  registry.add(make_python_tool());
  return registry;
}

void ToolRegistry::add(std::shared_ptr<const Tool> tool) {
  std::string name = tool->name();
  const auto [at, added] = tools_.try_emplace(std::move(name), std::move(tool));
  if (!added) throw std::invalid_argument("tool '" + at->first + "' is registered already");
}

const Tool* ToolRegistry::find(const std::string& name) const {
  const auto at = tools_.find(name);
  return at == tools_.end() ? nullptr : at->second.get();
}

std::vector<std::string> ToolRegistry::names() const {
  std::vector<std::string> names;
  for (const auto& [name, tool] : tools_) names.push_back(name);
  return names;
}

namespace {

std::string key_of(const CallSyntax& syntax) {
  const ValueNotation& arguments = syntax.arguments;
  std::string key = fmt::format("{} {} {}", syntax.several, syntax.object, static_cast<int>(arguments.form));
  for (const std::string* piece :
       {&syntax.first, &syntax.open, &syntax.named, &syntax.close, &syntax.between, &syntax.last, &syntax.name_key,
        &syntax.arguments_key, &syntax.id_key, &arguments.key_open, &arguments.key_close, &arguments.value_close,
        &arguments.quote, &syntax.text_open})
    key += fmt::format(" {}:{}", piece->size(), *piece);
  return key;
}

}  // namespace

CallableTools::CallableTools(std::vector<CallableTool> tools, CallLimits limits, std::shared_ptr<const Grammar> answer,
                             std::vector<ServerTools> servers)
    : tools_(std::move(tools)), limits_(limits), answer_(std::move(answer)), servers_(std::move(servers)) {
  for (const CallableTool& tool : tools_) schemas_.push_back(tool.schema);
}

std::shared_ptr<const CallableTools> CallableTools::with(std::vector<CallableTool> more) const {
  more.insert(more.begin(), tools_.begin(), tools_.end());
  return std::make_shared<const CallableTools>(std::move(more), limits_, answer_);
}

const CallableTool* CallableTools::find(const std::string& name) const {
  const auto found =
      std::find_if(tools_.begin(), tools_.end(), [&](const CallableTool& tool) { return tool.schema.name == name; });
  return found == tools_.end() ? nullptr : &*found;
}

std::shared_ptr<const Grammar> CallableTools::grammar(const ToolFormat& format, int calls_left, bool first) const {
  const bool calls = calls_left > 0 && limits_.choice != ToolChoice::none;
  if (!limits_.enforce) return calls ? nullptr : answer_;
  const CallSyntax& syntax = format.syntax;
  if (answer_ != nullptr && !syntax.text_open.empty()) return nullptr;  // it would need the header; it is checked
  const bool needed = first && limits_.choice == ToolChoice::required;
  const std::string key = fmt::format("{} {} {}", calls ? calls_left : 0, needed, key_of(syntax));
  const std::lock_guard lock(mutex_);
  std::shared_ptr<const Grammar>& grammar = grammars_[key];
  if (grammar != nullptr) return grammar;
  if (!calls) return grammar = answer_ ? answer_ : text_grammar(syntax, schemas_);
  const auto chosen = std::find_if(schemas_.begin(), schemas_.end(),
                                   [&](const ToolSchema& one) { return needed && one.name == limits_.tool; });
  if (needed && !limits_.tool.empty() && chosen == schemas_.end())
    throw ConstraintError(fmt::format("tool_choice: there is no tool '{}'", limits_.tool));
  const std::span<const ToolSchema> tools = chosen == schemas_.end() ? std::span(schemas_) : std::span(&*chosen, 1);
  CallRules rules{calls_left, needed || answer_ != nullptr, limits_.text, answer_ == nullptr};
  if (answer_ && rules.text == TextBefore::allowed) rules.text = TextBefore::forbidden;
  grammar = call_grammar(syntax, tools, rules);
  if (answer_ && !needed) grammar = std::make_shared<const Grammar>(*answer_, *grammar);
  return grammar;
}

std::string shown_result(const std::string& text, std::size_t max_bytes) {
  std::string shown = utf8::repaired(text);
  for (char& c : shown) {
    const bool control = (static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t') || c == 0x7F;
    if (control) c = ' ';
  }
  if (shown.size() <= max_bytes) return shown;
  std::size_t first = max_bytes / 2, last = shown.size() - max_bytes / 2;
  while (first > 0 && utf8::continues(shown[first])) --first;
  while (last < shown.size() && utf8::continues(shown[last])) ++last;
  return fmt::format("{}\n[... {} bytes left out ...]\n{}", shown.substr(0, first), last - first, shown.substr(last));
}

}  // namespace baton
