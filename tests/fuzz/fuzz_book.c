/* SPDX-License-Identifier: MIT
 * fuzz_book.c: what members say about digests, in any order: statements (well-formed ones of any
 * objects, numbers and digests, and the same with a byte changed), words that become void and count
 * again, members that leave. After each step what the book says is compared with a plain table of
 * who said what last. Four bytes a step: what and who, number, objects, digest. */
#include "fuzz/model_mini.h"
#include "node/store/book.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define SIGNERS 4
#define STEPS 24
#define OBJECTS 8 /* of the model, at most */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct model *m;
static struct book *b;
static struct catalog *cat;
static char dir[] = "/tmp/shoal-fuzz-book.XXXXXX";
static uint32_t objects, no_of[SIGNERS];

/* The plain table. */
static struct {
    uint64_t last;
    bool is_void;
    uint8_t said[OBJECTS]; /* digest's variant + 1; 0: nothing */
} plain[SIGNERS];

static void check(bool fine)
{
    if (!fine) {
        abort();
    }
}

static void gone(void)
{
    char cmd[100];
    book_close(b);
    catalog_close(cat);
    model_close(m);
    snprintf(cmd, sizeof cmd, "rm -rf '%s'", dir);
    check(system(cmd) == 0);
}

static void id_of(uint32_t who, uint8_t id[SHA256_SIZE])
{
    memset(id, 0, SHA256_SIZE);
    id[0] = (uint8_t)(who + 1);
}

static void begin(void)
{
    struct err e = {0};
    if (!b) {
        m = mini_model();
        check(mkdtemp(dir) != NULL && catalog_open(dir, NULL, NULL, &cat, &e) == 0);
        int64_t no;
        check(catalog_model(cat, "00", &no, &e) == 0);
        struct book_opts o = {.m = m, .cat = cat, .model_no = no, .manifest = "/nonexistent"};
        check(book_open(&o, &b, &e) == 0);
        objects = model_object_count(m) < OBJECTS ? model_object_count(m) : OBJECTS;
        check(objects >= 4);
        for (uint32_t i = 0; i < SIGNERS; i++) {
            uint8_t id[SHA256_SIZE];
            id_of(i, id);
            no_of[i] = book_member(b, id);
            check(no_of[i] != 0);
        }
        atexit(gone);
    }
    for (uint32_t i = 0; i < SIGNERS; i++) {
        bool news;
        check(book_void(b, no_of[i], NULL, &news, &e) == 0 && book_forget(b, no_of[i], &e) == 0);
    }
    memset(plain, 0, sizeof plain);
}

static void digest_of(unsigned variant, uint8_t d[SHA256_SIZE])
{
    memset(d, (int)(variant + 1), SHA256_SIZE);
}

static int by_key(const void *x, const void *y)
{
    return statement_key_order(((const struct statement_entry *)x)->key,
                               ((const struct statement_entry *)y)->key);
}

/* changed: a byte of it is another. */
static void say(uint32_t who, uint64_t seq, uint8_t which, uint8_t variants, bool changed)
{
    static uint8_t pub[65] = {4};
    struct statement_entry v[OBJECTS];
    size_t n = 0;
    uint8_t id[SHA256_SIZE];
    struct buf out;
    struct err e = {0};
    bool taken = false;
    for (uint32_t i = 0; i < objects; i++) {
        if (which >> i & 1) {
            v[n].key = book_key(m, i);
            digest_of(variants >> (i % 4 * 2) & 3, v[n++].digest);
        }
    }
    qsort(v, n, sizeof *v, by_key);
    buf_init(&out, STATEMENT_BLOB_MAX);
    id_of(who, id);
    if (!statement_body(pub, model_root(m), seq, v, n, &out, &e)) {
        check(buf_add(&out, "\1s", 2) == 0);
        if (changed) {
            ((uint8_t *)out.p)[(which * 31u + variants) % out.n] ^= (uint8_t)(1u << who);
        }
        /* a changed one may be taken with other content: what it says is read by the parser */
        struct statement s;
        bool parses = statement_parse(out.p, out.n, &s, &e) == 0;
        bool ours = parses && memcmp(s.root, model_root(m), SHA256_SIZE) == 0;
        for (uint32_t i = 0; ours && i < s.n; i++) {
            struct statement_entry x;
            statement_get(&s, i, &x);
            ours = book_object(m, x.key) < objects;
        }
        if (parses && (ours || !changed)) {
            int r = book_take(b, id, out.p, out.n, &taken, &e);
            check(taken == (!plain[who].is_void && s.seq > plain[who].last));
            check(r == 0 || (!taken && e.msg[0]));
        } else if (!parses) {
            check(book_take(b, id, out.p, out.n, &taken, &e) != 0 && !taken);
        }
        if (taken) {
            plain[who].last = s.seq;
            for (uint32_t i = 0; i < s.n; i++) {
                struct statement_entry x;
                statement_get(&s, i, &x);
                uint32_t o = book_object(m, x.key);
                uint8_t same[SHA256_SIZE];
                plain[who].said[o] = 5; /* none of the four */
                for (unsigned k = 0; k < 4; k++) {
                    digest_of(k, same);
                    if (memcmp(same, x.digest, SHA256_SIZE) == 0) {
                        plain[who].said[o] = (uint8_t)(k + 1);
                    }
                }
            }
        }
    }
    buf_free(&out);
}

/* Only objects whose digests are all among the four are compared. */
static void compare(void)
{
    for (uint32_t o = 0; o < objects; o++) {
        unsigned count[6] = {0}, best = 0, kinds = 0;
        uint64_t who[6] = {0};
        for (uint32_t i = 0; i < SIGNERS; i++) {
            count[plain[i].said[o]]++;
            who[plain[i].said[o]] |= (uint64_t)1 << no_of[i];
        }
        if (count[5]) {
            continue;
        }
        bool tie = false;
        for (unsigned k = 1; k <= 4; k++) {
            unsigned c = count[k] > 2 ? 2 : count[k], most = best ? count[best] : 0;
            most = most > 2 ? 2 : most;
            kinds += c > 0;
            tie = c > most ? false : tie || (c && c == most);
            best = c > most ? k : best;
        }
        struct book_says s;
        book_says(b, o, &s);
        check(s.disputed == (kinds > 1));
        check(s.basis == (!best || tie       ? BASIS_NONE
                          : count[best] >= 2 ? BASIS_TWO_MEMBERS
                                             : BASIS_ONE_MEMBER));
        uint8_t d[SHA256_SIZE];
        for (unsigned k = 1; k <= 4; k++) {
            uint64_t against, others = (who[1] | who[2] | who[3] | who[4]) & ~who[k];
            digest_of(k - 1, d);
            check(book_agree(b, o, d, &against) == who[k] && against == others);
        }
        if (s.basis) {
            digest_of(best - 1, d);
            check(memcmp(s.digest, d, SHA256_SIZE) == 0 && s.who == who[best]);
        }
    }
}

static void forget(uint32_t who, bool is_void)
{
    memset(&plain[who], 0, sizeof plain[who]);
    plain[who].is_void = is_void;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    begin();
    for (size_t at = 0; at + 4 <= size && at < 4 * STEPS; at += 4) {
        const uint8_t *p = data + at;
        uint32_t who = p[0] & 3;
        struct err e = {0};
        bool news = false;
        switch (p[0] >> 2 & 7) {
        case 0:
            check(book_void(b, no_of[who], "it lied", &news, &e) == 0);
            check(news == !plain[who].is_void);
            if (news) {
                forget(who, true);
            }
            break;
        case 1:
            check(book_void(b, no_of[who], NULL, &news, &e) == 0);
            check(news == plain[who].is_void);
            plain[who].is_void = false;
            break;
        case 2:
            check(book_forget(b, no_of[who], &e) == 0);
            forget(who, plain[who].is_void);
            break;
        default:
            say(who, p[1], p[2], p[3], (p[0] >> 2 & 7) == 3);
            break;
        }
        compare();
    }
    return 0;
}
