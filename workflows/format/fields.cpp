// SPDX-License-Identifier: Apache-2.0
#include "workflows/format/fields.h"

#include <fmt/format.h>

#include <cstdlib>
#include <utility>

#include "engine/base/utf8.h"

namespace baton {
namespace {

bool is_variable_name(std::string_view name) {
  return !name.empty() && (name[0] < '0' || name[0] > '9') &&
         name.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_") ==
             std::string_view::npos;
}

/// The value of what stands between ${ and }, which comes next in `out`, with an error there.
std::string value_of(std::string_view expression, Secrets secrets, Resolved& out) {
  const auto fail = [&](const char* code, std::string message) {
    out.code = code;
    out.error = std::move(message);
    return std::string();
  };
  if (expression.starts_with("secret:")) {
    if (secrets == Secrets::keep) return fmt::format("${{{}}}", expression);
    return fail("E0504", "a secret may only be used in the options of a tool and as the key of a model");
  }
  expression.remove_prefix(std::string_view("env:").size());
  const std::size_t colon = expression.find(":-");
  const std::string name(expression.substr(0, colon));
  if (!is_variable_name(name))
    return fail("E0503", fmt::format("'{}' is not the name of an environment variable", name));
  const char* value = std::getenv(name.c_str());
  const bool has_default = colon != std::string_view::npos;
  if (value != nullptr && (*value != '\0' || !has_default)) {
    std::string text = utf8::repaired(value);
    if (!text.empty()) out.values.push_back({out.text.size(), out.text.size() + text.size()});
    return text;
  }
  if (has_default) return std::string(expression.substr(colon + 2));
  return fail("E0503", fmt::format("environment variable '{}' is not set and has no default", name));
}

}  // namespace

Resolved resolve_environment(std::string_view text, Secrets secrets) {
  Resolved out;
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t dollar = text.find('$', at);
    out.text += text.substr(at, dollar - at);
    if (dollar == std::string_view::npos) break;
    const std::string_view rest = text.substr(dollar);
    if (rest.starts_with("$${")) {
      out.text += "${";
      out.changed = true;
      at = dollar + 3;
      continue;
    }
    const bool known = rest.starts_with("${env:") || rest.starts_with("${secret:");
    const std::size_t close = known ? text.find('}', dollar) : std::string_view::npos;
    if (known && close == std::string_view::npos) {
      out.code = "E0503";
      out.error = "'${' is not closed with '}'";
      return out;
    }
    if (!known) {
      out.text += '$';
      at = dollar + 1;
      continue;
    }
    out.text += value_of(text.substr(dollar + 2, close - dollar - 2), secrets, out);
    if (!out.error.empty()) return out;
    out.changed = true;
    at = close + 1;
  }
  return out;
}

}  // namespace baton
