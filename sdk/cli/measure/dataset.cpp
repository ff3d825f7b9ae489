// SPDX-License-Identifier: Apache-2.0
#include "sdk/cli/measure/dataset.h"

#include <fmt/format.h>

#include <map>
#include <set>
#include <sstream>

#include "engine/base/json/json_reader.h"
#include "sdk/cli/console/exit_code.h"
#include "sdk/cli/console/options.h"

namespace baton::cli {
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

}  // namespace baton::cli
