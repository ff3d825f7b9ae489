// SPDX-License-Identifier: Apache-2.0
// Chat templates of the shapes in which published families write calls of tools.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tests/support/toy_model.h"

namespace baton::test {

struct CallForm {
  const char* name;
  const char* source;
  std::vector<std::string> special;  // special tokens of the tokenizer
  bool several = true;               // the template writes several calls in one turn
};

// Each shows the tools, results and the beginning of an answer alike; `CALLS` is what an assistant's turn with calls
// is.
#define BATON_CALL_TEMPLATE(CALLS)                                                                                \
  "{%- if tools %}<|im_start|>system\n{% for t in tools %}{{ t | tojson }}\n{% endfor %}<|im_end|>\n{% endif -%}" \
  "{%- for m in messages -%}{%- if m.role == 'tool' %}<|im_start|>user\n<tool_response>{{ m.content }}"           \
  "</tool_response><|im_end|>\n{%- elif m.tool_calls %}<|im_start|>assistant\n" CALLS                             \
  "<|im_end|>\n{%- else %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{%- endif -%}{%- endfor -%}"       \
  "{%- if add_generation_prompt %}<|im_start|>assistant\n{% endif -%}"

inline const std::vector<CallForm>& call_forms() {
  static const std::vector<CallForm> forms = {
      {"objects in tags (Hermes, Qwen 2.5 and 3)",
       BATON_CALL_TEMPLATE("{% for c in m.tool_calls %}{{ '\\n' if not loop.first }}<tool_call>\n{\"name\": \""
                           "{{ c.function.name }}\", \"arguments\": {{ c.function.arguments | tojson }}}\n</tool_call>"
                           "{% endfor %}"),
       {}},
      {"a bare object (Llama 3)",
       BATON_CALL_TEMPLATE(
           "{% if m.tool_calls | length != 1 %}{{ raise_exception('one call') }}{% endif %}{\"name\": \""
           "{{ m.tool_calls[0].function.name }}\", \"parameters\": "
           "{{ m.tool_calls[0].function.arguments | tojson }}}"),
       {},
       false},
      {"a list behind a token (Mistral to v0.3)",
       BATON_CALL_TEMPLATE(
           "[TOOL_CALLS] [{% for c in m.tool_calls %}{\"name\": \"{{ c.function.name }}\", \"arguments\": "
           "{{ c.function.arguments | tojson }}}{{ ', ' if not loop.last }}{% endfor %}]"),
       {"[TOOL_CALLS]"}},
      {"name and arguments behind tokens (Mistral Small 3.2)",
       BATON_CALL_TEMPLATE("{% for c in m.tool_calls %}[TOOL_CALLS]{{ c.function.name }}[CALL_ID]{{ c.id }}[ARGS]"
                           "{{ c.function.arguments | tojson }}{% endfor %}"),
       {"[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"}},
      {"name and arguments behind tokens, without an id (Devstral)",
       BATON_CALL_TEMPLATE("{% for c in m.tool_calls %}[TOOL_CALLS]{{ c.function.name }}[ARGS]"
                           "{{ c.function.arguments | tojson }}{% endfor %}"),
       {"[TOOL_CALLS]", "[ARGS]"}},
      {"XML parameters (Qwen3-Coder)",
       BATON_CALL_TEMPLATE(
           "{% for c in m.tool_calls %}{{ '\\n' if not loop.first }}<tool_call>\n<function={{ c.function.name }}>\n"
           "{% for k, v in c.function.arguments.items() %}<parameter={{ k }}>\n{{ v if v is string else v | tojson }}\n"
           "</parameter>\n{% endfor %}</function>\n</tool_call>{% endfor %}"),
       {}},
      {"keys and values in tags (GLM)",
       BATON_CALL_TEMPLATE("{% for c in m.tool_calls %}{{ '\\n' if not loop.first }}<tool_call>{{ c.function.name }}\n"
                           "{% for k, v in c.function.arguments.items() %}<arg_key>{{ k }}</arg_key>\n<arg_value>"
                           "{{ v if v is string else v | tojson }}</arg_value>\n{% endfor %}</tool_call>{% endfor %}"),
       {}},
      {"literals (Gemma 4)",
       "{%- macro text(v) -%}{%- if v is string -%}<|\"|>{{ v }}<|\"|>{%- elif v is mapping -%}{{ '{' }}"
       "{%- for k, one in v.items() -%}{{ k }}:{{ text(one) }}{{ ',' if not loop.last }}{%- endfor -%}}"
       "{%- elif v is iterable -%}[{%- for one in v -%}{{ text(one) }}{{ ',' if not loop.last }}{%- endfor -%}]"
       "{%- else -%}{{ v | tojson }}{%- endif -%}{%- endmacro -%}" BATON_CALL_TEMPLATE(
           "{% for c in m.tool_calls %}<|tool_call>call:{{ c.function.name }}{{ text(c.function.arguments) "
           "}}<tool_call|>"
           "{% endfor %}"),
       {"<|tool_call>", "<tool_call|>", "<|\"|>"}},
      {"Python in tokens (LFM2)",
       BATON_CALL_TEMPLATE(
           "<|tool_call_start|>[{% for c in m.tool_calls %}{{ c.function.name }}("
           "{% for k, v in c.function.arguments.items() %}{{ k }}={{ (v | tojson) if v is not boolean else v }}"
           "{{ ', ' if not loop.last }}{% endfor %}){{ ', ' if not loop.last }}{% endfor %}]"
           "<|tool_call_end|>"),
       {"<|tool_call_start|>", "<|tool_call_end|>"}},
      {"Python in a list (Llama 4)",
       BATON_CALL_TEMPLATE(
           "[{% for c in m.tool_calls %}{{ c.function.name }}("
           "{% for k, v in c.function.arguments.items() %}{{ k }}={{ (v | tojson) if v is not boolean else v }}"
           "{{ ', ' if not loop.last }}{% endfor %}){{ ', ' if not loop.last }}{% endfor %}]"),
       {}},
      {"a list behind a tag (Granite)",
       BATON_CALL_TEMPLATE(
           "<|tool_call|>[{% for c in m.tool_calls %}{\"name\": \"{{ c.function.name }}\", \"arguments\": "
           "{{ c.function.arguments | tojson }}}{{ ', ' if not loop.last }}{% endfor %}]"),
       {"<|tool_call|>"}},
      {"a block behind the name (DeepSeek V3)",
       BATON_CALL_TEMPLATE(
           "<｜tool▁calls▁begin｜>{% for c in m.tool_calls %}{{ '\\n' if not loop.first }}<｜tool▁call▁begin｜>function"
           "<｜tool▁sep｜>{{ c.function.name + '\\n```json\\n' + c.function.arguments + '\\n```' }}<｜tool▁call▁end｜>"
           "{% endfor %}<｜tool▁calls▁end｜>"),
       {"<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>",
        "<｜tool▁calls▁end｜>"}},
      {"a list of actions (Command)",
       BATON_CALL_TEMPLATE(
           "<|START_ACTION|>[{% for c in m.tool_calls %}\n    {\"tool_call_id\": \"{{ loop.index0 }}\", "
           "\"tool_name\": \"{{ c.function.name }}\", \"parameters\": "
           "{{ c.function.arguments | tojson }}}{{ ',' if not loop.last }}{% endfor %}\n]"
           "<|END_ACTION|>"),
       {"<|START_ACTION|>", "<|END_ACTION|>"}},
      {"channels (gpt-oss)",
       "{%- for m in messages -%}{%- if m.role == 'tool' %}<|start|>functions.{{ m.name }} to=assistant<|channel|>"
       "commentary<|message|>{{ m.content }}<|end|>{%- elif m.tool_calls %}<|start|>assistant to=functions."
       "{{ m.tool_calls[0].function.name }}<|channel|>commentary json<|message|>"
       "{{ m.tool_calls[0].function.arguments | tojson }}<|call|>{%- elif m.role == 'assistant' %}<|start|>assistant"
       "<|channel|>final<|message|>{{ m.content }}{{ '<|return|>' if loop.last else '<|end|>' }}"
       "{%- else %}<|start|>{{ m.role }}<|message|>{{ m.content }}<|end|>{%- endif -%}"
       "{%- if tools and loop.first %}<|start|>developer<|message|>{{ tools | tojson }}<|end|>{% endif -%}"
       "{%- endfor -%}{%- if add_generation_prompt %}<|start|>assistant{% endif -%}",
       {"<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|constrain|>", "<|return|>", "<|call|>"},
       false},
  };
  return forms;
}
#undef BATON_CALL_TEMPLATE

inline ModelText model_of(const CallForm& form) {
  ModelText model = *toy_model();
  model.tokenizer = std::make_shared<ByteTokenizer>(form.special);
  model.chat_template = ChatTemplate::parse(form.source, form.name);
  return model;
}

}  // namespace baton::test
