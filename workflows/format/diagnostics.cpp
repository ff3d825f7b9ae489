// SPDX-License-Identifier: Apache-2.0
#include "workflows/format/diagnostics.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <system_error>
#include <tuple>
#include <vector>

#include "engine/base/utf8.h"

namespace baton {
namespace {

constexpr std::size_t kMaxErrors = 100;
constexpr std::size_t kMaxLineCharacters = 160;  // characters of source shown around a caret

auto place(const Diagnostic& d) { return std::tie(d.file, d.line, d.column, d.code, d.message); }

/// Control characters (a terminal would obey them) become '?'.
std::string printable(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if ((static_cast<unsigned char>(c) < 0x20 && c != '\t') || c == 0x7f) c = '?';
  }
  return out;
}

std::string line_of(std::string_view text, int line) {
  std::size_t begin = 0;
  for (int i = 1; i < line; ++i) {
    begin = text.find('\n', begin);
    if (begin == std::string_view::npos) return {};
    ++begin;
  }
  std::string_view found = text.substr(begin, text.find('\n', begin) - begin);
  if (!found.empty() && found.back() == '\r') found.remove_suffix(1);
  return std::string(found);
}

/// Characters of valid UTF-8, one element each.
std::vector<std::string> characters(std::string_view text) {
  std::vector<std::string> out;
  for (const char c : text) {
    if (!utf8::continues(c) || out.empty()) out.emplace_back();
    out.back() += c;
  }
  return out;
}

/// The source line with its number, and the caret under the marked text.
std::string excerpt(const Diagnostic& d) {
  const std::vector<std::string> line = characters(printable(d.source_line));
  const std::size_t column = static_cast<std::size_t>(std::max(1, d.column)) - 1;
  std::size_t begin = 0, end = line.size();
  if (line.size() > kMaxLineCharacters) {
    begin = std::min(column > kMaxLineCharacters / 2 ? column - kMaxLineCharacters / 2 : 0,
                     line.size() - kMaxLineCharacters);
    end = begin + kMaxLineCharacters;
  }
  std::string shown, under;
  for (std::size_t i = begin; i < end; ++i) {
    shown += line[i];
    if (i < column) under += line[i] == "\t" ? "\t" : " ";
  }
  const std::size_t room = column < end ? end - column : 1;
  const std::size_t carets = std::clamp<std::size_t>(static_cast<std::size_t>(std::max(1, d.length)), 1, room);
  under += std::string(carets, '^');
  if (!d.hint.empty()) under += " " + printable(d.hint);
  return fmt::format("{:5} | {}\n      | {}\n", d.line, shown, under);
}

}  // namespace

bool Diagnostics::full() const { return items_.size() == kMaxErrors; }

std::string Diagnostics::suggestion(const std::string& word, const std::vector<std::string>& candidates) const {
  const std::string near = full() ? "" : closest(word, candidates);
  return near.empty() ? "" : fmt::format("did you mean '{}'?", near);
}

void Diagnostics::error(SourceLocation where, std::string code, std::string message, std::string hint) {
  if (full()) return;
  Diagnostic added{std::move(where.file), where.line,         where.column,    where.length,
                   std::move(code),       std::move(message), std::move(hint), {}};
  const auto at = std::upper_bound(items_.begin(), items_.end(), added,
                                   [](const Diagnostic& a, const Diagnostic& b) { return place(a) < place(b); });
  if (at != items_.begin() && place(*std::prev(at)) == place(added)) return;  // one text reached by two aliases
  for (const auto& [file, text] : sources_) {
    if (file == added.file && added.line > 0) added.source_line = line_of(text, added.line);
  }
  items_.insert(at, std::move(added));
}

void Diagnostics::add_hint(std::string hint) {
  if (!items_.empty() && items_.back().hint.empty()) items_.back().hint = std::move(hint);
}

void Diagnostics::add_sources(const std::vector<std::pair<std::string, std::string>>& sources) {
  for (const auto& [file, text] : sources) add_source(file, text);
}

void Diagnostics::add_source(const std::string& file, std::string text) {
  for (Diagnostic& item : items_) {
    if (item.file == file && item.line > 0) item.source_line = line_of(text, item.line);
  }
  sources_.emplace_back(file, std::move(text));
}

std::string Diagnostics::format() const {
  std::string out;
  for (const Diagnostic& item : items_) {
    out +=
        item.line > 0 ? fmt::format("{}:{}:{}: ", item.file, item.line, item.column) : fmt::format("{}: ", item.file);
    out += fmt::format("error[{}]: {}\n", item.code, printable(item.message));
    if (!item.source_line.empty()) {
      out += excerpt(item);
    } else if (!item.hint.empty()) {
      out += fmt::format("      {}\n", printable(item.hint));
    }
  }
  if (full()) out += fmt::format("only the first {} errors are shown\n", kMaxErrors);
  return out;
}

void Diagnostics::fail() const {
  std::string text = format();
  if (text.ends_with('\n')) text.pop_back();
  throw WorkflowError(text, items_);
}

std::string closest(const std::string& word, const std::vector<std::string>& candidates) {
  constexpr std::size_t kMaxWordBytes = 200;
  if (word.size() > kMaxWordBytes) return {};
  std::string best;
  std::size_t best_distance = word.size() < 2 ? 1 : std::max<std::size_t>(1, word.size() / 3) + 1;
  for (const std::string& candidate : candidates) {
    if (candidate.size() > kMaxWordBytes) continue;
    const std::size_t distance = edit_distance(word, candidate);
    if (distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

namespace {

constexpr std::size_t kMaxFileBytes = 1u << 20;
constexpr std::size_t kMaxNamedBytes = 64u << 20;  // texts of prompts are copied
constexpr std::size_t kBlockBytes = 256;           // whose characters are counted together
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

bool is_control(char c) {
  return (static_cast<unsigned char>(c) < 0x20 && c != '\t' && c != '\n' && c != '\r') || c == 0x7f;
}

/// The file has not been read before.
SourcePtr read_new_source(const std::filesystem::path& file, const SourceLocation& where, Diagnostics& diagnostics) {
  std::error_code code;
  const auto status = std::filesystem::status(file, code);
  if (!std::filesystem::exists(status)) {
    diagnostics.error(where, "E0501", fmt::format("file '{}' not found", file.string()));
    return nullptr;
  }
  if (!std::filesystem::is_regular_file(status)) {
    const bool folder = std::filesystem::is_directory(status);
    diagnostics.error(where, "E0502",
                      fmt::format("'{}' is {}", file.string(), folder ? "a folder; expected a file" : "not a file"));
    return nullptr;
  }
  std::ifstream in(file, std::ios::binary);
  std::string bytes(kMaxFileBytes + 1, '\0');
  in.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  if (!in.is_open() || in.bad()) {
    diagnostics.error(where, "E0502", fmt::format("file '{}' cannot be read", file.string()));
    return nullptr;
  }
  bytes.resize(static_cast<std::size_t>(in.gcount()));
  return make_source(file.string(), file.parent_path(), std::move(bytes), diagnostics);
}

}  // namespace

SourceText::SourceText(std::string name, std::filesystem::path folder, std::string text)
    : name_(std::move(name)), folder_(std::move(folder)), text_(std::move(text)) {
  line_starts_.push_back(0);
  for (std::size_t i = 0; i < text_.size(); ++i) {
    if (text_[i] == '\n') line_starts_.push_back(i + 1);
  }
  characters_.push_back(0);
  for (std::size_t end = kBlockBytes; end <= text_.size(); end += kBlockBytes)
    characters_.push_back(characters_.back() +
                          utf8::count(std::string_view(text_).substr(end - kBlockBytes, kBlockBytes)));
}

/// Characters that begin before `offset`.
std::size_t SourceText::characters_before(std::size_t offset) const {
  const std::size_t block = offset / kBlockBytes, begin = block * kBlockBytes;
  return characters_[block] + utf8::count(std::string_view(text_).substr(begin, offset - begin));
}

SourceLocation SourceText::at(std::size_t offset, std::size_t length_bytes) const {
  offset = std::min(offset, text_.size());
  const auto line = std::upper_bound(line_starts_.begin(), line_starts_.end(), offset) - 1;
  const std::size_t end_of_line = line + 1 == line_starts_.end() ? text_.size() : *(line + 1) - 1;
  const std::size_t end = std::min(offset + length_bytes, end_of_line);
  const std::size_t before = characters_before(offset);
  SourceLocation found;
  found.file = name_;
  found.line = static_cast<int>(line - line_starts_.begin()) + 1;
  found.column = static_cast<int>(before - characters_before(*line)) + 1;
  found.length = std::max(1, static_cast<int>(characters_before(end) - before));
  return found;
}

SourcePtr make_source(std::string name, std::filesystem::path folder, std::string bytes, Diagnostics& diagnostics) {
  if (bytes.size() > kMaxFileBytes) {
    diagnostics.error({name, 0, 0, 1}, "E0502",
                      fmt::format("the file has {} bytes; expected at most {}", bytes.size(), kMaxFileBytes));
    return nullptr;
  }
  if (bytes.starts_with("\xFF\xFE") || bytes.starts_with("\xFE\xFF")) {
    diagnostics.error({name, 0, 0, 1}, "E0102", "the file is UTF-16; expected UTF-8");
    return nullptr;
  }
  if (bytes.starts_with(kByteOrderMark)) bytes.erase(0, kByteOrderMark.size());

  const bool valid = utf8::is_valid(bytes);
  auto source = std::make_shared<const SourceText>(std::move(name), std::move(folder), std::move(bytes));
  const std::string& text = source->text();
  if (!valid) {
    std::size_t at = 0;
    for (utf8::CharacterStep step = utf8::scan(text, at); step.kind == utf8::Scan::valid; step = utf8::scan(text, at))
      at += step.bytes;
    diagnostics.error(source->at(at, 1), "E0102",
                      fmt::format("byte 0x{:02x} is not valid UTF-8", static_cast<unsigned char>(text[at])));
    return nullptr;
  }
  diagnostics.add_source(source->name(), text);
  const auto control = std::find_if(text.begin(), text.end(), is_control);
  if (control != text.end()) {
    const auto at = static_cast<std::size_t>(control - text.begin());
    diagnostics.error(source->at(at, 1), "E0102",
                      fmt::format("control character 0x{:02x}", static_cast<unsigned char>(*control)));
    return nullptr;
  }
  return source;
}

SourcePtr read_source(const std::filesystem::path& file, const SourceLocation& where, Diagnostics& diagnostics) {
  Diagnostics::Files& files = diagnostics.files();
  const auto [found, added] = files.read.try_emplace(file.string());
  if (added) found->second = read_new_source(file, where, diagnostics);
  if (found->second != nullptr) files.bytes += found->second->text().size();
  if (files.bytes <= kMaxNamedBytes) return found->second;
  diagnostics.error(
      where, "E0502",
      fmt::format("the files that are named, each time that one is, have more than {} MiB", kMaxNamedBytes >> 20));
  return nullptr;
}

// The table of error codes: texts, names and graphs first, then values and files.

namespace {

constexpr ErrorCode kCodes[] = {
    {"E0101", "The text is not valid YAML.",
     "A quote or a bracket is not closed, a tab indents a line, or a text that means something in YAML (with a ': ' or "
     "a ' #' in it, or with @, `, %, &, * or { at its front) stands without quotes.",
     "Put the text into double quotes, or behind '|' on lines of its own; indent with spaces.",
     "agents:\n  solver: {role: Judge: strict, prompt: \"{{ user_question }}\"}",
     "agents:\n  solver: {role: \"Judge: strict\", prompt: \"{{ user_question }}\"}"},
    {"E0102", "The file is not UTF-8, or holds control characters.",
     "The file was saved in another encoding, or text of a terminal was pasted with its escape sequences.",
     "Save the file as UTF-8; write a control character as an escape in double quotes.", "name: te\x07m", "name: team"},
    {"E0103", "A key occurs twice in one map.", "A section was copied, and its old place was left.",
     "Keep one of the two, or merge them.", "name: one\nname: two", "name: two"},
    {"E0104", "The file holds more than one document.", "A line '---' stands between two workflows, or before the end.",
     "Keep one workflow a file, and remove the line.", "name: one\n---\nname: two", "name: one"},
    {"E0105", "An alias occurs inside the node that it refers to.",
     "'*name' stands in the map or list that '&name' marks, so that it would hold itself.",
     "Mark a smaller part with '&', and refer to that.",
     "agents: &all\n  solver: {prompt: \"{{ user_question }}\", x-all: *all}",
     "agents:\n  solver: {prompt: &text \"{{ user_question }}\", x-copy: *text}"},
    {"E0106", "The file is nested too deeply or has too many nodes or too much text, with its aliases resolved.",
     "Aliases refer to aliases, so that a short file stands for a huge one.",
     "Write out what is needed; a file may have 64 levels and 50,000 nodes.",
     "x-a: &a [1, 2, 3, 4, 5, 6, 7, 8, 9, 0]\nx-b: &b [*a, *a, *a, *a, *a, *a, *a, *a, *a, *a]\n"
     "x-c: &c [*b, *b, *b, *b, *b, *b, *b, *b, *b, *b]\nx-d: &d [*c, *c, *c, *c, *c, *c, *c, *c, *c, *c]\n"
     "x-e: [*d, *d, *d, *d, *d, *d, *d, *d, *d, *d]",
     "x-a: &a [1, 2, 3, 4, 5, 6, 7, 8, 9, 0]\nx-b: [*a, *a]"},
    {"E0107", "A tag (`!name`), which is not supported.",
     "A value begins with '!', which YAML reads as the name of a type.", "Put the text into double quotes.",
     "agents:\n  solver: {role: !strict, prompt: \"{{ user_question }}\"}",
     "agents:\n  solver: {role: \"!strict\", prompt: \"{{ user_question }}\"}"},
    {"E0108", "A list or map is used as a key.",
     "A text that begins with a placeholder stands without quotes: YAML reads '{{ name }}' as maps.",
     "Put the text into double quotes.", "agents:\n  solver: {prompt: {user: {{ user_question }}}}",
     "agents:\n  solver: {prompt: {user: \"{{ user_question }}\"}}"},
    {"E0109", "`<<` merges something other than maps.", "The value of '<<' is a text or a list of texts.",
     "Let '<<' name a map that '&' marks, or a list of such.",
     "agents:\n  solver: {<<: solver, prompt: \"{{ user_question }}\"}",
     "x-common: &common {max_tokens: 64}\nagents:\n  solver: {<<: *common, prompt: \"{{ user_question }}\"}"},

    {"E0201", "No agent has this id.",
     "The id is misspelt, or the agent was renamed under 'agents' and not where it is named.",
     "Name an agent of the section 'agents', or add it there.", "workflow: {topology: chain, agents: [slover]}",
     "workflow: {topology: chain, agents: [solver]}"},
    {"E0202", "No model has this name, or an agent does not say which of several models it uses.",
     "'models' has several entries, and neither the agent nor 'defaults' has a 'model'; or a name is misspelt.",
     "Give the agent, or 'defaults', a 'model' that 'models' has.", "models: {small: nano, large: nano}",
     "models: {small: nano, large: nano}\ndefaults: {model: small}"},
    {"E0203", "A placeholder names neither an input nor an agent's output.",
     "The name is misspelt, or the input is missing under 'inputs'. Outputs of agents are named agent_ID_current.",
     "Use a name that the message suggests, or declare the input. '{{{{' stands for a literal '{{'.",
     "agents:\n  solver: {prompt: \"{{ user_qestion }}\"}", "agents:\n  solver: {prompt: \"{{ user_question }}\"}"},
    {"E0204", "No tool, or no server of `mcp`, has this name.",
     "The name is misspelt; the file declares no such tool under 'tools'; or it is a tool that a program adds, which "
     "the runner does not know.",
     "Use one of the tools that the message lists, declare the tool or the server, or load the file in the program "
     "that adds the tool. 'baton check' knows a tool of a program when the file gives "
     "its description or parameters under 'tools'; it runs only there.",
     "agents:\n  solver: {prompt: \"{{ user_question }}\", tools: [pyhton]}",
     "agents:\n  solver: {prompt: \"{{ user_question }}\", tools: [python]}"},
    {"E0205", "A placeholder is not closed or its name is malformed.",
     "A '}' is missing, or there is a blank or an expression in the placeholder.",
     "Write {{ name }} with one name; '{{{{' stands for a literal '{{'.",
     "agents:\n  solver: {prompt: \"{{ user question }}\"}", "agents:\n  solver: {prompt: \"{{ user_question }}\"}"},
    {"E0206", "`it` is used outside a loop.", "'{{ it.output }}' stands in a text that no 'for' repeats.",
     "Write the text as a loop over agents.", "agents:\n  solver: {prompt: \"{{ user_question }} {{ it.output }}\"}",
     "agents:\n  solver:\n    prompt:\n      user:\n        - \"{{ user_question }}\"\n"
     "        - {for: peers, text: \"{{ it.output }}\"}"},
    {"E0207", "The name of an input is reserved for outputs of agents.",
     "An input is called 'it', or begins with 'agent_' or 'condition_'.", "Give the input another name.",
     "inputs: {user_question: string, agent_name: string}", "inputs: {user_question: string, name: string}"},
    {"E0208", "A placeholder names the tool result of an agent that has no tools.",
     "'condition_ID_current' is what the tools of agent ID returned.",
     "Give the agent a tool, or read its output: 'agent_ID_current'.",
     "agents:\n  solver: {prompt: \"{{ user_question }}\"}\n  judge: {prompt: \"{{ condition_solver_current }}\"}\n"
     "workflow: {topology: chain}",
     "agents:\n  solver: {prompt: \"{{ user_question }}\"}\n  judge: {prompt: \"{{ agent_solver_current }}\"}\n"
     "workflow: {topology: chain}"},
    {"E0209", "A placeholder names the answer of an agent that has none, or a member that it does not have.",
     "'agent_ID_answer' needs an 'output' of agent ID that says what its answer is; '.NAME' needs it in the schema.",
     "Add 'output' to the agent, correct the member, or read the whole output: 'agent_ID_current'.",
     "agents:\n  solver: {prompt: \"{{ user_question }}\"}\n  judge: {prompt: \"{{ agent_solver_answer }}\"}\n"
     "workflow: {topology: chain}",
     "agents:\n  solver: {prompt: \"{{ user_question }}\", output: {pattern: \"[0-9]+\"}}\n"
     "  judge: {prompt: \"{{ agent_solver_answer }}\"}\n"
     "workflow: {topology: chain}"},
    {"E0210", "A placeholder would name the output of one agent and the thinking of another.",
     "An agent's id is that of another one with '_thinking' behind it.", "Rename one of the agents.",
     "agents:\n  judge: {prompt: \"{{ user_question }}\"}\n  judge_thinking: {prompt: \"{{ user_question }}\"}\n"
     "workflow: {topology: chain}",
     "agents:\n  judge: {prompt: \"{{ user_question }}\"}\n  thinker: {prompt: \"{{ user_question }}\"}\n"
     "workflow: {topology: chain}"},

    {"E0301", "The agents do not fit the topology, or a key that it needs is missing.",
     "A star has no 'center', layers are missing, 'single' has two agents, or there are no agents at all.",
     "Add the key that the message names, or choose another topology.",
     "agents:\n  a: {prompt: \"{{ user_question }}\"}\n  b: {prompt: \"{{ user_question }}\"}\n"
     "workflow: {topology: star}",
     "agents:\n  a: {prompt: \"{{ user_question }}\"}\n  b: {prompt: \"{{ user_question }}\"}\n"
     "workflow: {topology: star, center: a}"},
    {"E0302", "A key belongs to another topology.", "The topology was changed, and a key of the former one stayed.",
     "Remove the key, or set the topology that it belongs to.",
     "workflow: {topology: chain, agents: [solver], center: solver}", "workflow: {topology: chain, agents: [solver]}"},
    {"E0303", "An agent or step is listed twice.",
     "An agent should run twice, or a list was edited and its old entry stayed.",
     "For several rounds use 'rounds'; in a graph give each step of the agent its own 'id'.",
     "workflow: {topology: graph, steps: [{agent: solver}, {agent: solver}]}",
     "workflow: {topology: graph, steps: [{agent: solver}, {id: again, agent: solver}]}"},
    {"E0304", "A prompt names an output that cannot exist when the agent starts.",
     "The other agent runs later, or at the same time. In a chain the order of 'agents' decides, in a debate all of a "
     "round run concurrently, in a star only the center sees the others, in a graph 'needs' decides.",
     "Change the order, add the dependency, or read the last round's output: 'agent_ID_history_1'.",
     "agents:\n  judge: {prompt: \"{{ agent_solver_current }}\"}\n  solver: {prompt: \"{{ user_question }}\"}\n"
     "workflow: {topology: chain, agents: [judge, solver]}",
     "agents:\n  judge: {prompt: \"{{ agent_solver_current }}\"}\n  solver: {prompt: \"{{ user_question }}\"}\n"
     "workflow: {topology: chain, agents: [solver, judge]}"},
    {"E0305", "A history placeholder reaches back further than there are rounds.",
     "'agent_ID_history_N' needs N rounds before the last one; an output of the workflow sees the last round alone.",
     "Raise 'rounds', or lower N.",
     "agents:\n  solver: {prompt: \"{{ user_question }} {{ agent_solver_history_2 }}\"}\nworkflow: {rounds: 2}",
     "agents:\n  solver: {prompt: \"{{ user_question }} {{ agent_solver_history_2 }}\"}\nworkflow: {rounds: 3}"},
    {"E0306", "Steps depend on each other in a cycle.",
     "Two steps of a graph read each other's outputs, or 'needs' closes a circle.",
     "Let one of them read the last round: 'agent_ID_history_1', with 'rounds'.",
     "agents:\n  a: {prompt: \"{{ user_question }} {{ agent_b_current }}\"}\n  b: {prompt: \"{{ agent_a_current }}\"}\n"
     "workflow: {topology: graph, steps: [{agent: a}, {agent: b}]}",
     "agents:\n  a: {prompt: \"{{ user_question }} {{ agent_b_history_1 }}\"}\n"
     "  b: {prompt: \"{{ agent_a_current }}\"}\n"
     "workflow: {topology: graph, rounds: 2, steps: [{agent: a}, {agent: b}]}"},
    {"E0307", "The decision agent also takes part in the rounds.",
     "'then' names an agent that 'agents' lists: it runs once, after all rounds.",
     "Leave the agent out of 'agents', or leave out 'then'.",
     "agents:\n  a: {prompt: \"{{ user_question }}\"}\n  b: {prompt: \"{{ user_question }}\"}\n"
     "workflow: {topology: chain, agents: [a, b], then: b}",
     "agents:\n  a: {prompt: \"{{ user_question }}\"}\n  b: {prompt: \"{{ user_question }}\"}\n"
     "workflow: {topology: chain, agents: [a], then: b}"},
    {"E0308", "The plan has too many turns or too much text, or the file too many names.",
     "Agents times rounds make more than 4,096 turns, or loops repeat long texts.",
     "Lower 'rounds', or end them with 'until'.",
     "agents:\n  a: {prompt: \"{{ user_question }}\"}\n  b: {prompt: hello}\n  c: {prompt: hello}\n  d: {prompt: "
     "hello}\n"
     "  e: {prompt: hello}\nworkflow: {topology: chain, rounds: 1000}",
     "agents:\n  a: {prompt: \"{{ user_question }}\"}\n  b: {prompt: hello}\n  c: {prompt: hello}\n  d: {prompt: "
     "hello}\n"
     "  e: {prompt: hello}\nworkflow: {topology: chain, rounds: 100}"},
    {"E0309", "No step has this id.", "'needs' names an agent where its step has an 'id' of its own, or is misspelt.",
     "Name the 'id' of a step; a step without one has the name of its agent.",
     "workflow: {topology: graph, steps: [{id: first, agent: solver}, {id: second, agent: solver, needs: [frist]}]}",
     "workflow: {topology: graph, steps: [{id: first, agent: solver}, {id: second, agent: solver, needs: [first]}]}"},
    {"E0310", "A condition tests an agent whose output it cannot see.",
     "'when' reads a step that its own does not wait for, or 'until' one that takes no part in the rounds.",
     "Add the step to 'needs', or test another agent.",
     "agents:\n  a: {prompt: \"{{ user_question }}\"}\n  b: {prompt: \"{{ user_question }}\"}\n"
     "workflow: {topology: graph, steps: [{agent: a}, {agent: b, needs: [], when: {agent: a, matches: \"yes\"}}]}",
     "agents:\n  a: {prompt: \"{{ user_question }}\"}\n  b: {prompt: \"{{ user_question }}\"}\n"
     "workflow: {topology: graph, steps: [{agent: a}, {agent: b, needs: [a], when: {agent: a, matches: \"yes\"}}]}"},
    {"E0311", "A condition is no expression.", "'=' stands for '==', a text has no quotes, or a part is missing.",
     "Compare with ==, !=, <, >, 'in' and 'not in'; write texts in single quotes, join with 'and', 'or' and 'not'.",
     "workflow: {rounds: 3, until: \"agent_solver_current = 'yes'\"}",
     "workflow: {rounds: 3, until: \"agent_solver_current == 'yes'\"}"},
};

}  // namespace

std::span<const ErrorCode> error_codes() {
  static const std::vector<ErrorCode> all = [] {
    std::vector<ErrorCode> codes(std::begin(kCodes), std::end(kCodes));
    const std::span<const ErrorCode> values = error_codes_of_values();
    codes.insert(codes.end(), values.begin(), values.end());
    return codes;
  }();
  return all;
}

std::span<const ErrorCode> error_codes_of_values() {
  static constexpr ErrorCode kCodes[] = {
      {"E0401", "A key is unknown.",
       "The key is misspelt, stands at another level, or belongs to something else. Keys that begin with 'x-' are "
       "free.",
       "Use a key that the message suggests; 'baton check --schema --markdown' lists all of them.",
       "defaults: {max_token: 64}", "defaults: {max_tokens: 64}"},
      {"E0402", "A key is missing.",
       "A section that every workflow has, or a key that another one needs, is not there.",
       "Add the key that the message names.", "agents:\n  solver: {role: Solver}",
       "agents:\n  solver: {role: Solver, prompt: \"{{ user_question }}\"}"},
      {"E0403", "A value has the wrong type.",
       "YAML reads 7, 2.5 and 1e3 as numbers and [a] as a list where a text is expected; or a value is empty.",
       "Put a text that looks like a number into double quotes.", "name: 7", "name: \"7\""},
      {"E0404", "A value is not allowed.",
       "A number is outside its range, a name is none of those allowed, or the version is another.",
       "Use a value that the message lists.", "workflow: {topology: ring}", "workflow: {topology: chain}"},
      {"E0405", "`--set` names a place that does not exist.",
       "The path names an agent, a model or an element of a list that the file does not have.",
       "Write the path as in the file, with dots: agents.ID.max_tokens, workflow.rounds, models.NAME.path.",
       "--set agents.slover.max_tokens=64", "--set agents.solver.max_tokens=64"},
      {"E0406", "A name is not an id: `[a-z][a-z0-9_]*`, at most 64 characters.",
       "The id of an agent, an input or a model has capitals, a '-', a blank, or a digit at its front.",
       "Use small letters, digits and '_'; what people read goes into 'role' or 'description'.",
       "inputs: {user_question: string, Answer-Style: string}",
       "inputs: {user_question: string, answer_style: string}"},
      {"E0407", "A regular expression does not compile.",
       "A bracket or a parenthesis is not closed, or a backslash in double quotes was taken by YAML.",
       "Correct the pattern; in single quotes a backslash stays one.",
       "agents:\n  solver: {prompt: \"{{ user_question }}\", output: {pattern: '([0-9]+'}}",
       "agents:\n  solver: {prompt: \"{{ user_question }}\", output: {pattern: '([0-9]+)'}}"},
      {"E0408", "A JSON Schema is invalid or uses an unsupported keyword.",
       "A type or a keyword is misspelt, a reference leads nowhere or to another document, or the keyword is one that "
       "is "
       "not supported, as 'unevaluatedProperties'.",
       "Correct the places that the message names.",
       "agents:\n  solver:\n    prompt: \"{{ user_question }}\"\n    output: {schema: {properties: {n: {type: int}}}}",
       "agents:\n  solver:\n    prompt: \"{{ user_question }}\"\n    output: {schema: {properties: {n: {type: "
       "integer}}}}"},
      {"E0409", "Keys exclude each other, or have no effect together.",
       "Two keys say the same thing in two ways, or one makes the other pointless.", "Remove one of the two.",
       "inputs: {user_question: {required: true, default: \"6 x 7?\"}}",
       "inputs: {user_question: {default: \"6 x 7?\"}}"},
      {"E0410", "A tool rejects its options.",
       "An option is misspelt, missing, or has a value that the tool does not take.",
       "Use the options that the message lists.",
       "agents:\n  solver: {prompt: \"{{ user_question }}\", tools: [{python: {time: 5s}}]}",
       "agents:\n  solver: {prompt: \"{{ user_question }}\", tools: [{python: {timeout: 5s}}]}"},
      {"E0412", "Settings of `relay` contradict each other, or one leaves another without an effect.",
       "A setting belongs to another method, or two decide the same thing.",
       "Keep the one that is meant; docs/methods.md says which settings each method has.",
       "relay: {method: rectify, tolerance: 0.1}", "relay: {method: auto, tolerance: 0.1}"},
      {"E0413", "A grammar or a list of texts for an output is invalid or too large.",
       "A rule is missing or begins with itself, or the expression is not closed.",
       "Correct the rule that the message names.",
       "agents:\n  solver: {prompt: \"{{ user_question }}\", output: {grammar: 'root ::= verdict'}}",
       "agents:\n  solver: {prompt: \"{{ user_question }}\", output: {grammar: 'root ::= \"yes\" | \"no\"'}}"},
      {"E0414", "A schema for an output or for calls cannot be enforced while it is decoded.",
       "No text fulfils the schema, or it is too large.",
       "Simplify the schema, or write 'enforce: false', which checks the answer when it is complete.",
       "agents:\n  solver:\n    prompt: \"{{ user_question }}\"\n"
       "    output: {schema: {type: integer, minimum: 5, maximum: 4}}",
       "agents:\n  solver:\n    prompt: \"{{ user_question }}\"\n"
       "    output: {schema: {type: integer, minimum: 4, maximum: 5}}"},

      {"E0501", "A file does not exist.", "A path is misspelt, or starts at another folder: paths start at the file.",
       "Correct the path.", "agents:\n  solver: {prompt: {user: {file: prompt/solver.md}}}",
       "agents:\n  solver: {prompt: {user: {file: prompts/solver.md}}}"},
      {"E0502", "A file cannot be read or is larger than 1 MiB, or all that are named have more than 64 MiB.",
       "The path is a folder, or the file may not be read, or it is data and not a prompt.",
       "Name a text file; give long texts as inputs: --input NAME=@FILE.",
       "agents:\n  solver: {prompt: {user: {file: prompts}}}",
       "agents:\n  solver: {prompt: {user: {file: prompts/solver.md}}}"},
      {"E0503", "An environment variable is not set, or `${env:...}` is malformed.",
       "The variable is set in another shell, or its name is misspelt.",
       "Set it (export NAME=VALUE), or give it a default: ${env:NAME:-VALUE}.",
       "models: {main: \"${env:MODEL_OF_THE_TEAM}\"}", "models: {main: \"${env:MODEL_OF_THE_TEAM:-nano}\"}"},
      {"E0504", "A secret is used where it would be printed.",
       "'${secret:NAME}' stands in a prompt, a path or a name, which plans and records show.",
       "Use it in the options of a host's tool, or as the key of a model on a server; elsewhere '${env:NAME}' is "
       "shown.",
       "models: {main: {endpoint: \"${secret:SERVER}\"}}",
       "models: {main: {endpoint: \"http://localhost:8000\", key: \"${secret:KEY}\"}}"},
      {"E0505", "Files extend each other in a cycle, an extended file is not a map, or an agent file uses another.",
       "'extends' names the file itself, or one that extends it again.", "Let both extend a third file.",
       "extends: team.yaml", "extends: base.yaml"},
  };
  return kCodes;
}

}  // namespace baton
