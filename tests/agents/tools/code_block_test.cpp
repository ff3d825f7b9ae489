// SPDX-License-Identifier: Apache-2.0
#include "agents/tools/tool.h"

#include <catch2/catch.hpp>

namespace code_block_test {

using baton::last_code_block;

TEST_CASE("the last fenced block of a text") {
  CHECK_FALSE(last_code_block(""));
  CHECK_FALSE(last_code_block("no code, `inline` only, ``two``"));
  CHECK(*last_code_block("```\nx\n```") == "x");
  CHECK(*last_code_block("```python\na\n\nb\n```\ntext\n") == "a\n\nb");
  CHECK(*last_code_block("```\n1\n```\n```\n2\n```") == "2");
  CHECK(*last_code_block("  ```py\n  indented\n  ```") == "  indented");
  CHECK(*last_code_block("```\r\nx\r\n```\r\n") == "x\r");
  CHECK(*last_code_block("```\n```") == "");
  CHECK(*last_code_block("```\n\nline two\n```") == "\nline two");
}

TEST_CASE("a block that is not closed counts as far as it goes") {
  CHECK(*last_code_block("```python\nprint(1)") == "print(1)");
  CHECK(*last_code_block("```\nfirst\n```\n```python") == "first");
}

TEST_CASE("a longer fence holds shorter ones, and a line with more than the fence does not close it") {
  CHECK(*last_code_block("````\n```\nx\n```\n````") == "```\nx\n```");
  CHECK(*last_code_block("```\ns = '''\n``` not the end\n```") == "s = '''\n``` not the end");
}

}  // namespace code_block_test
