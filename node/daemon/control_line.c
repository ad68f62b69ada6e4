/* SPDX-License-Identifier: MIT
 * control_line.c: requests and answers as lines. See control.h. */
#include "node/daemon/control.h"

#include <stdlib.h>
#include <string.h>

/* Nesting and number of values, before memory is spent on them: one character of a line can become
 * dozens of bytes of a tree. Text that is no JSON may pass; the parser refuses it. */
static int measure(const char *s, size_t n, struct err *e)
{
    unsigned depth = 0, values = 1;
    bool text = false;
    for (size_t i = 0; i < n; i++) {
        char c = s[i];
        if (text) {
            i += c == '\\';
            text = c != '"';
            continue;
        }
        text = c == '"';
        values += c == ',' || c == '[' || c == '{';
        depth += c == '[' || c == '{';
        if (depth > CONTROL_DEPTH_MAX || values > CONTROL_VALUES_MAX) {
            return err_set(e, ERR_LIMIT, "the request is nested too deep or has too many values");
        }
        if ((c == ']' || c == '}') && depth) {
            depth--;
        }
    }
    return 0;
}

int control_parse(const char *line, size_t n, json_t **out, struct err *e)
{
    *out = NULL;
    if (n >= CONTROL_LINE_MAX) {
        return err_set(e, ERR_LIMIT, "the request is longer than %u bytes", CONTROL_LINE_MAX);
    }
    int r = measure(line, n, e);
    if (r) {
        return r;
    }
    json_error_t je;
    json_t *j = json_loadb(line, n, JSON_REJECT_DUPLICATES, &je);
    if (!j) {
        return err_set(e, ERR_FORMAT, "the request is no JSON: %s at byte %d", je.text,
                       je.position);
    }
    const json_t *op = json_object_get(j, "op"), *seq = json_object_get(j, "seq");
    if (!json_is_string(op) || !json_string_length(op) || json_string_length(op) > CONTROL_OP_MAX) {
        r = err_set(e, ERR_FORMAT, "the request is no object with a text \"op\"");
    } else if (seq && !json_is_integer(seq)) {
        r = err_set(e, ERR_FORMAT, "\"seq\" of the request is no whole number");
    }
    if (r) {
        json_decref(j);
        return r;
    }
    *out = j;
    return 0;
}

char *control_line(const json_t *j, size_t *n)
{
    size_t len = json_dumpb(j, NULL, 0, JSON_COMPACT | JSON_PRESERVE_ORDER);
    if (!len || len >= CONTROL_ANSWER_MAX) {
        return NULL;
    }
    char *s = malloc(len + 1);
    if (!s || json_dumpb(j, s, len, JSON_COMPACT | JSON_PRESERVE_ORDER) != len) {
        free(s);
        return NULL;
    }
    s[len] = '\n';
    *n = len + 1;
    return s;
}

int control_error(const json_t *answer, struct err *e)
{
    const json_t *x = json_object_get(answer, "error");
    if (!x) {
        return 0;
    }
    const json_t *code = json_object_get(x, "code");
    const char *text = json_string_value(json_object_get(x, "message"));
    json_int_t c = json_integer_value(code);
    return err_set(e, c > 0 && c < 1000 ? (int)c : ERR_IO, "%s",
                   text ? text : "it did not say why");
}
