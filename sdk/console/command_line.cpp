// SPDX-License-Identifier: Apache-2.0
#include "sdk/console/command_line.h"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <optional>
#include <sstream>

#include <baton/version.h>

namespace baton::cli {

Option* Option::required() { return raw_->required(), this; }
Option* Option::type_name(const std::string& name) { return raw_->type_name(name), this; }
Option* Option::one_of(const std::vector<std::string>& values) { return raw_->check(CLI::IsMember(values)), this; }
Option* Option::range(int least, int most) { return raw_->check(CLI::Range(least, most)), this; }
Option* Option::range(std::int64_t least, std::int64_t most) { return raw_->check(CLI::Range(least, most)), this; }
Option* Option::range(double least, double most) { return raw_->check(CLI::Range(least, most)), this; }
Option* Option::positive() { return raw_->check(CLI::PositiveNumber), this; }
Option* Option::check(std::function<std::string(const std::string& value)> mistake) {
  return raw_->check(CLI::Validator([mistake](std::string& value) { return mistake(value); }, "")), this;
}
Option* Option::as_size() { return raw_->transform(CLI::AsSizeValue(false)), this; }
Option* Option::capture_default_str() { return raw_->capture_default_str(), this; }
Option* Option::delimiter(char separator) { return raw_->delimiter(separator), this; }
Option* Option::allow_extra_args(bool allowed) { return raw_->allow_extra_args(allowed), this; }
Option* Option::expected(int least, int most) { return raw_->expected(least, most), this; }
Option* Option::or_alone(const std::string& value) { return raw_->expected(0, 1)->default_str(value), this; }
Option* Option::needs(const Option* other) { return raw_->needs(other->raw_), this; }
Option* Option::excludes(const Option* other) { return raw_->excludes(other->raw_), this; }

std::vector<std::string> Option::long_names() const { return raw_->get_lnames(); }
std::string Option::name() const { return raw_->get_lnames().empty() ? raw_->get_name() : raw_->get_lnames().front(); }
std::string Option::description() const { return raw_->get_description(); }
std::string Option::type() const { return raw_->get_type_name(); }
bool Option::is_argument() const { return raw_->get_positional(); }
bool Option::takes_value() const { return raw_->get_items_expected_max() > 0; }
bool Option::takes_several() const { return raw_->get_items_expected_max() > 1; }
std::size_t Option::count() const { return raw_->count(); }

Option* Verb::keep(CLI::Option* raw) { return options_.emplace_back(std::make_unique<Option>(raw)).get(); }

template <typename T>
Option* Verb::add_option(const std::string& names, T& value, const std::string& help) {
  return keep(raw_->add_option(names, value, help));
}

template Option* Verb::add_option(const std::string&, std::string&, const std::string&);
template Option* Verb::add_option(const std::string&, int&, const std::string&);
template Option* Verb::add_option(const std::string&, std::int64_t&, const std::string&);
template Option* Verb::add_option(const std::string&, std::uint64_t&, const std::string&);
template Option* Verb::add_option(const std::string&, double&, const std::string&);
template Option* Verb::add_option(const std::string&, std::optional<std::string>&, const std::string&);
template Option* Verb::add_option(const std::string&, std::optional<std::uint64_t>&, const std::string&);
template Option* Verb::add_option(const std::string&, std::vector<std::string>&, const std::string&);
template Option* Verb::add_option(const std::string&, std::vector<int>&, const std::string&);
template Option* Verb::add_option(const std::string&, std::vector<double>&, const std::string&);

Option* Verb::add_flag(const std::string& names, bool& value, const std::string& help) {
  return keep(raw_->add_flag(names, value, help));
}

void Verb::footer(const std::string& text) { raw_->footer(text); }

const std::string& Verb::name() const { return raw_->get_name(); }
std::string Verb::description() const { return raw_->get_description(); }

const Option* Verb::find(const std::string& word) const {
  if (word.rfind('-', 0) != 0) return nullptr;
  const CLI::Option* raw = raw_->get_option_no_throw(word.substr(0, word.find('=')));
  if (raw == nullptr) return nullptr;
  const auto same = [&](const auto& one) {
    return !one->is_argument() && raw->check_lname(one->name()) && !one->long_names().empty();
  };
  const auto found = std::find_if(options_.begin(), options_.end(), same);
  return found == options_.end() ? nullptr : found->get();
}

CommandLine::CommandLine(const std::string& program, const std::string& about, const std::string& footer)
    : program_(program), app_(std::make_unique<CLI::App>(about)) {
  app_->name(program);
  app_->set_version_flag("--version", program + " " + version());
  app_->footer(footer);
}

CommandLine::~CommandLine() = default;

Verb* CommandLine::add_verb(const std::string& name, const std::string& about) {
  CLI::App* raw = app_->add_subcommand(name, about);
  if (!group_.empty()) raw->group(group_);
  return verbs_.emplace_back(std::make_unique<Verb>(raw)).get();
}

const Verb* CommandLine::find(const std::string& name) const {
  const auto found = std::find_if(verbs_.begin(), verbs_.end(), [&](const auto& verb) { return verb->name() == name; });
  return found == verbs_.end() ? nullptr : found->get();
}

std::string CommandLine::help() const { return app_->help(); }

CommandLine::Parsed CommandLine::parse(int argc, char** argv) {
  Parsed parsed;
  try {
    app_->parse(argc, argv);
  } catch (const CLI::Success& asked) {  // --help, --version
    std::ostringstream text;
    app_->exit(asked, text);
    parsed.shown = text.str();
  } catch (const CLI::ParseError& error) {
    parsed.mistake = error.what();
    if (const auto extras = app_->remaining(true); !extras.empty()) parsed.unexpected = extras.front();
  }
  if (const auto named = app_->get_subcommands(); !named.empty()) parsed.verb = find(named.front()->get_name());
  return parsed;
}

}  // namespace baton::cli
