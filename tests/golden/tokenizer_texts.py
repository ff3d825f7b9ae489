# SPDX-License-Identifier: Apache-2.0
"""Texts for the tokenizer goldens: what our small tokenizers are trained on, and lines that are hard to cut."""
import random

TRAINING = """
The quick brown fox jumps over the lazy dog. A planner writes a plan, a critic reads it, and a solver answers.
We'll see that they've done it; I'm sure you'd say it's fine, won't you? She said: "That isn't what we're after."
Tom has 12 apples and buys 30 more for 4.50 each. How many apples does he have? 12 + 30 = 42. The answer is 42.
In 1969, 1984 and 2024 there were 365, 366 and 366 days. 3.14159 is not 22/7; 1,000,000 is 10^6.
def add(a, b):
    \"\"\"Return the sum of a and b.\"\"\"
    return a + b

for (int i = 0; i < n; ++i) { sum += values[i] * weights[i]; }  // a dot product
if __name__ == "__main__":
\tprint(add(1, 2), end="\\n\\n")
{"role": "user", "content": "What is the capital of France?", "items": [1, 2, 3], "ok": true}
SELECT name, COUNT(*) FROM people WHERE age >= 18 GROUP BY name ORDER BY 2 DESC;
https://example.org/path?query=value&other=thing#fragment and someone@example.org
Der schnelle braune Fuchs springt über den faulen Hund. Größe, Straße, Äpfel, öffnen, Übung.
Le garçon a mangé une crêpe à la forêt; où est l'été? Ça va très bien, merci. El niño comió una piña mañana.
Съешь же ещё этих мягких французских булок, да выпей чаю. Привет, как дела? Хорошо, спасибо.
我们今天去公园散步，天气很好。你想喝茶还是咖啡？人工智能可以回答很多问题。上海和北京是大城市。
今日は天気がいいので、公園を散歩します。これはペンです。カタカナとひらがな。
안녕하세요, 오늘 날씨가 좋네요. 커피 한 잔 주세요.
السلام عليكم، كيف حالك اليوم؟ شكرا جزيلا. שלום עולם, מה שלומך היום?
नमस्ते दुनिया, आप कैसे हैं? मैं ठीक हूँ। สวัสดีชาวโลก วันนี้อากาศดี
The plan: 1) read the question; 2) find the numbers; 3) compute; 4) check. Therefore the result follows.
Let x be the price of one book, and let y be the price of one pen. Then 3x + 2y = 19 and x + y = 7, so x = 5.
# Heading\n\n- item one\n- item two\n  - nested item\n\n```python\nprint('hello')\n```\n
""" * 3

HARD = [
    "", " ", "  ", "   a", "a   ", "a  b   c    d", "\n", "\n\n", "\r\n", "a\r\nb\rc\n\n\nd", " \n \n ", "\t\ttabs\t and spaces ",
    "Hello, world!", "hello world", "HELLO WORLD", "Hello", " Hello", "  Hello", "   Hello   World   ",
    "I'm you're he's we'll they'd it'd I've don't can't", "I'M YOU'RE HE'S WE'LL THEY'D", "'s 't 're 've 'm 'll 'd",
    "''s '''t 'S'T'RE", "it\u2019s and \u2018quoted\u2019 \u201ctext\u201d", "'\u017f x'\u017fy", "d\u212a'\u212a",
    "0", "1 2 3", "12 123 1234 12345 123456 1234567", "3.14 1,000 -5 +7 1e10 0x1F", "1/2 \u00bd \u2153 \u2167 \u24ea \u0663\u0664\u0665 \u0967\u0968",
    "a1b2c3", "v1.2.3-rc4", "2024-05-17T12:34:56Z", "\u00b2\u00b3 x\u00b2+y\u00b3",
    "def f(x):\n    return x  # comment\n", "if (a<b && c>d) { x->y = z[0]; }", "\tindented\n\t\tmore\n", "    four spaces\n        eight",
    "a=b;c==d;e!=f;g<=h", "snake_case camelCase PascalCase SCREAMING_CASE kebab-case", "foo.bar.baz()", "#include <vector>\n",
    "!!!", "...", "?!?!", "----", "====", "((()))", "[[{}]]", "$100 %50 #1 @me", "`code` ~tilde~ ^caret^ |pipe| \\back\\slash",
    "a, b; c: d. e! f? g", "\u2026 \u2014 \u2013 \u00ab \u00bb \u00a1 \u00bf \u00a7 \u00b6 \u2022",
    "\u4f60\u597d", "\u4f60\u597d\u4e16\u754c\u3002", "\u6211\u4eec\u4eca\u5929 go \u53bb\u516c\u56ed123\u6b21", "\u65e5\u672c\u8a9e\u306e\u30c6\u30b9\u30c8", "\uc548\ub155\ud558\uc138\uc694 \uc138\uacc4",
    "\u3000\u5168\u89d2\u3000\u7a7a\u767d\u3000", "\uff21\uff22\uff23\uff11\uff12\uff13\uff01", "\u2f00\u2f08\u2f12",
    "\u041f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440!", "\u0393\u03b5\u03b9\u03ac \u03c3\u03bf\u03c5 \u039a\u03cc\u03c3\u03bc\u03b5", "\u05e9\u05dc\u05d5\u05dd \u05e2\u05d5\u05dc\u05dd", "\u0627\u0644\u0633\u0644\u0627\u0645 \u0639\u0644\u064a\u0643\u0645", "\u0645\u064f\u062d\u064e\u0645\u0651\u064e\u062f",
    "\u0928\u092e\u0938\u094d\u0924\u0947 \u0926\u0941\u0928\u093f\u092f\u093e", "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35\u0e04\u0e23\u0e31\u0e1a", "\u1019\u103c\u1014\u103a\u1019\u102c", "\u0b95\u0bcd\u0bb7\u0bbf",
    "caf\u00e9 cafe\u0301", "\u00c5 A\u030a \u212b", "\u1e9b\u0323 \u017f\u0323\u0307", "e\u0301\u0302\u0303\u0304", "\u0301alone", "a\u0316\u0301b\u0301\u0316", "\u1100\u1161\u11a8 \uac01", "\u0958 \u0915\u093c",
    "\ufb01 \ufb03 \u2460 \u33a1 \u00bd \u2122", "\u0130\u0131 \u00df\u1e9e \u01c5", "Z\u0351\u036b\u0343a\u0322\u0321l\u0328\u0327g\u0321o\u035c",
    "\U0001f600", "\U0001f600\U0001f601 hi \U0001f602", "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466 family", "\U0001f44d\U0001f3fd thumbs", "\U0001f1e9\U0001f1ea\U0001f1eb\U0001f1f7 flags", "\u2764\ufe0f heart", "1\ufe0f\u20e3 keycap", "\U0001f3f4\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f",
    "\U0001d4d0\U0001d4ed\U0001d4f8 \U0001d7d8\U0001d7d9", "\U00010348\U00010330", "\U0002070e\U00020731", "\ue000\uf8ff", "\ufffd", "\ufeffbom", "\u200bzero\u200bwidth", "\u00adsoft\u00adhyphen",
    "\u00a0nbsp\u00a0\u00a0two", "\u2003em\u2003space", "\u2028line\u2029para", "\u0085nel\u0085", "\x0b\x0cvt ff\x1c\x1d\x1e\x1f", "\u180emongolian\u180e x", "\u1680ogham", "\u202f\u205f\u3000",
    "\x00null\x00", "\x01\x02\x7f", "\u0080\u0090\u009f", "a\u200db", "a\u200c b",
    "<|endoftext|>", "a<|endoftext|>b", "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n", "<|im_start|", "<|im_start|>>", "<<|im_end|>",
    "<s>", "</s>", "<s> a </s> b", " <s>", "<s> ", "x</s>y", "<unk>", "<0x41>", "<0xE4><0xBD><0xA0>", "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nhi<|eot_id|>",
    "<tool_call>{\"a\": 1}</tool_call>", "<tool_call> x </tool_call>", "<think>\n\n</think>\n\n", "<mask> the <mask>.", "the<mask>end", "  <mask>  ", "<word> a<word>b <word>", "<word>\u00e9<word>", "_<word>_", "<Norm> and <norm>", "<NORM>x", "<left>  <right>  x  <left>", "\u2581under\u2581score", "\u2581", "\u2581\u2581a", "a\u2581 b",
    "[INST] hi [/INST]", "<|user|>\nhi<|end|>\n<|assistant|>\n", "<|user|>   spaces", "<|end|>\u00a0nbsp", "<|end|><|end|>", "<|im_start|><|im_end|><|endoftext|>",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "=" * 80, " " * 70 + "x", "\n" * 50, "ab" * 60, "\U0001f600" * 30, "9" * 60,
    "the the the the the", "antidisestablishmentarianism pneumonoultramicroscopicsilicovolcanoconiosis", "supercalifragilisticexpialidocious",
    "MixedCASEWords withNumbers123And_underscores", "e.g. i.e. etc. Mr. Dr. U.S.A.", "100% of $5.00 = \u20ac4.60 (approx.)", "C++20, C#, F#, .NET", "a/b\\c", "email@example.org, https://example.org/?q=1&r=2#x",
    "trailing newline\n", "trailing space ", "\nleading newline", "tab\tseparated\tvalues", "mixed \t \n \r\n \t whitespace",
    "x" + "\u0300" * 20, "\u0e01\u0e33\u0e33", "\u0f42\u0fb7", "\u2126\u212a\u212b", "\u1fbe\u0345", "\u0344 \u0340 \u0341", "\uf900\ufa10", "\u00b5\u03bc", "\u1f71\u03ac",
]

INVALID_HEX = [
    "ff", "80", "c3", "c328", "e28228", "e282", "f09f98", "f0288cbc", "f8a1a1a1a1", "eda080", "edbfbf", "c080", "e08080", "f0808080", "f4908080",
    "616263ff646566", "41e4bd42", "41e4bda0e4bd", "f09f9880f09f", "c2c2a0", "e1808041", "f1808041", "f180e180c2", "20ff20fe20", "e4bda0ff", "48656c6c6ffe",
]


def mixed_lines(count, seed):
    """Random lines of pieces of the hard ones and of ordinary words."""
    rng = random.Random(seed)
    words = TRAINING.split(" ")
    pieces = [line for line in HARD if line] + words
    glue = ["", "", " ", " ", " ", "  ", "\n", "\t", "\u00a0", "."]
    out = []
    for _ in range(count):
        line = ""
        for _ in range(rng.randint(1, 6)):
            piece = rng.choice(pieces) if rng.random() < 0.4 else rng.choice(words)
            if len(piece) > 12 and rng.random() < 0.5:
                start = rng.randrange(len(piece))
                piece = piece[start:start + rng.randint(1, 12)]
            line += piece + rng.choice(glue)
        out.append(line)
    return out
