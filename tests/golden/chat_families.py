# SPDX-License-Identifier: Apache-2.0
"""Makes tests/golden/chat/manners.json: templates in the manner of current families, rendered by Transformers.

    python tests/golden/chat_families.py

The templates are written for this test; what they do to messages, tools, thinking and dates is what those of the
families do.
"""
import datetime
import itertools
import json
import pathlib

from transformers.utils.chat_template_utils import _compile_jinja_template

OUT = pathlib.Path(__file__).parent / "chat" / "manners.json"
NOW = datetime.datetime(2026, 11, 28, 13, 5, 9)

QWEN_TOOLS = r"""{%- if tools %}
    {{- '<|im_start|>system\n' }}
    {%- if messages[0].role == 'system' %}
        {{- messages[0].content + '\n\n' }}
    {%- endif %}
    {{- "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n<tools>" }}
    {%- for tool in tools %}
        {{- "\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\n</tools>\n\nReturn {\"name\": <function-name>, \"arguments\": <args-json-object>} in <tool_call></tool_call>.<|im_end|>\n" }}
{%- else %}
    {%- if messages[0].role == 'system' %}
        {{- '<|im_start|>system\n' + messages[0].content + '<|im_end|>\n' }}
    {%- endif %}
{%- endif %}
"""

QWEN_CALLS = r"""
        {%- if message.tool_calls %}
            {%- for tool_call in message.tool_calls %}
                {%- if (loop.first and content) or (not loop.first) %}{{- '\n' }}{%- endif %}
                {%- if tool_call.function %}{%- set tool_call = tool_call.function %}{%- endif %}
                {{- '<tool_call>\n{"name": "' }}{{- tool_call.name }}{{- '", "arguments": ' }}
                {%- if tool_call.arguments is string %}{{- tool_call.arguments }}{%- else %}{{- tool_call.arguments | tojson }}{%- endif %}
                {{- '}\n</tool_call>' }}
            {%- endfor %}
        {%- endif %}
        {{- '<|im_end|>\n' }}
    {%- elif message.role == "tool" %}
        {%- if loop.first or (messages[loop.index0 - 1].role != "tool") %}{{- '<|im_start|>user' }}{%- endif %}
        {{- '\n<tool_response>\n' }}{{- message.content }}{{- '\n</tool_response>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}{{- '<|im_end|>\n' }}{%- endif %}
    {%- endif %}
{%- endfor %}
"""

QWEN_LAST_QUERY = r"""{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step_tool and message.role == "user" and message.content is string and not(message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}
        {%- set ns.multi_step_tool = false %}
        {%- set ns.last_query_index = index %}
    {%- endif %}
{%- endfor %}
"""

QWEN_THINKING = r"""
        {%- set reasoning_content = '' %}
        {%- if message.reasoning_content is string %}
            {%- set reasoning_content = message.reasoning_content %}
        {%- else %}
            {%- if '</think>' in content %}
                {%- set reasoning_content = content.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') %}
                {%- set content = content.split('</think>')[-1].lstrip('\n') %}
            {%- endif %}
        {%- endif %}
        {%- if loop.index0 > ns.last_query_index %}
            {%- if loop.last or (not loop.last and reasoning_content) %}
                {{- '<|im_start|>' + message.role + '\n<think>\n' + reasoning_content.strip('\n') + '\n</think>\n\n' + content.lstrip('\n') }}
            {%- else %}
                {{- '<|im_start|>' + message.role + '\n' + content }}
            {%- endif %}
        {%- else %}
            {{- '<|im_start|>' + message.role + '\n' + content }}
        {%- endif %}
"""

TEMPLATES = {
    "chatml_default_system": r"""{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n' }}{% endif %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}""",
    "qwen25": QWEN_TOOLS + r"""{%- for message in messages %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) or (message.role == "assistant" and not message.tool_calls) %}
        {{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>' + '\n' }}
    {%- elif message.role == "assistant" %}
        {{- '<|im_start|>' + message.role }}
        {%- set content = message.content %}
        {%- if content %}{{- '\n' + content }}{%- endif %}""" + QWEN_CALLS + r"""{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
{%- endif %}
""",
    "qwen3": QWEN_TOOLS + QWEN_LAST_QUERY + r"""{%- for message in messages %}
    {%- if message.content is string %}{%- set content = message.content %}{%- else %}{%- set content = '' %}{%- endif %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\n' + content + '<|im_end|>' + '\n' }}
    {%- elif message.role == "assistant" %}""" + QWEN_THINKING + QWEN_CALLS + r"""{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\n\n</think>\n\n' }}
    {%- endif %}
{%- endif %}
""",
    "qwen3_thinking_2507": QWEN_TOOLS + QWEN_LAST_QUERY + r"""{%- for message in messages %}
    {%- set content = message.content if message.content is string else '' %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\n' + content + '<|im_end|>' + '\n' }}
    {%- elif message.role == "assistant" %}""" + QWEN_THINKING + QWEN_CALLS + r"""{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n<think>\n' }}{%- endif %}""",
    "qwen35": r"""{%- macro render_content(content, is_system=false) %}
    {%- if content is string %}{{- content }}
    {%- elif content is iterable and content is not mapping %}
        {%- for item in content %}{%- if 'text' in item %}{{- item.text }}{%- else %}{{- raise_exception('Unexpected item type in content.') }}{%- endif %}{%- endfor %}
    {%- elif content is none or content is undefined %}{{- '' }}
    {%- else %}{{- raise_exception('Unexpected content type.') }}{%- endif %}
{%- endmacro %}
{%- if not messages %}{{- raise_exception('No messages provided.') }}{%- endif %}
{%- if tools and tools is iterable and tools is not mapping %}
    {{- '<|im_start|>system\n' }}{{- "# Tools\n\nYou have access to the following functions:\n\n<tools>" }}
    {%- for tool in tools %}{{- "\n" }}{{- tool | tojson }}{%- endfor %}
    {{- "\n</tools>" }}
    {%- if messages[0].role == 'system' %}
        {%- set content = render_content(messages[0].content, true)|trim %}
        {%- if content %}{{- '\n\n' + content }}{%- endif %}
    {%- endif %}
    {{- '<|im_end|>\n' }}
{%- else %}
    {%- if messages[0].role == 'system' %}{{- '<|im_start|>system\n' + render_content(messages[0].content, true)|trim + '<|im_end|>\n' }}{%- endif %}
{%- endif %}
{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step_tool and message.role == "user" %}
        {%- set content = render_content(message.content)|trim %}
        {%- if not(content.startswith('<tool_response>') and content.endswith('</tool_response>')) %}{%- set ns.multi_step_tool = false %}{%- set ns.last_query_index = index %}{%- endif %}
    {%- endif %}
{%- endfor %}
{%- if ns.multi_step_tool %}{{- raise_exception('No user query found in messages.') }}{%- endif %}
{%- for message in messages %}
    {%- set content = render_content(message.content)|trim %}
    {%- if message.role == "system" %}
        {%- if not loop.first %}{{- raise_exception('System message must be at the beginning.') }}{%- endif %}
    {%- elif message.role == "user" %}{{- '<|im_start|>' + message.role + '\n' + content + '<|im_end|>' + '\n' }}
    {%- elif message.role == "assistant" %}
        {%- set reasoning_content = '' %}
        {%- if message.reasoning_content is string %}{%- set reasoning_content = message.reasoning_content %}
        {%- elif '</think>' in content %}
            {%- set reasoning_content = content.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\n') %}
        {%- endif %}
        {%- set reasoning_content = reasoning_content|trim %}
        {%- if loop.index0 > ns.last_query_index %}{{- '<|im_start|>' + message.role + '\n<think>\n' + reasoning_content + '\n</think>\n\n' + content }}
        {%- else %}{{- '<|im_start|>' + message.role + '\n' + content }}{%- endif %}
        {%- if message.tool_calls and message.tool_calls is iterable and message.tool_calls is not mapping %}
            {%- for tool_call in message.tool_calls %}
                {%- if tool_call.function is defined %}{%- set tool_call = tool_call.function %}{%- endif %}
                {%- if loop.first and content|trim %}{{- '\n\n<tool_call>\n<function=' + tool_call.name + '>\n' }}{%- elif loop.first %}{{- '<tool_call>\n<function=' + tool_call.name + '>\n' }}{%- else %}{{- '\n<tool_call>\n<function=' + tool_call.name + '>\n' }}{%- endif %}
                {%- if tool_call.arguments is defined %}
                    {%- for args_name, args_value in tool_call.arguments|items %}
                        {{- '<parameter=' + args_name + '>\n' }}
                        {%- set args_value = args_value | string if args_value is string else args_value | tojson | safe %}
                        {{- args_value }}{{- '\n</parameter>\n' }}
                    {%- endfor %}
                {%- endif %}
                {{- '</function>\n</tool_call>' }}
            {%- endfor %}
        {%- endif %}
        {{- '<|im_end|>\n' }}
    {%- elif message.role == "tool" %}
        {%- if loop.previtem and loop.previtem.role != "tool" %}{{- '<|im_start|>user' }}{%- endif %}
        {{- '\n<tool_response>\n' }}{{- content }}{{- '\n</tool_response>' }}
        {%- if not loop.last and loop.nextitem.role != "tool" %}{{- '<|im_end|>\n' }}{%- elif loop.last %}{{- '<|im_end|>\n' }}{%- endif %}
    {%- else %}{{- raise_exception('Unexpected message role.') }}{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\n\n</think>\n\n' }}{%- else %}{{- '<think>\n' }}{%- endif %}
{%- endif %}""",
    "qwen3_coder": r"""{% macro render_extra_keys(json_dict, handled_keys) %}
    {%- if json_dict is mapping %}
        {%- for json_key in json_dict if json_key not in handled_keys %}
            {%- if json_dict[json_key] is mapping or (json_dict[json_key] is sequence and json_dict[json_key] is not string) %}
                {{- '\n<' ~ json_key ~ '>' ~ (json_dict[json_key] | tojson | safe) ~ '</' ~ json_key ~ '>' }}
            {%- else %}
                {{-'\n<' ~ json_key ~ '>' ~ (json_dict[json_key] | string) ~ '</' ~ json_key ~ '>' }}
            {%- endif %}
        {%- endfor %}
    {%- endif %}
{% endmacro %}
{%- if messages[0]["role"] == "system" %}{%- set system_message = messages[0]["content"] %}{%- set loop_messages = messages[1:] %}
{%- else %}{%- set loop_messages = messages %}{%- endif %}
{%- if not tools is defined %}{%- set tools = [] %}{%- endif %}
{%- if system_message is defined %}{{- "<|im_start|>system\n" + system_message }}
{%- else %}{%- if tools is iterable and tools | length > 0 %}{{- "<|im_start|>system\nYou are Qwen, a helpful AI assistant." }}{%- endif %}{%- endif %}
{%- if tools is iterable and tools | length > 0 %}
    {{- "\n\n# Tools\n\n<tools>" }}
    {%- for tool in tools %}
        {%- if tool.function is defined %}{%- set tool = tool.function %}{%- endif %}
        {{- "\n<function>\n<name>" ~ tool.name ~ "</name>" }}
        {%- if tool.description is defined %}{{- '\n<description>' ~ (tool.description | trim) ~ '</description>' }}{%- endif %}
        {{- '\n<parameters>' }}
        {%- if tool.parameters is defined and tool.parameters is mapping and tool.parameters.properties is defined and tool.parameters.properties is mapping %}
            {%- for param_name, param_fields in tool.parameters.properties|items %}
                {{- '\n<parameter>' }}{{- '\n<name>' ~ param_name ~ '</name>' }}
                {%- if param_fields.type is defined %}{{- '\n<type>' ~ (param_fields.type | string) ~ '</type>' }}{%- endif %}
                {%- set handled_keys = ['name', 'type', 'description'] %}
                {{- render_extra_keys(param_fields, handled_keys) }}
                {{- '\n</parameter>' }}
            {%- endfor %}
        {%- endif %}
        {% set handled_keys = ['type', 'properties'] %}
        {{- render_extra_keys(tool.parameters, handled_keys) }}
        {{- '\n</parameters>\n</function>' }}
    {%- endfor %}
    {{- "\n</tools>" }}
{%- endif %}
{%- if system_message is defined %}{{- '<|im_end|>\n' }}{%- else %}{%- if tools is iterable and tools | length > 0 %}{{- '<|im_end|>\n' }}{%- endif %}{%- endif %}
{%- for message in loop_messages %}
    {%- if message.role == "assistant" and message.tool_calls is defined and message.tool_calls is iterable and message.tool_calls | length > 0 %}
        {{- '<|im_start|>' + message.role }}
        {%- if message.content is defined and message.content is string and message.content | trim | length > 0 %}{{- '\n' + message.content | trim + '\n' }}{%- endif %}
        {%- for tool_call in message.tool_calls %}
            {%- if tool_call.function is defined %}{%- set tool_call = tool_call.function %}{%- endif %}
            {{- '\n<tool_call>\n<function=' + tool_call.name + '>\n' }}
            {%- for args_name, args_value in tool_call.arguments|items %}
                {{- '<parameter=' + args_name + '>\n' }}
                {%- set args_value = args_value | tojson | safe if args_value is mapping or (args_value is sequence and args_value is not string) else args_value | string %}
                {{- args_value }}{{- '\n</parameter>\n' }}
            {%- endfor %}
            {{- '</function>\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\n' }}
    {%- elif message.role == "user" or message.role == "system" or message.role == "assistant" %}{{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>' + '\n' }}
    {%- elif message.role == "tool" %}
        {%- if loop.previtem and loop.previtem.role != "tool" %}{{- '<|im_start|>user\n' }}{%- endif %}
        {{- '<tool_response>\n' }}{{- message.content }}{{- '\n</tool_response>\n' }}
        {%- if not loop.last and loop.nextitem.role != "tool" %}{{- '<|im_end|>\n' }}{%- elif loop.last %}{{- '<|im_end|>\n' }}{%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}
""",
    "llama2": r"""{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}{% set system_message = messages[0]['content'] %}{% else %}{% set loop_messages = messages %}{% set system_message = false %}{% endif %}{% for message in loop_messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}{% if loop.index0 == 0 and system_message != false %}{% set content = '<<SYS>>\n' + system_message + '\n<</SYS>>\n\n' + message['content'] %}{% else %}{% set content = message['content'] %}{% endif %}{% if message['role'] == 'user' %}{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}{% elif message['role'] == 'assistant' %}{{ ' '  + content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}""",
    "llama3": r"""{% set loop_messages = messages %}{% for message in loop_messages %}{% set content = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'+ message['content'] | trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}{{ content }}{% endfor %}{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}""",
    "llama31": r"""{{- bos_token }}
{%- if not tools_in_user_message is defined %}{%- set tools_in_user_message = true %}{%- endif %}
{%- if not date_string is defined %}
    {%- if strftime_now is defined %}{%- set date_string = strftime_now("%d %b %Y") %}{%- else %}{%- set date_string = "26 Jul 2024" %}{%- endif %}
{%- endif %}
{%- if not tools is defined %}{%- set tools = none %}{%- endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\n\n" }}
{%- if tools is not none %}{{- "Environment: ipython\n" }}{%- endif %}
{{- "Cutting Knowledge Date: December 2023\n" }}
{{- "Today Date: " + date_string + "\n\n" }}
{%- if tools is not none and not tools_in_user_message %}
    {{- "You have access to the following functions.\n\n" }}
    {%- for t in tools %}{{- t | tojson(indent=4) }}{{- "\n\n" }}{%- endfor %}
{%- endif %}
{{- system_message }}
{{- "<|eot_id|>" }}
{%- if tools_in_user_message and not tools is none %}
    {%- if messages | length != 0 %}
        {%- set first_user_message = messages[0]['content']|trim %}
        {%- set messages = messages[1:] %}
    {%- else %}
        {{- raise_exception("Cannot put tools in the first user message when there's no first user message!") }}
    {%- endif %}
    {{- '<|start_header_id|>user<|end_header_id|>\n\n' -}}
    {{- "Given the following functions, please respond with a JSON for a function call.\n\n" }}
    {%- for t in tools %}{{- t | tojson(indent=4) }}{{- "\n\n" }}{%- endfor %}
    {{- first_user_message + "<|eot_id|>"}}
{%- endif %}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'+ message['content'] | trim + '<|eot_id|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls|length == 1 %}{{- raise_exception("This model only supports single tool-calls at once!") }}{%- endif %}
        {%- set tool_call = message.tool_calls[0].function %}
        {{- '<|start_header_id|>assistant<|end_header_id|>\n\n' -}}
        {{- '{"name": "' + tool_call.name + '", ' }}{{- '"parameters": ' }}{{- tool_call.arguments | tojson }}{{- "}" }}
        {{- "<|eot_id|>" }}
    {%- elif message.role == "tool" or message.role == "ipython" %}
        {{- "<|start_header_id|>ipython<|end_header_id|>\n\n" }}
        {%- if message.content is mapping or message.content is iterable %}{{- message.content | tojson }}{%- else %}{{- message.content }}{%- endif %}
        {{- "<|eot_id|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{%- endif %}
""",
    "llama4": r"""{{- bos_token }}
{%- if messages[0]['role'] == 'system' %}
    {%- if messages[0]['content'] is string %}{%- set system_message = messages[0]['content']|trim %}{%- else %}{%- set system_message = messages[0]['content'][0]['text']|trim %}{%- endif %}
    {%- set messages = messages[1:] %}{%- set user_supplied_system_message = true %}
{%- else %}{%- set system_message = "" %}{%- set user_supplied_system_message = false %}{%- endif %}
{%- if user_supplied_system_message %}{{- "<|header_start|>system<|header_end|>\n\n" }}{%- if tools is not none %}{{- "Environment: ipython\n" }}{%- endif %}{{- system_message }}{{- "<|eot|>" }}{%- endif %}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|header_start|>' + message['role'] + '<|header_end|>\n\n' }}
        {%- if message['content'] is string %}{{- message['content'] }}{%- else %}{%- for content in message['content'] %}{%- if content['type'] == 'text' %}{{- content['text'] }}{%- endif %}{%- endfor %}{%- endif %}
        {{- "<|eot|>" }}
    {%- elif 'tool_calls' in message and message.tool_calls|length > 0 %}
        {{- '<|header_start|>assistant<|header_end|>\n\n' -}}{{- '<|python_start|>' }}{{- message['content'] }}{{- '<|python_end|>' }}
        {%- for tool_call in message.tool_calls %}{{- '{"name": "' + tool_call.function.name + '", ' }}{{- '"parameters": ' }}{{- tool_call.function.arguments | tojson }}{{- "}" }}{%- endfor %}
        {{- "<|eot|>" }}
    {%- elif message.role == "tool" or message.role == "ipython" %}
        {{- "<|header_start|>ipython<|header_end|>\n\n" }}{%- if message.content is string %}{{- message.content | tojson }}{%- else %}{{- message.content }}{%- endif %}{{- "<|eot|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|header_start|>assistant<|header_end|>\n\n' }}{%- endif %}
""",
    "gemma2": r"""{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}{% if (message['role'] == 'assistant') %}{% set role = 'model' %}{% else %}{% set role = message['role'] %}{% endif %}{{ '<start_of_turn>' + role + '\n' + message['content'] | trim + '<end_of_turn>\n' }}{% endfor %}{% if add_generation_prompt %}{{'<start_of_turn>model\n'}}{% endif %}""",
    "gemma3": r"""{{ bos_token }}
{%- if messages[0]['role'] == 'system' -%}
    {%- if messages[0]['content'] is string -%}{%- set first_user_prefix = messages[0]['content'] + '\n\n' -%}{%- else -%}{%- set first_user_prefix = messages[0]['content'][0]['text'] + '\n\n' -%}{%- endif -%}
    {%- set loop_messages = messages[1:] -%}
{%- else -%}{%- set first_user_prefix = "" -%}{%- set loop_messages = messages -%}{%- endif -%}
{%- for message in loop_messages -%}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}{{ raise_exception("Conversation roles must alternate user/assistant/user/assistant/...") }}{%- endif -%}
    {%- if (message['role'] == 'assistant') -%}{%- set role = "model" -%}{%- else -%}{%- set role = message['role'] -%}{%- endif -%}
    {{ '<start_of_turn>' + role + '\n' + (first_user_prefix if loop.first else "") }}
    {%- if message['content'] is string -%}{{ message['content'] | trim }}
    {%- elif message['content'] is iterable -%}{%- for item in message['content'] -%}{%- if item['type'] == 'image' -%}{{ '<start_of_image>' }}{%- elif item['type'] == 'text' -%}{{ item['text'] | trim }}{%- endif -%}{%- endfor -%}
    {%- else -%}{{ raise_exception("Invalid content type") }}{%- endif -%}
    {{ '<end_of_turn>\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{'<start_of_turn>model\n'}}{%- endif -%}
""",
    "gemma4": r"""{%- macro format_argument(argument, escape_keys=True) -%}
    {%- if argument is string -%}{{- '<|"|>' + argument + '<|"|>' -}}
    {%- elif argument is boolean -%}{{- 'true' if argument else 'false' -}}
    {%- elif argument is mapping -%}
        {{- '{' -}}{%- set ns = namespace(found_first=false) -%}
        {%- for key, value in argument | dictsort -%}
            {%- if ns.found_first %},{% endif -%}{%- set ns.found_first = true -%}
            {%- if escape_keys -%}{{- '<|"|>' + key + '<|"|>' -}}{%- else -%}{{- key -}}{%- endif -%}
            :{{- format_argument(value, escape_keys=escape_keys) -}}
        {%- endfor -%}{{- '}' -}}
    {%- elif argument is sequence -%}
        {{- '[' -}}{%- for item in argument -%}{{- format_argument(item, escape_keys=escape_keys) -}}{%- if not loop.last %},{% endif -%}{%- endfor -%}{{- ']' -}}
    {%- else -%}{{- argument -}}{%- endif -%}
{%- endmacro -%}
{%- macro strip_thinking(text) -%}
    {%- set ns = namespace(result='') -%}
    {%- for part in text.split('<channel|>') -%}
        {%- if '<|channel>' in part -%}{%- set ns.result = ns.result + part.split('<|channel>')[0] -%}{%- else -%}{%- set ns.result = ns.result + part -%}{%- endif -%}
    {%- endfor -%}
    {{- ns.result | trim -}}
{%- endmacro -%}
{{ bos_token }}
{%- set ns = namespace(prev_message_type=None) -%}
{%- set loop_messages = messages -%}
{%- if (enable_thinking is defined and enable_thinking) or tools or messages[0]['role'] in ['system', 'developer'] -%}
    {{- '<|turn>system\n' -}}
    {%- if enable_thinking is defined and enable_thinking -%}{{- '<|think|>\n' -}}{%- set ns.prev_message_type = 'think' -%}{%- endif -%}
    {%- if messages[0]['role'] in ['system', 'developer'] -%}{{- messages[0]['content'] | trim -}}{%- set loop_messages = messages[1:] -%}{%- endif -%}
    {%- if tools -%}{%- for tool in tools %}{{- '<|tool>' -}}declaration:{{ tool['function']['name'] }}{{ format_argument(tool['function']['parameters']) | trim }}{{- '<tool|>' -}}{%- endfor %}{%- set ns.prev_message_type = 'tool' -%}{%- endif -%}
    {{- '<turn|>\n' -}}
{%- endif %}
{%- for message in loop_messages -%}
    {%- set ns.prev_message_type = None -%}
    {%- set role = 'model' if message['role'] == 'assistant' else message['role'] -%}
    {{- '<|turn>' + role + '\n' }}
    {%- if message['tool_calls'] -%}
        {%- for tool_call in message['tool_calls'] -%}
            {%- set function = tool_call['function'] -%}
            {{- '<|tool_call>call:' + function['name'] -}}
            {%- if function['arguments'] is mapping -%}{{- '{' -}}{%- set ns_args = namespace(found_first=false) -%}
                {%- for key, value in function['arguments'] | dictsort -%}{%- if ns_args.found_first %},{% endif -%}{%- set ns_args.found_first = true -%}{{- key -}}:{{- format_argument(value, escape_keys=False) -}}{%- endfor -%}{{- '}' -}}
            {%- elif function['arguments'] is string -%}{{- function['arguments'] -}}{%- endif -%}
            {{- '<tool_call|>' -}}
        {%- endfor -%}
        {%- set ns.prev_message_type = 'tool_call' -%}
    {%- endif -%}
    {%- if message['content'] is string -%}
        {%- if role == 'model' -%}{{- strip_thinking(message['content']) -}}{%- else -%}{{- message['content'] | trim -}}{%- endif -%}
    {%- endif -%}
    {%- if not (message['tool_calls'] and not message['content']) -%}{{- '<turn|>\n' -}}{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{%- if ns.prev_message_type != 'tool_call' -%}{{- '<|turn>model\n' -}}{%- endif -%}{%- if not enable_thinking | default(false) -%}{{- '<|channel>thought\n<channel|>' -}}{%- endif -%}{%- endif -%}
""",
    "gpt_oss": r"""{%- macro render_typescript_type(param_spec, required_params, is_nullable=false) -%}
    {%- if param_spec.type == "array" -%}
        {%- if param_spec['items'] -%}
            {%- if param_spec['items']['type'] == "string" -%}{{- "string[]" }}
            {%- elif param_spec['items']['type'] == "number" or param_spec['items']['type'] == "integer" -%}{{- "number[]" }}
            {%- else -%}{%- set inner_type = render_typescript_type(param_spec['items'], required_params) -%}{%- if inner_type|length > 50 -%}{{- "any[]" }}{%- else -%}{{- inner_type + "[]" }}{%- endif -%}{%- endif -%}
        {%- else -%}{{- "any[]" }}{%- endif -%}
    {%- elif param_spec.type is defined and param_spec.type is iterable and param_spec.type is not string and param_spec.type is not mapping -%}
        {{- param_spec.type | join(" | ") }}
    {%- elif param_spec.oneOf -%}
        {%- for variant in param_spec.oneOf -%}{{- render_typescript_type(variant, required_params) -}}{%- if variant.description %}{{- "// " + variant.description }}{%- endif -%}{%- if not loop.last %}{{- " | " }}{% endif -%}{%- endfor -%}
    {%- elif param_spec.type == "string" -%}{%- if param_spec.enum -%}{{- '"' + param_spec.enum|join('" | "') + '"' -}}{%- else -%}{{- "string" }}{%- endif -%}
    {%- elif param_spec.type == "number" or param_spec.type == "integer" -%}{{- "number" }}
    {%- elif param_spec.type == "boolean" -%}{{- "boolean" }}
    {%- elif param_spec.type == "object" -%}
        {%- if param_spec.properties -%}{{- "{\n" }}
            {%- for prop_name, prop_spec in param_spec.properties.items() -%}{{- prop_name -}}{%- if prop_name not in (param_spec.required or []) -%}{{- "?" }}{%- endif -%}{{- ": " }}{{ render_typescript_type(prop_spec, param_spec.required or []) }}{%- if not loop.last -%}{{-", " }}{%- endif -%}{%- endfor -%}{{- "}" }}
        {%- else -%}{{- "object" }}{%- endif -%}
    {%- else -%}{{- "any" }}{%- endif -%}
{%- endmacro -%}
{%- macro render_tool_namespace(namespace_name, tools) -%}
    {{- "## " + namespace_name + "\n\n" }}{{- "namespace " + namespace_name + " {\n\n" }}
    {%- for tool in tools %}
        {%- set tool = tool.function %}
        {{- "// " + tool.description + "\n" }}{{- "type "+ tool.name + " = " }}
        {%- if tool.parameters and tool.parameters.properties %}
            {{- "(_: {\n" }}
            {%- for param_name, param_spec in tool.parameters.properties.items() %}
                {%- if param_spec.description %}{{- "// " + param_spec.description + "\n" }}{%- endif %}
                {{- param_name }}
                {%- if param_name not in (tool.parameters.required or []) -%}{{- "?" }}{%- endif -%}
                {{- ": " }}{{- render_typescript_type(param_spec, tool.parameters.required or []) }}
                {%- if param_spec.default is defined -%}{%- if param_spec.enum %}{{- ", // default: " + param_spec.default }}{%- elif param_spec.oneOf %}{{- "// default: " + param_spec.default }}{%- else %}{{- ", // default: " + param_spec.default|tojson }}{%- endif -%}{%- endif -%}
                {%- if not loop.last %}{{- ",\n" }}{%- else %}{{- ",\n" }}{%- endif -%}
            {%- endfor %}
            {{- "}) => any;\n\n" }}
        {%- else -%}{{- "() => any;\n\n" }}{%- endif -%}
    {%- endfor %}
    {{- "} // namespace " + namespace_name }}
{%- endmacro -%}
{%- macro build_system_message() -%}
    {%- if model_identity is not defined %}{%- set model_identity = "You are ChatGPT, a large language model trained by OpenAI." %}{%- endif %}
    {{- model_identity + "\n" }}{{- "Knowledge cutoff: 2024-06\n" }}{{- "Current date: " + strftime_now("%Y-%m-%d") + "\n\n" }}
    {%- if reasoning_effort is not defined %}{%- set reasoning_effort = "medium" %}{%- endif %}
    {{- "Reasoning: " + reasoning_effort + "\n\n" }}
    {{- "# Valid channels: analysis, commentary, final. Channel must be included for every message." }}
    {%- if tools -%}{{- "\nCalls to these tools must go to the commentary channel: 'functions'." }}{%- endif -%}
{%- endmacro -%}
{{- "<|start|>system<|message|>" }}{{- build_system_message() }}{{- "<|end|>" }}
{%- if messages[0].role == "developer" or messages[0].role == "system" %}{%- set developer_message = messages[0].content %}{%- set loop_messages = messages[1:] %}
{%- else %}{%- set developer_message = "" %}{%- set loop_messages = messages %}{%- endif %}
{%- if developer_message or tools %}
    {{- "<|start|>developer<|message|>" }}
    {%- if developer_message %}{{- "# Instructions\n\n" }}{{- developer_message }}{{- "\n\n" }}{%- endif %}
    {%- if tools -%}{{- "# Tools\n\n" }}{{- render_tool_namespace("functions", tools) }}{%- endif -%}
    {{- "<|end|>" }}
{%- endif %}
{%- set last_tool_call = namespace(name=none) %}
{%- for message in loop_messages -%}
    {%- if message.role == 'assistant' -%}
        {%- if "content" in message %}
            {%- if "<|channel|>analysis<|message|>" in message.content or "<|channel|>final<|message|>" in message.content %}{{- raise_exception("You have passed a message containing <|channel|> tags in the content field.") }}{%- endif %}
        {%- endif %}
        {%- if "tool_calls" in message %}
            {%- set future_final_message = namespace(found=false) %}
            {%- for future_message in loop_messages[loop.index:] %}{%- if future_message.role == 'assistant' and "tool_calls" not in future_message %}{%- set future_final_message.found = true %}{%- endif %}{%- endfor %}
            {%- set tool_call = message.tool_calls[0] %}{%- if tool_call.function %}{%- set tool_call = tool_call.function %}{%- endif %}
            {%- if message.content and message.thinking %}{{- "<|start|>assistant<|channel|>analysis<|message|>" + message.thinking + "<|end|>" }}
            {%- elif message.content and not future_final_message.found %}{{- "<|start|>assistant<|channel|>analysis<|message|>" + message.content + "<|end|>" }}
            {%- elif message.thinking and not future_final_message.found %}{{- "<|start|>assistant<|channel|>analysis<|message|>" + message.thinking + "<|end|>" }}{%- endif %}
            {{- "<|start|>assistant to=" }}{{- "functions." + tool_call.name + "<|channel|>commentary " }}{{- (tool_call.content_type if tool_call.content_type is defined else "json") + "<|message|>" }}{{- tool_call.arguments|tojson }}{{- "<|call|>" }}
            {%- set last_tool_call.name = tool_call.name %}
        {%- elif loop.last and not add_generation_prompt %}
            {%- if "thinking" in message %}{{- "<|start|>assistant<|channel|>analysis<|message|>" + message.thinking + "<|end|>" }}{%- endif %}
            {{- "<|start|>assistant<|channel|>final<|message|>" + message.content + "<|return|>" }}
        {%- else %}
            {{- "<|start|>assistant<|channel|>final<|message|>" + message.content + "<|end|>" }}{%- set last_tool_call.name = none %}
        {%- endif %}
    {%- elif message.role == 'tool' -%}
        {%- if last_tool_call.name is none %}{{- raise_exception("Message has tool role, but there was no previous assistant message with a tool call!") }}{%- endif %}
        {{- "<|start|>functions." + last_tool_call.name }}{{- " to=assistant<|channel|>commentary<|message|>" + message.content|tojson + "<|end|>" }}
    {%- elif message.role == 'user' -%}{{- "<|start|>user<|message|>" + message.content + "<|end|>" }}{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}<|start|>assistant{%- endif -%}""",
    "lfm2": r"""{{- bos_token -}}
{%- set system_prompt = "" -%}
{%- set ns = namespace(system_prompt="") -%}
{%- if messages[0]["role"] == "system" -%}{%- set ns.system_prompt = messages[0]["content"] -%}{%- set messages = messages[1:] -%}{%- endif -%}
{%- if tools -%}
    {%- set ns.system_prompt = ns.system_prompt + ("\n" if ns.system_prompt else "") + "List of tools: <|tool_list_start|>[" -%}
    {%- for tool in tools -%}
        {%- if tool is not string -%}{%- set tool = tool | tojson -%}{%- endif -%}
        {%- set ns.system_prompt = ns.system_prompt + tool -%}
        {%- if not loop.last -%}{%- set ns.system_prompt = ns.system_prompt + ", " -%}{%- endif -%}
    {%- endfor -%}
    {%- set ns.system_prompt = ns.system_prompt + "]<|tool_list_end|>" -%}
{%- endif -%}
{%- if ns.system_prompt -%}{{- "<|im_start|>system\n" + ns.system_prompt + "<|im_end|>\n" -}}{%- endif -%}
{%- for message in messages -%}
    {{- "<|im_start|>" + message["role"] + "\n" -}}
    {%- set content = message["content"] -%}
    {%- if content is not string -%}{%- set content = content | tojson -%}{%- endif -%}
    {%- if message["role"] == "tool" -%}{%- set content = "<|tool_response_start|>" + content + "<|tool_response_end|>" -%}{%- endif -%}
    {{- content + "<|im_end|>\n" -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- "<|im_start|>assistant\n" -}}{%- endif -%}
""",
    "lfm25_thinking": r"""{{- bos_token -}}
{%- set keep_past_thinking = keep_past_thinking | default(false) -%}
{%- set ns = namespace(last_assistant_index=-1) -%}
{%- for message in messages -%}{%- if message["role"] == "assistant" -%}{%- set ns.last_assistant_index = loop.index0 -%}{%- endif -%}{%- endfor -%}
{%- for message in messages -%}
    {{- "<|im_start|>" + message["role"] + "\n" -}}
    {%- set content = message["content"] -%}
    {%- if message["role"] == "assistant" and not keep_past_thinking and loop.index0 != ns.last_assistant_index -%}
        {%- if "</think>" in content -%}{%- set content = content.split("</think>")[-1] | trim -%}{%- endif -%}
    {%- endif -%}
    {{- content + "<|im_end|>\n" -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- "<|im_start|>assistant\n" -}}{%- endif -%}
""",
    "granite33": r"""{%- if messages[0]['role'] == 'system' %}{%- set system_message = messages[0]['content'] %}{%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set system_message = "Knowledge Cutoff Date: April 2024.\nToday's Date: " + strftime_now('%B %d, %Y') + ".\nYou are Granite, developed by IBM." %}
    {%- if tools and documents %}{%- set system_message = system_message + " Use both." %}
    {%- elif tools %}{%- set system_message = system_message + " You are a helpful assistant with access to the following tools." %}
    {%- elif thinking %}{%- set system_message = system_message + " Write your thoughts between <think></think>." %}
    {%- else %}{%- set system_message = system_message + " You are a helpful AI assistant." %}{%- endif %}
    {%- set loop_messages = messages %}
{%- endif %}
{{- '<|start_of_role|>system<|end_of_role|>' + system_message + '<|end_of_text|>\n' }}
{%- if tools %}{{- '<|start_of_role|>available_tools<|end_of_role|>' }}{{- tools | tojson(indent=4) }}{{- '<|end_of_text|>\n' }}{%- endif %}
{%- for message in loop_messages %}
    {{- '<|start_of_role|>' + message['role'] + '<|end_of_role|>' + message['content'] + '<|end_of_text|>\n' }}
    {%- if loop.last and add_generation_prompt %}{{- '<|start_of_role|>assistant' }}{%- if controls %}{{- ' ' + controls | tojson()}}{%- endif %}{{- '<|end_of_role|>' }}{%- endif %}
{%- endfor %}""",
    "granite4": r"""{%- set tools_system_message_prefix = 'You are a helpful assistant with access to the following tools.\n\n<tools>' %}
{%- set tools_system_message_suffix = '\n</tools>\n\nReturn a json object in <tool_call></tool_call> tags.' %}
{%- set system_message = 'You are a helpful assistant. Please ensure responses are professional.' %}
{%- set ns = namespace(tools_system_message='', system_message='', tool_calls='') %}
{%- if tools %}
    {%- for tool in tools %}{%- set ns.tools_system_message = ns.tools_system_message + '\n' + (tool | tojson) %}{%- endfor %}
    {%- set ns.tools_system_message = tools_system_message_prefix + ns.tools_system_message + tools_system_message_suffix %}
{%- endif %}
{%- if messages[0].role == 'system' %}
    {%- if messages[0].content is string %}{%- set ns.system_message = messages[0].content %}
    {%- elif messages[0].content is iterable %}{%- for entry in messages[0].content %}{%- if entry.type== 'text' %}{%- if ns.system_message != '' %}{%- set ns.system_message = ns.system_message + '\n' %}{%- endif %}{%- set ns.system_message = ns.system_message + entry.text %}{%- endif %}{%- endfor %}{%- endif %}
    {%- if tools %}{%- set ns.system_message = ns.system_message + '\n\n' + ns.tools_system_message %}{%- endif %}
    {{- '<|start_of_role|>system<|end_of_role|>' + ns.system_message + '<|end_of_text|>\n' }}
{%- else %}
    {{- '<|start_of_role|>system<|end_of_role|>' + (ns.tools_system_message if tools else system_message) + '<|end_of_text|>\n' }}
{%- endif %}
{%- for message in messages %}
    {%- set content = namespace(val='') %}
    {%- if message.content is string %}{%- set content.val = message.content %}{%- endif %}
    {%- if (message.role == 'user') or (message.role == 'system' and not loop.first) %}{{- '<|start_of_role|>' + message.role + '<|end_of_role|>' + content.val + '<|end_of_text|>\n' }}
    {%- elif message.role == 'assistant' %}
        {{- '<|start_of_role|>' + message.role + '<|end_of_role|>' + content.val }}
        {%- if message.tool_calls %}
            {%- for tool_call in message.tool_calls %}
                {%- if (loop.first and content.val) or (not loop.first) %}{{- '\n' }}{%- endif %}
                {%- if tool_call.function %}{%- set tool_call = tool_call.function %}{%- endif %}
                {{- '<tool_call>\n{"name": "' }}{{- tool_call.name }}{{- '", "arguments": ' }}{%- if tool_call.arguments is string %}{{- tool_call.arguments }}{%- else %}{{- tool_call.arguments | tojson }}{%- endif %}{{- '}\n</tool_call>' }}
            {%- endfor %}
        {%- endif %}
        {{- '<|end_of_text|>\n' }}
    {%- elif message.role == 'tool' %}
        {%- if loop.first or (messages[loop.index0 - 1].role != 'tool') %}{{- '<|start_of_role|>user<|end_of_role|>' }}{%- endif %}
        {{- '\n<tool_response>\n' }}{{- content.val }}{{- '\n</tool_response>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != 'tool') %}{{- '<|end_of_text|>\n' }}{%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|start_of_role|>assistant<|end_of_role|>' }}{%- endif %}
""",
    "mistral_v01": r"""{{ bos_token }}{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}{% if message['role'] == 'user' %}{{ '[INST] ' + message['content'] + ' [/INST]' }}{% elif message['role'] == 'assistant' %}{{ message['content'] + eos_token + ' ' }}{% else %}{{ raise_exception('Only user and assistant roles are supported!') }}{% endif %}{% endfor %}""",
    "mistral_v03": r"""{%- if messages[0]["role"] == "system" %}{%- set system_message = messages[0]["content"] %}{%- set loop_messages = messages[1:] %}{%- else %}{%- set loop_messages = messages %}{%- endif %}
{%- if not tools is defined %}{%- set tools = none %}{%- endif %}
{%- set user_messages = loop_messages | selectattr("role", "equalto", "user") | list %}
{%- set ns = namespace() %}
{%- set ns.index = 0 %}
{%- for message in loop_messages %}
    {%- if not (message.role == "tool" or message.role == "tool_results" or (message.tool_calls is defined and message.tool_calls is not none)) %}
        {%- if (message["role"] == "user") != (ns.index % 2 == 0) %}{{- raise_exception("After the optional system message, conversation roles must alternate user/assistant/user/assistant/...") }}{%- endif %}
        {%- set ns.index = ns.index + 1 %}
    {%- endif %}
{%- endfor %}
{{- bos_token }}
{%- for message in loop_messages %}
    {%- if message["role"] == "user" %}
        {%- if tools is not none and (message == user_messages[-1]) %}
            {{- "[AVAILABLE_TOOLS] [" }}
            {%- for tool in tools %}
                {%- set tool = tool.function %}{{- '{"type": "function", "function": {' }}
                {%- for key, val in tool.items() if key != "return" %}{%- if val is string %}{{- '"' + key + '": "' + val + '"' }}{%- else %}{{- '"' + key + '": ' + val|tojson }}{%- endif %}{%- if not loop.last %}{{- ", " }}{%- endif %}{%- endfor %}
                {{- "}}" }}{%- if not loop.last %}{{- ", " }}{%- else %}{{- "]" }}{%- endif %}
            {%- endfor %}
            {{- "[/AVAILABLE_TOOLS]" }}
        {%- endif %}
        {%- if loop.last and system_message is defined %}{{- "[INST] " + system_message + "\n\n" + message["content"] + "[/INST]" }}{%- else %}{{- "[INST] " + message["content"] + "[/INST]" }}{%- endif %}
    {%- elif message.tool_calls is defined and message.tool_calls is not none %}
        {{- "[TOOL_CALLS] [" }}
        {%- for tool_call in message.tool_calls %}
            {%- set out = tool_call.function|tojson %}{{- out[:-1] }}
            {%- if not tool_call.id is defined or tool_call.id|length != 9 %}{{- raise_exception("Tool call IDs should be alphanumeric strings with length 9!") }}{%- endif %}
            {{- ', "id": "' + tool_call.id + '"}' }}{%- if not loop.last %}{{- ", " }}{%- else %}{{- "]" + eos_token }}{%- endif %}
        {%- endfor %}
    {%- elif message["role"] == "assistant" %}{{- " " + message["content"]|trim + eos_token}}
    {%- elif message["role"] == "tool_results" or message["role"] == "tool" %}
        {%- if message.content is defined and message.content.content is defined %}{%- set content = message.content.content %}{%- else %}{%- set content = message.content %}{%- endif %}
        {{- '[TOOL_RESULTS] {"content": ' + content|string + ", " }}
        {%- if not message.tool_call_id is defined or message.tool_call_id|length != 9 %}{{- raise_exception("Tool call IDs should be alphanumeric strings with length 9!") }}{%- endif %}
        {{- '"call_id": "' + message.tool_call_id + '"}[/TOOL_RESULTS]' }}
    {%- else %}{{- raise_exception("Only user and assistant roles are supported, with the exception of an initial optional system message!") }}{%- endif %}
{%- endfor %}
""",
    "mistral_small32": r"""{%- set today = strftime_now("%Y-%m-%d") %}
{%- set default_system_message = "You are Mistral Small 3.\nThe current date is " + today + "." %}
{{- bos_token }}
{%- if messages[0]['role'] == 'system' %}
    {%- if messages[0]['content'] is string %}{%- set system_message = messages[0]['content'] %}{%- else %}{%- set system_message = messages[0]['content'][0]['text'] %}{%- endif %}
    {%- set loop_messages = messages[1:] %}
{%- else %}{%- set system_message = default_system_message %}{%- set loop_messages = messages %}{%- endif %}
{%- if not tools is defined %}{%- set tools = none %}{%- elif tools is not none %}
    {%- set parallel_tool_prompt = "You are a helpful assistant that can call tools." %}
    {%- set system_message = system_message + "\n\n" + parallel_tool_prompt %}
{%- endif %}
{{- '[SYSTEM_PROMPT]' + system_message + '[/SYSTEM_PROMPT]' }}
{%- set user_messages = loop_messages | selectattr("role", "equalto", "user") | list %}
{%- for message in loop_messages %}
    {%- if message["role"] == "user" %}
        {%- if tools is not none and (message == user_messages[-1]) %}{{- "[AVAILABLE_TOOLS]" + tools|tojson + "[/AVAILABLE_TOOLS]" }}{%- endif %}
        {{- "[INST]" + message["content"] + "[/INST]" }}
    {%- elif message["role"] == "assistant" %}
        {%- if message.tool_calls %}
            {%- if message["content"] %}{{- message["content"] }}{%- endif %}
            {%- for tool_call in message.tool_calls %}{{- "[TOOL_CALLS]" + tool_call.function.name + "[CALL_ID]" + tool_call.id + "[ARGS]" + (tool_call.function.arguments|tojson) }}{%- endfor %}{{- eos_token }}
        {%- else %}{{- message["content"] + eos_token }}{%- endif %}
    {%- elif message["role"] == "tool" %}{{- "[TOOL_RESULTS]" + message.tool_call_id|string + "[TOOL_CONTENT]" + message.content|string + "[/TOOL_RESULTS]" }}
    {%- else %}{{- raise_exception('Only user, system, assistant, and tool roles are supported!') }}{%- endif %}
{%- endfor %}""",
    "ministral3": r"""{#- Default system message #}
{%- set yesterday_day = '27' %}
{{- bos_token }}
{%- if messages[0]['role'] == 'system' %}{{- '[SYSTEM_PROMPT]' -}}{{- messages[0]['content'] -}}{{- '[/SYSTEM_PROMPT]' -}}{%- set loop_messages = messages[1:] %}
{%- else %}{%- set loop_messages = messages %}{%- endif %}
{%- set tools_definition = '' %}
{%- set has_tools = false %}
{%- if tools is defined and tools is not none and tools|length > 0 %}{%- set has_tools = true %}{%- set tools_definition = '[AVAILABLE_TOOLS]' + (tools | tojson) + '[/AVAILABLE_TOOLS]' %}{{- tools_definition }}{%- endif %}
{%- set ns = namespace(index=0) %}
{%- for message in loop_messages %}
    {%- if message.role == 'user' or (message.role == 'assistant' and (message.tool_calls is not defined or message.tool_calls is none or message.tool_calls | length == 0)) %}
        {%- if (message['role'] == 'user') != (ns.index % 2 == 0) %}{{- raise_exception('After the optional system message, conversation roles must alternate user and assistant roles except for tool calls and results.') }}{%- endif %}
        {%- set ns.index = ns.index + 1 %}
    {%- endif %}
{%- endfor %}
{%- for message in loop_messages %}
    {%- if message['role'] == 'user' %}{{- '[INST]' + message['content'] + '[/INST]' }}
    {%- elif message['role'] == 'assistant' %}
        {%- if (message['content'] is none or message['content'] == '' or message['content']|length == 0) and (message['tool_calls'] is not defined or message['tool_calls'] is none or message['tool_calls']|length == 0) %}{{- raise_exception('Assistant message must have a string or a list of chunks in content or a list of tool calls.') }}{%- endif %}
        {%- if message['content'] is string and message['content'] != '' %}{{- message['content'] }}{%- endif %}
        {%- if message['tool_calls'] is defined and message['tool_calls'] is not none and message['tool_calls']|length > 0 %}
            {%- for tool in message['tool_calls'] %}
                {%- set arguments = tool['function']['arguments'] %}
                {%- if arguments is not string %}{%- set arguments = arguments|tojson|safe %}{%- elif arguments == '' %}{%- set arguments = '{}' %}{%- endif %}
                {{- '[TOOL_CALLS]' + tool['function']['name'] + '[ARGS]' + arguments }}
            {%- endfor %}
        {%- endif %}
        {{- eos_token }}
    {%- elif message['role'] == 'tool' %}{{- '[TOOL_RESULTS]' + message['content']|string + '[/TOOL_RESULTS]' }}
    {%- else %}{{- raise_exception('Only user, assistant and tool roles are supported, got ' + message['role'] + '.') }}{%- endif %}
{%- endfor %}
""",
    "deepseek_r1": r"""{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% endif %}{% set ns = namespace(is_first=false, is_tool=false, is_output_first=true, system_prompt='') %}{%- for message in messages %}{%- if message['role'] == 'system' %}{% set ns.system_prompt = message['content'] %}{%- endif %}{%- endfor %}{{bos_token}}{{ns.system_prompt}}{%- for message in messages %}{%- if message['role'] == 'user' %}{%- set ns.is_tool = false -%}{{'<｜User｜>' + message['content']}}{%- endif %}{%- if message['role'] == 'assistant' and message['tool_calls'] %}{%- set ns.is_tool = false -%}{%- for tool in message['tool_calls']%}{%- if not ns.is_first %}{{'<｜Assistant｜><｜tool▁calls▁begin｜><｜tool▁call▁begin｜>' + tool['type'] + '<｜tool▁sep｜>' + tool['function']['name'] + '\n' + '```json' + '\n' + (tool['function']['arguments'] | tojson) + '\n' + '```' + '<｜tool▁call▁end｜>'}}{%- set ns.is_first = true -%}{%- else %}{{'\n' + '<｜tool▁call▁begin｜>' + tool['type'] + '<｜tool▁sep｜>' + tool['function']['name'] + '\n' + '```json' + '\n' + (tool['function']['arguments'] | tojson) + '\n' + '```' + '<｜tool▁call▁end｜>'}}{{'<｜tool▁calls▁end｜><｜end▁of▁sentence｜>'}}{%- endif %}{%- endfor %}{%- endif %}{%- if message['role'] == 'assistant' and not message['tool_calls'] %}{%- if ns.is_tool %}{{'<｜tool▁outputs▁end｜>' + message['content'] + '<｜end▁of▁sentence｜>'}}{%- set ns.is_tool = false -%}{%- else %}{% set content = message['content'] %}{% if '</think>' in content %}{% set content = content.split('</think>')[-1] %}{% endif %}{{'<｜Assistant｜>' + content + '<｜end▁of▁sentence｜>'}}{%- endif %}{%- endif %}{%- if message['role'] == 'tool' %}{%- set ns.is_tool = true -%}{%- if ns.is_output_first %}{{'<｜tool▁outputs▁begin｜><｜tool▁output▁begin｜>' + message['content'] + '<｜tool▁output▁end｜>'}}{%- set ns.is_output_first = false %}{%- else %}{{'\n<｜tool▁output▁begin｜>' + message['content'] + '<｜tool▁output▁end｜>'}}{%- endif %}{%- endif %}{%- endfor -%}{% if ns.is_tool %}{{'<｜tool▁outputs▁end｜>'}}{% endif %}{% if add_generation_prompt and not ns.is_tool %}{{'<｜Assistant｜><think>\n'}}{% endif %}""",
    "deepseek_v31": r"""{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% endif %}{% if not thinking is defined %}{% set thinking = false %}{% endif %}{% set ns = namespace(is_first=false, is_tool=false, system_prompt='', is_first_sp=true, is_last_user=false) %}{%- for message in messages %}{%- if message['role'] == 'system' %}{%- if ns.is_first_sp %}{% set ns.system_prompt = ns.system_prompt + message['content'] %}{% set ns.is_first_sp = false %}{%- else %}{% set ns.system_prompt = ns.system_prompt + '\n\n' + message['content'] %}{%- endif %}{%- endif %}{%- endfor %}{{ bos_token }}{{ ns.system_prompt }}{%- for message in messages %}{%- if message['role'] == 'user' %}{%- set ns.is_tool = false -%}{%- set ns.is_first = false -%}{%- set ns.is_last_user = true -%}{{'<｜User｜>' + message['content']}}{%- endif %}{%- if message['role'] == 'assistant' and message['tool_calls'] is defined and message['tool_calls'] is not none %}{%- if ns.is_last_user %}{{'<｜Assistant｜></think>'}}{%- endif %}{%- set ns.is_last_user = false -%}{%- set ns.is_first = false %}{%- set ns.is_tool = false -%}{%- for tool in message['tool_calls'] %}{%- if not ns.is_first %}{%- if not message['content'] %}{{'<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>'+ tool['function']['name'] + '<｜tool▁sep｜>' + tool['function']['arguments']|tojson + '<｜tool▁call▁end｜>'}}{%- else %}{{message['content'] + '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>' + tool['function']['name'] + '<｜tool▁sep｜>' + tool['function']['arguments']|tojson + '<｜tool▁call▁end｜>'}}{%- endif %}{%- set ns.is_first = true -%}{%- else %}{{'<｜tool▁call▁begin｜>'+ tool['function']['name'] + '<｜tool▁sep｜>' + tool['function']['arguments']|tojson + '<｜tool▁call▁end｜>'}}{%- endif %}{%- endfor %}{{'<｜tool▁calls▁end｜><｜end▁of▁sentence｜>'}}{%- endif %}{%- if message['role'] == 'assistant' and (message['tool_calls'] is not defined or message['tool_calls'] is none) %}{%- if ns.is_last_user %}{{'<｜Assistant｜>'}}{%- if message['prefix'] is defined and message['prefix'] and thinking %}{{'<think>'}}{%- else %}{{'</think>'}}{%- endif %}{%- endif %}{%- set ns.is_last_user = false -%}{%- if ns.is_tool %}{{message['content'] + '<｜end▁of▁sentence｜>'}}{%- set ns.is_tool = false -%}{%- else %}{%- set content = message['content'] -%}{%- if '</think>' in content %}{%- set content = content.split('</think>', 1)[1] -%}{%- endif %}{{content + '<｜end▁of▁sentence｜>'}}{%- endif %}{%- endif %}{%- if message['role'] == 'tool' %}{%- set ns.is_last_user = false -%}{%- set ns.is_tool = true -%}{{'<｜tool▁output▁begin｜>' + message['content'] + '<｜tool▁output▁end｜>'}}{%- endif %}{%- endfor -%}{%- if add_generation_prompt and ns.is_last_user and not ns.is_tool %}{{'<｜Assistant｜>'}}{%- if not thinking %}{{'</think>'}}{%- else %}{{'<think>'}}{%- endif %}{% endif %}""",
    "glm4": r"""[gMASK]<sop>
{%- if tools -%}<|system|>
# 可用工具
{% for tool in tools %}{%- set function = tool.function if tool.get("function") else tool %}

## {{ function.name }}

{{ function | tojson(indent=4, ensure_ascii=False) }}
在调用上述函数时，请使用 Json 格式表示调用的参数。
{%- endfor %}
{%- endif -%}
{%- for msg in messages %}
    {%- if msg.role == 'system' %}<|system|>
{{ msg.content }}{%- endif %}
{%- endfor %}
{%- for message in messages if message.role != 'system' %}
    {%- set role = message['role'] %}
    {%- set content = message['content'] %}
    {%- set visible = content.split('</think>')[-1].strip() %}
    {%- set meta = message.get("metadata", "") %}
    {%- if role == 'user' %}<|user|>
{{ visible }}
    {%- elif role == 'assistant' and not meta %}<|assistant|>
{{ visible }}
    {%- elif role == 'assistant' and meta %}<|assistant|>{{ meta }}
{{ visible }}
    {%- elif role == 'observation' or role == 'tool' %}<|observation|>
{{ visible }}
    {%- endif %}
{%- endfor %}
{% if add_generation_prompt %}<|assistant|>
{% endif %}""",
    "glm45": r"""[gMASK]<sop>
{%- if tools -%}
<|system|>
# Tools

You may call one or more functions to assist with the user query.

<tools>
{% for tool in tools %}
{{ tool | tojson(ensure_ascii=False) }}
{% endfor %}
</tools>
{%- endif -%}
{%- macro visible_text(content) -%}
    {%- if content is string -%}{{- content }}
    {%- elif content is iterable and content is not mapping -%}{%- for item in content -%}{%- if item is mapping and item.type == 'text' -%}{{- item.text }}{%- elif item is string -%}{{- item }}{%- endif -%}{%- endfor -%}
    {%- else -%}{{- content }}{%- endif -%}
{%- endmacro -%}
{%- set ns = namespace(last_user_index=-1) %}
{%- for m in messages %}{%- if m.role == 'user' %}{% set ns.last_user_index = loop.index0 -%}{%- endif %}{%- endfor %}
{% for m in messages %}
{%- if m.role == 'user' -%}<|user|>
{{ visible_text(m.content) }}
{{- '/nothink' if (enable_thinking is defined and not enable_thinking and not visible_text(m.content).endswith("/nothink")) else '' -}}
{%- elif m.role == 'assistant' -%}
<|assistant|>
{%- set reasoning_content = '' %}
{%- set content = visible_text(m.content) %}
{%- if m.reasoning_content is string %}{%- set reasoning_content = m.reasoning_content %}
{%- else %}
    {%- if '</think>' in content %}
        {%- set reasoning_content = content.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') %}
        {%- set content = content.split('</think>')[-1].lstrip('\n') %}
    {%- endif %}
{%- endif %}
{%- if loop.index0 > ns.last_user_index and reasoning_content -%}
{{ '\n<think>' + reasoning_content.strip() +  '</think>'}}
{%- else -%}
{{ '\n<think></think>' }}
{%- endif -%}
{%- if content.strip() -%}
{{ '\n' + content.strip() }}
{%- endif -%}
{% if m.tool_calls %}
{% for tc in m.tool_calls %}
{%- if tc.function %}{%- set tc = tc.function %}{%- endif %}
{{ '\n<tool_call>' + tc.name }}
{% set _args = tc.arguments %}
{% for k, v in _args.items() %}
<arg_key>{{ k }}</arg_key>
<arg_value>{{ v | tojson(ensure_ascii=False) if v is not string else v }}</arg_value>
{% endfor %}
</tool_call>{% endfor %}
{% endif %}
{%- elif m.role == 'tool' -%}
{%- if m.content is string -%}
{%- if loop.first or (messages[loop.index0 - 1].role != "tool") %}{{- '<|observation|>' }}{%- endif %}
{{- '\n<tool_response>\n' }}{{- m.content }}{{- '\n</tool_response>' }}
{%- endif -%}
{%- elif m.role == 'system' -%}
<|system|>
{{ visible_text(m.content) }}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
<|assistant|>{{- '\n<think></think>' if (enable_thinking is defined and not enable_thinking) else '' -}}
{%- endif -%}""",
    "smollm3": r"""{# ───── defaults ───── #}
{%- if enable_thinking is not defined -%}{%- set enable_thinking = true -%}{%- endif -%}
{%- if enable_thinking -%}{%- set reasoning_mode = "/think" -%}{%- else -%}{%- set reasoning_mode = "/no_think" -%}{%- endif -%}
{{- "<|im_start|>system\n" -}}
{%- if messages[0].role == "system" -%}
    {%- set system_message = messages[0].content -%}
    {%- if "/no_think" in system_message -%}{%- set reasoning_mode = "/no_think" -%}
    {%- elif "/think" in system_message -%}{%- set reasoning_mode = "/think" -%}{%- endif -%}
    {%- set custom_instructions = system_message.replace("/no_think", "").replace("/think", "").rstrip() -%}
{%- endif -%}
{%- if "/system_override" in system_message -%}
    {{- custom_instructions.replace("/system_override", "").rstrip() -}}{{- "<|im_end|>\n" -}}
{%- else -%}
    {{- "## Metadata\n\n" -}}{{- "Knowledge Cutoff Date: June 2025\n" -}}
    {%- set today = strftime_now("%d %B %Y") -%}{{- "Today Date: " ~ today ~ "\n" -}}{{- "Reasoning Mode: " + reasoning_mode + "\n\n" -}}
    {{- "## Custom Instructions\n\n" -}}
    {%- if custom_instructions -%}{{- custom_instructions + "\n\n" -}}
    {%- elif reasoning_mode == "/think" -%}{{- "You are a helpful AI assistant named SmolLM. Think first.\n\n" -}}
    {%- else -%}{{- "You are a helpful AI assistant named SmolLM.\n\n" -}}{%- endif -%}
    {%- if xml_tools or python_tools or tools -%}
        {{- "### Tools\n\n" -}}
        {%- set ns = namespace(xml_tool_string="<tools>\n") -%}
        {%- for tool in (xml_tools or tools)[:] -%}{%- set ns.xml_tool_string = ns.xml_tool_string ~ (tool | string) ~ "\n" -%}{%- endfor -%}
        {%- set xml_tool_string = ns.xml_tool_string + "</tools>" -%}{{- xml_tool_string -}}{{- "\n\n" -}}
    {%- endif -%}
    {{- "<|im_end|>\n" -}}
{%- endif -%}
{%- for message in messages -%}
    {%- set content = message.content if message.content is string else "" -%}
    {%- if message.role == "user" -%}{{ "<|im_start|>" + message.role + "\n"  + content + "<|im_end|>\n" }}
    {%- elif message.role == "assistant" -%}
        {% generation %}
        {%- if reasoning_mode == "/think" -%}{{ "<|im_start|>assistant\n" + content.lstrip("\n") + "<|im_end|>\n" }}
        {%- else -%}{{ "<|im_start|>assistant\n" + "<think>\n\n</think>\n" + content.lstrip("\n") + "<|im_end|>\n" }}{%- endif -%}
        {% endgeneration %}
    {%- elif message.role == "tool" -%}{{ "<|im_start|>" + "user\n"  + content + "<|im_end|>\n" }}{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{%- if reasoning_mode == "/think" -%}{{ "<|im_start|>assistant\n" }}{%- else -%}{{ "<|im_start|>assistant\n" + "<think>\n\n</think>\n"  }}{%- endif -%}{%- endif -%}
""",
    "command_a": r"""{%- macro document_turn(documents) -%}
{%- for document in documents -%}{{ document | tojson }}{%- endfor -%}
{%- endmacro -%}
{%- macro tool_call_id_to_int(messages, tool_call_id) -%}
    {%- set counter = namespace(value=0) -%}{%- set tool_call_id_seen = namespace(value=false) -%}
    {%- for msg in messages -%}{%- if msg.tool_calls -%}{%- for tool_call in msg.tool_calls -%}
        {%- if tool_call.id == tool_call_id and not tool_call_id_seen.value -%}{{ counter.value }}{%- set tool_call_id_seen.value = true -%}{%- endif -%}
        {%- set counter.value = counter.value + 1 -%}
    {%- endfor -%}{%- endif -%}{%- endfor -%}
{%- endmacro -%}
{%- macro format_tool_message(messages, tool_msg) -%}
{
        "tool_call_id": "{{ tool_call_id_to_int(messages, tool_msg.tool_call_id) }}",
        "results": {
            "0": {{ tool_msg.content | tojson }}
        },
        "is_error": null
    }
{%- endmacro -%}
{%- if messages and messages[0]['role']|lower == 'system' %}{%- set developer_preamble = messages[0]['content'] %}{% endif %}
{%- set tool_idx = namespace(value=0) %}
{%- set tool_ids_seen = namespace(value=[]) %}
{%- set sent_documents = namespace(value=false) -%}
{{ bos_token }}<|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|># System Preamble
{% if tools or documents %}You have been given access to tools.
## Available Tools
[
{% for tool in tools %}
    {"name": "{{ tool['function']['name'] }}", "description": "{{tool['function']['description']}}", "parameters": {{ tool['function']['parameters']|tojson }}, "responses": null}{%- if not loop.last %},{% endif %}

{% endfor %}
]
{% endif %}
{% if developer_preamble %}# Developer Preamble
{{ developer_preamble }}{% endif -%}
<|END_OF_TURN_TOKEN|>
{%- for message in messages %}
    {%- if message.role|lower == 'system' and not (loop.first and developer_preamble)%}<|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|>{{ message.content }}<|END_OF_TURN_TOKEN|>
    {%- elif message.role|lower == 'user' %}<|START_OF_TURN_TOKEN|><|USER_TOKEN|>{{ message.content }}<|END_OF_TURN_TOKEN|>
    {%- elif message.role|lower == 'assistant' or message.role|lower == 'chatbot' %}<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>
        {%- if message.tool_calls %}<|START_THINKING|>{{ message.tool_plan or message.content }}<|END_THINKING|><|START_ACTION|>[
    {% for tc in message.tool_calls %}
    {"tool_call_id": "{{ tool_idx.value }}", "tool_name": "{{ tc['function']['name'] }}", "parameters": {{ tc['function']['arguments']|tojson }}}
        {%- if not loop.last %},{% endif %}
        {%- set tool_idx.value = tool_idx.value + 1 %}

    {% endfor %}
]<|END_ACTION|><|END_OF_TURN_TOKEN|>
        {%- else %}<|START_RESPONSE|>{{ message.content }}<|END_RESPONSE|><|END_OF_TURN_TOKEN|>
        {%- endif %}
    {%- elif message.role|lower == 'tool' and message.tool_call_id not in tool_ids_seen.value %}<|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|><|START_TOOL_RESULT|>[
    {{ format_tool_message(messages, message) }}
    {%- set stopped = namespace(value=false) %}
    {%- for msg in messages[loop.index0 + 1:] %}
        {%- if not stopped.value and msg.role|lower == 'tool' %},
    {{ format_tool_message(messages, msg) }}
            {%- set tool_ids_seen.value = tool_ids_seen.value + [msg.tool_call_id] %}
        {%- else %}{%- set stopped.value = true %}{%- endif %}
    {%- endfor %}

]<|END_TOOL_RESULT|><|END_OF_TURN_TOKEN|>
    {%- endif %}
{%- endfor %}{%- if add_generation_prompt -%}<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>{%- endif %}""",
    "phi3": r"""{% for message in messages %}{% if message['role'] == 'system' and message['content'] %}{{'<|system|>\n' + message['content'] + '<|end|>\n'}}{% elif message['role'] == 'user' %}{{'<|user|>\n' + message['content'] + '<|end|>\n'}}{% elif message['role'] == 'assistant' %}{{'<|assistant|>\n' + message['content'] + '<|end|>\n'}}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% else %}{{ eos_token }}{% endif %}""",
    "phi4": r"""{% for message in messages %}{% if (message['role'] == 'system') %}{{'<|im_start|>system<|im_sep|>' + message['content'] + '<|im_end|>'}}{% elif (message['role'] == 'user') %}{{'<|im_start|>user<|im_sep|>' + message['content'] + '<|im_end|>'}}{% elif (message['role'] == 'assistant') %}{{'<|im_start|>assistant<|im_sep|>' + message['content'] + '<|im_end|>'}}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant<|im_sep|>' }}{% endif %}""",
    "phi4_mini": r"""{% for message in messages %}{% if message['role'] == 'system' and 'tools' in message and message['tools'] is not none %}{{ '<|' + message['role'] + '|>' + message['content'] + '<|tool|>' + message['tools'] + '<|/tool|>' + '<|end|>' }}{% else %}{{ '<|' + message['role'] + '|>' + message['content'] + '<|end|>' }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% else %}{{ eos_token }}{% endif %}""",
    "hunyuan": r"""{%- if not add_generation_prompt is defined %}{%- set add_generation_prompt = false %}{%- endif %}
{%- set ns = namespace(is_first=false, is_tool=false, is_output_first=true, system_prompt='', is_first_sp=true, is_first_user=true, is_last_user=false) %}
{%- for message in messages %}{%- if message['role'] == 'system' %}{%- if ns.is_first_sp %}{%- set ns.system_prompt = ns.system_prompt + message['content'] %}{%- set ns.is_first_sp = false %}{%- else %}{%- set ns.system_prompt = ns.system_prompt + '\n\n' + message['content'] %}{%- endif %}{%- endif %}{%- endfor %}
{{- bos_token }}{{- ns.system_prompt }}
{%- if tools %}
    {%- if ns.system_prompt != '' %}{{- '\n\n' }}{%- endif %}
    {{- '# Tools\n\n<tools>\n' }}{%- for tool in tools %}{%- if loop.first %}{{- tool | tojson }}{%- else %}{{- '\n' + tool | tojson }}{%- endif %}{%- endfor %}{{- '\n</tools>' }}
{%- endif %}
{%- if ns.system_prompt != '' or tools %}{{- '<｜hy_place▁holder▁no▁3｜>' }}{%- endif %}
{%- for message in messages %}
    {%- if message['role'] == 'user' %}
        {%- set ns.is_tool = false %}{%- set ns.is_first = false %}{%- set ns.is_last_user = true %}
        {%- if ns.is_first_user %}{{- '<｜hy_User｜>' + ('/no_think' if enable_thinking is defined and not enable_thinking else '') + message['content'] }}{%- set ns.is_first_user = false %}{%- else %}{{- bos_token + '<｜hy_User｜>' + message['content'] }}{%- endif %}
    {%- endif %}
    {%- if message['role'] == 'assistant' and message['tool_calls'] is defined and message['tool_calls'] is not none %}
        {%- set ns.is_last_user = false %}
        {%- for tool in message['tool_calls'] %}{%- set arguments = tool['function']['arguments'] %}{%- if arguments is not string %}{%- set arguments = arguments | tojson %}{%- endif %}{{- '<tool_calls>\n<tool_call>' + tool['function']['name'] + '\n```json\n' + arguments + '\n```</tool_call>' }}{%- endfor %}
        {{- '\n</tool_calls><｜hy_eos｜>' }}
    {%- endif %}
    {%- if message['role'] == 'assistant' and (message['tool_calls'] is not defined or message['tool_calls'] is none) %}
        {%- set content = message['content'] %}
        {%- if '<answer>' in content and '</answer>' in content %}{%- set content = content.split('<answer>')[-1].split('</answer>')[0].strip() %}{%- endif %}
        {{- '<｜hy_Assistant｜>' + content + '<｜hy_eos｜>' }}{%- set ns.is_last_user = false %}
    {%- endif %}
    {%- if message['role'] == 'tool' %}{%- set ns.is_tool = true %}{{- '<｜hy_User｜><tool_responses>\n<tool_response>' + message['content'] + '</tool_response>\n</tool_responses>' }}{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{%- if not ns.is_last_user and not ns.is_tool %}{{- '<｜hy_Assistant｜>' }}{%- else %}{{- '<｜hy_Assistant｜>' }}{%- if enable_thinking is defined and not enable_thinking %}{{- '<think>\n\n</think>\n' }}{%- endif %}{%- endif %}{%- endif %}""",
    "nemotron_nano": r"""{%- set ns = namespace(enable_thinking = true, non_tool_system_content='', has_video=false, explicit_think_requested=false) -%}
{%- for message in messages -%}
    {%- if message['role'] == 'system' or message['role'] == 'user' -%}
        {%- set content = message['content'] -%}
        {%- if '/think' in content.replace('</think>', '') -%}{%- set ns.enable_thinking = true -%}
        {%- elif '/no_think' in content -%}{%- set ns.enable_thinking = false -%}{%- endif -%}
    {%- endif -%}
{%- endfor -%}
{{- bos_token -}}{{- '<SPECIAL_10>System\n' -}}
{%- if messages[0].role == 'system' -%}{%- set ns.non_tool_system_content = messages[0].content.replace('/think', '').replace('/no_think', '').strip() -%}{{- ns.non_tool_system_content -}}{%- endif -%}
{%- if tools -%}
    {%- if ns.non_tool_system_content is defined and ns.non_tool_system_content != '' -%}{{- '\n\n' -}}{%- endif -%}
    {{- '<AVAILABLE_TOOLS>[' -}}{%- for tool in tools -%}{{- (tool.function if tool.function is defined else tool) | tojson -}}{{- ', ' if not loop.last else '' -}}{%- endfor -%}{{- ']</AVAILABLE_TOOLS>' -}}
{%- endif -%}
{{- '\n' -}}
{%- set messages = messages[1:] if messages[0].role == 'system' else messages -%}
{%- if messages and messages[-1].role == 'assistant' -%}{%- set messages = messages[:-1] -%}{%- set last = true -%}{%- endif -%}
{%- for message in messages -%}
    {%- if message.role == 'user' -%}{{- '<SPECIAL_11>User\n' + message.content.replace('/think', '').replace('/no_think', '').strip() + '\n' -}}
    {%- elif message.role == 'tool' -%}
        {%- if loop.first or (messages[loop.index0 - 1].role != 'tool') -%}{{- '<SPECIAL_11>User\n<TOOL_RESPONSE>[' -}}{%- endif -%}
        {{- message.content -}}{{- ', ' if not loop.last and (messages[loop.index0 + 1].role == 'tool') else '' -}}
        {%- if loop.last or (messages[loop.index0 + 1].role != 'tool') -%}{{- ']</TOOL_RESPONSE>\n' -}}{%- endif -%}
    {%- elif message.role == 'assistant' -%}
        {%- set content = message.content -%}
        {%- if '</think>' in content -%}{%- set content = content.split('</think>')[1].strip() -%}{%- endif -%}
        {{- '<SPECIAL_11>Assistant\n' + content.strip() -}}
        {%- if message.tool_calls -%}{%- if content.strip() != '' -%}{{- '\n\n' -}}{%- endif -%}{{- '<TOOLCALL>[' -}}{%- for call in message.tool_calls -%}{%- set fn = call.function if call.function is defined else call -%}{{- '{"name": "' + fn.name + '", "arguments": ' -}}{%- if fn.arguments is string -%}{{- fn.arguments -}}{%- else -%}{{- fn.arguments | tojson -}}{%- endif -%}{{- '}' + (', ' if not loop.last else '') -}}{%- endfor -%}{{- ']</TOOLCALL>' -}}{%- endif -%}
        {{- '\n<SPECIAL_12>\n' -}}
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<SPECIAL_11>Assistant\n' -}}{%- if ns.enable_thinking is defined and ns.enable_thinking is false -%}{{- '<think></think>' -}}{%- else -%}{{- '<think>\n' -}}{%- endif -%}{%- endif -%}""",
    "exaone4": r"""{%- if not skip_think is defined %}{%- set skip_think = true %}{%- endif %}
{%- set role_indicators = {'user': '[|user|]\n', 'assistant': '[|assistant|]\n', 'system': '[|system|]\n', 'tool': '[|tool|]\n'} %}
{%- set end_of_turn = '[|endofturn|]\n' %}
{%- macro available_tools(tools) %}{{- "# Available Tools" }}{{- "\n" }}{%- for tool in tools %}{{- "\n" }}{{- "<tool>" }}{{- tool | tojson(ensure_ascii=False) | safe }}{{- "</tool>" }}{%- endfor %}{%- endmacro %}
{%- set ns = namespace(last_query_index = messages|length - 1) %}
{%- for message in messages %}{%- if message.role == "user" and message.content is string %}{%- set ns.last_query_index = loop.index0 -%}{%- endif %}{%- endfor %}
{%- for i in range(messages | length) %}
    {%- set msg = messages[i] %}
    {%- set role = msg.role %}
    {%- if role not in role_indicators %}{{- raise_exception('Unknown role: ' ~ role) }}{%- endif %}
    {%- if i == 0 %}
        {%- if role == 'system' %}{{- role_indicators['system'] }}{{- msg.content }}{%- if tools is defined and tools %}{{- "\n\n" }}{{- available_tools(tools) }}{%- endif %}{{- end_of_turn -}}{%- continue %}
        {%- elif tools is defined and tools %}{{- role_indicators['system'] }}{{- available_tools(tools) }}{{- end_of_turn -}}{%- endif %}
    {%- endif %}
    {%- if role == 'assistant' %}
        {{- role_indicators['assistant'] }}
        {%- if msg.content %}
            {%- if "</think>" in msg.content %}
                {%- set content = msg.content.split('</think>')[-1].strip() %}
                {%- set reasoning_content = msg.content.split('</think>')[0].strip() %}
                {%- if reasoning_content.startswith("<think>") %}{%- set reasoning_content = reasoning_content[7:].strip() %}{%- endif %}
            {%- else %}{%- set content = msg.content %}{%- endif %}
            {%- if msg.reasoning_content %}{%- set reasoning_content = msg.reasoning_content %}{%- endif %}
            {%- if (not skip_think and loop.last) and reasoning_content is defined %}{{- "<think>\n" }}{{- reasoning_content}}{{- "\n</think>\n\n" }}{%- else %}{{- "<think>\n\n</think>\n\n" }}{%- endif %}
            {{- content }}
        {%- endif %}
        {%- if msg.tool_calls %}{%- if msg.content %}{{- "\n" }}{%- else %}{{- "<think>\n\n</think>\n\n" }}{%- endif %}
            {%- for tool_call in msg.tool_calls %}{%- if tool_call.function is defined %}{%- set tool_call = tool_call.function %}{%- endif %}{{- "<tool_call>" }}{{- '{"name": "' ~ tool_call.name ~ '", "arguments": ' ~ (tool_call.arguments | tojson) ~ '}' }}{{- "</tool_call>" }}{%- if not loop.last %}{{- "\n" }}{%- endif %}{%- endfor %}
        {%- endif %}
        {{- end_of_turn -}}
    {%- elif role == "tool" %}
        {%- if i == 0 or messages[i - 1].role != "tool" %}{{- role_indicators['tool'] }}{%- endif %}
        {%- if msg.content is defined %}{{- "<tool_result>" ~ (msg.content | tojson(ensure_ascii=False)) ~ "</tool_result>" }}{%- endif %}
        {%- if loop.last or messages[i + 1].role != "tool" %}{{- end_of_turn -}}{%- else %}{{- "\n" }}{%- endif %}
    {%- else %}{{- role_indicators[role] }}{{- msg.content }}{{- end_of_turn -}}{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- role_indicators['assistant'] }}{%- if enable_thinking is defined and enable_thinking is true %}{{- "<think>\n" }}{%- else %}{{- "<think>\n\n</think>\n\n" }}{%- endif %}{%- endif %}""",
    "kimi_k2": r"""{%- if tools -%}<|im_system|>tool_declare<|im_middle|>{{ tools | tojson(separators=(',', ':')) }}<|im_end|>{%- endif -%}
{%- for message in messages -%}
  {%- if loop.first and messages[0]['role'] != 'system' -%}<|im_system|>system<|im_middle|>You are Kimi, an AI assistant created by Moonshot AI.<|im_end|>{%- endif -%}
  {%- set role_name = message.get('name') or message['role'] -%}
  {%- if message['role'] == 'system' -%}<|im_system|>{{ role_name }}<|im_middle|>
  {%- elif message['role'] == 'user' -%}<|im_user|>{{ role_name }}<|im_middle|>
  {%- elif message['role'] == 'assistant' -%}<|im_assistant|>{{ role_name }}<|im_middle|>
  {%- elif message['role'] == 'tool' -%}<|im_system|>{{ role_name }}<|im_middle|>## Return of {{ message.tool_call_id }}
{{ '' }}
  {%- endif -%}
  {%- if message['role'] == 'assistant' and message.get('tool_calls') -%}
    {%- if message['content'] -%}{{ message['content'] }}{%- endif -%}<|tool_calls_section_begin|>
    {%- for tool_call in message['tool_calls'] -%}
      {%- set func_name = tool_call['function']['name'] -%}
      {%- set formatted_id = 'functions.' + func_name + ':' + loop.index0|string -%}
      <|tool_call_begin|>{{ formatted_id }}<|tool_call_argument_begin|>{% if tool_call['function']['arguments'] is string %}{{ tool_call['function']['arguments'] }}{% else %}{{ tool_call['function']['arguments'] | tojson }}{% endif %}<|tool_call_end|>
    {%- endfor -%}<|tool_calls_section_end|>
  {%- elif message['content'] is string -%}{{ message['content'] }}
  {%- elif message['content'] is not none -%}{% for content in message['content'] -%}{% if content['type'] == 'text' -%}{{ content['text'] }}{%- endif -%}{%- endfor -%}
  {%- endif -%}<|im_end|>
{%- endfor -%}
{%- if add_generation_prompt -%}<|im_assistant|>assistant<|im_middle|>{%- endif -%}""",
    "seed_oss": r"""{# <seed:bos> #}
{%- set bos_token = "<seed:bos>" %}{%- set eos_token = "<seed:eos>" %}{%- set think_begin_token = "<seed:think>" %}{%- set think_end_token = "</seed:think>" %}
{%- set budget_reflections_v05 = {0: 0, 512: 128, 1024: 256, 2048: 512, 4096: 512, 8192: 1024, 16384: 1024} %}
{%- set ns = namespace(interval = None) %}
{%- if thinking_budget is defined %}{%- for k, v in budget_reflections_v05 | dictsort %}{%- if ns.interval is none and thinking_budget <= k %}{%- set ns.interval = v %}{%- endif %}{%- endfor %}{%- endif %}
{%- macro py_type(t) -%}{%- if t == "string" -%}str{%- elif t in ("number", "integer") -%}int{%- elif t == "boolean" -%}bool{%- elif t == "array" -%}list{%- else -%}Any{%- endif -%}{%- endmacro -%}
{%- if messages[0]["role"] == "system" %}{%- set system_message = messages[0]["content"] %}{%- set loop_messages = messages[1:] %}{%- else %}{%- set loop_messages = messages %}{%- endif %}
{%- if not tools is defined or tools is none %}{%- set tools = [] %}{%- endif %}
{%- if system_message is defined %}{{ bos_token + "system\n" + system_message }}{%- else %}{%- if tools is iterable and tools | length > 0 %}{{ bos_token + "system\nYou are Doubao, a helpful AI assistant." }}{%- endif %}{%- endif %}
{%- for item in tools %}{%- if item.type == "function" %}

Function:
def {{ item.function.name }}(
{%- for name, spec in item.function.parameters.properties.items() %}
        {{- name }}: {{ py_type(spec.type) }}{% if not loop.last %}, {% endif %}
{%- endfor %}):
    """ + '"""' + r"""
    {{ item.function.description | trim }}
    """ + '"""' + r"""{%- endif %}{%- endfor %}
{%- if system_message is defined or tools | length > 0 %}{{ eos_token }}{%- endif %}
{%- if thinking_budget is defined %}{%- if thinking_budget == 0 %}{{ bos_token + "system\nYou should begin by answering immediately." + eos_token }}{%- elif not thinking_budget == -1 %}{{ bos_token + "system\nYou have a thinking budget of " }}{{ thinking_budget }}{{- " tokens, reflect every " }}{{ ns.interval }}{{ eos_token }}{%- endif %}{%- endif %}
{%- for message in loop_messages %}
{%- if message.role == "assistant" and message.tool_calls is defined and message.tool_calls is iterable and message.tool_calls | length > 0 %}
{{ bos_token + message.role }}
{%- if message.reasoning_content is defined and message.reasoning_content is string and message.reasoning_content | trim | length > 0 %}
{{ "\n" + think_begin_token + message.reasoning_content | trim + think_end_token }}
{%- endif %}
{%- for tool_call in message.tool_calls %}
{%- if tool_call.function is defined %}{% set tool_call = tool_call.function %}{% endif %}
{{ "\n<seed:tool_call>\n<function=" + tool_call.name + ">\n" }}
{%- for arg_name, arg_value in tool_call.arguments | items %}
{{ "<parameter=" + arg_name + ">" }}
{%- set arg_value = arg_value if arg_value is string else arg_value | string %}
{{ arg_value + "</parameter>\n" }}
{%- endfor %}
{{ "</function>\n</seed:tool_call>" }}
{%- endfor %}
{{ eos_token }}
{%- elif message.role in ["user", "system"] %}
{{ bos_token + message.role + "\n" + message.content + eos_token }}
{%- elif message.role == "assistant" %}
{{ bos_token + message.role }}
{%- if message.content is defined and message.content is string and message.content | trim | length > 0 %}
{{ "\n" + message.content | trim + eos_token }}
{%- endif %}
{%- else %}
{{ bos_token + message.role + "\n" + message.content + eos_token }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
{{ bos_token + "assistant\n" }}
{%- if thinking_budget == 0 %}{{ think_begin_token }}{%- endif %}
{%- endif %}""",
    "ernie45": r"""{%- if not add_generation_prompt is defined -%}{%- set add_generation_prompt = true -%}{%- endif -%}
{%- if not cls_token is defined -%}{%- set cls_token = "<|begin_of_sentence|>" -%}{%- endif -%}
{%- if not eos_token is defined -%}{%- set eos_token = "</s>" -%}{%- endif -%}
{{- cls_token -}}
{%- for message in messages -%}
    {%- if message["role"] == "user" -%}{{- "User: " + message["content"] + "
" -}}
    {%- elif message["role"] == "assistant" -%}{%- generation -%}{{- "Assistant: " + message["content"] + eos_token -}}{%- endgeneration -%}
    {%- elif message["role"] == "system" -%}{{- message["content"].strip() + "
" -}}{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- "Assistant: " -}}{%- endif -%}""",
    "olmo3": r"""{%- set has_system = messages|selectattr('role', 'equalto', 'system')|list|length > 0 -%}
{%- if not has_system -%}{{- '<|im_start|>system\nYou are Olmo, a helpful AI assistant built by Ai2. Your date cutoff is December 2024.' -}}{%- if tools is not none -%}{{- ' You do currently have access to functions. <functions>' + (tools | tojson) + '</functions>' -}}{%- else -%}{{- ' <functions></functions>' -}}{%- endif -%}{{- '<|im_end|>\n' -}}{%- endif -%}
{%- for message in messages -%}
    {%- if message['role'] == 'system' -%}
        {{- '<|im_start|>system\n' + message['content'] -}}
        {%- if tools is not none -%}{{- '<functions>' + (tools | tojson) + '</functions>' -}}{%- elif message.get('functions', none) is not none -%}{{- ' <functions>' + message['functions'] + '</functions>' -}}{%- endif -%}
        {{- '<|im_end|>\n' -}}
    {%- elif message['role'] == 'user' -%}{{- '<|im_start|>user\n' + message['content'] + '<|im_end|>\n' -}}
    {%- elif message['role'] == 'assistant' -%}
        {{- '<|im_start|>assistant\n' -}}
        {%- if message.get('content', none) is not none -%}{{- message['content'] -}}{%- endif -%}
        {%- if message.get('tool_calls', none) is not none -%}
            {{- '<function_calls>' -}}
            {%- for tool_call in message['tool_calls'] -%}
                {%- if tool_call is mapping and tool_call.get('function', none) is not none -%}
                    {%- set args = tool_call['function']['arguments'] -%}
                    {%- set ns = namespace(arguments_list=[]) -%}
                    {%- for key, value in args.items() -%}{%- set ns.arguments_list = ns.arguments_list + [key ~ '=' ~ (value | tojson)] -%}{%- endfor -%}
                    {%- set arguments = ns.arguments_list | join(', ') -%}
                    {{- tool_call['function']['name'] + '(' + arguments + ')' -}}
                    {%- if not loop.last -%}{{ '\n' }}{%- endif -%}
                {%- endif -%}
            {%- endfor -%}
            {{- '</function_calls>' -}}
        {%- endif -%}
        {%- if not loop.last -%}{{- '<|im_end|>' + '\n' -}}{%- else -%}{{- eos_token -}}{%- endif -%}
    {%- elif message['role'] in ['environment', 'tool'] -%}{{- '<|im_start|>environment\n' + message['content'] + '<|im_end|>\n' -}}{%- endif -%}
    {%- if loop.last and add_generation_prompt -%}{{- '<|im_start|>assistant\n' -}}{%- endif -%}
{%- endfor -%}""",
    "minimax_m2": r"""{%- set toolcall_begin_token = '<minimax:tool_call>' -%}
{%- set toolcall_end_token = '</minimax:tool_call>' -%}
{%- macro render_tool_namespace(namespace_name, tool_list) -%}
{%- for tool in tool_list -%}
<tool>{{ tool.function | tojson(ensure_ascii=False) }}</tool>
{% endfor -%}
{%- endmacro -%}
{%- macro visible_text(content) -%}{%- if content is string -%}{{ content }}{%- elif content is iterable and content is not mapping -%}{%- for item in content -%}{%- if item is mapping and item.type == 'text' -%}{{- item.text }}{%- elif item is string -%}{{- item }}{%- endif -%}{%- endfor -%}{%- else -%}{{- content }}{%- endif -%}{%- endmacro -%}
{%- macro build_system_message(system_message) -%}{%- if system_message and system_message.content -%}{{- visible_text(system_message.content) }}{%- else -%}{%- if model_identity is not defined -%}{%- set model_identity = "You are a helpful assistant." -%}{%- endif -%}{{- model_identity }}{%- endif -%}{%- if system_message and system_message.current_date -%}{{- '\n' ~ 'Current date: ' + system_message.current_date }}{%- endif -%}{%- endmacro -%}
{%- set system_message = none -%}
{%- set conversation_messages = messages -%}
{%- if messages and messages[0].role == "system" -%}{%- set system_message = messages[0] -%}{%- set conversation_messages = messages[1:] -%}{%- endif -%}
{%- set ns = namespace(last_user_index=-1) %}
{% for m in conversation_messages %}{%- if m.role == 'user' %}{% set ns.last_user_index = loop.index0 -%}{%- endif %}{%- endfor %}
{{- ']~!b[' ~ ']~b]system' ~ '\n' }}{{- build_system_message(system_message) }}
{%- if tools -%}{{- '\n\n' ~ '# Tools' ~ '\n' ~ '<tools>' ~ '\n' }}{{- render_tool_namespace("functions", tools) }}{{- '</tools>' ~ '\n\n' }}{{- toolcall_begin_token }}
<invoke name="tool-name">
</invoke>
{{- '\n' ~ toolcall_end_token }}{%- endif -%}
{{- '[e~[\n' }}
{%- set last_tool_call = namespace(name=none) -%}
{%- for message in conversation_messages -%}
    {%- if message.role == 'assistant' -%}
        {{- ']~b]ai' ~ '\n' }}
        {%- set reasoning_content = '' %}
        {%- set content = visible_text(message.content) %}
        {%- if message.reasoning_content is string %}{%- set reasoning_content = message.reasoning_content %}
        {%- else %}{%- if '</think>' in content %}{%- set reasoning_content = content.split('</think>')[0].strip('\n').split('<think>')[-1].strip('\n') %}{%- set content = content.split('</think>')[-1].strip('\n') %}{%- endif %}{%- endif %}
        {%- if reasoning_content and loop.index0 > ns.last_user_index -%}{{- '<think>' ~ '\n' ~ reasoning_content ~ '\n' ~ '</think>' ~ '\n\n' }}{%- endif -%}
        {%- if content -%}{{- content }}{%- endif -%}
        {%- if message.tool_calls -%}
            {{- '\n' ~ toolcall_begin_token ~ '\n' }}
            {%- for tool_call in message.tool_calls -%}
                {%- if tool_call.function %}{%- set tool_call = tool_call.function %}{%- endif %}
                {{- '<invoke name="' + tool_call.name + '">' }}
                {% set _args = tool_call.arguments %}
                {%- for k, v in _args.items() %}
                {{- '<parameter name="' + k + '">' }}{{- v | tojson(ensure_ascii=False) if v is not string else v }}{{- '</parameter>' }}
                {% endfor %}
                {{- '</invoke>' ~ '\n' }}
            {%- endfor -%}
            {{- toolcall_end_token}}
            {%- set last_tool_call.name = message.tool_calls[-1].name -%}
        {%- else -%}{%- set last_tool_call.name = none -%}{%- endif -%}
        {{- '[e~[' ~ '\n' }}
    {%- elif message.role == 'tool' -%}
        {%- if loop.first or (conversation_messages[loop.index0 - 1].role != 'tool') -%}{{- ']~b]tool' }}{%- endif -%}
        {{- '\n<response>' }}{{- message.content }}{{- '</response>' }}
        {%- if loop.last or (conversation_messages[loop.index0 + 1].role != 'tool') -%}{{- '[e~[\n' -}}{%- endif -%}
    {%- elif message.role == 'user' -%}{{- ']~b]user' ~ '\n' }}{{- visible_text(message.content) }}{{- '[e~[' ~ '\n' }}{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- ']~b]ai' ~ '\n' ~ '<think>' ~ '\n' }}{%- endif -%}""",
    "functionary31": r"""{# functionary #}
{{ bos_token }}
{%- if not tools is defined -%}{%- set tools = none -%}{%- endif -%}
{%- if tools is not none -%}
{{- '<|start_header_id|>system<|end_header_id|>\n\n' -}}
{% for t in tools %}{{ "Use the function '" + t.function.name + "' to '" + t.function.description + "'\n" + (t.function | tojson | safe) + "\n\n" }}{% endfor %}
{{- "Think very carefully before calling functions.<|eot_id|>" -}}
{%- endif -%}
{%- for message in messages -%}
    {%- if message['role'] == 'user' or message['role'] == 'system' -%}{{ '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' + message['content'] + '<|eot_id|>' }}
    {%- elif message['role'] == 'tool' -%}{{ '<|start_header_id|>ipython<|end_header_id|>\n\n' + message['content'] + '<|eot_id|>' }}
    {%- else -%}
        {{ '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'}}
        {%- if message['content'] -%}{{ message['content'] }}{%- endif -%}
        {%- if 'tool_calls' in message and message['tool_calls'] -%}
            {%- for tool_call in message['tool_calls'] -%}{{ '<function=' + tool_call["function"]["name"] + '>' + (tool_call["function"]["arguments"] | tojson | safe) + '</function>' }}{%- endfor -%}{{ '<|eom_id|>' }}
        {%- else -%}{{ '<|eot_id|>' }}{%- endif -%}
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{%- endif -%}""",
    "blocks_and_calls": r"""{%- macro turn(role) -%}<|{{ role }}|>{{ caller() }}<|end|>{%- endmacro -%}
{%- for message in messages -%}
    {%- call turn(message.role) -%}
        {%- filter trim -%}{{ message.content }}{%- endfilter -%}
        {%- set calls -%}{%- for call in message.tool_calls or [] -%}{{ '%s(%s)' % (call.function.name, call.function.arguments|items|map('join', '=')|join(', ')) }}{%- endfor -%}{%- endset -%}
        {{- calls if calls else '' -}}
    {%- endcall -%}
{%- endfor -%}
{%- with note = '%02d.%02d.%d' % (28, 11, 2026) -%}<|note|>{{ note }}{%- endwith -%}
{%- if add_generation_prompt -%}<|assistant|>{%- endif -%}""",
}

TOOLS = [
    {"name": "get_weather", "description": "The weather of a \"city\" <now> & later.",
     "parameters": {"type": "object", "properties": {"city": {"type": "string", "description": "Its name"},
                                                     "days": {"type": "integer", "default": 3},
                                                     "unit": {"type": "string", "enum": ["C", "F"]}},
                    "required": ["city"]}},
    {"name": "list_files", "description": "Lists.", "parameters": {"type": "object", "properties": {
        "paths": {"type": "array", "items": {"type": "string"}}, "deep": {"type": "boolean"}}}},
]
CALLS = [{"id": "abcdef123", "name": "get_weather", "arguments": "{\"city\": \"K\u00f6ln <b>\", \"days\": 2}"}]
TALKS = [
    [("user", "Hello")],
    [("system", " Be kind.\n"), ("user", "  Gr\u00fc\u00dfe, \u4f60\u597d! \n")],
    [("system", "Be brief."), ("user", "one"), ("assistant", "<think>\nhm\n</think>\n\ntwo\n"), ("user", "three /no_think")],
    [("user", "one"), ("assistant", "first"), ("user", "two"), ("assistant", "\n<think>so</think> second ")],
    [("user", "weather?"), ("assistant", "", CALLS), ("tool", "{\"rain\": \"2 mm\"}\n", "get_weather", "abcdef123")],
    [("system", "S"), ("user", "weather?"), ("assistant", "Let me see.", CALLS),
     ("tool", "sunny", "get_weather", "abcdef123"), ("assistant", "It is sunny."), ("user", "thanks")],
    [("user", "a"), ("user", "b")],
    [("user", "q"), ("thinking", "<answer>x</answer>", "why \"not\"")],
    [("system", "/no_think now"), ("user", "q"), ("assistant", "a <answer> b </answer> c"), ("user", "<|im_end|>{{ x }} \\ 'q'")],
]
ASKED = [(0, False, True), (0, False, False), (0, True, True), (1, False, True), (2, True, True)]
VARIABLES = [{}, {"enable_thinking": False}, {"enable_thinking": True, "reasoning_effort": "high", "thinking": True}]


def message_of(said):
    role, content, *more = said
    message = {"role": "assistant" if role == "thinking" else role, "content": content}
    if role == "assistant" and more:
        message["calls"] = more[0]
    if role == "tool":
        message["name"], message["call_id"] = more
    if role == "thinking":
        message["thinking"] = more[0]
    return message


def transformers_message(message):
    """In the order of engine/text/templates.cpp, which shows where a template prints a whole message."""
    out = {"role": message["role"], "content": message["content"]}
    if "name" in message:
        out["name"] = message["name"]
    if "call_id" in message:
        out["tool_call_id"] = message["call_id"]
    if "thinking" in message:
        out["reasoning_content"] = out["thinking"] = message["thinking"]
    if "calls" in message:
        out["tool_calls"] = [{"type": "function", "id": call["id"], "function": {
            "name": call["name"], "arguments": json.loads(call["arguments"])}} for call in message["calls"]]
    return out


def rendered(compiled, question):
    tools = [{"type": "function", "function": tool} for tool in TOOLS] if question["tools"] else None
    try:
        return compiled.render(messages=[transformers_message(one) for one in question["messages"]], tools=tools,
                               documents=None, add_generation_prompt=question["add_generation_prompt"],
                               bos_token="<s>", eos_token="</s>", strftime_now=NOW.strftime, **question["variables"])
    except Exception:  # whatever a template does in Python
        return None


def main():
    made = []
    for name, source in TEMPLATES.items():
        compiled = _compile_jinja_template(source)
        cases, texts = [], set()
        for talk, (variables, tools, generation) in itertools.product(range(len(TALKS)), ASKED):
            question = {"messages": [message_of(said) for said in TALKS[talk]], "tools": tools,
                        "add_generation_prompt": generation, "variables": VARIABLES[variables]}
            text = rendered(compiled, question)
            if (talk, text) in texts:
                continue
            texts.add((talk, text))
            cases.append([talk, variables, tools, generation, text])
        made.append({"name": name, "source": source, "cases": cases})
        failed = sum(case[4] is None for case in cases)
        print(f"{name}: {len(cases)} texts, {failed} kinds that fail")
    OUT.write_text(json.dumps({
        "local_time": NOW.isoformat(), "tools": [json.dumps(tool) for tool in TOOLS], "variables": VARIABLES,
        "talks": [[message_of(said) for said in talk] for talk in TALKS], "templates": made}, ensure_ascii=True, indent=0) + "\n")
    print(len(made), "templates,", sum(len(one["cases"]) for one in made), "texts")


if __name__ == "__main__":
    main()
