# SPDX-License-Identifier: Apache-2.0
"""Small templates, one construct each. Made by us; rendered by Transformers in make_chat.py."""

EXPRESSIONS = r"""
1 + 2 * 3 - 4
7 // 2, -7 // 2, 7 % 3, -7 % 3, 7 / 2, 2 ** 10, 2 ** -1, 2 ** 3 ** 2
7.5 // 2, -7.5 // 2, 7.5 % 2, -7.5 % 2, 1.5 + 1, 3 * 0.1, 1e16, 1e15, 1e-5, 0.0001, 1.0, 123456789.125, 1e22, -0.0
-5, +5, --5, -(2 + 3), not 1, not not 1
1 == 1.0, 1 == true, 'a' == 'a', 'a' != 'b', [1, 2] == [1, 2], (1, 2) == [1, 2], {'a': 1} == {'a': 1}, none == none
1 < 2 < 3, 1 < 3 < 2, 2 >= 2, 'a' < 'b', [1, 2] < [1, 3], (1,) < (1, 0), 1 < 2.5
1 in [1, 2], 3 not in [1, 2], 'a' in 'abc', 'x' in {'x': 1}, 'y' in {'x': 1}, '' in 'a', none in [none]
true and false, true or false, 1 and 2, 0 or 'x', '' and 1, none or [], not ''
'a' if true else 'b', 'a' if false else 'b', 1 if 0 else 2 if 0 else 3
'a' ~ 1 ~ none ~ 2.5 ~ [1] ~ true ~ nothing
'a' + 'b' * 3, [1] + [2] * 2, (1,) + (2,), 2 * 'ab', 'x' * -1
'abc'[0], 'abc'[-1], 'äöü'[1], [1, 2, 3][-1], (1, 2)[0], {'a': 5}['a'], {'a': 5}.a, {1: 'x'}[1]
'abcdef'[1:3], 'abcdef'[::-1], 'abcdef'[-2:], 'abcdef'[:-2], 'abcdef'[::2], 'abcdef'[4:1:-1], 'äöü😀'[::-1]
[1, 2, 3, 4][1:], [1, 2, 3, 4][:-1], [1, 2, 3, 4][::-1], [1, 2, 3, 4][5:], (1, 2, 3)[1:], [1, 2, 3][-9:9], [1, 2][::-2]
'abc'[9] is defined, [1][5] is defined, 5[0:1], {}[1:] is defined, {'a': 1}.b is defined, 'abc'.nothing is defined
[], [1], [1, 'a', none, true, 1.5], (), (1,), (1, 2), {}, {'a': 1, 'b': [2]}, {1: none}
['it\'s', "say \"x\"", 'both \' and "', 'tab\t', 'nl\n', 'äö', '\x00\x7f', '\u200b', '😀', '\\']
'escapes: \n\t\\ \' \" \x41 \u00e4 \U0001F600 \101 \q'
"double \"quoted\" 'single'"
'adjacent ' 'strings' " join"
true, True, false, False, none, None
1_000, 0, 1_0.5, 2e3, 1.5E-2
{'a': {'b': {'c': 7}}}.a.b['c'], [[1, [2, 3]]][0][1][1], [{'x': 1}].0.x
messages[0].role, messages[0]['content'], messages[-1].content, messages|length, messages[1:]|length
nothing, nothing is defined, nothing is undefined, nothing|default('d'), nothing or 'x', nothing == other_nothing
bos_token, bos_token is defined, tools is none, tools is defined, documents, add_generation_prompt
'  x '|trim, '\n\t x\u00a0'|trim, 'xxaxx'|trim('x'), 5|trim, none|trim, nothing|trim
'äöü😀'|length, [1, 2]|length, {'a': 1}|length, ''|length, nothing|length, (1, 2)|count
'aBc'|upper, 'aBc'|lower, 'aBc dEf'|title, 'aBc dEf'|capitalize, 'hello-world (foo) [bar] <baz> {x}'|title, 'ÄÖ'|lower, 5|upper
[3, 1, 2]|sort, [3, 1, 2]|sort(reverse=true), ['b', 'A', 'c']|sort, ['b', 'A']|sort(case_sensitive=true), [{'n': 2}, {'n': 1}]|sort(attribute='n')
[1, 2, 3]|join, [1, 2]|join(', '), 'abc'|join('-'), [{'a': 1}, {'a': 2}]|join('+', attribute='a'), []|join('x'), nothing|join
[1, 2]|first, [1, 2]|last, 'abc'|first, 'abc'|last, []|first, []|first is defined, {'k': 1}|first
'aaa'|replace('a', 'b'), 'aaa'|replace('a', 'b', 2), 'abc'|replace('', '-'), 5|replace('5', '6')
'abc'|list, (1, 2)|list, {'a': 1, 'b': 2}|list, range(3)|list, {'a': 1}.items()|list, {'a': 1}.keys()|list, {'a': 1}.values()|list
{'b': 1, 'a': 2}|items|list, {'b': 1, 'a': 2}|dictsort, {'b': 1, 'a': 2}|dictsort(by='value'), {'b': 1, 'A': 2}|dictsort(reverse=true)
'5'|int, 'x'|int, 'x'|int(7), '5.9'|int, 5.9|int, ' 12 '|int, none|int(3), true|int, '-3'|int, '+4'|int
'5.5'|float, 'x'|float, 5|float, 'x'|float(1.5)
-5|abs, 5.5|abs, 2.5|round, 3|round, 3.5|round, [1, 2, 3]|sum, [1.5, 2]|sum, [{'a': 2}]|sum(attribute='a'), [1, 2]|sum(start=10)
[1, 3, 2]|max, [1, 3, 2]|min, ['b', 'A']|min, []|max is defined
[1, 2, 2, 1, 'a', 'A']|unique|list, [1, 2, 3]|reverse|list, 'abc'|reverse
5|string, 'x'|string, none|string, [1]|string, nothing|string
'a\nb\n\nc'|indent, 'a\nb'|indent(2), 'a\nb'|indent(2, true), 'a\n\nb'|indent(2, blank=true), 'a\nb'|indent('> '), ''|indent
{'a': 1, 'b': [1, 2.5, none, true], 'c': 'ä"\\\n\u0001\x7f😀'}|tojson
{'a': [1, {'b': []}], 'c': {}}|tojson(indent=2), [1, 2]|tojson(indent=0), {'b': 1, 'a': 2}|tojson(sort_keys=true), 'ä😀'|tojson(ensure_ascii=true)
{'a': 1}|tojson(separators=(',', ':')), 'x'|tojson, none|tojson, 1.0|tojson, 1e100|tojson, (1, 2)|tojson, {1: 2, none: 3, true: 4}|tojson
messages|map(attribute='role')|list, ['a', 'b']|map('upper')|list, [1, 2]|map('string')|join('-'), [{'a': 1}, {}]|map(attribute='a', default='x')|list, none|map('upper')|list
messages|selectattr('role', 'equalto', 'user')|list|length, messages|rejectattr('role', '==', 'user')|map(attribute='content')|join('|'), [{'a': 1}, {'b': 2}]|selectattr('a', 'defined')|list, [{'a': 0}, {'a': 1}]|selectattr('a')|list
[1, 2, 3, 4]|select('odd')|list, [1, 2, 3, 4]|reject('even')|list, [0, 1, '', 'a']|select|list, [1, 5]|select('>', 3)|list, none|select|list
messages|selectattr('role', 'in', ['user', 'system'])|list|length, [{'a': {'b': 2}}]|map(attribute='a.b')|list, [[5, 6]]|map(attribute=1)|list, [[5, 6]]|map(attribute='1')|list
1 is number, 1.5 is number, true is number, 'a' is number, 1 is integer, true is integer, 1.5 is float, true is boolean, 1 is boolean
'a' is string, 1 is string, [] is sequence, 'a' is sequence, {} is sequence, 1 is sequence, {} is mapping, [] is mapping
[] is iterable, 'a' is iterable, 1 is iterable, none is iterable, {} is iterable, nothing is iterable, range(3) is iterable
none is none, 1 is none, true is true, 1 is true, false is false, 0 is false, true is sameas true, 1 is sameas true, none is sameas none
3 is odd, 4 is odd, 4 is even, 9 is divisibleby 3, 9 is divisibleby(2)
1 is eq 1, 1 is equalto(1), 1 is ne 2, 1 is lt 2, 1 is lessthan 2, 2 is gt 1, 2 is greaterthan 1, 1 is le 1, 1 is ge 2
'a' is in ['a', 'b'], 1 is in [2], 'abc' is lower, 'ABC' is upper, 'Abc' is lower, '1' is upper
1 is not none, nothing is not defined, not nothing is defined, 'a' is not in ['b'], 1 is not odd
raise_exception is callable, 'x' is callable, 1 is odd and 2 is even, 1 if 2 is even else 3
'a b  c'.split(), 'a,b,,c'.split(','), 'a,b,c'.split(',', 1), '  a b '.split(none, 1), ''.split(), ''.split(','), 'a,b,c'.rsplit(',', 1), 'a b c'.rsplit()
' x '.strip(), ' x '.lstrip(), ' x '.rstrip(), 'xxaxx'.strip('x'), 'xyaxy'.strip('yx'), '\u2003a\x1c'.strip(), 'äxä'.strip('ä')
'abc'.startswith('ab'), 'abc'.endswith('bc'), 'abc'.startswith(('x', 'a')), 'abc'.endswith('')
'aXbX'.replace('X', '-'), 'aXbX'.replace('X', '-', 1), 'abc'.upper(), 'ABC'.lower(), 'they\'re bill\'s 3rd x2y'.title(), 'aBC'.capitalize()
'abc'.find('c'), 'abc'.find('x'), 'äöü'.find('ü'), 'abcabc'.rfind('b'), 'aXbXc'.count('X'), '123'.isdigit(), 'a'.isdigit(), ''.isdigit()
', '.join(['a', 'b']), ''.join([]), '-'.join('abc'), 'a\nb\r\nc\n'.splitlines(), 'k=v=w'.partition('='), 'k=v=w'.rpartition('='), 'kv'.partition('=')
'prefix-x'.removeprefix('prefix-'), 'x.py'.removesuffix('.py'), 'x'.removeprefix('y')
{'a': 1}.get('a'), {'a': 1}.get('b'), {'a': 1}.get('b', 2), [1, 2, 1].count(1), [1, 2].index(2), messages[0].get('name', '?')
range(5)|list, range(2, 5)|list, range(5, 0, -2)|list, range(0)|list, range(3)|length, dict(a=1, b=2), dict({'a': 1}, c=3), namespace(a=1).a
(1, 2, 3)|length, ((1)), ((1, 2)), [1, 2,], {'a': 1,}, (1,)|first
-2 ** 2, not 1 == 2, 2 * 3 ~ 4, 'a' ~ 1 * 2, -1|abs, 1 in [1] == true
1 if true, (1 if false) is defined, nothing|default('x', true), ''|default('x', true), none|default('x'), 0|d(5, true), ''|default('x')
'[A]' + ({'x': 1}|tojson|safe), ('a<'|safe) + '<', '<' + ('b'|safe), ('a'|safe) * 2, ('<a>'|safe) ~ '<', (' <a> '|safe).strip() + '<', ('<a>'|safe)[1] + '<', ('<a,b>'|safe).split(',')[0] + '<'
('<a>'|safe)|upper + '<', ('<a>'|safe)|replace('a', '<b>'), ('<a>'|safe).replace('a', '<b>') + '&', [('x'|safe)], ('a'|safe) == 'a', 'x' in ('x'|safe), ('<a>'|safe) is escaped, '<' is escaped, ('<a>'|safe)|trim + '<', ('<a>'|safe)|title + '<', ('<b>'|safe)|string + '<', ('<b>'|safe)|join('<') + '<'
'%s and %d' % ('a', 5), '%s' % 5, '%s' % none, '%5.2f|%-5d|%05d|%+d|%x|%X|%o' % (3.14159, 42, 42, 42, 255, 255, 8), '%%' % (), '%(a)s-%(b)03d' % {'a': 1, 'b': 2}, '%s' % [1, 2], '%r' % 'x', '%.2s' % 'abc', '%e' % 12345.678, '%g' % 0.0001, '%5s|%-5s|' % ('ab', 'cd'), '%i' % 3.9, '%s' % nothing
'%s-%s'|format(1, 'b'), '%(x)s'|format(x=5), '%.1f'|format(2.25), '{} {}'.format(1, 'a'), '{1}{0}'.format('a', 'b'), '{a}'.format(a=3), '{{}}'.format(), '{:.2f}|{:5d}|{:<5}|{:>5}|{:^5}|{:05d}'.format(1.005, 42, 'ab', 'cd', 'e', 7), '{!r}'.format('q')
'5'.zfill(3), '-5'.zfill(4), 'abc'.zfill(2), 'ab'.center(5), 'abc'.center(6, '*'), 'ab'.ljust(4, '.') ~ '|', 'ab'.rjust(4), 'a'|center(4) ~ '|', 'abc'.center(4, '-')
'abc'.isalpha(), 'ab1'.isalpha(), 'ab1'.isalnum(), 'äö'.isalpha(), ' \t'.isspace(), ''.isspace(), 'ABC'.isupper(), 'AbC'.isupper(), 'abc1'.islower(), '12'.isdecimal(), '½'.isnumeric(), 'abc'.isascii(), 'ä'.isascii(), 'aBc'.swapcase()
'abcabc'.find('b', 2), 'abcabc'.find('b', 2, 3), 'abcabc'.index('c'), 'abcabc'.rindex('a'), 'äöäö'.find('ö', 2), 'aaa'.count('a', 1), 'abc'.startswith('b', 1), 'abc'.endswith('b', 0, 2), 'abc'.find('', 9), 'abc'.find('c', -1), 'a\nb'.splitlines(true)
[1, 2, 3, 4, 5]|batch(2)|list, [1, 2, 3]|batch(2, 'x')|list, [1, 2, 3, 4, 5]|slice(2)|list, [1, 2, 3]|slice(2, 'x')|list, []|batch(2)|list
2.567|round(2), 2.5|round(0), 2.4|round(0, 'ceil'), 2.678|round(1, 'floor'), 3|round(2), 1.005|round(2), 'abcdefghij'|truncate(5, true, '..', 0), 'hello big world'|truncate(11, false, '...', 0), 'hello world'|truncate(8), '<a>'|forceescape
[{'a': 2}, {'a': 1}]|max(attribute='a'), [{'a': 2}, {'a': 1}]|min(attribute='a'), ['b', 'A']|min(true), ['a', 'A', 'b']|unique(true)|list, [{'a': 1}, {'a': 1}]|unique(attribute='a')|list
{'a': 1}.copy(), [1].copy(), range(5)[1], range(5)[-1], range(3) is sequence, {'a': 1}.keys() is sequence, {'a': 1}.items() is iterable, 'upper' is filter, 'nosuch' is filter, 'odd' is test, {'a': [1]}|tojson(indent='--')
2.0 ** 3, 2 ** 0.5, 2.5 ** 2, 9 ** 0.5
dict(*[{'a': 1}]), dict(**{'b': 2}), 'abc'.replace(*['a', 'b']), dict(a=1, **{'b': 2}), [3, 1]|sort(**{'reverse': true}), '%s%s' % (1, 2)
'straße'.startswith('stra'), 'ÀÉ'|lower, 'жЩ'|upper, 'éa'.title()
"""

STATEMENTS = [
    "{% if true %}a{% endif %}{% if false %}b{% elif true %}c{% else %}d{% endif %}{% if [] %}x{% else %}y{% endif %}",
    "{% for x in [1, 2, 3] %}{{ x }}{% if not loop.last %},{% endif %}{% endfor %}",
    "{% for x in [1, 2, 3] %}{{ loop.index }} {{ loop.index0 }} {{ loop.revindex }} {{ loop.revindex0 }} {{ loop.first }} {{ loop.last }} {{ loop.length }} {{ loop.depth }} {{ loop.cycle('a', 'b') }};{% endfor %}",
    "{% for x in 'abc' %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }} {% endfor %}",
    "{% for x in [] %}x{% else %}empty{% endfor %}{% for x in nothing %}x{% else %}none{% endfor %}",
    "{% for x in range(6) if x is odd %}{{ loop.index }}:{{ x }}/{{ loop.length }} {% else %}no{% endfor %}{% for x in [2] if x is odd %}x{% else %}no{% endfor %}",
    "{% for k, v in {'a': 1, 'b': 2}.items() %}{{ k }}={{ v }};{% endfor %}{% for (a, b) in [(1, 2), [3, 4]] %}{{ a }}{{ b }}{% endfor %}{% for k in {'x': 1} %}{{ k }}{% endfor %}",
    "{% for k, v in {'a': 1}|items %}{{ k }}={{ v }}{% endfor %}{% for k, v in {'b': 1, 'a': 2}|dictsort %}{{ k }}{{ v }}{% endfor %}",
    "{% for x in [1, 2, 3, 4] %}{% if x == 2 %}{% continue %}{% endif %}{% if x == 4 %}{% break %}{% endif %}{{ x }}{% endfor %}",
    "{% for x in [1, 2] %}{% for y in [3, 4] %}{{ x }}{{ y }}{{ loop.index }} {% endfor %}{{ loop.index }};{% endfor %}",
    "{% for x in [1, 2] %}{% set outer = loop %}{% for y in 'ab' %}{{ outer.index }}{{ y }}{{ loop.last }} {% endfor %}{% endfor %}",
    "{% set x = 1 %}{% for y in [1, 2] %}{% set x = x + y %}{{ x }} {% endfor %}{{ x }}",
    "{% set ns = namespace(n=0, found=false) %}{% for y in [1, 2, 3] %}{% set ns.n = ns.n + y %}{% set ns.found = true %}{% endfor %}{{ ns.n }}{{ ns.found }}{{ ns.other is defined }}",
    "{% set ns = namespace({'a': 1}, b=2) %}{{ ns.a }}{{ ns.b }}{{ ns['a'] is defined }}",
    "{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set (c, d) = [3, 4] %}{{ c }}{{ d }}{% set e = 1, 2 %}{{ e }}",
    "{% set x %}block {{ 1 + 1 }}{% endset %}[{{ x }}]{% set y | upper | trim %} shout {% endset %}[{{ y }}]",
    "{% if true %}{% set x = 5 %}{% endif %}{{ x }}{% if false %}{% set z = 5 %}{% endif %}{{ z is defined }}",
    "{% set tools = tools or [] %}{{ tools|length }}{% set add_generation_prompt = false %}{{ add_generation_prompt }}",
    "{% macro f(a, b=2, c='x') %}{{ a }}-{{ b }}-{{ c }}{% endmacro %}{{ f(1) }} {{ f(1, 3) }} {{ f(1, c='y') }} {{ f(b=1, a=0) }} {{ f() }} {{ f(1)|upper|length }}",
    "{% macro fact(n) %}{% if n <= 1 %}1{% else %}{{ n * (fact(n - 1)|int) }}{% endif %}{% endmacro %}{{ fact(5) }}",
    "{% set x = 1 %}{% macro show() %}{{ x }}{% endmacro %}{{ show() }}{% set x = 2 %}{{ show() }}",
    "{% macro outer(x) %}{% macro inner(y) %}{{ x }}{{ y }}{% endmacro %}{{ inner(1) }}{{ inner(2) }}{% endmacro %}{{ outer('a') }}",
    "{% macro d(a, b=a) %}{{ a }}{{ b }}{% endmacro %}{{ d(1) }}{% macro e(x) %}{% set x = x ~ '!' %}{{ x }}{% endmacro %}{{ e('a') }}",
    "{% macro m(items) %}{%- for i in items -%}{%- if i is iterable and i is not string -%}({{ m(i) }}){%- else -%}{{ i }}{%- endif -%}{%- endfor -%}{% endmacro %}{{ m([1, [2, [3, 'x']], 4]) }}",
    "{% with a = 1, b = 2 %}{{ a }}{{ b }}{% set c = 3 %}{{ c }}{% endwith %}{{ a is defined }}{{ c is defined }}",
    "{% filter upper %}shout {{ 'x' }}{% endfilter %}{% filter replace('a', 'b') | title %}banana cat{% endfilter %}",
    "{% generation %}inside {{ 1 }}{% set q = 1 %}{% endgeneration %}{{ q is defined }}",
    "{% raw %}{{ not }} {% a tag %} {# no comment #}{% endraw %}|{%- raw -%}  x  {%- endraw -%}  |",
    "a{# comment #}b{#- trimmed -#}  c  {#- x #} d {# multi\nline #}\ne",
    "a  {%- if true %}  b  {%- endif %}  c",
    "a  {% if true -%}  b  {% endif -%}  c",
    "a\n  {% if true %}\n  b\n  {% endif %}\n  c\n",
    "a\n  {%+ if true %}\n  b\n  {%+ endif +%}\n  c\n\n",
    "a\n\t {{ 'x' }}\n  {{- 'y' -}}  \n  z\n",
    "  {% set x = 1 %}  \n  {# c #}  \nx {% set y = 2 %}\ny\n",
    "{{ 'a' }}\n{{ 'b' }}\n\n{% if true %}{{ 'c' }}\n{% endif %}\n\n",
    "line\r\n{% if true %}\r\nwindows{% endif %}\rmac\r",
    "{% for m in messages %}\n{{ m.role }}: {{ m.content }}\n{% endfor %}\nend",
    "{% for m in messages -%}\n  {{ m.role }}\n{%- endfor %}",
    "{{ {'a': {'b': 1}} }}{{ {'a': '}}'}['a'] }}{{ '{{ x }}' }}{{ '%}' }}",
    "{{ '{%' }}{{ \"#}\" }} } } % } {{ '}' }} { x }",
    "{% for m in messages %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}odd {% endif %}{% endfor %}",
    "{%- set first = messages[0] -%}{%- if first.role == 'system' -%}{%- set rest = messages[1:] -%}{%- else -%}{%- set rest = messages -%}{%- endif -%}{{ rest|length }}",
    "{%- for m in messages[::-1] -%}{%- set index = (messages|length - 1) - loop.index0 -%}{{ index }}{{ m.role[0] }} {% endfor %}",
    "{% set content = messages[-1].content %}{% if '</think>' in content %}{{ content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') }}|{{ content.split('</think>')[-1].lstrip('\\n') }}{% else %}none{% endif %}",
    "{{ messages[0] }}{{ messages|tojson }}",
    "{{ messages|map(attribute='role') is iterable }}{% if messages|selectattr('role', 'equalto', 'nobody') %}always{% endif %}",
    "{% set g = [1, 2]|select %}{{ g|list }}{{ g|list }}",
    "{%- for x in [1, 2] %}\n{{- x }}\n{%- endfor %}\n",
    "{% set x = 'a' %}{% set f = namespace(v=x) %}{% for i in range(3) %}{% set f.v = f.v ~ i %}{% endfor %}{{ f.v }}",
    "",
    "\n",
    "plain text",
    "\n\n{{ 1 }}\n\n",
    "{{ 1 }}{{- 2 }} {{ 3 -}} {{ 4 }}",
    "{% if 1 %}\n\n{{ 2 }}\n{% endif %}\n",
    "{{ strftime_now('%Y')|length }}",
    "{% set s = 'x' %}{% if s is string and s|length == 1 and not (s == 'y' or s in ['z']) %}ok{% endif %}",
    "{% if messages[0].role == 'system' %}{{ messages[0].content|trim }}{% endif %}{% for m in messages if m.role != 'system' %}[{{ loop.index0 }}{{ m.content|trim }}]{% endfor %}",
    "{% for a in [[1, 2], [3]] %}{% for b in a %}{% if b == 2 %}{% break %}{% endif %}{{ b }}{% endfor %}.{% endfor %}",
    "{% set d = {} %}{% set d = dict(d, a=1) %}{{ d }}{% set l = [] %}{% set l = l + [1] %}{{ l }}",
    "{{ ('<b>'|safe) }}{{ [1]|tojson|safe }}{{ '<a href=\"x\">&'|e }}{{ '<b>'|safe ~ '<i>' }}{{ '<b>'|escape|escape }}",
    "{% macro box(t) %}[{{ t }}:{{ caller() }}]{% endmacro %}{% call box('a') %}in {{ 1 }}{% endcall %}{% call box(t='b') %}{% endcall %}",
    "{% macro each(l) %}{% for x in l %}{{ caller(x, loop.index) }};{% endfor %}{% endmacro %}{% set y = 'o' %}{% call(x, n=0) each([5, 6]) %}{{ y }}{{ x }}{{ n }}{% endcall %}",
    "{% macro opt() %}{% if caller %}{{ caller() }}{% else %}none{% endif %}{% endmacro %}{{ opt() }}{% call opt() %}some{% endcall %}",
    "{% macro more(a) %}{{ a }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ more(1) }}{{ more(1, 2, 3, x=4) }}{{ more(*[7, 8], **{'z': 9}) }}",
    "{% for x in [[1, [2, 3]], 4] recursive %}{% if x is iterable %}({{ loop(x) }}){% else %}{{ x }}/{{ loop.depth }}/{{ loop.depth0 }}{% endif %} {% endfor %}",
    "{% for n in [{'n': 'a', 'c': [{'n': 'b', 'c': []}, {'n': 'c', 'c': [{'n': 'd', 'c': []}]}]}] recursive -%}{{ '  ' * loop.depth0 }}{{ n.n }}\n{{ loop(n.c) }}{%- endfor %}",
    "{% set comma = joiner(', ') %}{% for x in [1, 2, 3] %}{{ comma() }}{{ x }}{% endfor %}{% set j = joiner() %}{{ j() }}|{{ j() }}",
    "{% set ns = namespace(x=1) %}{% set ns.x %}block{% endset %}{{ ns.x }}{% set a %}{{ 'b' }}{% endset %}{{ a ~ a|length }}",
    "{% macro t(x) %}{{ x }}{% endmacro %}{% set r = t('<b>') %}{{ r + '<' }}{{ r is escaped }}{{ [1, 2]|map('string')|map('upper')|join(',') }}",
    "{{ strftime_now('%d %b %Y')|length }}{{ strftime_now('%Y-%m-%d')|length }}{{ strftime_now('x %% y') }}{{ strftime_now('%F') == strftime_now('%Y-%m-%d') }}{{ strftime_now('%z') }}",
    "{%if true%}tight{%endif%}{{1}}{{-2-}}{%-if true-%} x {%-endif-%}",
    "{% set loop_messages = messages %}{% for message in loop_messages %}{% set content = '<|' + message['role'] + '|>\\n' + message['content'] | trim + '<|end|>\\n' %}{{ content }}{% endfor %}",
]

# Each must fail, in Transformers and in Baton.
FAILING = [
    "{{ nothing.member }}", "{{ nothing['x'] }}", "{{ nothing() }}", "{{ nothing + 1 }}", "{{ 1 + nothing }}", "{{ nothing < 1 }}",
    "{{ -nothing }}", "{{ 'a' + 1 }}", "{{ 1 + 'a' }}", "{{ none + 'a' }}", "{{ [1] + (2,) }}", "{{ 1 / 0 }}", "{{ 1 // 0 }}", "{{ 1 % 0 }}",
    "{{ 'a' < 1 }}", "{{ none < 1 }}", "{{ 1 in 5 }}", "{{ 1 in 'a' }}", "{{ none|length }}", "{{ 5|length }}", "{{ 5|list }}",
    "{% for x in 5 %}{% endfor %}", "{% for x in none %}{% endfor %}", "{% for a, b in [1] %}{% endfor %}", "{% for a, b in [[1, 2, 3]] %}{% endfor %}",
    "{{ raise_exception('no') }}", "{% if true %}{{ raise_exception('roles must alternate') }}{% endif %}", "{{ 'x'() }}", "{{ messages.append(1) }}",
    "{{ [1].append(2) }}", "{{ {'a': 1}.update({}) }}", "{{ ''.__class__ }}x{{ ''.__class__.__mro__ }}", "{{ messages[0].content.nothing.more }}",
    "{% macro f(a) %}{% endmacro %}{{ f(1, 2) }}", "{% macro f(a) %}{% endmacro %}{{ f(b=1) }}", "{% macro f(a) %}{% endmacro %}{{ f(1, a=2) }}",
    "{% set x = 1 %}{% set x.y = 2 %}", "{% set ns = namespace() %}{% set ns._x = 1 %}", "{{ 'abc'.index('x') }}", "{{ [1].index(2) }}",
    "{{ undefined_filter|nosuchfilter }}", "{{ 1 is nosuchtest }}", "{{ 'a'|tojson(nosuch=1) }}", "{{ 'a'|trim(1, 2) }}", "{{ range(1000000) }}", "{{ range(1, 5, 0)|list }}",
    "{{ nothing|tojson }}", "{{ 'abc'[::0] }}", "{{ 'a'|replace('a') }}", "{{ ', '.join([1]) }}", "{{ 'a'.startswith(1) }}", "{{ 1 is divisibleby 0 }}", "{{ 'a' is odd }}",
    "{% if %}{% endif %}", "{% if 1 %}", "{% for %}{% endfor %}", "{% for x in %}{% endfor %}", "{% for x in [1] %}", "{% endif %}", "{% else %}", "{% nosuchtag %}",
    "{{ }}", "{{ 1", "{{ 'a }}", "{% set %}", "{% set 1 = 2 %}", "{% set x = %}", "{{ 1 + }}", "{{ (1 }}", "{{ [1 }}", "{{ 1) }}", "{{ {1} }}", "{{ a b }}", "{{ 1 2 }}",
    "{{ x. }}", "{{ x[] }}", "{{ x[1:2:3:4] }}", "{# no end", "{% raw %} no end", "{{ 'a' is }}", "{{ 'a' | }}", "{{ 1 if }}", "{{ f(a=1, 2) }}", "{{ $ }}", "{{ a ! b }}", "{% macro %}{% endmacro %}",
    "{% macro f(a=1, b) %}{% endmacro %}", "{% break %}", "{% continue %}", "{% macro f() %}{% break %}{% endmacro %}", "{{ not }}", "{{ 1 == }}", "{{ 'a' 'b }}", "{{ '\\x4' }}", "{% with a %}{% endwith %}", "{% if 1 %}{% endfor %}",
    "{{ messages|join(', ', nosuch=1) }}", "{{ dict(1) }}", "{{ namespace(1) }}", "{{ 1 is eq }}", "{{ 'a'.split('') }}", "{{ ''|first + 1 }}", "{% set ns = namespace(_a=1) %}",
    "{% macro outer() %}<{{ caller() }}>{% endmacro %}{% macro both() %}{% call outer() %}{{ caller() }}!{% endcall %}{% endmacro %}{% call both() %}x{% endcall %}",
    "{% macro f() %}{% endmacro %}{% call f() %}x{% endcall %}", "{% call f %}x{% endcall %}", "{% call nothing() %}x{% endcall %}", "{% call f() %}", "{{ '%d' % 'a' }}", "{{ '%s %s' % 'a' }}",
    "{{ '%s' % (1, 2) }}", "{{ '%(a)s' % 1 }}", "{{ '%(a)s' % {} }}", "{{ '%' % 1 }}", "{{ '%y' % 1 }}", "{{ '{' .format() }}", "{{ '{}'.format() }}", "{{ '{a}'.format(1) }}", "{{ f(*1) }}", "{{ dict(**[1]) }}",
    "{{ dict(a=1, **{'a': 2}) }}", "{% macro f(a) %}{% endmacro %}{{ f(*[1, 2]) }}", "{% for x in [1] %}{{ loop([2]) }}{% endfor %}", "{{ 'a'.center() }}", "{{ 'a'|truncate(1) }}", "{{ [1]|batch }}", "{{ 2.5|round(1, 'up') }}", "{{ range(3)[1:] + 1 }}",
]
