/* SPDX-License-Identifier: MIT
 * chat_think.c: see chat_think.h. */
#include "node/text/chat_think.h"

#include "node/text/chat_str.h"

#include <stdio.h>
#include <string.h>

struct wish {
    struct err *e;
    enum { SAYS_NOTHING, SAYS_ON, SAYS_OFF } on;
    char on_by[128]; /* the field that said so */
    bool has_effort;
    enum chat_think effort; /* CHAT_THINK_OFF for `none` */
    char effort_by[128];
};

bool chat_think_by_name(const char *s, size_t n, enum chat_think *out)
{
    static const struct {
        const char *name;
        enum chat_think think;
    } names[] = {
        {"none", CHAT_THINK_OFF},    {"minimal", CHAT_THINK_LOW}, {"low", CHAT_THINK_LOW},
        {"medium", CHAT_THINK_HIGH}, {"high", CHAT_THINK_HIGH},   {"xhigh", CHAT_THINK_MAX},
        {"max", CHAT_THINK_MAX},
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strlen(names[i].name) == n && memcmp(names[i].name, s, n) == 0) {
            *out = names[i].think;
            return true;
        }
    }
    return false;
}

static bool given(const struct pyjson *v)
{
    return v && v->type != PYJSON_NULL;
}

static int say_on(struct wish *w, const char *field, bool on)
{
    if (w->on != SAYS_NOTHING && (w->on == SAYS_ON) != on) {
        return err_set(w->e, ERR_FORMAT, "%s: contradicts `%s`; send one of them", field, w->on_by);
    }
    w->on = on ? SAYS_ON : SAYS_OFF;
    snprintf(w->on_by, sizeof w->on_by, "%s", field);
    return 0;
}

static int say_effort(struct wish *w, const char *field, enum chat_think effort)
{
    if (w->has_effort && w->effort != effort) {
        return err_set(w->e, ERR_FORMAT, "%s: contradicts `%s`; send one of them", field,
                       w->effort_by);
    }
    w->has_effort = true;
    w->effort = effort;
    snprintf(w->effort_by, sizeof w->effort_by, "%s", field);
    return 0;
}

static int read_switch(struct wish *w, const char *field, const struct pyjson *v)
{
    if (!given(v)) {
        return 0;
    }
    if (v->type != PYJSON_TRUE && v->type != PYJSON_FALSE) {
        return err_set(w->e, ERR_FORMAT, "%s: must be true or false", field);
    }
    return say_on(w, field, v->type == PYJSON_TRUE);
}

static int read_effort(struct wish *w, const char *field, const struct pyjson *v)
{
    enum chat_think effort;
    if (!given(v)) {
        return 0;
    }
    if (v->type != PYJSON_STRING || !chat_think_by_name(v->s, v->n, &effort)) {
        return err_set(w->e, ERR_FORMAT,
                       "%s: must be one of none, minimal, low, medium, high, xhigh, max", field);
    }
    return say_effort(w, field, effort);
}

/* thinking: true | false | {type, effort, keep}; reasoning: {effort, enabled}. */
static int read_object(struct wish *w, const char *field, const struct pyjson *v)
{
    if (!given(v)) {
        return 0;
    }
    if (v->type != PYJSON_OBJECT) {
        return err_set(w->e, ERR_FORMAT, "%s: must be an object", field);
    }
    for (size_t i = 0; i < v->count; i++) {
        const struct pyjson *m = v->items[i];
        char path[128], shown[CHAT_SHOWN];
        int rc = 0;
        snprintf(path, sizeof path, "%.40s.%s", field, chat_shown(m->key, m->key_n, shown));
        if (!given(m)) {
            continue;
        }
        if (!strcmp(m->key, "effort")) {
            rc = read_effort(w, path, m);
        } else if (!strcmp(m->key, "enabled")) {
            rc = read_switch(w, path, m);
        } else if (!strcmp(m->key, "type")) {
            if (pyjson_is(m, "enabled") || pyjson_is(m, "disabled")) {
                rc = say_on(w, path, pyjson_is(m, "enabled"));
            } else if (!pyjson_is(m, "auto")) {
                rc = err_set(w->e, ERR_FORMAT, "%s: must be enabled, disabled or auto", path);
            }
        } else if (!strcmp(m->key, "keep")) {
            if (!pyjson_is(m, "all")) {
                rc = err_set(w->e, ERR_UNSUPPORTED,
                             "%s: K3 keeps the reasoning of all earlier turns; only `all` is known",
                             path);
            }
        } else if (strcmp(m->key, "summary") != 0) {
            rc = err_set(w->e, ERR_UNSUPPORTED, "%s: unknown field", path);
        }
        if (rc) {
            return rc;
        }
    }
    return 0;
}

static int read_thinking(struct wish *w, const char *field, const struct pyjson *v)
{
    if (v && (v->type == PYJSON_TRUE || v->type == PYJSON_FALSE)) {
        return read_switch(w, field, v);
    }
    return read_object(w, field, v);
}

static int read_kwargs(struct wish *w, const struct pyjson *k, bool *no_effort)
{
    if (!given(k)) {
        return 0;
    }
    if (k->type != PYJSON_OBJECT) {
        return err_set(w->e, ERR_FORMAT, "chat_template_kwargs: must be an object");
    }
    for (size_t i = 0; i < k->count; i++) {
        const struct pyjson *m = k->items[i];
        char path[128], shown[CHAT_SHOWN];
        int rc = 0;
        snprintf(path, sizeof path, "chat_template_kwargs.%s", chat_shown(m->key, m->key_n, shown));
        if (!strcmp(m->key, "thinking")) {
            rc = read_thinking(w, path, m);
        } else if (!strcmp(m->key, "enable_thinking")) {
            rc = read_switch(w, path, m);
        } else if (!strcmp(m->key, "thinking_effort")) {
            *no_effort = !given(m);
            rc = read_effort(w, path, m);
        } else if (!strcmp(m->key, "reasoning_effort")) {
            rc = read_effort(w, path, m);
        } else if (!strcmp(m->key, "preserve_thinking")) {
            if (given(m) && m->type != PYJSON_TRUE) {
                rc = err_set(w->e, ERR_UNSUPPORTED,
                             "%s: K3 keeps the reasoning of all earlier turns; only true is known",
                             path);
            }
        } else if (strcmp(m->key, "add_generation_prompt") != 0) { /* read by the renderer */
            rc = err_set(w->e, ERR_UNSUPPORTED, "%s: unknown field", path);
        }
        if (rc) {
            return rc;
        }
    }
    return 0;
}

int chat_think_read(const struct pyjson *q, enum chat_think fallback, enum chat_think *think,
                    struct err *e)
{
    struct wish w = {.e = e};
    bool no_effort = false;
    int rc;
    if ((rc = read_effort(&w, "reasoning_effort", pyjson_get(q, "reasoning_effort"))) ||
        (rc = read_effort(&w, "thinking_effort", pyjson_get(q, "thinking_effort"))) ||
        (rc = read_object(&w, "reasoning", pyjson_get(q, "reasoning"))) ||
        (rc = read_thinking(&w, "thinking", pyjson_get(q, "thinking"))) ||
        (rc = read_switch(&w, "enable_thinking", pyjson_get(q, "enable_thinking"))) ||
        (rc = read_kwargs(&w, pyjson_get(q, "chat_template_kwargs"), &no_effort))) {
        return rc;
    }
    if (w.on == SAYS_ON && w.has_effort && w.effort == CHAT_THINK_OFF) {
        return err_set(e, ERR_FORMAT, "%s: `none` contradicts `%s`; send one of them", w.effort_by,
                       w.on_by);
    }
    if (fallback == CHAT_THINK_DEFAULT) {
        fallback = CHAT_THINK_MAX;
    }
    if (w.on == SAYS_OFF) {
        *think = CHAT_THINK_OFF;
    } else if (w.has_effort) {
        *think = w.effort;
    } else if (no_effort) {
        *think = w.on == SAYS_NOTHING && fallback == CHAT_THINK_OFF ? CHAT_THINK_OFF
                                                                    : CHAT_THINK_NO_EFFORT;
    } else {
        *think = w.on == SAYS_ON && fallback == CHAT_THINK_OFF ? CHAT_THINK_MAX : fallback;
    }
    return 0;
}
