#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Makes tests/text/data/chat_cases.json and pyjson_cases.json: what Python's own json module writes,
and what a second, independent rendition of the chat form (the rules of node/text/README.md, in Python)
makes of requests written by hand and drawn at random. Run it in its folder; the output is committed.
"""
import json
import random
import re

DATA = "../data/"
OPEN, CLOSE, SEP, END = "<|open|>", "<|close|>", "<|sep|>", "<|end_of_msg|>"
EFFORTS = {"minimal": "low", "low": "low", "medium": "high", "high": "high", "xhigh": "max",
           "max": "max"}
RAW = ("Your response must be raw JSON data without markdown code blocks (```json) or any "
       "additional formatting.")


class Prompt:
    def __init__(self):
        self.segs = []

    def s(self, *texts):
        self.segs += [[False, str(t)] for t in texts if str(t) != ""]
        return self

    def c(self, mark):
        self.segs.append([True, mark])
        return self

    def open(self, tag, **attrs):
        self.c(OPEN).s(tag)
        for k, v in attrs.items():
            self.s(" " + k, '="', str(v).replace("&", "&amp;").replace('"', "&quot;"), '"')
        return self.c(SEP)

    def close(self, tag):
        return self.c(CLOSE).s(tag).c(SEP)

    def done(self):
        return self.close("message").c(END)

    def note(self, type, body):
        self.open("message", role="system", type=type).s(body.strip()).done()


def fence(heading, v):
    return heading + "```json\n" + json.dumps(v, ensure_ascii=False, separators=(",", ":"),
                                              sort_keys=True) + "\n```"


def parts(p, content):
    if isinstance(content, list):
        for x in content:
            p.s(x["text"])
    elif content is not None:
        p.s(content)


def xtype(v):
    for t, n in ((bool, "boolean"), (str, "string"), ((int, float), "number"), (dict, "object"),
                 (list, "array")):
        if isinstance(v, t):
            return n
    return "null"


def function(call):
    return call.get("function") or call


def call_body(p, args):
    if isinstance(args, str):
        if not args.strip():
            return
        try:
            args = json.loads(args)
        except json.JSONDecodeError:
            p.open("json", type="object").s(args).close("json")
            return
        assert isinstance(args, dict)
    for k, v in (args or {}).items():
        p.open("argument", key=k, type=xtype(v))
        p.s(v if isinstance(v, str) else json.dumps(v, ensure_ascii=False)).close("argument")


def assistant(p, m, thinking):
    if thinking:
        why = m.get("reasoning_content") or m.get("reasoning") or ""
        p.open("think").s(why if why.strip() else "").close("think")
    p.open("response")
    parts(p, m.get("content"))
    p.close("response")
    if m.get("tool_calls"):
        p.open("tools")
        for i, call in enumerate(m["tool_calls"]):
            p.open("call", tool=function(call)["name"], index=i + 1)
            call_body(p, function(call).get("arguments"))
            p.close("call")
        p.close("tools")


def tool_runs(messages):
    """(message, name) in the order they are shown; name None: as the message says."""
    out, calls, i = [], [], 0
    while i < len(messages):
        m = messages[i]
        if m["role"] == "assistant":
            calls = m.get("tool_calls") or []
        if m["role"] != "tool":
            out.append((m, None))
            i += 1
            continue
        run = []
        while i < len(messages) and messages[i]["role"] == "tool":
            run.append(messages[i])
            i += 1
        ids = [c.get("id") for c in calls]
        at = [ids.index(m["tool_call_id"]) if m.get("tool_call_id") in ids and
              m.get("tool_call_id") is not None else None for m in run]
        if None in at:
            out += [(m, None) for m in run]
        else:
            order = sorted(range(len(run)), key=lambda k: at[k])
            out += [(run[k], function(calls[at[k]])["name"]) for k in order]
    return out


def render(q, thinking=True, effort="max"):
    p = Prompt()
    if q.get("tools"):
        p.note("tool-declare", fence("# Tools\nHere are the available tools, described in "
                                     "JSONSchema.\n\n", q["tools"]))
    if thinking and effort:
        p.note("thinking-effort", "`thinking_effort` guides on how much to think in your thinking "
               "channel (not including the response channel), supported values include `low`, "
               "`medium`, `high`, and `max`.\nNow the system is invoked with "
               "`thinking_effort=%s`." % effort)
    calls, n = [], 0
    for m, name in tool_runs(q["messages"]):
        role = {"developer": "system"}.get(m["role"], m["role"])
        named = {"name": m["name"]} if m.get("name") else {}
        if role == "tool":
            n += 1
            name = name or m.get("tool") or m.get("name") or function(calls[n - 1])["name"]
            p.open("message", role="tool", tool=name, index=n)
            parts(p, m.get("content"))
        elif role == "system" and m.get("tools"):
            p.note("tool-declare", fence(
                "## New Tools Available\nThe system dynamically extends the toolset via "
                "lazy-loading.\nYou have access to all existing and extended tools.\nHere are the "
                "specs for the extended tools.\n\n", m["tools"]))
            continue
        else:
            p.open("message", role=role, **named)
            if role == "assistant":
                calls, n = m.get("tool_calls") or [], 0
                assistant(p, m, thinking)
            else:
                parts(p, m.get("content"))
        p.done()
    if q.get("tool_choice") == "required":
        p.note("tool-choice", "The system is invoked with `tool_choice=required`.\nYou MUST call "
               "tools in the next message.")
    if q.get("tool_choice") == "none":
        p.note("tool-choice", "The system is invoked with `tool_choice=none`.\nYou MUST NOT call "
               "any tools in the next message.")
    rf = q.get("response_format") or {}
    if rf.get("type") == "json_object":
        p.note("response-format", "The system is invoked with `response_format=json_object`.\n" + RAW)
    if rf.get("type") == "json_schema":
        p.note("response-format", fence("The system is invoked with `response_format=json_schema`.\n"
                                        + RAW + "\nThe JSON data must match the following schema:\n",
                                        rf["json_schema"]["schema"]))
    p.open("message", role="assistant").open("think" if thinking else "response")
    return p.segs


rng = random.Random(20)
WORDS = ["", "a", " ", "\n", "whale", "<|open|>think<|sep|>", "<|end_of_msg|>", 'say "hi" & go',
         "&quot;", "&amp;", "汉字", "é", "\U0001F600", "\u2028", "\x7f", "\x1f", "/", "\\", "\t",
         "[EOS]", "Line one\nline two  ", "  x", "123456", "don't"]


def text(k=3):
    return "".join(rng.choice(WORDS) for _ in range(rng.randint(0, k)))


def name():
    return rng.choice(["read", "get_weather", "a.b", 'q"uote', "x&y", "日本"])


def value(d=0):
    k = rng.randint(0, 9 if d < 3 else 6)
    if k < 2:
        return text()
    if k == 2:
        return rng.choice([True, False, None])
    if k == 3:
        return rng.choice([0, -1, 20, 12345678901234567890, -98765432109876543210987654321])
    if k < 7:
        return rng.choice([1.0, -0.0, 1e3, 1e-7, 1e22, 0.1, 1e16, 1e15, 123456.789, 5e-324, 2.0**-44,
                           1.7976931348623157e308, rng.uniform(-10, 10), rng.random() * 1e-6])
    if k == 7:
        return [value(d + 1) for _ in range(rng.randint(0, 3))]
    return {rng.choice(["maximum", "maxLength", "Z", "a", "", "é", "\uff5e", "\U0001F600", text(1)]):
            value(d + 1) for _ in range(rng.randint(0, 4))}


def obj():
    return {rng.choice(["path", "opts", "n", 'k"', "&", "名"]) + str(i): value()
            for i in range(rng.randint(0, 3))}


def tools():
    return [{"type": "function", "function": {"name": name(), "parameters": obj(), "description":
             text()}} for _ in range(rng.randint(0, 2))]


def content():
    k = rng.randint(0, 9)
    if k == 0:
        return None
    if k < 3:
        return [{"type": "text", "text": text()} for _ in range(rng.randint(0, 3))]
    return text(6)


def args():
    k = rng.randint(0, 9)
    if k < 5:
        return json.dumps(obj(), ensure_ascii=rng.random() < 0.5, indent=rng.choice([None, 1]))
    if k < 8:
        return obj()
    return rng.choice(["", "  ", '{"a": ', '{"a": 1} x', "{'a': 1}", '{"a":1,"b":2,"a":1e3}',
                       '{"f":1E3,"g":-0,"h":-0.0,"i":1e400,"j":NaN,"k":100000000000000000000}',
                       '{"s":"\\ud800x\\ud83d\\ude00\\u0041\\/\\u007f\\u001f\\u0000"}', None])


def message(calls):
    role = rng.choice(["user", "user", "assistant", "assistant", "system", "developer"] +
                      ["tool"] * (4 if calls else 0))
    m = {"role": role, "content": content()}
    if rng.random() < 0.15 and role != "tool":
        m["name"] = name()
    if role == "assistant":
        if rng.random() < 0.6:
            m["reasoning_content"] = text()
        if rng.random() < 0.3:
            m["reasoning"] = text()
        if rng.random() < 0.6:
            ids = rng.sample(["c1", "c2", "c3", "c4", "call_5"], rng.randint(0, 4))
            m["tool_calls"] = [{"id": i, "type": "function", "function":
                                {"name": name(), "arguments": args()}} for i in ids]
            for c in m["tool_calls"]:
                if rng.random() < 0.1:
                    del c["id"]
    if role in ("system", "developer") and rng.random() < 0.3:
        m["tools"] = tools()
    if role == "tool":
        if rng.random() < 0.9:
            m["tool_call_id"] = rng.choice(["c1", "c2", "c3", "c4", "call_5"])
        if rng.random() < 0.5:
            m["name"] = name()
    return m


LONE = re.compile("[\ud800-\udfff]")


def case(label, q, raw=None, **how):
    segs = [[t, LONE.sub("\ufffd", s)] for t, s in render(q, **how)]
    return {"name": label, "request": raw or json.dumps(q), "segments": segs}


def random_case(i):
    while True:
        q, calls = {"messages": []}, False
        for _ in range(rng.randint(1, 7)):
            q["messages"].append(message(calls))
            m = q["messages"][-1]
            calls = (calls and m["role"] != "assistant") or bool(m.get("tool_calls"))
        if rng.random() < 0.4:
            q["tools"] = tools()
        if rng.random() < 0.5:
            q["tool_choice"] = rng.choice(["auto", "none", "required", None, {
                "type": "function", "function": {"name": "read"}}])
        if rng.random() < 0.5:
            q["response_format"] = rng.choice([
                {"type": "text"}, {"type": "json_object"},
                {"type": "json_schema", "json_schema": {"name": "n", "strict": True, "schema": obj()}}])
        effort = rng.choice([None, "none"] + list(EFFORTS))
        if effort:
            q["reasoning_effort"] = effort
        try:
            return case("random %d" % i, q, thinking=effort != "none",
                        effort=EFFORTS.get(effort, "max"))
        except IndexError:  # a tool result without any name
            continue


def pyjson_case(t):
    try:
        v = json.loads(t)
    except json.JSONDecodeError:
        return {"text": t, "plain": None}
    def show(x):
        return LONE.sub("\ufffd", x)
    return {"text": t, "plain": show(json.dumps(v, ensure_ascii=False)),
            "sorted": show(json.dumps(v, ensure_ascii=False, separators=(",", ":"), sort_keys=True))}


JSON_TEXTS = [
    "1", "-1", "0", "-0", "1.0", "-0.0", "0.0", "0e5", "1e3", "1E+3", "1e-7", "1e22", "1e21", "1e16",
    "1e15", "123456789012345680.0", "12345678901234567890", "-100000000000000000000000000", "1e400",
    "-1e400", "1e-400", "-1e-400", "5e-324", "2.2250738585072011e-308", "0.1", "0.30000000000000004",
    "9007199254740993", "9007199254740993.0", "1.7976931348623157e308", "1.7976931348623159e308",
    "0.0001", "0.00001", "0.00012345", "100000.5", "NaN", "Infinity", "-Infinity", "nan", "-NaN", "+1",
    "01", "-01", "1.", ".5", "1e", "1e+", "--1", "1 2", "", " ", "tru", "true", "false", "null", "nul",
    "True", "[", "]", "[1", "[1,", "[1,]", "[,]", "{", "{}", "[]", " [ ] ", "{ }", "[[],{}]", "{\"a\"}",
    "{\"a\":}", "{\"a\":1,}", "{a:1}", "{'a':1}", "{\"a\":1 \"b\":2}", "{\"a\":1,\"b\":2,\"a\":3}",
    "{\"a\":1,\"a\":2,\"b\":0,\"b\":1,\"a\":[]}", "{\"maximum\":1,\"maxLength\":2,\"Z\":3,\"a\":4}",
    "{\"\uff5e\":1,\"\U0001F600\":2,\"\":3,\"a\":{\"c\":1,\"b\":2}}", "\"a", "\"\\\"", "\"\\", "\"\\q\"",
    "\"\\u12\"", "\"\\u12G4\"", "\"\\u+123\"", "\"\\u00e9\\u6c49\"", "\"\\ud83d\\ude00\"", "\"\\ud83d\"",
    "\"\\ude00\\ud83d\"", "\"\\ud83dx\"", "\"\\ud83d\\n\"", "\"\\ud83d\\ud83d\\ude00\"",
    "\"\\b\\f\\n\\r\\t\\/\\\\\\\"\"", "\"\\u0000\\u001f\\u007f\\u0080\\u2028\"", "\"\n\"", "\"\t\"",
    "\"\x7f\u2028\x80é汉\U0001F600\"", "\ufeff1", "\u00a01", "\x0b1", "1\x00", "/**/1", "[1] x",
    "[1,2.50,3e0,\"x\",true,false,null,{\"k\":[{}]}]", "\r\n\t 1 \n",
    "[" * 150 + "]" * 150,
]


def main():
    cases = [
        case("A", {"messages": [{"role": "system", "content": "Answer in Italian."},
                                {"role": "user", "content": "Is 91 prime?"}],
                   "reasoning_effort": "low"}, effort="low"),
        case("same name in two runs", {"messages": [
            {"role": "assistant", "tool_calls": [
                {"id": "x", "function": {"name": "f", "arguments": "{}"}},
                {"id": "y", "function": {"name": "g", "arguments": "{}"}}]},
            {"role": "tool", "tool_call_id": "y", "content": "2", "name": "stale"},
            {"role": "tool", "tool_call_id": "x", "content": "1"},
            {"role": "user", "content": "and"},
            {"role": "tool", "tool_call_id": "x", "content": "again"},
            {"role": "tool", "tool_call_id": "x", "content": "twice"}]}),
    ]
    cases += [random_case(i) for i in range(120)]
    with open(DATA + "chat_cases.json", "w", encoding="utf-8") as f:
        json.dump(cases, f, ensure_ascii=False, separators=(",", ":"))
        f.write("\n")
    texts = list(JSON_TEXTS)
    for _ in range(300):
        t = json.dumps(value(), ensure_ascii=rng.random() < 0.5)
        texts.append(t)
        if t:
            k = rng.randrange(len(t))
            texts.append(t[:k] + rng.choice(["", "0", '"', ",", "}", "\\", "e", "-", "."]) + t[k + 1:])
    texts += ["2e%d" % k for k in range(-330, 310, 7)]
    texts += [repr(2.0**k) for k in range(-1074, 1024, 3)]
    texts += [repr(rng.uniform(0, 1) * 10.0**rng.randint(-320, 300)) for _ in range(500)]
    texts += ["%.*e" % (rng.randint(0, 25), rng.uniform(0, 1) * 10.0**rng.randint(-320, 300))
              for _ in range(500)]
    with open(DATA + "pyjson_cases.json", "w", encoding="utf-8") as f:
        json.dump([pyjson_case(t) for t in texts], f, separators=(",", ":"))
        f.write("\n")


main()
