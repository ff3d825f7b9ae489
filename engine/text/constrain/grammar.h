// SPDX-License-Identifier: Apache-2.0
// Grammar: what an answer must be as a whole, compiled to a machine over bytes whose rules call one another. Regular
// expressions and lists of texts need no calls; JSON and GBNF do. See docs/decisions/answers.md.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "engine/text/constrain/expression.h"

namespace baton {

/// A constraint cannot be compiled. The message says what was found, and where.
class ConstraintError : public std::invalid_argument {
 public:
  using std::invalid_argument::invalid_argument;
};

/// Immutable and safe from any thread.
class Grammar {
 public:
  enum class Count : std::uint8_t {
    open,  // a call that is the last thing in its rule closes that rule first: right recursion needs no depth
    all,
  };
  /// The first rule is the whole text. `max_depth`: how many calls may be open at once; what would need more is no text
  /// of the grammar. Throws ConstraintError for left recursion, for a grammar without a text, and beyond the limits of
  /// size.
  explicit Grammar(std::span<const constrain::Rule> rules, std::int32_t max_depth = 0, Count count = Count::open);

  /// The texts of both grammars.
  Grammar(const Grammar& one, const Grammar& other);

  /// The same texts, with up to two blanks in front. Made once.
  std::shared_ptr<const Grammar> behind_blanks() const;

  struct Edge {
    std::uint8_t low, high;  // bounds of the byte, inclusive
    std::int32_t target;
  };
  struct Call {
    std::int32_t rule;
    std::int32_t then;  // the node behind it
  };
  /// Repetitions are counted, not written out. A node may begin a count, add one to the innermost, or end that.
  enum class Step : std::uint8_t { none, begin, add, end };
  struct Counter {
    std::int32_t low, high;  // how often; high: or kUnbounded
  };
  using Counts = std::vector<constrain::GrammarExpression::Interval>;
  struct Node {
    std::vector<Edge> edges;
    std::vector<std::int32_t> empties;  // nodes that are reached without a byte
    std::vector<Call> calls;
    std::int32_t need = 0;   // calls that must be open at once on the way to the rule's end
    bool ends = false;       // a text of the rule may end here
    bool only_ends = false;  // nothing but the rule's end can follow
    Step step = Step::none;
    std::int32_t counter = -1;  // that the step begins, adds to or ends
    std::int32_t after = -1;    // the node behind the step
    std::int32_t counts = -1;   // index of the counts that may be here; -1: any
  };

  const Node& node(std::int32_t index) const { return nodes_[static_cast<std::size_t>(index)]; }
  std::int32_t start(std::int32_t rule) const { return starts_[static_cast<std::size_t>(rule)]; }
  std::int32_t max_depth() const { return max_depth_; }
  const Counter& counter(std::int32_t index) const { return counters_[static_cast<std::size_t>(index)]; }
  /// How many open calls a call of the rule is: 1, or 0 for a rule that nests nothing.
  std::int32_t weight(std::int32_t rule) const { return weights_[static_cast<std::size_t>(rule)]; }
  /// Whether the count may be at the node.
  bool may_be_at(const Node& node, std::int32_t count) const;
  std::size_t nodes() const { return nodes_.size(); }

  /// The rules that it was made of; of the texts of several grammars, those of each.
  const std::vector<std::vector<constrain::Rule>>& sources() const { return sources_; }

  /// What its texts are not held to, each with the place: it has to be checked behind.
  const std::vector<std::string>& unenforced() const { return unenforced_; }
  void set_unenforced(std::vector<std::string> all) { unenforced_ = std::move(all); }

  /// Bytes that no edge tells apart are one class.
  std::uint8_t byte_class(std::uint8_t byte) const { return classes_[byte]; }
  std::size_t classes() const { return class_count_; }

 private:
  Grammar() = default;
  void begin_union();
  void add_to_union(const Grammar& part);
  void find_needs();
  void drop_dead_ends();
  void find_only_ends();
  void refuse_left_recursion(std::span<const constrain::Rule> rules) const;
  void find_classes();

  std::vector<Node> nodes_;
  std::vector<std::int32_t> starts_;  // first node of each rule
  std::vector<std::int32_t> weights_;
  std::vector<Counter> counters_;
  std::vector<Counts> counts_;
  std::vector<std::string> unenforced_;
  std::vector<std::vector<constrain::Rule>> sources_;
  mutable std::shared_ptr<const Grammar> behind_blanks_;  // null: not made yet
  std::int32_t max_depth_ = 1;
  std::array<std::uint8_t, 256> classes_{};
  std::size_t class_count_ = 1;
};

/// A special token, which is no text: in grammars, and in answers that are checked or read with their special tokens.
/// No text in UTF-8 has the byte.
inline constexpr char kSpecialMark = '\xFF';
inline std::string special_text(std::string_view spelling) {
  return kSpecialMark + std::string(spelling) + kSpecialMark;
}

/// True when `text` as a whole is a text of the grammar. Throws std::runtime_error if the grammar is so ambiguous
/// that this needs more than a bound by the size of the text: 0.4 s and 3 s per MiB.
bool accepts(const Grammar& grammar, std::string_view text);

/// A regular expression that the whole text must match, in the subset of ECMAScript's that docs/yaml.md lists.
std::shared_ptr<const Grammar> regex_grammar(std::string_view regex);

/// One of these texts, of which there must be at least one.
std::shared_ptr<const Grammar> enum_grammar(std::span<const std::string> texts);

/// Blanks between the tokens of JSON.
enum class JsonBlanks : std::uint8_t {
  compact,  // one line, with at most one blank behind an opening bracket, a comma and a colon
  free,     // between all tokens, each time at most the end of a line and 32 blanks
};

/// JSON of a schema that check_json_schema accepts. docs/yaml.md lists what cannot be enforced: the grammar says it
/// (unenforced()), and it is checked behind. Throws ConstraintError, with the place, if no text fulfils the schema or
/// if it is too large.
std::shared_ptr<const Grammar> schema_grammar(std::string_view schema, JsonBlanks blanks = JsonBlanks::compact);

/// How values stand in a text. The default is JSON.
struct ValueNotation {
  enum class Form : std::uint8_t {
    json,
    elements,  // the members of the outermost object, each between the three pieces; texts as they are, all else as
               // JSON
    keywords,  // the members of the outermost object as Python's keyword arguments, with Python's words
    literals,  // {name:value,...} with names as they are, and texts as they are between two `quote`
  };
  Form form = Form::json;
  std::string key_open = {}, key_close = {}, value_close = {};  // of elements
  std::string quote = {};                                       // of literals
};

/// Several schemas in one grammar.
struct SchemasInText {
  struct Named {
    std::string name;  // stands in front of messages: "tool 'x'"; may be empty
    std::string schema;
  };
  std::vector<Named> schemas;
  /// Makes a rule of what stands in several places, and returns a call of it.
  using Share = std::function<constrain::ExpressionPtr(const char* name, constrain::ExpressionPtr body)>;
  /// The whole text, of the values of the schemas.
  std::function<constrain::ExpressionPtr(std::span<const constrain::ExpressionPtr> values, const Share& share)> whole;
  int outer = 0;  // objects and lists of the text that a value stands in
  ValueNotation notation = {};
  JsonBlanks blanks = JsonBlanks::compact;
};
std::shared_ptr<const Grammar> schema_grammar(const SchemasInText& text);

/// A grammar in the notation GBNF, whose rule `root` is the whole text.
std::shared_ptr<const Grammar> gbnf_grammar(std::string_view gbnf);

// A Grammar in GBNF, the notation of llama.cpp, for servers that obey a grammar.

/// The same texts as the grammar's, without its limit of depth, the lengths of texts that also match a pattern, and the
/// number of an object's members. Of the length of other texts, each run between two escapes is bounded by itself.
/// Throws ConstraintError if GBNF cannot say it, or beyond a size.
std::string gbnf_of(const Grammar& grammar);

// GrammarStates: the deterministic states of a grammar, made when they are first reached. A state is a set of places in
// the grammar, each with the stack of the rules that are open around it.

/// A rule or a count that is open. Stacks share what is below.
struct GrammarFrame {
  std::int32_t then;  // the node behind the call; of a count: -1 and its counter's index below that
  std::int32_t count;
  std::int32_t depth;
  std::uint64_t hash;  // hash of this frame and all below
  std::shared_ptr<const GrammarFrame> below;
};

/// A place before a byte.
struct GrammarPlace {
  std::int32_t node;
  std::shared_ptr<const GrammarFrame> stack;  // null: in the first rule
};

/// The places that the text so far leads to. Immutable; it outlives the GrammarStates that made it.
struct GrammarPlaces {
  std::vector<GrammarPlace> places;  // sorted by node and stack
  bool ends = false;                 // the text so far is a whole text
  std::uint64_t hash = 0;
};

/// Bounded in number and memory; one thread at a time.
class GrammarStates {
 public:
  struct State;
  /// Characters that may follow one another freely.
  struct FreeRun {
    std::array<std::uint64_t, 2> ascii{};  // those of ASCII
    bool others = false;                   // and all others
    std::uint32_t length = 0;              // how many of them, at most kMaxRun; that many: perhaps more
  };
  static constexpr std::uint32_t kMaxRun = 64;

  struct State {
    std::shared_ptr<const GrammarPlaces> places;
    std::vector<State*> next;                // by byte class; null: unknown
    std::uint32_t id = 0;                    // in the order in which they were made
    State* most = nullptr;                   // where most bytes of ASCII lead; null: unknown
    std::array<std::uint64_t, 2> to_most{};  // these bytes
    bool others_to_most = false;             // and all other characters
    std::unique_ptr<const FreeRun> run;      // null: unknown

    bool dead() const { return places->places.empty() && !places->ends; }
    /// True when the text is whole and nothing can follow.
    bool complete() const { return places->places.empty() && places->ends; }
  };

  explicit GrammarStates(std::shared_ptr<const Grammar> grammar);

  const Grammar& grammar() const { return *grammar_; }
  /// The state before the first byte.
  State* start();
  /// The state of these places. Throws std::runtime_error when there are too many states, or they take too much memory.
  State* find(std::shared_ptr<const GrammarPlaces> places);
  /// The state behind a byte; it is dead when no text continues so. Throws as find does, and when a state has too many
  /// places.
  State* next(State* state, std::uint8_t byte) {
    State* known = state->next[grammar_->byte_class(byte)];
    return known != nullptr ? known : make_next(state, byte);
  }

  /// Any text of up to `length` of these characters may follow, and its last may be cut between its bytes.
  const FreeRun& free_run(State* state);

  std::size_t size() const { return states_.size(); }
  std::size_t work() const { return work_; }  // places visited since the last clear(), about 0.1 us each
  /// True when clear() should be called before the next step: states or work are near their limits.
  bool crowded() const;
  /// Forgets all states. Places stay valid.
  void clear();

 private:
  class Closure;
  State* make_next(State* state, std::uint8_t byte);
  void find_most(State* state);
  bool all_lead(State* from, std::span<const constrain::ByteRange> bytes, const State* to);

  std::shared_ptr<const Grammar> grammar_;
  std::deque<State> states_;
  std::size_t work_ = 0;   // places visited since the last clear()
  std::size_t bytes_ = 0;  // size of the states, about
  std::unordered_multimap<std::uint64_t, State*> by_hash_;
};

}  // namespace baton
