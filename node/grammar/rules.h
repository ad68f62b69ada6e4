/* SPDX-License-Identifier: MIT
 * rules.h: private to node/grammar: the rules as a graph, and building it.
 *
 * Built from the end: every builder takes the node that follows and gives the node where it begins.
 * An error sticks to the builder: the functions then give 0 and cost nothing, the caller looks once
 * at the end. */
#ifndef SHOAL_GRAMMAR_RULES_H
#define SHOAL_GRAMMAR_RULES_H

#include "node/grammar/grammar.h"

#define GRAM_NONE UINT32_MAX

/* G_EPS: to a, and to b unless that is GRAM_NONE. G_SET: one byte of set `x`, then a. G_SPECIAL:
 * the special token number x (from the first special id), then a. G_CALL: rule x, then a. G_RET:
 * the rule ends. */
enum gram_kind { G_EPS, G_SET, G_SPECIAL, G_CALL, G_RET };

struct gram_node {
    uint8_t kind;
    uint32_t x, a, b;
};

struct gram_set {
    uint32_t w[8];
};

struct grammar {
    struct gram_node *node;
    uint32_t n_node, cap_node;
    struct gram_set *set;
    uint32_t n_set, cap_set;
    uint32_t *rule; /* first node of each */
    uint32_t n_rule, cap_rule;
    uint32_t start; /* rule */
};

struct gram_builder {
    struct grammar *g;
    struct err err;                      /* code != 0: it has failed */
    uint32_t ws, string_char, any_value; /* rules made once, GRAM_NONE before */
    uint32_t raw_char, any_raw;
    uint64_t steps; /* of lang.h so far */
    uint64_t work;  /* comparisons so far, of all tools' schemas together */
};

int gram_begin(struct gram_builder *b);
/* Check and hand over; frees everything on failure. */
int gram_end(struct gram_builder *b, uint32_t start_rule, struct grammar **out, struct err *e);
void gram_fail(struct gram_builder *b, int code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

uint32_t gram_rule_new(struct gram_builder *b); /* its first node is set later */
void gram_rule_set(struct gram_builder *b, uint32_t rule, uint32_t first);
uint32_t gram_ret(struct gram_builder *b);
uint32_t gram_alt(struct gram_builder *b, uint32_t a, uint32_t c); /* a or c */
uint32_t gram_hole(struct gram_builder *b); /* a node to be directed later: loops */
void gram_fill(struct gram_builder *b, uint32_t hole, uint32_t a, uint32_t c);
uint32_t gram_bytes(struct gram_builder *b, const struct gram_set *s, uint32_t next);
uint32_t gram_range(struct gram_builder *b, unsigned lo, unsigned hi, uint32_t next);
uint32_t gram_one_of(struct gram_builder *b, const char *chars, uint32_t next);
uint32_t gram_lit(struct gram_builder *b, const char *s, size_t n, uint32_t next);
uint32_t gram_str(struct gram_builder *b, const char *s, uint32_t next);
uint32_t gram_special(struct gram_builder *b, uint32_t special, uint32_t next);
uint32_t gram_call(struct gram_builder *b, uint32_t rule, uint32_t next);
/* A rule min to max times (GRAM_NONE: without end), with `sep` (may be NULL) between. */
uint32_t gram_repeat(struct gram_builder *b, uint32_t rule, uint32_t min, uint32_t max,
                     const char *sep, uint32_t next);

/* Code points lo..hi as UTF-8; surrogates are left out. */
uint32_t gram_points(struct gram_builder *b, uint32_t lo, uint32_t hi, uint32_t next);
static inline void gram_set_add(struct gram_set *s, unsigned c)
{
    s->w[c / 32] |= 1u << c % 32;
}
static inline bool gram_set_has(const struct gram_set *s, unsigned c)
{
    return s->w[c / 32] >> c % 32 & 1;
}

/* ---- json.c ---- */
uint32_t gram_ws(struct gram_builder *b, uint32_t next);          /* blanks, or none */
uint32_t gram_comma(struct gram_builder *b, uint32_t next);       /* "," with blanks */
uint32_t gram_string_char(struct gram_builder *b, uint32_t next); /* one character in a string */
uint32_t gram_string_any(struct gram_builder *b, uint32_t next);  /* with its quotes */
uint32_t gram_number_any(struct gram_builder *b, bool integer, uint32_t next);
uint32_t gram_any(struct gram_builder *b, uint32_t next); /* any value */
/* Any object; some_member: but the empty one. */
uint32_t gram_any_object(struct gram_builder *b, bool some_member, uint32_t next);
uint32_t gram_any_array(struct gram_builder *b, uint32_t next);
/* A string's characters as they stand in JSON (escaped), or raw. */
uint32_t gram_text(struct gram_builder *b, const char *s, size_t n, bool raw, uint32_t next);
/* One character of a value that stands raw between tags; any text of them. */
uint32_t gram_raw_char(struct gram_builder *b, uint32_t next);
uint32_t gram_raw_any(struct gram_builder *b, uint32_t next);
/* A member's key, any but the `names` (sorted not needed). */
uint32_t gram_other_key(struct gram_builder *b, const struct pyjson *const *names, size_t n,
                        uint32_t next);

/* ---- number.c ---- */
/* Integers lo..hi; has_*: bounded there. */
uint32_t gram_integers(struct gram_builder *b, bool has_lo, int64_t lo, bool has_hi, int64_t hi,
                       uint32_t next);
/* Numbers from lo to hi (whole bounds), open ones without the bound itself. */
uint32_t gram_numbers(struct gram_builder *b, bool has_lo, int64_t lo, bool lo_open, bool has_hi,
                      int64_t hi, bool hi_open, uint32_t next);

/* ---- regex.c ---- */
/* Texts of min to max characters (GRAM_NONE: without end) that fit all of 1 to GRAM_PATTERNS_MAX
 * patterns of ECMA 262 (the subset of README.md), matched anywhere unless anchored; raw: not in a
 * JSON string. `at`: their place, for the sentence. *none: there is no such text, nothing was made
 * and the builder has not failed. */
#define GRAM_PATTERNS_MAX 32
struct gram_pattern {
    const char *p;
    size_t n;
};
uint32_t gram_regex(struct gram_builder *b, const struct gram_pattern *p, size_t n, uint32_t min,
                    uint32_t max, bool raw, const char *at, uint32_t next, bool *none);

/* ---- schema.c ---- */
/* A value of this schema. raw: when it is a string, without quotes and escapes. */
struct gram_schema {
    struct gram_builder *b;
    const struct pyjson *root;
    struct {
        const struct pyjson *v;
        uint32_t rule;
        bool raw;
    } * seen; /* schemas that have become rules: $ref may come back to them */
    size_t n_seen, cap_seen;
    unsigned depth;
};
uint32_t gram_schema_value(struct gram_schema *s, const struct pyjson *v, bool raw, const char *at,
                           uint32_t next);
void gram_schema_done(struct gram_schema *s);
/* n more comparisons: false, and the builder has failed, when schemas ask for too many. */
bool gram_work(struct gram_schema *s, uint64_t n);
/* Follow $ref from v (NULL on failure). */
const struct pyjson *gram_schema_deref(struct gram_schema *s, const struct pyjson *v,
                                       const char *at);

#endif
