// SPDX-License-Identifier: Apache-2.0
#include "tests/engine/text/hostile_templates.h"

#include <array>
#include <string_view>

namespace baton::test {
namespace {

class Generator {
 public:
  explicit Generator(std::mt19937& random) : random_(random) {}

  std::string run() {
    std::string out = "{% set n = namespace(s='a', t='ab', l=[1], d={'a': 1}, p=1, i=0) %}";
    if (below(2) == 0) out += macro();
    for (std::size_t i = 1 + below(4); i > 0; --i) out += statement(0);
    return out;
  }

 private:
  std::size_t below(std::size_t limit) { return static_cast<std::size_t>(random_() % limit); }
  template <std::size_t size>
  std::string one_of(const std::array<std::string_view, size>& from) {
    return std::string(from[below(size)]);
  }

  std::string count() {
    return one_of(std::array<std::string_view, 9>{"2", "7", "100", "1000", "30000", "100000", "1000000", "16000000",
                                                  "9223372036854775807"});
  }

  /// An expression that makes the member of the namespace larger, or another object around it.
  std::string growth() {
    static constexpr std::array<std::string_view, 37> kGrowth = {
        "n.s = n.s + n.s",
        "n.s = n.s ~ n.t ~ n.s",
        "n.s = n.s.replace('a', 'aa')",
        "n.s = n.s.replace('', 'ab')",
        "n.t = n.s|upper",
        "n.t = n.s[::-1]",
        "n.s = (n.s * 3)[1:]",
        "n.s = n.l|tojson",
        "n.s = n.l|string",
        "n.s = n.s|tojson(indent=100)",
        "n.s = n.l|join(n.s)",
        "n.s = n.s.join(['a', 'b', n.t])",
        "n.s = n.s|indent(1000, true, true)",
        "n.s = n.s|e|string",
        "n.l = n.l + n.l",
        "n.l = n.l + [n.s]",
        "n.l = [n.l, n.l]",
        "n.l = n.s.split('a')",
        "n.l = n.s|list",
        "n.l = n.l|map('string')|list",
        "n.l = n.l * 2",
        "n.d = {n.s: n.d, 'a': n.d}",
        "n.d = dict(n.d, b=n.l)",
        "n.p = {'a': n.p}.get",
        "n.p = [n.p].count",
        "n.p = [n.p, n.p]",
        "n.p = namespace(a=n.p)",
        "n.p = dict(a=n.p).items",
        "n.p = n.s.find",
        "n.l = [{}[n.s]] * 1000",
        "n.l = [1[n.s]] * 1000000",
        "n.l = [n.s[n.i]] * 1000000",
        "n.p = n.l[1000000000]",
        "n.l = [unknown_name] * 1000000",
        "n.d = {n.s[:100]: {}[n.s]}",
        "n.p = namespace(a_name_of_many_characters_that_each_namespace_keeps_for_itself=n.p, and_yet_another_one=n.s)",
        "n.i = n.i + 1",
    };
    return "{% set " + one_of(kGrowth) + " %}";
  }

  std::string text() {
    return one_of(std::array<std::string_view, 8>{"n.s", "n.t", "('a' * 1000000)", "('ab' * 100000)",
                                                  "('a' * 50000 + 'b')", "('\xC3\xA9' * 100000)", "messages[0].content",
                                                  "(n.s ~ 'b')"});
  }

  /// Something that reads a lot.
  std::string reading() {
    const std::string a = text(), b = text();
    switch (below(26)) {
      case 0:
        return a + ".count(" + b + ")";
      case 1:
        return b + " in " + a;
      case 2:
        return a + ".find(" + b + ")";
      case 3:
        return a + ".rfind(" + b + ")";
      case 4:
        return "(" + a + ".split(" + b + "))|length";
      case 5:
        return "(" + a + ".rsplit(" + b + ", 3))|length";
      case 6:
        return "(" + a + ".replace(" + b + ", ''))|length";
      case 7:
        return a + "|int";
      case 8:
        return "(' ' * 1000000 ~ " + a + ")|float";
      case 9:
        return a + " == " + b;
      case 10:
        return a + " < " + b;
      case 11:
        return "(" + a + "|title)|length";
      case 12:
        return "(" + a + "|trim(" + b + "))|length";
      case 13:
        return "(" + a + "|list|sort|unique|list)|length";
      case 14:
        return a + " is upper";
      case 15:
        return "(n.l|map(attribute=" + a + ")|list)|length";
      case 16:
        return "n.l == n.l + []";
      case 17:
        return "(n.l|tojson)|length";
      case 18:
        return "(n.d|dictsort|string)|length";
      case 19:
        return "n.l|length + (" + a + "|length)";
      case 20:
        return "(" + a + ".partition(" + b + ")|string)|length";
      case 21:
        return "'a'[" + a + "] is defined";
      case 22:
        return "({'a': 1}[" + a + "]) is defined";
      case 23:
        return "('' * " + count() + " ~ ([] * " + count() + "))|length";
      case 24:
        return "(range(" + count() + ")|list)[::7]|length";
      default:
        return "(n.l|sort(attribute=" + a + ")|list)|length if n.l is string else (" + a + ".splitlines())|length";
    }
  }

  std::string body(int depth) {
    std::string out;
    for (std::size_t i = 1 + below(3); i > 0; --i) out += statement(depth + 1);
    return out;
  }

  std::string macro() {
    std::string open, close;
    for (std::size_t i = below(45); i > 0; --i) {
      const bool loop = below(2) == 0;
      open += loop ? "{% for y in [1] %}" : "{% if true %}";
      close.insert(0, loop ? "{% endfor %}" : "{% endif %}");
    }
    static constexpr std::array<std::string_view, 4> kCalls = {
        "{{ f(x + 1) }}", "{% set z = f(x + 1) %}", "{{ f(x + 1) ~ f(x + 2) }}", "{{ (f(x + 1)|upper)[0] }}"};
    return "{% macro f(x, y=n) %}" + open + growth() + one_of(kCalls) + close + "{% endmacro %}";
  }

  std::string statement(int depth) {
    if (depth > 3) return growth();
    switch (below(9)) {
      case 0:
      case 1:
        return "{% for x in range(" + count() + ") %}" + body(depth) + "{% endfor %}";
      case 2:
        return "{% for x in n.l if x != " + text() + " %}" + body(depth) + "{% set n.p = loop %}{% endfor %}";
      case 3:
        return "{{ " + reading() + " }}";
      case 4:
        return "{% set ns" + std::to_string(below(50)) + " %}{{ " + reading() + " }}" + body(depth) + "{% endset %}";
      case 5:
        return "{% if f is defined %}{{ f(0) }}{% endif %}";
      case 6:
        return "{% filter upper %}{{ " + text() + " }}" + body(depth) + "{% endfilter %}";
      default:
        return growth();
    }
  }

  std::mt19937& random_;
};

}  // namespace

std::string hostile_template(std::mt19937& random) { return Generator(random).run(); }

}  // namespace baton::test
