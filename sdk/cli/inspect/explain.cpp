// SPDX-License-Identifier: Apache-2.0
// baton explain: what an error code of workflow files means, what leads to it and what to do.
#include <baton/explanation.h>

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <memory>

#include "sdk/cli/console/exit_code.h"
#include "sdk/cli/console/suggest.h"
#include "sdk/cli/console/terminal.h"
#include "sdk/cli/console/text.h"
#include "sdk/cli/verbs.h"

namespace baton::cli {
namespace {

std::string indented(const std::string& text) {
  std::string out = "    ";
  for (const char c : printable(text, Lines::keep)) {
    out += c;
    if (c == '\n') out += "    ";
  }
  return out + "\n";
}

std::string text_of(const Explanation& one) {
  const int columns = stdout_is_terminal() ? terminal_size().columns - 1 : 100;
  return one.code + ": " + wrapped(one.meaning, columns, 7) + "\n" + wrapped(one.causes, columns) + "\n" +
         wrapped("What to do: " + one.remedy, columns) + "\nFor example, this gets the error:\n\n" +
         indented(one.wrong) + "\nand this does not:\n\n" + indented(one.right);
}

std::string list_of_all() {
  const int columns = stdout_is_terminal() ? terminal_size().columns - 1 : 100;
  std::string out;
  for (const Explanation& one : explanations()) out += one.code + "  " + wrapped(one.meaning, columns, 7);
  return out;
}

/// "e304", "304" and "E0304" are the same code.
std::string code_of(const std::string& word) {
  std::string digits = word;
  if (!digits.empty() && (digits.front() == 'e' || digits.front() == 'E')) digits.erase(0, 1);
  const bool number = !digits.empty() && digits.size() <= 4 &&
                      std::all_of(digits.begin(), digits.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
  return number ? "E" + std::string(4 - digits.size(), '0') + digits : word;
}

/// The codes that differ from it in one digit.
std::string near(const std::string& code) {
  std::vector<std::string> names;
  for (const Explanation& one : explanations()) {
    if (closest(code, {one.code}) == one.code) names.push_back(one.code);
  }
  if (names.empty()) return "'baton explain' lists all codes";
  return fmt::format("did you mean {}?", fmt::join(names, ", "));
}

int explain(const std::vector<std::string>& words) {
  if (words.empty()) result(list_of_all());
  std::string out;
  for (const std::string& word : words) {
    const std::string code = code_of(word);
    const auto& all = explanations();
    const auto found = std::find_if(all.begin(), all.end(), [&](const Explanation& one) { return one.code == code; });
    if (found == all.end()) throw Failure(kUsage, fmt::format("unknown error code '{}'; {}", word, near(code)));
    out += (out.empty() ? "" : "\n") + text_of(*found);
  }
  result(out);
  return kOk;
}

}  // namespace

void add_explain(CLI::App& app, Action& action) {
  auto* verb = app.add_subcommand("explain", "Say what an error code of workflow files means, and what to do");
  auto words = std::make_shared<std::vector<std::string>>();
  verb->add_option("codes", *words, "Codes, such as E0304; without one, all are listed")->type_name("CODE");
  verb->footer("Examples:\n  baton explain E0304\n  baton explain");
  verb->callback([words, &action] { action = [words] { return explain(*words); }; });
}

}  // namespace baton::cli
