// SPDX-License-Identifier: Apache-2.0
#include "sdk/cli/measure/dataset.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <sstream>

#include "sdk/cli/console/exit_code.h"
#include "sdk/cli/console/options.h"

namespace baton::cli {
namespace {

std::string as_text(const nlohmann::json& value) { return value.is_string() ? value.get<std::string>() : value.dump(); }

/// What is wrong with the line, or empty.
std::string parse(const std::string& line, Question& question) {
  const auto json = nlohmann::json::parse(line, nullptr, false);
  if (json.is_discarded()) return "not JSON";
  if (!json.is_object()) return "expected an object";
  const auto scalar = [&](const char* key) {
    return json.contains(key) && (json[key].is_string() || json[key].is_number() || json[key].is_boolean());
  };
  if (!scalar("id")) return "expected \"id\", a text";
  if (!json.contains("inputs") || !json["inputs"].is_object()) return "expected \"inputs\", an object";
  if (!scalar("answer")) return "expected \"answer\", a text";
  question.id = as_text(json["id"]);
  question.answer = as_text(json["answer"]);
  for (const auto& [name, value] : json["inputs"].items()) question.inputs[name] = as_text(value);
  return {};
}

std::string trimmed(const std::string& text) {
  const char* const kAround = " \t\r\n";
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

}  // namespace

std::vector<Question> read_dataset(const std::filesystem::path& file, std::size_t limit) {
  std::istringstream lines(read_file(file));
  std::vector<Question> questions;
  std::set<std::string> ids;
  std::string mistakes;
  std::size_t line_number = 0;
  for (std::string line; std::getline(lines, line) && (limit == 0 || questions.size() < limit);) {
    ++line_number;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    Question question;
    std::string mistake = parse(line, question);
    if (mistake.empty() && !ids.insert(question.id).second) mistake = fmt::format("duplicate id '{}'", question.id);
    if (!mistake.empty())
      mistakes += fmt::format("{}{}:{}: {}", mistakes.empty() ? "" : "\n", file.string(), line_number, mistake);
    questions.push_back(std::move(question));
  }
  if (!mistakes.empty()) throw Failure(kInvalidFile, mistakes);
  if (questions.empty()) throw Failure(kInvalidFile, fmt::format("{}: no questions found", file.string()));
  return questions;
}

bool same_answer(const std::string& a, const std::string& b) {
  const std::string left = trimmed(a), right = trimmed(b);
  const auto x = number(left), y = number(right);
  return x && y ? *x == *y : left == right;
}

}  // namespace baton::cli
