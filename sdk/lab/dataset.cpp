// SPDX-License-Identifier: Apache-2.0
#include "sdk/lab/dataset.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <sstream>
#include <string_view>
#include <vector>

#include <baton/tools.h>

#include "engine/base/json/json_reader.h"
#include "sdk/console/options.h"
#include "sdk/console/terminal.h"

namespace baton::inline v1::lab {
using namespace cli;
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; }
char lower(char c) { return static_cast<char>(std::tolower(static_cast<unsigned char>(c))); }

std::string trimmed(const std::string& text) {
  constexpr const char* kAround = " \t\r\n";
  const auto begin = text.find_first_not_of(kAround);
  if (begin == std::string::npos) return {};
  std::string out = text.substr(begin, text.find_last_not_of(kAround) - begin + 1);
  if (out.size() > 1 && out.back() == '.') out.pop_back();
  return out;
}

/// "1,234.50" as a number; empty for anything that is not one.
std::optional<double> number(std::string text) {
  text.erase(std::remove(text.begin(), text.end(), ','), text.end());
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

/// The last number of a text: digits with commas between thousands and a fraction. A minus counts unless it follows a
/// letter, a digit or a closing bracket, where it is a difference or a hyphen.
std::optional<double> last_number(const std::string& text) {
  for (std::size_t end = text.size(); end > 0; --end) {
    if (!is_digit(text[end - 1])) continue;
    std::size_t begin = end;
    const auto in_number = [&](std::size_t at) {
      if (is_digit(text[at])) return true;
      return (text[at] == ',' || text[at] == '.') && at > 0 && is_digit(text[at - 1]);
    };
    while (begin > 0 && in_number(begin - 1)) --begin;
    if (begin > 0 && text[begin - 1] == '.') --begin;  // ".5"
    const bool minus =
        begin > 0 && text[begin - 1] == '-' &&
        (begin == 1 || (!is_letter(text[begin - 2]) && text[begin - 2] != ')' && text[begin - 2] != ']'));
    std::string digits = text.substr(begin, end - begin);
    if (digits.front() == '.') digits = "0" + digits;
    if (const auto value = number(digits)) return minus ? -*value : *value;
    end = begin + 1;
  }
  return std::nullopt;
}

/// The option that a text names: a letter A to J, alone, in brackets or behind "answer is"; of several the last, but
/// one behind "answer" before all others. Empty where there is none.
std::optional<char> letter_chosen_in(const std::string& text) {
  const std::string all = trimmed(text);
  const auto stands_alone = [&](std::size_t at) {
    return (at == 0 || !is_letter(all[at - 1])) && (at + 1 == all.size() || !is_letter(all[at + 1])) &&
           (at == 0 || all[at - 1] != '\'') && (at + 1 == all.size() || all[at + 1] != '\'');
  };
  const auto is_option = [&](std::size_t at) { return all[at] >= 'A' && all[at] <= 'J' && stands_alone(at); };
  if (all.size() == 1 && lower(all[0]) >= 'a' && lower(all[0]) <= 'j')
    return static_cast<char>(std::toupper(static_cast<unsigned char>(all[0])));
  std::string small = all;
  std::transform(small.begin(), small.end(), small.begin(), lower);
  // From each "answer" to the end of its sentence, the last first; behind `searched` no sentence names an option.
  std::size_t searched = all.size();
  for (std::size_t at = small.rfind("answer"); at != std::string::npos;
       at = at == 0 ? std::string::npos : small.rfind("answer", at - 1)) {
    for (std::size_t i = at; i < searched && all[i] != '.' && all[i] != '\n'; ++i) {
      if (is_option(i)) return all[i];
    }
    searched = at;
  }
  for (std::size_t at = all.size(); at-- > 0;) {
    const bool bracketed = at > 0 && at + 1 < all.size() && all[at - 1] == '(' && all[at + 1] == ')';
    const bool ends_line = at + 1 == all.size() || all[at + 1] == '\n';
    if (is_option(at) && (bracketed || ends_line || (all[at] != 'A' && all[at] != 'I'))) return all[at];
  }
  return std::nullopt;
}

/// Words in small letters, without punctuation and articles, as SQuAD's evaluation makes them.
std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> words(1);
  for (const char c : text) {
    if (static_cast<unsigned char>(c) < 128 && std::ispunct(static_cast<unsigned char>(c)) != 0) continue;
    if (std::isspace(static_cast<unsigned char>(c)) == 0)
      words.back() += lower(c);
    else if (!words.back().empty())
      words.emplace_back();
  }
  std::erase_if(words,
                [](const std::string& word) { return word.empty() || word == "a" || word == "an" || word == "the"; });
  return words;
}

double f1(const std::string& answer, const std::string& expected) {
  const std::vector<std::string> found = words_of(answer), wanted = words_of(expected);
  const auto is_verdict = [](const std::vector<std::string>& words) {
    return words.size() == 1 && (words[0] == "yes" || words[0] == "no" || words[0] == "noanswer");
  };
  if (is_verdict(found) || is_verdict(wanted) || found.empty() || wanted.empty()) return found == wanted ? 1.0 : 0.0;
  std::map<std::string, int> left;
  for (const std::string& word : wanted) ++left[word];
  double common = 0;
  for (const std::string& word : found) {
    if (const auto at = left.find(word); at != left.end() && at->second-- > 0) ++common;
  }
  return 2.0 * common / static_cast<double>(found.size() + wanted.size());
}

/// Runs the last code block of the answer (without a block: all of it) between setup and tests. The tests have run to
/// their end where a word that the code cannot know is printed last.
bool passes(const AnswerCheck& check, const std::string& answer) {
  std::random_device random;
  const std::string word = fmt::format("passed-{:08x}{:08x}", random(), random());
  ToolCall call;
  call.text = answer.find("```") == std::string::npos ? "```python\n" + answer + "\n```" : answer;
  if (!check.setup.empty()) call.options["before"] = check.setup;
  call.options["after"] = check.tests + "\nprint('\\n" + word + "')";
  const ToolResult result = Tools().call("python", call);
  return result.ok && result.text.ends_with(word);
}

}  // namespace

void require_python() {
  ToolCall call;
  call.text = "```python\nprint(6 * 7)\n```";
  const ToolResult result = Tools().call("python", call);
  if (!result.ok || result.text != "42")
    throw Failure(kResources, fmt::format("check python: code cannot be run here: {}", result.text));
}

bool same_answer(const std::string& a, const std::string& b) {
  const std::string left = trimmed(a), right = trimmed(b);
  const auto x = number(left), y = number(right);
  return x && y ? *x == *y : left == right;
}

double score_of(const AnswerCheck& check, const std::string& answer, const std::string& expected) {
  switch (check.kind) {
    case AnswerCheck::Kind::text:
      return same_answer(answer, expected) ? 1.0 : 0.0;
    case AnswerCheck::Kind::number:
      return last_number(answer) == number(trimmed(expected)) ? 1.0 : 0.0;
    case AnswerCheck::Kind::choice:
      return letter_chosen_in(answer) == letter_chosen_in(expected) ? 1.0 : 0.0;
    case AnswerCheck::Kind::f1:
      return f1(answer, expected);
    case AnswerCheck::Kind::python:
      return passes(check, answer) ? 1.0 : 0.0;
  }
  return 0.0;
}

std::string problem_of(const AnswerCheck& check, const std::string& expected) {
  if (check.kind == AnswerCheck::Kind::number && !number(trimmed(expected)))
    return fmt::format("check number: expected a number as \"answer\", found '{}'", expected);
  if (check.kind == AnswerCheck::Kind::choice && (trimmed(expected).size() != 1 || !letter_chosen_in(expected)))
    return fmt::format("check choice: expected a letter from A to J as \"answer\", found '{}'", expected);
  if (check.kind == AnswerCheck::Kind::f1 && words_of(expected).empty())
    return fmt::format("check f1: expected at least one word as \"answer\", found '{}'", expected);
  return {};
}

namespace {

constexpr std::size_t kMaxMistakes = 100;  // as many as of a workflow file (Diagnostics)

std::string as_text(const nlohmann::json& value) { return value.is_string() ? value.get<std::string>() : value.dump(); }

/// What is wrong with `check`, or empty.
std::string parse_check(const nlohmann::json& json, AnswerCheck& check) {
  using Kind = AnswerCheck::Kind;
  const std::string expected =
      "expected \"check\" to be \"text\", \"number\", \"choice\", \"f1\" or {\"python\": tests, \"setup\": code}";
  if (json.is_string()) {
    const std::map<std::string, Kind> kinds = {
        {"text", Kind::text}, {"number", Kind::number}, {"choice", Kind::choice}, {"f1", Kind::f1}};
    const auto found = kinds.find(json.get<std::string>());
    if (found == kinds.end()) return fmt::format("{}, found '{}'", expected, json.get<std::string>());
    check.kind = found->second;
    return {};
  }
  if (!json.is_object()) return expected;
  for (const auto& [key, value] : json.items()) {
    if (key != "python" && key != "setup") return fmt::format("{}, found the key '{}'", expected, key);
    if (!value.is_string()) return fmt::format("check: expected \"{}\" to be code, a text", key);
  }
  if (!json.contains("python")) return expected;
  check.kind = Kind::python;
  check.tests = json["python"].get<std::string>();
  check.setup = json.value("setup", "");
  if (check.tests.find_first_not_of(" \t\r\n") == std::string::npos) return "check python: expected tests, found none";
  return {};
}

/// What is wrong with the line, or empty.
std::string parse(const std::string& line, Question& question) {
  JsonDocument document;
  try {
    document = read_json(line);
  } catch (const JsonError& error) {
    return error.what();
  }
  const nlohmann::json& json = *document;
  if (!json.is_object()) return "expected an object";
  const auto scalar = [&](const char* key) {
    return json.contains(key) && (json[key].is_string() || json[key].is_number() || json[key].is_boolean());
  };
  if (!scalar("id")) return "expected \"id\", a text";
  if (!json.contains("inputs") || !json["inputs"].is_object()) return "expected \"inputs\", an object";
  if (json.contains("check")) {
    if (std::string mistake = parse_check(json["check"], question.check); !mistake.empty()) return mistake;
  }
  const bool needs_answer = question.check.kind != AnswerCheck::Kind::python || json.contains("answer");
  if (needs_answer && !scalar("answer")) return "expected \"answer\", a text";
  question.id = as_text(json["id"]);
  if (needs_answer) question.answer = as_text(json["answer"]);
  if (std::string mistake = problem_of(question.check, question.answer); !mistake.empty()) return mistake;
  for (const auto& [name, value] : json["inputs"].items()) question.inputs[name] = as_text(value);
  return {};
}

}  // namespace

std::vector<Question> read_dataset(const std::filesystem::path& file, std::size_t limit) {
  std::istringstream lines(read_file(file));
  std::vector<Question> questions;
  std::set<std::string> ids;
  std::string mistakes;
  std::size_t mistake_count = 0, line_number = 0;
  for (std::string line; std::getline(lines, line) && (limit == 0 || questions.size() < limit);) {
    ++line_number;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    Question question;
    std::string mistake = parse(line, question);
    if (mistake.empty() && !ids.insert(question.id).second) mistake = fmt::format("duplicate id '{}'", question.id);
    if (!mistake.empty()) {
      mistakes += fmt::format("{}{}:{}: {}", mistakes.empty() ? "" : "\n", file.string(), line_number, mistake);
      if (++mistake_count == kMaxMistakes) {
        mistakes += fmt::format("\nonly the first {} errors are shown", kMaxMistakes);
        break;
      }
    }
    questions.push_back(std::move(question));
  }
  if (!mistakes.empty()) throw Failure(kInvalidFile, mistakes);
  if (questions.empty()) throw Failure(kInvalidFile, fmt::format("{}: no questions found", file.string()));
  return questions;
}

}  // namespace baton::inline v1::lab
