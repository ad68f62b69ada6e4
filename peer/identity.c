/* SPDX-License-Identifier: MIT
 * identity.c: see identity.h. */
#include "peer/identity.h"
#include "peer/b32.h"
#include "peer/home.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FULL 52
#define FULL_CHECK 4
#define SHORT 10
#define SHORT_CHECK 2
#define PREFIX_MIN 4

static const char key_file[] = "identity/node.key";
static const char id_file[] = "identity/node.id";
static const char machine_file[] = "identity/machine";

/* `count` check characters over the first n characters. */
static void check_chars(const char *chars, size_t n, size_t count, char *out)
{
    static const char domain[] = "shoal id";
    struct sha256 s;
    uint8_t d[SHA256_SIZE];
    char all[B32_CHARS(SHA256_SIZE) + 1];
    sha256_init(&s);
    sha256_add(&s, domain, sizeof domain);
    sha256_add(&s, chars, n);
    sha256_done(&s, d);
    b32_encode(d, sizeof d, all);
    memcpy(out, all, count);
}

/* The characters without dashes: n of the id, then the check. */
static void form(const struct key_id *id, size_t n, size_t check, char *out)
{
    char all[B32_CHARS(SHA256_SIZE) + 1];
    b32_encode(id->b, sizeof id->b, all);
    memcpy(out, all, n);
    check_chars(all, n, check, out + n);
}

static void grouped(const char *chars, size_t n, char *out)
{
    for (size_t i = 0; i < n; i++) {
        if (i && i % 4 == 0) {
            *out++ = '-';
        }
        *out++ = chars[i];
    }
    *out = 0;
}

void id_text(const struct key_id *id, char out[ID_TEXT])
{
    char c[FULL + FULL_CHECK];
    form(id, FULL, FULL_CHECK, c);
    grouped(c, sizeof c, out);
}

void id_short(const struct key_id *id, char out[ID_SHORT])
{
    char c[SHORT + SHORT_CHECK];
    form(id, SHORT, SHORT_CHECK, c);
    grouped(c, sizeof c, out);
}

bool id_short_of(const char *chars, char out[ID_SHORT])
{
    char c[SHORT + SHORT_CHECK];
    out[0] = 0;
    size_t n = strspn(chars, "0123456789abcdefghjkmnpqrstvwxyz");
    if (n < SHORT || chars[n]) {
        return false;
    }
    memcpy(c, chars, SHORT);
    check_chars(c, SHORT, SHORT_CHECK, c + SHORT);
    grouped(c, sizeof c, out);
    return true;
}

bool id_equal(const struct key_id *a, const struct key_id *b)
{
    return memcmp(a->b, b->b, sizeof a->b) == 0;
}

static int clean_id(const char *text, char *out, size_t cap, size_t *n, struct err *e)
{
    struct buf b;
    buf_init(&b, cap - 1);
    int r = b32_clean("an id", text, strlen(text), &b, e);
    if (!r) {
        memcpy(out, b.p ? b.p : "", b.n);
        out[b.n] = 0;
        *n = b.n;
    }
    buf_free(&b);
    return r;
}

static int mistyped(struct err *e)
{
    return err_set(e, ERR_FORMAT, "the check characters of that id do not fit: it is mistyped");
}

int id_parse(const char *text, struct key_id *out, struct err *e)
{
    char c[FULL + FULL_CHECK + 1], want[FULL_CHECK];
    size_t n, got;
    int r = clean_id(text, c, sizeof c, &n, e);
    if (r) {
        return r;
    }
    if (n != FULL + FULL_CHECK) {
        return err_set(e, ERR_FORMAT, "an id in full has %d characters, this has %zu",
                       FULL + FULL_CHECK, n);
    }
    check_chars(c, FULL, FULL_CHECK, want);
    struct key_id id;
    if (memcmp(want, c + FULL, FULL_CHECK) != 0 || b32_decode(c, FULL, id.b, sizeof id.b, &got) ||
        got != sizeof id.b) {
        return mistyped(e);
    }
    *out = id;
    return 0;
}

int id_find(const char *text, const struct key_id *ids, size_t n, size_t *which, struct err *e)
{
    char c[FULL + FULL_CHECK + 1], want[FULL_CHECK];
    size_t len, hits = 0;
    int r = clean_id(text, c, sizeof c, &len, e);
    if (r) {
        return r;
    }
    size_t check = len == FULL + FULL_CHECK     ? FULL_CHECK
                   : len == SHORT + SHORT_CHECK ? SHORT_CHECK
                                                : 0;
    if (!check && (len < PREFIX_MIN || len > SHORT)) {
        return err_set(e, ERR_FORMAT,
                       "a node is named by its short form (%d characters), by its id in full (%d) "
                       "or by the first %d to %d characters, this has %zu",
                       SHORT + SHORT_CHECK, FULL + FULL_CHECK, PREFIX_MIN, SHORT, len);
    }
    len -= check;
    check_chars(c, len, check, want);
    if (check && memcmp(want, c + len, check) != 0) {
        return mistyped(e);
    }
    for (size_t i = 0; i < n; i++) {
        char all[B32_CHARS(SHA256_SIZE) + 1];
        b32_encode(ids[i].b, sizeof ids[i].b, all);
        if (memcmp(all, c, len) == 0) {
            *which = i;
            hits++;
        }
    }
    if (!hits) {
        return err_set(e, ERR_NOTFOUND, "no node here has the id %s", text);
    }
    if (hits > 1) {
        return err_set(e, ERR_ARG, "%s fits %zu nodes: give more of the id", text, hits);
    }
    return 0;
}

/* node.id: the full form and a line end. */
static int check_id_file(const char *home, const struct key_id *id, struct err *e)
{
    char line[ID_TEXT + 1], text[ID_TEXT];
    id_text(id, text);
    int n = snprintf(line, sizeof line, "%s\n", text);
    bool made = false;
    int r = 0;
    if (!home_has(home, id_file)) {
        r = home_write_once(home, id_file, line, (size_t)n, &made, e);
    }
    if (r || made) {
        return r;
    }
    struct buf b;
    buf_init(&b, 256);
    struct key_id there;
    r = home_read(home, id_file, false, 256, &b, e);
    if (!r && (memchr(b.p ? b.p : "", 0, b.n) || id_parse(b.p ? b.p : "", &there, NULL))) {
        r = err_set(e, ERR_FORMAT,
                    "%s/%s does not hold an id: if %s is this node's own key, delete %s and it "
                    "is made again",
                    home, id_file, key_file, id_file);
    }
    if (!r && !id_equal(&there, id)) {
        char other[ID_SHORT], mine[ID_SHORT];
        id_short(&there, other);
        id_short(id, mine);
        r = err_set(e, ERR_FORMAT,
                    "%s/%s is the key of node %s, but this folder belongs to node %s: put the "
                    "right key back",
                    home, key_file, mine, other);
    }
    buf_free(&b);
    return r;
}

static int load_key(const char *home, struct crypto_key **key, struct err *e)
{
    struct buf b;
    buf_init(&b, CRYPTO_PEM_MAX);
    int r = home_read(home, key_file, true, CRYPTO_PEM_MAX, &b, e);
    if (!r && crypto_key_from_pem(b.p ? b.p : "", b.n, key, e)) {
        r = e ? e->code : ERR_FORMAT;
        err_prefix(e,
                   "%s/%s is damaged; put it back from a backup, or, to go on as a new node that "
                   "must be invited again, move the folder %s/identity away",
                   home, key_file, home);
    }
    if (b.p) {
        crypto_wipe(b.p, b.n);
    }
    buf_free(&b);
    return r;
}

static int make_key(const char *home, bool *fresh, struct err *e)
{
    if (home_has(home, id_file)) {
        return err_set(e, ERR_NOTFOUND,
                       "the key %s/%s is gone, though this node had one: put it back from a "
                       "backup, or, to go on as a new node that must be invited again, move the "
                       "folder %s/identity away",
                       home, key_file, home);
    }
    struct crypto_key *k;
    char pem[CRYPTO_PEM_MAX];
    size_t n;
    int r = crypto_key_make(&k, e);
    if (r) {
        return r;
    }
    r = crypto_key_pem(k, pem, &n, e);
    r = r ? r : home_write_once(home, key_file, pem, n, fresh, e);
    crypto_wipe(pem, sizeof pem);
    crypto_key_free(k);
    return r;
}

static void mark_machine(struct identity *me, const char *given)
{
    char id[256];
    memset(me->machine, 0, sizeof me->machine);
    if (given) {
        snprintf(id, sizeof id, "%s", given);
    } else if (machine_id(id, sizeof id)) {
        return;
    }
    uint8_t d[SHA256_SIZE];
    if (id[0] && !crypto_hmac(me->id.b, sizeof me->id.b, id, strlen(id), d)) {
        memcpy(me->machine, d, sizeof me->machine);
    }
}

static bool known_machine(const struct identity *me)
{
    static const uint8_t none[MACHINE_MARK];
    return memcmp(me->machine, none, sizeof none) != 0;
}

int identity_settle(const char *home, struct identity *me, struct err *e)
{
    char text[B32_CHARS(MACHINE_MARK) + 1], line[sizeof text + 1];
    if (known_machine(me)) {
        b32_encode(me->machine, sizeof me->machine, text);
        snprintf(line, sizeof line, "%s\n", text);
        int r = home_write(home, machine_file, line, strlen(line), e);
        if (r) {
            return r;
        }
    }
    me->moved = false;
    return 0;
}

/* A machine mark that is missing or damaged is only written anew: nothing hangs on it. */
static int compare_machine(const char *home, struct identity *me, struct err *e)
{
    if (!known_machine(me)) {
        return 0;
    }
    struct buf b;
    buf_init(&b, 128);
    uint8_t was[MACHINE_MARK];
    size_t n = 0;
    int r = home_read(home, machine_file, false, 128, &b, NULL);
    if (!r && b.n > 0 && b.p[b.n - 1] == '\n' && !b32_decode(b.p, b.n - 1, was, sizeof was, &n) &&
        n == sizeof was) {
        me->moved = memcmp(was, me->machine, sizeof was) != 0;
        buf_free(&b);
        return 0;
    }
    buf_free(&b);
    return identity_settle(home, me, e);
}

int identity_open(const char *home, const char *machine, struct identity *out, struct err *e)
{
    struct identity me = {0};
    int lock;
    memset(out, 0, sizeof *out);
    int r = home_lock(home, &lock, e);
    if (r) {
        return r;
    }
    r = home_folder(home, "identity", e);
    home_sweep(home, "identity");
    if (!r && !home_has(home, key_file)) {
        r = make_key(home, &me.fresh, e);
    }
    r = r ? r : load_key(home, &me.key, e);
    if (!r) {
        crypto_key_id(crypto_key_public(me.key), &me.id);
        r = check_id_file(home, &me.id, e);
    }
    if (!r) {
        mark_machine(&me, machine);
        r = compare_machine(home, &me, e);
    }
    r = r ? r : crypto_random(me.run, sizeof me.run, e);
    home_unlock(lock);
    if (r) {
        identity_close(&me);
        return r;
    }
    *out = me;
    return 0;
}

void identity_close(struct identity *me)
{
    crypto_key_free(me->key);
    me->key = NULL;
}

void identity_moved_text(const struct identity *me, char *out, size_t cap)
{
    char id[ID_SHORT];
    id_short(&me->id, id);
    snprintf(out, cap,
             "this data folder (node %s) was last used on another machine: if it was moved here, "
             "all is well; if it was copied and the other still runs, move the folder `identity` "
             "away here and join again",
             id);
}
