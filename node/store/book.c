/* SPDX-License-Identifier: MIT
 * book.c: see book.h. A member's statements stay as the blobs they came in; `of` says for each
 * object which of them speaks of it last, so that a blob whose every object has a later word can
 * go. */
#include "node/store/book.h"

#include "node/store/share.h"
#include "proto/base/file.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

struct word {
    uint8_t *blob;
    size_t n;
    struct statement s; /* of blob */
    uint32_t live;      /* objects of which no later word speaks */
};

struct signer {
    struct catalog_member m; /* no 0: not in use */
    struct word *w;          /* ascending by number; blob NULL: gone */
    uint32_t n_w, n_live, objects;
    uint64_t last;
    uint16_t *of; /* [n]: index in w + 1; 0: no word. NULL without statements */
};

struct book {
    struct book_opts o;
    uint32_t n;
    char *manifest_path;
    pthread_mutex_t mu; /* what follows */
    struct signer s[CATALOG_MEMBERS_MAX + 1];
    size_t bytes;
    struct manifest mf; /* mf.n 0: none */
    uint8_t *mf_bytes;
    uint8_t mf_sha[SHA256_SIZE];
    uint64_t mf_stamp;
};

/* ---- keys ---- */

uint32_t book_object(const struct model *m, struct object_key k)
{
    if (k.kind == STORE_KEY_EXPERT) {
        return model_expert_id(m, k.layer, k.index);
    }
    bool spine = k.kind == STORE_KEY_SPINE && k.layer == 0 && k.index < model_object_count(m) &&
                 model_object(m, k.index)->kind == MODEL_SPINE;
    return spine ? k.index : MODEL_NONE;
}

struct object_key book_key(const struct model *m, uint32_t id)
{
    const struct model_object *o = model_object(m, id);
    return o->kind == MODEL_EXPERT
               ? (struct object_key){STORE_KEY_EXPERT, (uint16_t)o->layer, o->index}
               : (struct object_key){STORE_KEY_SPINE, 0, id};
}

/* ---- members; with mu ---- */

static struct signer *find(struct book *b, const uint8_t id[SHA256_SIZE])
{
    for (uint32_t i = 1; i <= CATALOG_MEMBERS_MAX; i++) {
        if (b->s[i].m.no && memcmp(b->s[i].m.id, id, SHA256_SIZE) == 0) {
            return &b->s[i];
        }
    }
    return NULL;
}

static void drop_word(struct book *b, struct signer *s, struct word *w)
{
    if (w->blob) {
        b->bytes -= w->n;
        free(w->blob);
        w->blob = NULL;
        s->n_live--;
    }
}

static void drop_words(struct book *b, struct signer *s)
{
    for (uint32_t i = 0; i < s->n_w; i++) {
        drop_word(b, s, &s->w[i]);
    }
    free(s->w);
    free(s->of);
    s->w = NULL;
    s->of = NULL;
    s->n_w = s->n_live = s->objects = 0;
    s->last = 0;
}

static int load_member(void *ctx, const struct catalog_member *m)
{
    struct book *b = ctx;
    b->s[m->no].m = *m;
    return 0;
}

uint32_t book_member_known(struct book *b, const uint8_t id[SHA256_SIZE])
{
    pthread_mutex_lock(&b->mu);
    const struct signer *s = find(b, id);
    uint32_t no = s ? s->m.no : 0;
    pthread_mutex_unlock(&b->mu);
    return no;
}

uint32_t book_member(struct book *b, const uint8_t id[SHA256_SIZE])
{
    uint32_t no = book_member_known(b, id);
    struct catalog_member m;
    struct err e;
    if (no || catalog_member(b->o.cat, id, &m, &e)) {
        return no;
    }
    pthread_mutex_lock(&b->mu);
    if (!b->s[m.no].m.no) {
        b->s[m.no].m = m;
    }
    pthread_mutex_unlock(&b->mu);
    return m.no;
}

bool book_member_get(struct book *b, uint32_t no, struct catalog_member *out, uint32_t *objects)
{
    pthread_mutex_lock(&b->mu);
    bool r = no >= 1 && no <= CATALOG_MEMBERS_MAX && b->s[no].m.no;
    if (r) {
        *out = b->s[no].m;
        *objects = b->s[no].objects;
    }
    pthread_mutex_unlock(&b->mu);
    return r;
}

uint64_t book_void_set(struct book *b)
{
    uint64_t set = 0;
    pthread_mutex_lock(&b->mu);
    for (uint32_t i = 1; i <= CATALOG_MEMBERS_MAX; i++) {
        set |= b->s[i].m.void_at ? (uint64_t)1 << i : 0;
    }
    pthread_mutex_unlock(&b->mu);
    return set;
}

int book_void(struct book *b, uint32_t no, const char *why, bool *news, struct err *e)
{
    struct catalog_member m = {0};
    *news = false;
    if (no < 1 || no > CATALOG_MEMBERS_MAX) {
        return err_set(e, ERR_NOTFOUND, "no such member");
    }
    pthread_mutex_lock(&b->mu);
    struct signer *s = &b->s[no];
    if (s->m.no && !s->m.void_at != !why) {
        *news = true;
        s->m.void_at = why ? (uint64_t)time(NULL) : 0;
        s->m.void_at += why && !s->m.void_at;
        snprintf(s->m.why, sizeof s->m.why, "%s", why ? why : "");
        drop_words(b, s);
        m = s->m;
    }
    pthread_mutex_unlock(&b->mu);
    return *news ? catalog_member_void(b->o.cat, &m, e) : 0;
}

int book_forget(struct book *b, uint32_t no, struct err *e)
{
    if (no < 1 || no > CATALOG_MEMBERS_MAX) {
        return err_set(e, ERR_NOTFOUND, "no such member");
    }
    pthread_mutex_lock(&b->mu);
    bool had = b->s[no].n_w > 0;
    drop_words(b, &b->s[no]);
    pthread_mutex_unlock(&b->mu);
    return had ? catalog_statements_drop(b->o.cat, b->o.model_no, no, e) : 0;
}

/* ---- what is said; with mu ---- */

static const struct word *word_of(const struct signer *s, uint32_t object)
{
    uint16_t i = s->of && !s->m.void_at ? s->of[object] : 0;
    return i && s->w[i - 1].blob ? &s->w[i - 1] : NULL;
}

static bool digest_in(const struct book *b, const struct word *w, uint32_t object,
                      uint8_t digest[SHA256_SIZE])
{
    struct object_key k = book_key(b->o.m, object);
    uint32_t lo = 0, hi = w->s.n;
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        struct statement_entry x;
        statement_get(&w->s, mid, &x);
        int c = statement_key_order(x.key, k);
        if (c == 0) {
            memcpy(digest, x.digest, SHA256_SIZE);
            return true;
        }
        *(c < 0 ? &lo : &hi) = c < 0 ? mid + 1 : mid;
    }
    return false;
}

bool book_word(struct book *b, uint32_t no, uint32_t object, uint8_t digest[SHA256_SIZE])
{
    pthread_mutex_lock(&b->mu);
    const struct word *w = no >= 1 && no <= CATALOG_MEMBERS_MAX ? word_of(&b->s[no], object) : NULL;
    bool r = w && digest_in(b, w, object, digest);
    pthread_mutex_unlock(&b->mu);
    return r;
}

uint64_t book_agree(struct book *b, uint32_t object, const uint8_t digest[SHA256_SIZE],
                    uint64_t *against)
{
    uint64_t agree = 0;
    *against = 0;
    pthread_mutex_lock(&b->mu);
    for (uint32_t i = 1; i <= CATALOG_MEMBERS_MAX; i++) {
        const struct word *w = word_of(&b->s[i], object);
        uint8_t d[SHA256_SIZE];
        if (w && digest_in(b, w, object, d)) {
            *(memcmp(d, digest, SHA256_SIZE) ? against : &agree) |= (uint64_t)1 << i;
        }
    }
    pthread_mutex_unlock(&b->mu);
    return agree;
}

struct opinion {
    uint8_t digest[SHA256_SIZE];
    uint64_t who;
};

static enum basis strength(uint64_t who)
{
    return __builtin_popcountll(who) >= 2 ? BASIS_TWO_MEMBERS : who ? BASIS_ONE_MEMBER : BASIS_NONE;
}

void book_says(struct book *b, uint32_t object, struct book_says *out)
{
    struct opinion v[CATALOG_MEMBERS_MAX];
    uint32_t n = 0;
    memset(out, 0, sizeof *out);
    pthread_mutex_lock(&b->mu);
    const uint8_t *md = b->mf.n ? manifest_digest(&b->mf, object) : NULL;
    for (uint32_t i = 1; i <= CATALOG_MEMBERS_MAX; i++) {
        const struct word *w = word_of(&b->s[i], object);
        uint8_t d[SHA256_SIZE];
        if (!w || !digest_in(b, w, object, d)) {
            continue;
        }
        uint32_t k = 0;
        while (k < n && memcmp(v[k].digest, d, SHA256_SIZE) != 0) {
            k++;
        }
        if (k == n) {
            memcpy(v[n].digest, d, SHA256_SIZE);
            v[n++].who = 0;
        }
        v[k].who |= (uint64_t)1 << i;
    }
    if (md) {
        memcpy(out->digest, md, SHA256_SIZE);
        out->basis = BASIS_MANIFEST;
    }
    pthread_mutex_unlock(&b->mu);
    if (md) {
        return;
    }
    for (uint32_t k = 0; k < n; k++) {
        enum basis s = strength(v[k].who);
        out->disputed = n > 1;
        if (s > out->basis) {
            out->basis = s;
            out->who = v[k].who;
            memcpy(out->digest, v[k].digest, SHA256_SIZE);
        } else if (s == out->basis) { /* as strong as its opposite: no word at all */
            out->who = 0;
        }
    }
    if (out->basis && !out->who) {
        out->basis = BASIS_NONE;
    }
}

/* ---- statements ---- */

/* The places of a word's objects; false: it has one that the model has not. */
static uint32_t *objects_of(const struct book *b, const struct statement *s)
{
    uint32_t *v = malloc(s->n * sizeof *v);
    for (uint32_t i = 0; v && i < s->n; i++) {
        struct statement_entry x;
        statement_get(s, i, &x);
        v[i] = book_object(b->o.m, x.key);
        if (v[i] == MODEL_NONE) {
            free(v);
            v = NULL;
        }
    }
    return v;
}

/* With mu. gone[]: numbers of words that say nothing any more. */
static int enter(struct book *b, struct signer *s, uint8_t *blob, size_t n, const uint32_t *objects,
                 uint64_t *gone, uint32_t *n_gone)
{
    uint32_t at = 0;
    *n_gone = 0;
    while (at < s->n_w && s->w[at].blob) {
        at++;
    }
    if (!s->of) {
        s->of = calloc(b->n ? b->n : 1, sizeof *s->of);
    }
    if (at == s->n_w) {
        struct word *w = realloc(s->w, (s->n_w + 1) * sizeof *w);
        if (!w) {
            return ERR_NOMEM;
        }
        s->w = w;
        s->w[s->n_w++] = (struct word){0};
    }
    struct word *w = &s->w[at];
    if (!s->of || statement_parse(blob, n, &w->s, NULL)) {
        return ERR_NOMEM;
    }
    w->blob = blob;
    w->n = n;
    w->live = w->s.n;
    s->n_live++;
    b->bytes += n;
    s->last = w->s.seq;
    for (uint32_t i = 0; i < w->s.n; i++) {
        uint16_t *of = &s->of[objects[i]];
        struct word *old = *of ? &s->w[*of - 1] : NULL;
        if (old && old->blob && --old->live == 0) {
            gone[(*n_gone)++] = old->s.seq;
            drop_word(b, s, old);
        }
        s->objects += !*of;
        *of = (uint16_t)(at + 1);
    }
    return 0;
}

int book_take(struct book *b, const uint8_t signer[SHA256_SIZE], const void *blob, size_t n,
              bool *taken, struct err *e)
{
    struct statement st;
    *taken = false;
    int r = statement_parse(blob, n, &st, e);
    if (r) {
        return r;
    }
    if (memcmp(st.root, model_root(b->o.m), SHA256_SIZE) != 0) {
        return err_set(e, ERR_FORMAT, "a statement about another model");
    }
    uint32_t no = book_member(b, signer);
    if (!no) {
        return err_set(e, ERR_LIMIT, "statements of %d members are kept, no more",
                       CATALOG_MEMBERS_MAX);
    }
    uint32_t *objects = objects_of(b, &st);
    uint8_t *copy = malloc(n);
    uint64_t *gone = malloc(BOOK_BLOBS_MAX * sizeof *gone);
    uint32_t n_gone = 0;
    if (!objects || !copy || !gone) {
        r = objects ? err_set(e, ERR_NOMEM, "out of memory")
                    : err_set(e, ERR_FORMAT, "a statement about objects that the model has not");
    } else {
        memcpy(copy, blob, n);
        pthread_mutex_lock(&b->mu);
        struct signer *s = &b->s[no];
        if (s->m.void_at) {
            r = err_set(e, ERR_REFUSED, "its word is void: %s", s->m.why);
        } else if (st.seq > s->last &&
                   (b->bytes + n > BOOK_BYTES_MAX || s->n_live >= BOOK_BLOBS_MAX)) {
            r = err_set(e, ERR_LIMIT, "too many statements are kept already");
        } else if (st.seq > s->last) {
            r = enter(b, s, copy, n, objects, gone, &n_gone);
            if (r) {
                err_set(e, r, "out of memory");
            } else {
                *taken = true;
                copy = NULL;
            }
        }
        pthread_mutex_unlock(&b->mu);
    }
    if (*taken) {
        struct err e1 = {0}; /* what cannot be written comes again after the next start */
        catalog_statement_add(b->o.cat, b->o.model_no, no, st.seq, blob, n, &e1);
        for (uint32_t i = 0; i < n_gone; i++) {
            catalog_statement_drop(b->o.cat, b->o.model_no, no, gone[i], &e1);
        }
    }
    free(objects);
    free(copy);
    free(gone);
    return r;
}

static int load_statement(void *ctx, uint32_t no, const void *blob, size_t n)
{
    struct book *b = ctx;
    struct signer *s = &b->s[no];
    struct statement st;
    uint64_t gone[BOOK_BLOBS_MAX];
    uint32_t n_gone;
    if (!s->m.no || s->m.void_at || s->n_live >= BOOK_BLOBS_MAX || b->bytes + n > BOOK_BYTES_MAX ||
        statement_parse(blob, n, &st, NULL) || st.seq <= s->last ||
        memcmp(st.root, model_root(b->o.m), SHA256_SIZE) != 0) {
        return 0;
    }
    uint32_t *objects = objects_of(b, &st);
    uint8_t *copy = objects ? malloc(n) : NULL;
    if (copy) {
        memcpy(copy, blob, n);
        if (enter(b, s, copy, n, objects, gone, &n_gone)) {
            free(copy);
        }
    }
    free(objects);
    return 0;
}

size_t book_seen(struct book *b, struct book_seen *out, size_t max)
{
    size_t n = 0;
    pthread_mutex_lock(&b->mu);
    for (uint32_t i = 1; i <= CATALOG_MEMBERS_MAX && n < max; i++) {
        const struct signer *s = &b->s[i];
        if (s->m.no && (s->last || s->m.void_at)) {
            memcpy(out[n].signer, s->m.id, SHA256_SIZE);
            out[n++].seq = s->m.void_at ? UINT64_MAX : s->last;
        }
    }
    pthread_mutex_unlock(&b->mu);
    return n;
}

bool book_next(struct book *b, const uint8_t signer[SHA256_SIZE], uint64_t seq, struct buf *out,
               uint64_t *got, bool *more)
{
    pthread_mutex_lock(&b->mu);
    const struct signer *s = find(b, signer);
    const struct word *best = NULL;
    *more = false;
    for (uint32_t i = 0; s && !s->m.void_at && i < s->n_w; i++) {
        const struct word *w = &s->w[i];
        if (w->blob && w->s.seq > seq) {
            *more |= best != NULL;
            best = !best || w->s.seq < best->s.seq ? w : best;
        }
    }
    bool r = best && !buf_add(out, best->blob, best->n);
    *got = r ? best->s.seq : 0;
    pthread_mutex_unlock(&b->mu);
    return r;
}

void book_count(struct book *b, uint32_t no, uint32_t *blobs, uint32_t *objects)
{
    pthread_mutex_lock(&b->mu);
    *blobs = no >= 1 && no <= CATALOG_MEMBERS_MAX ? b->s[no].n_live : 0;
    *objects = no >= 1 && no <= CATALOG_MEMBERS_MAX ? b->s[no].objects : 0;
    pthread_mutex_unlock(&b->mu);
}

/* ---- the manifest ---- */

static uint64_t stamp(const char *path)
{
    struct stat st;
    if (!path || stat(path, &st)) {
        return 0;
    }
    return ((uint64_t)st.st_mtime << 20 ^ (uint64_t)st.st_size ^ (uint64_t)st.st_ino << 40) | 1;
}

bool book_look_manifest(struct book *b)
{
    uint64_t now = stamp(b->manifest_path);
    pthread_mutex_lock(&b->mu);
    bool same = now == b->mf_stamp;
    pthread_mutex_unlock(&b->mu);
    if (same) {
        return false;
    }
    struct buf x;
    struct err e = {0};
    struct manifest mf = {0};
    buf_init(&x, MANIFEST_MAX);
    int r = now ? file_read_all(b->manifest_path, &x, &e) : ERR_NOTFOUND;
    r = r ? r : manifest_parse(x.p, x.n, &mf, &e);
    if (!r && (memcmp(mf.root, model_root(b->o.m), SHA256_SIZE) != 0 || mf.n != b->n)) {
        r = err_set(&e, ERR_FORMAT, "it is of another model");
    }
    for (uint32_t i = 0; !r && i < mf.n; i++) {
        if (manifest_size(&mf, i) != model_object(b->o.m, i)->size) {
            r = err_set(&e, ERR_FORMAT, "it has other sizes of objects than the model");
        }
    }
    if (r && now && b->o.log) {
        char line[700];
        snprintf(line, sizeof line, "the manifest %s is not used: %s", b->manifest_path, e.msg);
        b->o.log(b->o.log_ctx, line);
    }
    pthread_mutex_lock(&b->mu);
    free(b->mf_bytes);
    b->mf_bytes = NULL;
    memset(&b->mf, 0, sizeof b->mf);
    b->mf_stamp = now;
    if (!r) {
        sha256(x.p, x.n, b->mf_sha);
        b->mf = mf;
        b->mf_bytes = (uint8_t *)buf_take(&x, &(size_t){0});
    }
    pthread_mutex_unlock(&b->mu);
    buf_free(&x);
    return true;
}

void book_manifest_info(struct book *b, uint32_t *objects, uint8_t sha[SHA256_SIZE])
{
    pthread_mutex_lock(&b->mu);
    *objects = b->mf.n ? b->mf.known : 0;
    memcpy(sha, b->mf_sha, SHA256_SIZE);
    pthread_mutex_unlock(&b->mu);
}

/* ---- life ---- */

int book_open(const struct book_opts *o, struct book **out, struct err *e)
{
    struct book *b = calloc(1, sizeof *b);
    *out = NULL;
    if (!b || pthread_mutex_init(&b->mu, NULL)) {
        free(b);
        return err_set(e, ERR_NOMEM, "out of memory");
    }
    b->o = *o;
    b->n = model_object_count(o->m);
    b->manifest_path = o->manifest ? strdup(o->manifest) : NULL;
    int r = catalog_members(o->cat, load_member, b, e);
    r = r ? r : catalog_statements(o->cat, o->model_no, load_statement, b, e);
    if (r) {
        book_close(b);
        return r;
    }
    *out = b;
    return 0;
}

void book_close(struct book *b)
{
    if (b) {
        for (uint32_t i = 1; i <= CATALOG_MEMBERS_MAX; i++) {
            drop_words(b, &b->s[i]);
        }
        free(b->mf_bytes);
        free(b->manifest_path);
        pthread_mutex_destroy(&b->mu);
        free(b);
    }
}
