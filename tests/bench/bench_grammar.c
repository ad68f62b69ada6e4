/* SPDX-License-Identifier: MIT
 * bench_grammar.c: what masks cost over a vocabulary of K3's size (160,000 made-up tokens: words
 * with and without a blank before them, numbers, punctuation, other scripts). usage: bench_grammar
 *
 * For each grammar, answers of up to 300 tokens drawn at random from the masks: milliseconds of
 * processor time for a token (mask and accept), for the slowest one, and to compile the schema.
 * Exit 1 when a token costs more than 5 ms on average: K3 itself takes seconds. */
#include "node/grammar/grammar.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define RANKS 160000u
#define ANSWERS 5
#define TOKENS 300

static uint64_t state = 1;

static uint32_t draw(uint32_t n)
{
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)(state >> 33) % n;
}

static void die(const struct err *e)
{
    fprintf(stderr, "bench_grammar: %s\n", e->msg);
    exit(2);
}

static void base64(struct buf *out, const uint8_t *p, size_t n)
{
    static const char digit[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < n; i += 3) {
        uint32_t v = (uint32_t)p[i] << 16 | (i + 1 < n ? (uint32_t)p[i + 1] << 8 : 0) |
                     (i + 2 < n ? p[i + 2] : 0);
        buf_addf(out, "%c%c%c%c", digit[v >> 18], digit[v >> 12 & 63],
                 i + 1 < n ? digit[v >> 6 & 63] : '=', i + 2 < n ? digit[v & 63] : '=');
    }
}

/* The text of a made-up token; equal ones may come again. */
static size_t make(uint8_t out[64])
{
    static const char *const parts[] = {
        "the", "in", "er", "at",  "ion", "s",    "re",   "con", "ly", "pro", "de",  "al", "st",
        "un",  "ed", "or", "ing", "qu",  "ment", "able", "ous", "T",  "A",   "Str", "ge", "tor"};
    static const char *const marks[] = {"\"",   "\":", "\": \"", "\",", "\", \"", "{\"", "\"}",
                                        "[",    "]",   "],",     "},",  "{\n",    "  ",  "    ",
                                        "\n\n", "==",  "/*",     "->",  "();",    "\\n", "\\\"",
                                        ". ",   ", ",  "#",      "...", "\t"};
    uint32_t kind = draw(20), n = 0;
    if (kind < 14) { /* words */
        n += kind < 8 ? (uint32_t)snprintf((char *)out, 2, " ") : 0;
        for (uint32_t k = 2 + draw(3); k > 0; k--) {
            n += (uint32_t)snprintf((char *)out + n, 64 - n, "%s", parts[draw(26)]);
        }
    } else if (kind == 14) {
        n = (uint32_t)snprintf((char *)out, 64, "%u", draw(1000));
    } else if (kind < 17) {
        for (uint32_t k = 1 + draw(3); k > 0; k--) {
            n += (uint32_t)snprintf((char *)out + n, 64 - n, "%s", marks[draw(26)]);
        }
    } else { /* two or three characters of three bytes; some cut off */
        for (uint32_t k = 2 + draw(2); k > 0; k--) {
            uint32_t c = 0x3000 + draw(0xA000);
            out[n++] = (uint8_t)(0xE0 | c >> 12);
            out[n++] = (uint8_t)(0x80 | (c >> 6 & 63));
            out[n++] = (uint8_t)(0x80 | (c & 63));
        }
        n -= draw(10) == 0;
    }
    return n;
}

static uint64_t hash(const uint8_t *p, size_t n)
{
    uint64_t h = 14695981039346656037ull;
    for (size_t i = 0; i < n; i++) {
        h = (h ^ p[i]) * 1099511628211ull;
    }
    return h ^ h >> 32;
}

static struct tok *vocabulary(void)
{
    static const char config[] =
        "{\"added_tokens_decoder\":{\"160000\":{\"content\":\"[BOS]\",\"special\":true},"
        "\"160001\":{\"content\":\"<|end_of_msg|>\",\"special\":true},"
        "\"160002\":{\"content\":\"<|open|>\",\"special\":false},"
        "\"160003\":{\"content\":\"<|close|>\",\"special\":false},"
        "\"160004\":{\"content\":\"<|sep|>\",\"special\":false}}}";
    struct buf ranks;
    struct tok *t = NULL;
    struct err e = {0};
    uint32_t size = 1u << 20, *seen = calloc(size, sizeof *seen);
    uint64_t *hashes = calloc(RANKS, sizeof *hashes);
    buf_init(&ranks, TOK_MAX_FILE);
    if (!seen || !hashes) {
        err_set(&e, ERR_NOMEM, "out of memory");
        die(&e);
    }
    for (uint32_t id = 0; id < RANKS;) {
        uint8_t text[64] = {(uint8_t)id};
        size_t n = id < 256 ? 1 : make(text);
        if (id >= 256 && draw(3) == 0) { /* words run out: longer ones */
            n += (size_t)snprintf((char *)text + n, sizeof text - n, "%x", draw(0x10000));
        }
        uint64_t h = hash(text, n);
        uint32_t at = (uint32_t)(h >> 20) & (size - 1);
        while (seen[at] && hashes[seen[at] - 1] != h) {
            at = (at + 1) & (size - 1);
        }
        if (seen[at] || (id >= 256 && n < 2)) {
            continue;
        }
        hashes[id] = h;
        base64(&ranks, text, n);
        buf_addf(&ranks, " %u\n", id);
        seen[at] = ++id;
    }
    if (tok_open(ranks.p, ranks.n, config, sizeof config - 1, &t, &e)) {
        die(&e);
    }
    buf_free(&ranks);
    free(seen);
    free(hashes);
    return t;
}

static double cpu_ms(void)
{
    return (double)clock() * 1e3 / CLOCKS_PER_SEC;
}

/* Milliseconds a token; *worst: of the slowest. */
static double answers(const struct grammar *g, const struct grammar_vocab *v, const struct tok *t,
                      double *worst, size_t *total)
{
    uint32_t *list = malloc(tok_vocab(t) * sizeof *list);
    struct err e = {0};
    double sum = 0;
    *worst = 0;
    *total = 0;
    for (int i = 0; list && i < ANSWERS; i++) {
        struct grammar_run *r;
        if (grammar_run_open(g, v, &r, &e)) {
            die(&e);
        }
        for (int k = 0; k < TOKENS; k++) {
            double t0 = cpu_ms(), ms;
            const uint32_t *mask = grammar_run_mask(r, &e);
            if (!mask) {
                die(&e);
            }
            ms = cpu_ms() - t0;
            uint32_t n = 0;
            for (uint32_t id = 0; id < tok_vocab(t); id++) {
                if (mask[id / 32] >> id % 32 & 1) {
                    list[n++] = id;
                }
            }
            if (!n) {
                break;
            }
            uint32_t id = list[draw(n)];
            for (uint32_t j = 0; j < n && draw(10) == 0; j++) { /* strings come to their ends */
                size_t len;
                const char *p = tok_bytes(t, list[j], &len);
                if (len && (p[len - 1] == '"' || p[len - 1] == ',' || p[len - 1] == '}')) {
                    id = list[j];
                    break;
                }
            }
            t0 = cpu_ms();
            if (grammar_run_accept(r, id, &e)) {
                die(&e);
            }
            ms += cpu_ms() - t0;
            sum += ms;
            *worst = ms > *worst ? ms : *worst;
            ++*total;
        }
        grammar_run_close(r);
    }
    free(list);
    return *total ? sum / (double)*total : 0;
}

int main(void)
{
    static const struct {
        const char *name, *schema;
    } cases[] = {
        {"any JSON object", NULL},
        {"a flat object",
         "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\"},\"age\":{\"type\":"
         "\"integer\",\"minimum\":0,\"maximum\":150},\"tags\":{\"type\":\"array\",\"items\":{"
         "\"type\":\"string\"}},\"kind\":{\"enum\":[\"red\",\"green\",\"blue\"]}},\"required\":["
         "\"name\",\"age\",\"tags\",\"kind\"],\"additionalProperties\":false}"},
        {"a recursive one",
         "{\"type\":\"object\",\"properties\":{\"value\":{\"type\":\"string\"},\"children\":{"
         "\"type\":\"array\",\"items\":{\"$ref\":\"#\"}}},\"required\":[\"value\",\"children\"]}"},
        {"a pattern", "{\"type\":\"array\",\"items\":{\"type\":\"string\",\"pattern\":\"^[A-Za-z "
                      "]+(?:-[a-z0-9]{1,20})*$\"}}"},
        {"a pattern found anywhere",
         "{\"type\":\"string\",\"pattern\":\"(?:ab|ba)[a-z]{0,8}(?:cd|dc)\"}"},
        {"strings of up to 2,000", "{\"type\":\"array\",\"items\":{\"type\":\"string\","
                                   "\"minLength\":10,\"maxLength\":2000}}"},
    };
    struct tok *t = vocabulary();
    struct grammar_vocab *v;
    struct err e = {0};
    double t0 = cpu_ms();
    if (grammar_vocab_open(t, &v, &e)) {
        die(&e);
    }
    printf("%-28s %8.1f ms for %u tokens\n", "sorting the vocabulary", cpu_ms() - t0, tok_vocab(t));
    int slow = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct pyjson_doc *d = NULL;
        struct grammar *g;
        double worst;
        size_t n;
        if (cases[i].schema &&
            pyjson_parse(cases[i].schema, strlen(cases[i].schema), false, &d, &e)) {
            die(&e);
        }
        t0 = cpu_ms();
        if (grammar_json(d ? pyjson_root(d) : NULL, &g, &e)) {
            die(&e);
        }
        double compile = cpu_ms() - t0, ms = answers(g, v, t, &worst, &n);
        printf("%-28s %8.3f ms a token (%zu tokens), the slowest %.1f ms; compiling %.2f ms%s\n",
               cases[i].name, ms, n, worst, compile, ms > 5 ? "  SLOW" : "");
        slow |= ms > 5;
        grammar_free(g);
        pyjson_free(d);
    }
    grammar_vocab_close(v);
    tok_close(t);
    return slow;
}
