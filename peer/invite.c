/* SPDX-License-Identifier: MIT
 * invite.c: see invite.h. The file, all integers little-endian:
 *   8 "shoalin1", 16 id, 32 key, 8 made, 8 expires, 4 uses, 4 used, 32 per use: node id,
 *   8 first bytes of the SHA-256 of all before. */
#include "peer/invite.h"
#include "peer/b32.h"
#include "peer/home.h"
#include "proto/base/file.h"
#include "proto/base/num.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HEAD 80
#define CHECK 8
#define FILE_MAX (HEAD + INVITE_USES_MAX * SHA256_SIZE + CHECK)
#define NAME (B32_CHARS(INVITE_ID) + 1)

static const char magic[8] = {'s', 'h', 'o', 'a', 'l', 'i', 'n', '1'};
static const char folder[] = "shoal/invites";

int invite_keys(const struct token *t, uint8_t id[INVITE_ID], uint8_t key[SHA256_SIZE],
                struct err *e)
{
    if (crypto_hkdf(t->group, sizeof t->group, t->secret, sizeof t->secret, "shoal invite id", id,
                    INVITE_ID) ||
        crypto_hkdf(t->group, sizeof t->group, t->secret, sizeof t->secret, "shoal invite key", key,
                    SHA256_SIZE)) {
        return err_set(e, ERR_NOMEM, "out of memory");
    }
    return 0;
}

static void file_name(const uint8_t id[INVITE_ID], char out[sizeof folder + 1 + NAME])
{
    char name[NAME];
    b32_encode(id, INVITE_ID, name);
    snprintf(out, sizeof folder + 1 + NAME, "%s/%s", folder, name);
}

static int store(const char *home, const struct invite *v, struct err *e)
{
    uint8_t b[FILE_MAX], d[SHA256_SIZE];
    char rel[sizeof folder + 1 + NAME];
    size_t n = HEAD + v->used * sizeof v->by[0].b;
    memcpy(b, magic, 8);
    memcpy(b + 8, v->id, INVITE_ID);
    memcpy(b + 24, v->key, sizeof v->key);
    num_put_le64(b + 56, v->made);
    num_put_le64(b + 64, v->expires);
    num_put_le32(b + 72, v->uses);
    num_put_le32(b + 76, v->used);
    for (size_t i = 0; i < v->used; i++) {
        memcpy(b + HEAD + i * sizeof v->by[i].b, v->by[i].b, sizeof v->by[i].b);
    }
    sha256(b, n, d);
    memcpy(b + n, d, CHECK);
    file_name(v->id, rel);
    int r = home_write(home, rel, b, n + CHECK, e);
    crypto_wipe(b, sizeof b);
    return r;
}

static int parse(const uint8_t *b, size_t n, struct invite *v)
{
    uint8_t d[SHA256_SIZE];
    if (n < HEAD + CHECK || memcmp(b, magic, 8) != 0) {
        return ERR_FORMAT;
    }
    sha256(b, n - CHECK, d);
    memset(v, 0, sizeof *v);
    memcpy(v->id, b + 8, INVITE_ID);
    memcpy(v->key, b + 24, sizeof v->key);
    v->made = num_get_le64(b + 56);
    v->expires = num_get_le64(b + 64);
    v->uses = num_get_le32(b + 72);
    v->used = num_get_le32(b + 76);
    if (memcmp(d, b + n - CHECK, CHECK) != 0 || !v->uses || v->uses > INVITE_USES_MAX ||
        v->used > v->uses || n != HEAD + v->used * sizeof v->by[0].b + CHECK) {
        return ERR_FORMAT;
    }
    for (size_t i = 0; i < v->used; i++) {
        memcpy(v->by[i].b, b + HEAD + i * sizeof v->by[i].b, sizeof v->by[i].b);
    }
    return 0;
}

int invite_load(const char *home, const uint8_t id[INVITE_ID], struct invite *out, struct err *e)
{
    char rel[sizeof folder + 1 + NAME];
    struct buf b;
    file_name(id, rel);
    buf_init(&b, FILE_MAX);
    int r = home_read(home, rel, true, FILE_MAX, &b, e);
    if (!r && (parse((const uint8_t *)(b.p ? b.p : ""), b.n, out) ||
               memcmp(out->id, id, INVITE_ID) != 0)) {
        r = err_set(e, ERR_FORMAT, "%s/%s is damaged: delete it and make a new invite", home, rel);
    }
    if (b.p) {
        crypto_wipe(b.p, b.n);
    }
    buf_free(&b);
    return r;
}

/* Calls `each` for every file that has the name of an invite; stops when it returns nonzero. */
static int walk(const char *home,
                int (*each)(const char *home, const uint8_t id[INVITE_ID], void *arg,
                            struct err *e),
                void *arg, struct err *e)
{
    char path[HOME_PATH_MAX];
    int r = home_path(home, folder, path, e);
    DIR *d = r ? NULL : opendir(path);
    if (!d) {
        return r || errno == ENOENT ? r : err_sys(e, errno, "cannot read the folder %s", path);
    }
    for (struct dirent *f; !r && (f = readdir(d));) {
        uint8_t id[INVITE_ID];
        size_t n;
        if (strlen(f->d_name) == NAME - 1 && !b32_decode(f->d_name, NAME - 1, id, sizeof id, &n) &&
            n == sizeof id) {
            r = each(home, id, arg, e);
        }
    }
    closedir(d);
    return r;
}

static void discard(const char *home, const uint8_t id[INVITE_ID])
{
    char rel[sizeof folder + 1 + NAME], path[HOME_PATH_MAX];
    file_name(id, rel);
    if (!home_path(home, rel, path, NULL) && unlink(path) == 0) {
        file_sync_dir_of(path, NULL);
    }
}

struct tidy {
    uint64_t now;
    size_t open;
};

/* A spent one stays until its time is over, so that a late joiner hears why. */
static int tidy_one(const char *home, const uint8_t id[INVITE_ID], void *arg, struct err *e)
{
    struct tidy *t = arg;
    struct invite v;
    (void)e;
    if (!invite_load(home, id, &v, NULL) && t->now > v.expires) {
        discard(home, id);
    } else {
        t->open++;
    }
    crypto_wipe(&v, sizeof v);
    return 0;
}

int invite_make(const char *home, const struct key_id *group, uint32_t uses, uint32_t seconds,
                uint64_t now, struct token *out, struct err *e)
{
    if (!uses || uses > INVITE_USES_MAX) {
        return err_set(e, ERR_ARG, "an invite can be used 1 to %d times", INVITE_USES_MAX);
    }
    if (!seconds || seconds > INVITE_SECONDS_MAX) {
        return err_set(e, ERR_ARG, "an invite can last from one second to 30 days");
    }
    struct invite v = {.made = now, .expires = now + seconds, .uses = uses};
    struct tidy t = {.now = now};
    int lock;
    int r = token_make(group, out, e);
    r = r ? r : invite_keys(out, v.id, v.key, e);
    r = r ? r : home_lock(home, &lock, e);
    if (r) {
        return r;
    }
    r = home_folder(home, folder, e);
    home_sweep(home, folder);
    r = r ? r : walk(home, tidy_one, &t, e);
    if (!r && t.open >= INVITE_OPEN_MAX) {
        r = err_set(e, ERR_LIMIT, "there are %zu invites already: revoke some first", t.open);
    }
    r = r ? r : store(home, &v, e);
    home_unlock(lock);
    crypto_wipe(&v, sizeof v);
    return r;
}

struct listing {
    struct invite *v;
    size_t n, damaged;
};

static int list_one(const char *home, const uint8_t id[INVITE_ID], void *arg, struct err *e)
{
    struct listing *l = arg;
    if (l->n == INVITE_OPEN_MAX) {
        return 0;
    }
    struct invite *grown = realloc(l->v, (l->n + 1) * sizeof *grown);
    if (!grown) {
        return err_set(e, ERR_NOMEM, "out of memory");
    }
    l->v = grown;
    if (invite_load(home, id, &grown[l->n], NULL)) {
        l->damaged++;
    } else {
        l->n++;
    }
    return 0;
}

int invite_list(const char *home, struct invite **list, size_t *n, size_t *damaged, struct err *e)
{
    struct listing l = {0};
    int lock;
    int r = home_lock(home, &lock, e);
    if (r) {
        return r;
    }
    r = walk(home, list_one, &l, e);
    home_unlock(lock);
    if (r) {
        free(l.v);
        return r;
    }
    *list = l.v;
    *n = l.n;
    *damaged = l.damaged;
    return 0;
}

struct open_search {
    uint64_t now;
    bool found;
};

static int open_one(const char *home, const uint8_t id[INVITE_ID], void *arg, struct err *e)
{
    struct open_search *o = arg;
    struct invite v;
    (void)e;
    if (!o->found && !invite_load(home, id, &v, NULL)) {
        o->found = v.expires > o->now;
        crypto_wipe(&v, sizeof v);
    }
    return 0;
}

int invite_any_open(const char *home, uint64_t now, unsigned lock_ms, bool *open, struct err *e)
{
    struct open_search o = {.now = now};
    int lock;
    int r = home_lock_for(home, lock_ms, &lock, e);
    if (!r) {
        r = walk(home, open_one, &o, e);
        home_unlock(lock);
    }
    *open = !r && o.found;
    return r;
}

struct search {
    const char *text;
    size_t n, hits;
    uint8_t id[INVITE_ID];
};

static int match_one(const char *home, const uint8_t id[INVITE_ID], void *arg, struct err *e)
{
    struct search *s = arg;
    char name[NAME];
    (void)home;
    (void)e;
    b32_encode(id, INVITE_ID, name);
    if (memcmp(name, s->text, s->n) == 0) {
        memcpy(s->id, id, INVITE_ID);
        s->hits++;
    }
    return 0;
}

int invite_revoke(const char *home, const char *text, struct err *e)
{
    struct buf b;
    int lock;
    buf_init(&b, NAME - 1);
    int r = b32_clean("the id of an invite", text, strlen(text), &b, e);
    if (!r && b.n < 4) {
        r = err_set(e, ERR_ARG, "give at least the first four characters of the invite's id");
    }
    r = r ? r : home_lock(home, &lock, e);
    if (!r) {
        struct search s = {.text = b.p, .n = b.n};
        r = walk(home, match_one, &s, e);
        if (!r && s.hits != 1) {
            r = s.hits
                    ? err_set(e, ERR_ARG, "%s fits %zu invites: give more of the id", b.p, s.hits)
                    : err_set(e, ERR_NOTFOUND, "there is no invite %s here", b.p);
        }
        if (!r) {
            discard(home, s.id);
        }
        home_unlock(lock);
    }
    buf_free(&b);
    return r;
}

int invite_burn(const char *home, struct invite *v, const struct key_id *node, uint64_t now,
                enum invite_burn *what, struct err *e)
{
    struct invite next = *v;
    for (size_t i = 0; i < v->used; i++) {
        if (memcmp(v->by[i].b, node->b, sizeof node->b) == 0) {
            *what = INVITE_BURNT;
            return 0;
        }
    }
    if (now > v->expires) {
        next.expires = 0;
        *what = INVITE_EXPIRED;
    } else if (v->used >= v->uses) {
        *what = INVITE_USED_UP;
        return 0;
    } else {
        next.by[next.used++] = *node;
        *what = INVITE_BURNT;
    }
    int r = store(home, &next, e);
    if (!r) {
        *v = next;
    }
    crypto_wipe(&next, sizeof next);
    return r;
}
