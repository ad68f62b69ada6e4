/* SPDX-License-Identifier: MIT
 * opt.c: see opt.h. */
#include "node/cli/opt.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HELP_COLUMN 28
#define HELP_WIDTH 80
#define BARE_LEAST 65536 /* a size from here on needs no unit */

/* ---- nearest name ---- */

#define WORD_MAX 31

/* Edit distance with swaps of neighbours; words longer than WORD_MAX are far from everything. */
static unsigned distance(const char *a, const char *b)
{
    size_t n = strlen(a), m = strlen(b);
    if (n > WORD_MAX || m > WORD_MAX) {
        return WORD_MAX;
    }
    unsigned d[WORD_MAX + 1][WORD_MAX + 1];
    for (size_t i = 0; i <= n; i++) {
        for (size_t j = 0; j <= m; j++) {
            unsigned v = (unsigned)(i > j ? i : j);
            if (i && j) {
                v = d[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
                v = d[i - 1][j] + 1 < v ? d[i - 1][j] + 1 : v;
                v = d[i][j - 1] + 1 < v ? d[i][j - 1] + 1 : v;
                if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
                    d[i - 2][j - 2] + 1 < v) {
                    v = d[i - 2][j - 2] + 1;
                }
            }
            d[i][j] = v;
        }
    }
    return d[n][m];
}

const char *opt_nearest(const char *word, const char *const *names, size_t n, size_t stride)
{
    const char *best = NULL;
    unsigned least = (unsigned)strlen(word) / 3 + 2; /* farther is no help */
    for (size_t i = 0; i < n; i++) {
        const char *name = *(const char *const *)((const char *)names + i * stride);
        unsigned k = distance(word, name);
        if (k < least) {
            least = k;
            best = name;
        }
    }
    return best;
}

/* ---- values ---- */

static bool digits(const char *s, uint64_t *out)
{
    uint64_t v = 0;
    if (!*s) {
        return false;
    }
    for (; *s; s++) {
        if (*s < '0' || *s > '9' || v > (UINT64_MAX - (uint64_t)(*s - '0')) / 10) {
            return false;
        }
        v = v * 10 + (uint64_t)(*s - '0');
    }
    *out = v;
    return true;
}

/* A decimal number; no sign, blank, hexadecimal, infinity or NaN. */
static bool real(const char *s, const char **end, double *out)
{
    if (*s != '.' && (*s < '0' || *s > '9')) {
        return false;
    }
    if (s[0] == '0' && (s[1] == 'x' || s[1] == 'X')) {
        return false;
    }
    char *stop;
    errno = 0;
    double v = strtod(s, &stop);
    if (stop == s || !isfinite(v)) {
        return false;
    }
    *end = stop;
    *out = v;
    return true;
}

bool opt_bytes(const char *s, uint64_t *out)
{
    static const char units[] = "KMGT";
    const char *p;
    double v, unit = 1;
    if (!real(s, &p, &v)) {
        return false;
    }
    const char *u = *p ? strchr(units, *p >= 'a' && *p <= 'z' ? *p - 32 : *p) : NULL;
    if (u) {
        double step = p[1] == 'i' ? 1024 : 1000;
        for (const char *k = units; k <= u; k++) {
            unit *= step;
        }
        p += p[1] == 'i' ? 2 : 1;
    }
    if (*p == 'B') {
        p++;
    }
    if (*p || v * unit >= 9e18) {
        return false;
    }
    *out = (uint64_t)(v * unit);
    return true;
}

bool opt_seconds(const char *s, uint64_t *out)
{
    static const struct {
        char unit;
        uint32_t seconds;
    } units[] = {{'s', 1}, {'m', 60}, {'h', 3600}, {'d', 86400}};
    char number[24];
    uint64_t v;
    size_t n = strlen(s);
    if (n < 2 || n > sizeof number) {
        return false;
    }
    memcpy(number, s, n - 1);
    number[n - 1] = 0;
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        if (s[n - 1] == units[i].unit) {
            if (!digits(number, &v) || v > UINT64_MAX / units[i].seconds) {
                return false;
            }
            *out = v * units[i].seconds;
            return true;
        }
    }
    return false;
}

bool opt_host_port(const char *s, char *host, size_t cap, uint16_t *port, bool any_port)
{
    const char *from = s, *end, *colon = strrchr(s, ':');
    uint64_t v = 0;
    if (s[0] == '[') {
        from = s + 1;
        end = strchr(s, ']');
        colon = end && end[1] == ':' ? end + 1 : NULL;
    } else {
        end = colon;
    }
    size_t n = colon ? (size_t)(end - from) : 0;
    if (!n || n >= cap || !digits(colon + 1, &v) || v > UINT16_MAX || (!v && !any_port) ||
        (from == s && memchr(from, ':', n))) {
        return false;
    }
    memcpy(host, from, n);
    host[n] = 0;
    *port = (uint16_t)v;
    return true;
}

int opt_bare_size(const char *name, const char *s, uint64_t v, struct err *e)
{
    if (!v || v >= BARE_LEAST || s[strspn(s, "0123456789")]) {
        return 0;
    }
    return err_set(e, ERR_ARG, "%s %s is %s byte%s: did you mean %s%c? (%sB is meant as it is)",
                   name, s, s, v == 1 ? "" : "s", s, strstr(name, "limit") ? 'M' : 'G', s);
}

static int out_of_range(const struct opt *o, const char *s, struct err *e)
{
    if (o->max >= 1e18) {
        return err_set(e, ERR_ARG, "--%s %s: it must be at least %.17g", o->name, s, o->min);
    }
    return err_set(e, ERR_ARG, "--%s %s: it must be from %.17g to %.17g", o->name, s, o->min,
                   o->max);
}

static int set_value(const struct opt *o, void *at, const char *s, struct err *e)
{
    switch (o->type) {
    case OPT_FLAG:
        *(bool *)at = true;
        return 0;
    case OPT_TEXT:
        *(const char **)at = s;
        return 0;
    case OPT_TEXTS: {
        struct opt_texts *t = at;
        if (t->n == OPT_TEXTS_MAX) {
            return err_set(e, ERR_ARG, "--%s may be given %d times at most", o->name,
                           OPT_TEXTS_MAX);
        }
        t->v[t->n++] = s;
        return 0;
    }
    case OPT_COUNT:
    case OPT_TIME:
    case OPT_BYTES: {
        struct opt_count *c = at;
        bool good = o->type == OPT_BYTES  ? opt_bytes(s, &c->v)
                    : o->type == OPT_TIME ? opt_seconds(s, &c->v)
                                          : digits(s, &c->v);
        if (!good) {
            return err_set(e, ERR_ARG, "--%s %s: %s", o->name, s,
                           o->type == OPT_BYTES  ? "it must be a size such as 512M, 8G or 1.5GiB"
                           : o->type == OPT_TIME ? "it must be a time such as 90s, 30m, 24h or 7d"
                                                 : "it must be a whole number");
        }
        c->set = true;
        if (o->type == OPT_BYTES) {
            char name[WORD_MAX + 3];
            snprintf(name, sizeof name, "--%.*s", WORD_MAX, o->name);
            if (opt_bare_size(name, s, c->v, e)) {
                return ERR_ARG;
            }
        }
        return (double)c->v < o->min || (double)c->v > o->max ? out_of_range(o, s, e) : 0;
    }
    case OPT_REAL: {
        struct opt_real *r = at;
        const char *end;
        if (!real(s, &end, &r->v) || *end) {
            return err_set(e, ERR_ARG, "--%s %s: it must be a number", o->name, s);
        }
        r->set = true;
        return r->v < o->min || r->v > o->max ? out_of_range(o, s, e) : 0;
    }
    case OPT_CHOICE: {
        struct opt_choice *c = at;
        struct buf all;
        buf_init(&all, 400);
        for (unsigned i = 0; o->choices[i]; i++) {
            if (!strcmp(o->choices[i], s)) {
                buf_free(&all);
                *c = (struct opt_choice){i, true};
                return 0;
            }
            (void)buf_addf(&all, "%s%s", i ? ", " : "", o->choices[i]);
        }
        int r = err_set(e, ERR_ARG, "--%s %s: it must be one of %s", o->name, s,
                        all.p ? all.p : "(none)");
        buf_free(&all);
        return r;
    }
    }
    return err_set(e, ERR_ARG, "--%s: unknown type of option", o->name);
}

/* ---- the command line ---- */

static const struct opt *find(const struct opt_group *groups, size_t n_groups, const char *name,
                              size_t len, size_t *base)
{
    for (size_t g = 0; g < n_groups; g++) {
        for (size_t i = 0; i < groups[g].n; i++) {
            const struct opt *o = &groups[g].opts[i];
            if (strlen(o->name) == len && !memcmp(o->name, name, len)) {
                *base = groups[g].at;
                return o;
            }
        }
    }
    return NULL;
}

static int unknown(const struct opt_group *groups, size_t n_groups, const char *arg, size_t len,
                   struct err *e)
{
    char word[WORD_MAX + 1];
    const char *best = NULL;
    if (len > 2 && len - 2 <= WORD_MAX) {
        memcpy(word, arg + 2, len - 2);
        word[len - 2] = 0;
        /* The nearest over all groups: the groups' winners compete once more. */
        const char *winners[16];
        size_t n = 0;
        for (size_t g = 0; g < n_groups && n < 16; g++) {
            const char *w = groups[g].n ? opt_nearest(word, &groups[g].opts[0].name, groups[g].n,
                                                      sizeof(struct opt))
                                        : NULL;
            if (w) {
                winners[n++] = w;
            }
        }
        best = opt_nearest(word, winners, n, sizeof *winners);
    }
    if (best) {
        return err_set(e, ERR_ARG, "unknown option %.*s; did you mean --%s?", (int)len, arg, best);
    }
    return err_set(e, ERR_ARG, "unknown option %.*s", (int)len, arg);
}

int opt_parse(const struct opt_group *groups, size_t n_groups, void *values, int argc, char **argv,
              int *n_args, struct err *e)
{
    int kept = 0;
    bool ended = false;
    for (int i = 0; i < argc; i++) {
        const char *a = argv[i];
        if (ended || a[0] != '-' || !a[1]) { /* "-" alone is an argument: standard input */
            argv[kept++] = argv[i];
            continue;
        }
        if (!strcmp(a, "--")) {
            ended = true;
            continue;
        }
        if (!strcmp(a, "-h")) {
            a = "--help";
        } else if (!strcmp(a, "-q")) {
            a = "--quiet";
        }
        const char *eq = strchr(a, '=');
        size_t len = eq ? (size_t)(eq - a) : strlen(a), base = 0;
        const struct opt *o =
            a[1] == '-' && len > 2 ? find(groups, n_groups, a + 2, len - 2, &base) : NULL;
        if (!o) {
            return unknown(groups, n_groups, a, len > 200 ? 200 : len, e);
        }
        const char *value = NULL;
        if (o->type == OPT_FLAG) {
            if (eq) {
                return err_set(e, ERR_ARG, "--%s takes no value", o->name);
            }
        } else if (eq) {
            value = eq + 1;
        } else if (i + 1 < argc) {
            value = argv[++i];
        } else {
            return err_set(e, ERR_ARG, "--%s needs a value: --%s %s", o->name, o->name, o->arg);
        }
        int r = set_value(o, (char *)values + base + o->at, value, e);
        if (r) {
            return r;
        }
    }
    *n_args = kept;
    return 0;
}

/* ---- help ---- */

/* Words of s from the present column on, wrapped at HELP_WIDTH, later lines indented. */
static int wrap(struct buf *out, const char *s, size_t column)
{
    size_t at = column;
    while (*s) {
        size_t n = strcspn(s, " ");
        if (at > HELP_COLUMN && at + 1 + n > HELP_WIDTH) {
            int r = buf_addf(out, "\n%*s", HELP_COLUMN, "");
            if (r) {
                return r;
            }
            at = HELP_COLUMN;
        } else if (at > HELP_COLUMN) {
            int r = buf_adds(out, " ");
            if (r) {
                return r;
            }
            at++;
        }
        int r = buf_add(out, s, n);
        if (r) {
            return r;
        }
        at += n;
        s += n;
        while (*s == ' ') {
            s++;
        }
    }
    return buf_adds(out, "\n");
}

int opt_help(const struct opt_group *groups, size_t n_groups, struct buf *out)
{
    for (size_t g = 0; g < n_groups; g++) {
        /* without a title it goes on with the group before it */
        int r = groups[g].title[0] ? buf_addf(out, "\n%s:\n", groups[g].title) : 0;
        for (size_t i = 0; !r && i < groups[g].n; i++) {
            const struct opt *o = &groups[g].opts[i];
            size_t before = out->n;
            r = buf_addf(out, "  --%s%s%s", o->name, o->arg ? " " : "", o->arg ? o->arg : "");
            if (r) {
                return r;
            }
            size_t used = out->n - before;
            if (used + 2 > HELP_COLUMN) {
                r = buf_addf(out, "\n%*s", HELP_COLUMN, "");
            } else {
                r = buf_addf(out, "%*s", (int)(HELP_COLUMN - used), "");
            }
            r = r ? r : wrap(out, o->help, HELP_COLUMN);
        }
        if (r) {
            return r;
        }
    }
    return 0;
}
