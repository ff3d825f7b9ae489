// SPDX-License-Identifier: Apache-2.0
// The command line of a program with verbs: each verb declares its options and what runs once they are read. The one
// source that knows CLI11 is command_line.cpp.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace baton::cli {

/// An option or an argument of a verb. All functions that change it return the same option.
class Option {
 public:
  explicit Option(CLI::Option* raw) : raw_(raw) {}

  Option* required();
  /// What the help shows in place of the value: "FILE".
  Option* type_name(const std::string& name);
  Option* one_of(const std::vector<std::string>& values);
  Option* range(int least, int most);
  Option* range(std::int64_t least, std::int64_t most);
  Option* range(double least, double most);
  Option* positive();
  /// `mistake` returns what is wrong with a value, or nothing.
  Option* check(std::function<std::string(const std::string& value)> mistake);
  /// The value may have a unit: 512MiB.
  Option* as_size();
  /// The help shows the value that the variable has now.
  Option* capture_default_str();
  Option* delimiter(char separator);
  /// One value each time that the option is given.
  Option* allow_extra_args(bool allowed);
  Option* expected(int least, int most);
  /// The value may be left out; the variable is then `value`.
  Option* or_alone(const std::string& value);
  Option* needs(const Option* other);
  Option* excludes(const Option* other);

  std::vector<std::string> long_names() const;  // without "--"; empty: an argument
  std::string name() const;                     // the first long name, or that of the argument
  std::string description() const;
  /// "FILE", "TEXT:{ascii,mermaid}".
  std::string type() const;
  bool is_argument() const;
  bool takes_value() const;
  bool takes_several() const;
  /// How often it was given on the command line.
  std::size_t count() const;

 private:
  CLI::Option* raw_;  // belongs to the command line, which outlives it
};

/// A verb of the program. The objects that its options fill must live as long as the command line.
class Verb {
 public:
  explicit Verb(CLI::App* raw) : raw_(raw) {}

  /// `names`: "-q,--quiet", or a bare word for an argument. For texts, numbers, optional numbers, and lists of these.
  template <typename T>
  Option* add_option(const std::string& names, T& value, const std::string& help);
  Option* add_flag(const std::string& names, bool& value, const std::string& help);
  /// An option that the verb once had; `instead` says what to write now.
  void moved(const std::string& option, const std::string& instead) { moved_[option] = instead; }
  /// Text at the end of the verb's help.
  void footer(const std::string& text);
  /// What the verb does, once its options are read; returns the exit code.
  void run(std::function<int()> action) { action_ = std::move(action); }

  const std::string& name() const;
  std::string description() const;
  /// The option that a word such as "--model=x" or "-i" names, or null.
  const Option* find(const std::string& word) const;
  const std::vector<std::unique_ptr<Option>>& options() const { return options_; }
  const std::map<std::string, std::string>& moved_options() const { return moved_; }
  const std::function<int()>& action() const { return action_; }

 private:
  Option* keep(CLI::Option* raw);

  CLI::App* raw_;
  std::vector<std::unique_ptr<Option>> options_;
  std::map<std::string, std::string> moved_;
  std::function<int()> action_;
};

/// The verbs of a program.
class CommandLine {
 public:
  CommandLine(const std::string& program, const std::string& about, const std::string& footer);
  ~CommandLine();
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;

  Verb* add_verb(const std::string& name, const std::string& about);
  /// Verbs that are added from now on stand under this heading in the help.
  void begin_group(const std::string& heading) { group_ = heading; }

  const std::string& program() const { return program_; }
  const std::vector<std::unique_ptr<Verb>>& verbs() const { return verbs_; }
  const Verb* find(const std::string& name) const;
  /// The program's own help.
  std::string help() const;

  /// What came of reading the arguments.
  struct Parsed {
    const Verb* verb = nullptr;  // the one that was named, also when something is wrong
    std::string shown;           // the text that --help or --version asks for
    std::string mistake;         // or what is wrong
    std::string unexpected;      // with a mistake: the word that nothing takes, or empty
  };
  Parsed parse(int argc, char** argv);

 private:
  std::string program_;
  std::string group_;
  std::unique_ptr<CLI::App> app_;
  std::vector<std::unique_ptr<Verb>> verbs_;
};

// What the programs `baton` and `baton-lab` have in common: a verb is run, and errors become exit codes.

/// Adds `completion`, which prints scripts for shells.
void add_completion(CommandLine& line);

/// What may stand at the end of a command line whose last word may be empty, for the scripts of shells: each line is a
/// value, a tab and what it means; ":files" stands for names of files. `words` follow the program's name.
std::string candidate_lines(const CommandLine& line, const std::vector<std::string>& words);

/// Reads the command line and runs its verb; returns the exit code. `moved`: verbs that the program once had, with what
/// to write now. Once, from main.
int run_program(CommandLine& line, const std::map<std::string, std::string>& moved, int argc, char** argv);

}  // namespace baton::cli
