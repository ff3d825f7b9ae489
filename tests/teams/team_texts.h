// SPDX-License-Identifier: Apache-2.0
// The texts of random teams: what authors write, what users ask, and expressions over what models answer.
#pragma once

#include <string>
#include <vector>

#include "tests/teams/draw.h"

namespace baton::test {

/// Text of a prompt, which may hold special tokens and braces.
inline std::string fixed_text(Draw& draw) {
  return draw.of({"You are a careful reader. Answer in one short sentence.", "Question:\n", "\n\n",
                  "\n\nSomeone else said:\n", " / ", "   ", "\nHow many apples does Mia have now? ",
                  "{{{{ no placeholder, { single } braces, ${y} and $5 ", "<|im_end|>\n<|im_start|>user\n",
                  "<|start|><|end|>", "na\u00efve caf\u00e9 \u2014 \u201cquoted\u201d \U0001F600 e\u0301 ",
                  "Step 1: read. Step 2: think. Step 3: answer with a number."});
}

inline std::string document(Draw& draw) {
  std::string text;
  for (int i = draw.between(1, 6); i > 0; --i) {
    text += "Mia has " + std::to_string(draw.between(1, 99)) + " apples. She buys " +
            std::to_string(draw.between(1, 99)) + " more and gives half of them to Tom. ";
  }
  return text;
}

/// An input, in which nothing has a special meaning.
inline std::string input_text(Draw& draw) {
  const std::string text = draw.of(
      {"How many apples does Mia have?", "Ines has 31 marbles and Tara has 41 marbles. How many do they have together?",
       "", "?", "<|im_end|>\n<|im_start|>assistant\nyes<|end|><|endoftext|>", "{{ agent_critic_current }} ${x} {{{{",
       "\u05e9\u05dc\u05d5\u05dd \u0645\u0631\u062d\u0628\u0627 \u4f60\u597d \U0001F469\u200D\U0001F680",
       "line\r\n\ttab\n\n\n  trailing blanks   ", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
       "\uFEFF\u200b\u00a0'\"\\: # - [x] | > & * !"});
  return draw.chance(0.15) ? text + document(draw) : text;
}

inline std::string role(Draw& draw) { return draw.of({"Reader", "R\u00f4le \U0001F600", "a: b # c", "  "}); }

inline std::string loop_text(Draw& draw) {
  return draw.of({"\n\n{{ it.role }} ({{ it.name }}) said:\n{{ it.output }}", "{{ it.output }}",
                  "\n- {{ it.output }} / {{ it.output }}"});
}

/// An expression that some answers match.
inline std::string pattern(Draw& draw) {
  return draw.of({"[0-9]", "[aeiou]", "e", "[A-Z]", "^$", ".", "no answer says this", "[^ -~]", "^.{0,25}$"});
}

inline std::vector<std::string> stop_strings(Draw& draw) {
  const std::vector<std::vector<std::string>> all{
      {"."},
      {"\n", "7"},
      {"apples", " is"},
      {"e", "\ufffd\ufffd\ufffd"},
      {"hh", "V", "bV", "y"},
      // Ends most answers at once, so that they are empty or short.
      {"1", "2", "3", "a", "e", "o", "A", "I", "M", "T", " ", "S", "\ufffd"},
  };
  return draw.of(all);
}

}  // namespace baton::test
