/* SPDX-License-Identifier: MIT
 * keep.c: see keep.h. On disk an entry is two files: <name>.state (node/infer's own form; its last
 * 32 bytes are a checksum) and <name>.ids: a line, that checksum, the ids, SHA-256 of all before.
 * So a state belongs to one list of ids, and no other is taken for it. The .ids file is written
 * last and removed first, so an entry is there exactly when it is whole. <name> is the beginning of
 * the SHA-256 of the ids. Prefixes are prompts: 0600. Nothing but plain files is ever opened. */
#include "node/engine/keep.h"

#include "proto/base/buf.h"
#include "proto/base/file.h"
#include "proto/base/sha256.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NAME 33
#define IDS_MAGIC "shoal ids 2\n"
#define IDS_MAX ((size_t)64 << 20)
#define PATH_ROOM 4400

struct entry {
    struct entry *next; /* most recently used first */
    uint32_t *ids;
    size_t n;
    char name[NAME];
    struct infer_state *st; /* NULL: on disk only */
    struct store_since since;
    bool on_disk;
    uint8_t sum[SHA256_SIZE]; /* on disk: the checksum of its .state file */
    uint64_t bytes;
    uint32_t hits;
};

struct keep {
    struct keep_opts o;
    char *dir;
    struct entry *list;
    uint64_t ram, disk, hits;
    bool trouble;   /* the disk: said once */
    uint64_t backs; /* store_backs when drop_spoilt looked */
};

static void say(struct keep *k, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void say(struct keep *k, const char *fmt, ...)
{
    if (k->o.log) {
        char line[800];
        va_list ap;
        va_start(ap, fmt);
        vsnprintf(line, sizeof line, fmt, ap);
        va_end(ap);
        k->o.log(k->o.log_ctx, line);
    }
}

static void path_of(const struct keep *k, const struct entry *x, const char *suffix,
                    char out[PATH_ROOM])
{
    snprintf(out, PATH_ROOM, "%s/%s.%s", k->dir, x->name, suffix);
}

static void name_of(const uint32_t *ids, size_t n, char out[NAME])
{
    struct sha256 h;
    uint8_t d[SHA256_SIZE];
    sha256_init(&h);
    for (size_t i = 0; i < n; i++) {
        uint8_t b[4] = {(uint8_t)ids[i], (uint8_t)(ids[i] >> 8), (uint8_t)(ids[i] >> 16),
                        (uint8_t)(ids[i] >> 24)};
        sha256_add(&h, b, sizeof b);
    }
    sha256_done(&h, d);
    for (size_t i = 0; i < NAME / 2; i++) {
        snprintf(out + 2 * i, 3, "%02x", d[i]);
    }
}

/* ---- entries ---- */

static void free_entry(struct keep *k, struct entry *x)
{
    if (x->st) {
        k->ram -= x->bytes;
        infer_state_free(x->st);
    }
    free(x->ids);
    free(x);
}

static void unlink_files(struct keep *k, struct entry *x)
{
    char path[PATH_ROOM];
    if (x->on_disk) {
        path_of(k, x, "ids", path);
        unlink(path);
        path_of(k, x, "state", path);
        unlink(path);
        x->on_disk = false;
        k->disk -= x->bytes;
    }
}

static void take_out(struct keep *k, struct entry *x)
{
    struct entry **at = &k->list;
    while (*at != x) {
        at = &(*at)->next;
    }
    *at = x->next;
}

static void to_front(struct keep *k, struct entry *x)
{
    take_out(k, x);
    x->next = k->list;
    k->list = x;
}

static bool begins(const struct entry *x, const uint32_t *ids, size_t n)
{
    return x->n <= n && memcmp(x->ids, ids, x->n * sizeof *ids) == 0;
}

/* Made superfluous by a longer entry that is still there, and not used since. */
static bool superfluous(const struct keep *k, const struct entry *x)
{
    for (const struct entry *y = k->list; y; y = y->next) {
        if (y != x && y->n > x->n && x->hits == 0 && begins(x, y->ids, y->n)) {
            return true;
        }
    }
    return false;
}

/* Who goes first of those in RAM, or on disk. */
static struct entry *victim(struct keep *k, bool ram)
{
    struct entry *last = NULL, *spare = NULL;
    for (struct entry *x = k->list; x; x = x->next) {
        if (ram ? x->st != NULL : x->on_disk) {
            last = x;
            if (superfluous(k, x)) {
                spare = x;
            }
        }
    }
    return spare ? spare : last;
}

static void drop_if_nowhere(struct keep *k, struct entry *x)
{
    if (!x->st && !x->on_disk) {
        take_out(k, x);
        free_entry(k, x);
    }
}

/* ---- disk ---- */

/* The checksum at the end of a state file. */
static int read_sum(const char *path, uint8_t sum[SHA256_SIZE], struct err *e)
{
    struct stat sb;
    if (lstat(path, &sb) != 0 || !S_ISREG(sb.st_mode) || sb.st_size < SHA256_SIZE) {
        return err_set(e, ERR_FORMAT, "%s is no state file", path);
    }
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) {
        return err_set(e, ERR_IO, "%s cannot be opened", path);
    }
    int r = file_pread(fd, path, sum, SHA256_SIZE, (uint64_t)sb.st_size - SHA256_SIZE, e);
    close(fd);
    return r;
}

static int write_ids(struct keep *k, const struct entry *x, struct err *e)
{
    struct buf b;
    uint8_t d[SHA256_SIZE];
    char path[PATH_ROOM];
    buf_init(&b, IDS_MAX);
    int r = buf_adds(&b, IDS_MAGIC);
    r = r ? r : buf_add(&b, x->sum, sizeof x->sum);
    for (size_t i = 0; i < x->n && !r; i++) {
        uint8_t v[4] = {(uint8_t)x->ids[i], (uint8_t)(x->ids[i] >> 8), (uint8_t)(x->ids[i] >> 16),
                        (uint8_t)(x->ids[i] >> 24)};
        r = buf_add(&b, v, sizeof v);
    }
    if (!r) {
        sha256(b.p, b.n, d);
        r = buf_add(&b, d, sizeof d);
    }
    path_of(k, x, "ids", path);
    r = r ? err_set(e, r, "%s: %s", path, err_text(r)) : file_write_atomic(path, b.p, b.n, 0600, e);
    buf_free(&b);
    return r;
}

static size_t on_disk(const struct keep *k)
{
    size_t n = 0;
    for (const struct entry *x = k->list; x; x = x->next) {
        n += x->on_disk;
    }
    return n;
}

static bool write_entry(struct keep *k, struct entry *x)
{
    struct err e = {0};
    char path[PATH_ROOM];
    if (!k->dir || x->on_disk || !x->st || x->bytes > k->o.disk) {
        return false;
    }
    while (k->disk + x->bytes > k->o.disk || on_disk(k) >= KEEP_FILES_MAX) {
        struct entry *v = victim(k, false);
        if (!v) {
            return false;
        }
        unlink_files(k, v);
        drop_if_nowhere(k, v);
    }
    path_of(k, x, "state", path);
    int r = infer_state_save(x->st, path, &e);
    r = r ? r : read_sum(path, x->sum, &e);
    r = r ? r : write_ids(k, x, &e);
    if (r) {
        unlink(path);
        if (!k->trouble) {
            say(k, "states of conversations cannot be kept on disk: %s", e.msg);
        }
        k->trouble = true;
        return false;
    }
    k->trouble = false;
    x->on_disk = true;
    k->disk += x->bytes;
    return true;
}

static int read_ids(const char *path, struct entry *x)
{
    struct buf b;
    struct err e;
    uint8_t d[SHA256_SIZE];
    size_t line = strlen(IDS_MAGIC), head = line + sizeof x->sum;
    buf_init(&b, IDS_MAX);
    int r = file_read_all(path, &b, &e);
    if (!r && (b.n < head + sizeof d + 4 || (b.n - head - sizeof d) % 4 ||
               memcmp(b.p, IDS_MAGIC, line) != 0)) {
        r = ERR_FORMAT;
    }
    if (!r) {
        sha256(b.p, b.n - sizeof d, d);
        r = memcmp(d, b.p + b.n - sizeof d, sizeof d) ? ERR_DIGEST : 0;
    }
    if (!r) {
        memcpy(x->sum, b.p + line, sizeof x->sum);
        x->n = (b.n - head - sizeof d) / 4;
        x->ids = malloc(x->n * sizeof *x->ids);
        r = x->ids ? 0 : ERR_NOMEM;
        const uint8_t *p = (const uint8_t *)b.p + head;
        for (size_t i = 0; i < x->n && !r; i++, p += 4) {
            x->ids[i] = p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
        }
    }
    buf_free(&b);
    return r;
}

/* What a process that died left of a file it was writing: NAME.state.tmpPID, NAME.ids.tmpPID. */
static bool unfinished(const char *file)
{
    const char *rest = file + strspn(file, "0123456789abcdef");
    return rest == file + NAME - 1 &&
           (!strncmp(rest, ".state.tmp", 10) || !strncmp(rest, ".ids.tmp", 8));
}

static bool plain_file(const char *path, struct stat *sb)
{
    return lstat(path, sb) == 0 && S_ISREG(sb->st_mode);
}

/* One file of the folder: an entry is taken up, anything else of ours is removed. */
static void take_up(struct keep *k, const char *file, size_t *count)
{
    char path[PATH_ROOM], state[PATH_ROOM];
    size_t n = strlen(file);
    snprintf(path, sizeof path, "%s/%s", k->dir, file);
    if (unfinished(file)) {
        unlink(path);
        return;
    }
    if (n == NAME - 1 + 6 && !strcmp(file + NAME - 1, ".state")) {
        snprintf(state, sizeof state, "%s/%.*s.ids", k->dir, NAME - 1, file);
        if (access(state, F_OK) != 0) {
            unlink(path); /* a process died before it was whole */
        }
        return;
    }
    if (n != NAME - 1 + 4 || strcmp(file + NAME - 1, ".ids") != 0) {
        return;
    }
    struct entry *x = calloc(1, sizeof *x);
    char name[NAME];
    struct stat sb;
    if (!x) {
        return;
    }
    snprintf(x->name, sizeof x->name, "%.*s", NAME - 1, file);
    path_of(k, x, "state", state);
    int r = *count >= KEEP_FILES_MAX ? ERR_LIMIT
            : plain_file(path, &sb)  ? read_ids(path, x)
                                     : ERR_FORMAT;
    if (!r) {
        name_of(x->ids, x->n, name);
        r = strcmp(name, x->name) ? ERR_DIGEST : 0;
    }
    if (r || !plain_file(state, &sb)) {
        unlink(path);
        unlink(state);
        free(x->ids);
        free(x);
        return;
    }
    x->bytes = (uint64_t)sb.st_size;
    store_since_before(infer_store(k->o.f), &x->since);
    x->on_disk = true;
    k->disk += x->bytes;
    struct entry **at = &k->list; /* order of the files' times: the newest first */
    while (*at && (*at)->hits > (uint32_t)sb.st_mtime) {
        at = &(*at)->next;
    }
    x->hits = (uint32_t)sb.st_mtime;
    x->next = *at;
    *at = x;
    ++*count;
}

static void open_dir(struct keep *k)
{
    struct err e = {0};
    size_t count = 0;
    int r = file_mkdirs(k->dir, &e);
    DIR *d = NULL;
    if (!r) {
        chmod(k->dir, 0700);
        d = opendir(k->dir);
    }
    if (!d) {
        say(k, "states of conversations are not kept on disk: %s cannot be used", k->dir);
        free(k->dir);
        k->dir = NULL;
        return;
    }
    for (struct dirent *f; (f = readdir(d));) {
        take_up(k, f->d_name, &count);
    }
    closedir(d);
    for (struct entry *x = k->list; x; x = x->next) {
        x->hits = 0; /* it held the time of the file, for the order */
    }
    while (k->disk > k->o.disk) {
        struct entry *v = victim(k, false);
        unlink_files(k, v);
        drop_if_nowhere(k, v);
    }
}

/* ---- the contract ---- */

int keep_open(const struct keep_opts *o, struct keep **out, struct err *e)
{
    struct keep *k = calloc(1, sizeof *k);
    *out = NULL;
    if (k && o->dir && o->disk) {
        k->dir = strdup(o->dir);
    }
    if (!k || (o->dir && o->disk && !k->dir)) {
        free(k);
        return err_set(e, ERR_NOMEM, "out of memory");
    }
    k->o = *o;
    k->backs = store_backs(infer_store(o->f));
    if (k->dir && strlen(k->dir) > PATH_ROOM - 60) {
        say(k, "states of conversations are not kept on disk: the path is too long");
        free(k->dir);
        k->dir = NULL;
    }
    if (k->dir) {
        open_dir(k);
    }
    *out = k;
    return 0;
}

void keep_close(struct keep *k)
{
    if (!k) {
        return;
    }
    while (keep_write_one(k)) {
    }
    while (k->list) {
        struct entry *x = k->list;
        k->list = x->next;
        free_entry(k, x);
    }
    free(k->dir);
    free(k);
}

/* Room in RAM for so many bytes more; what leaves goes to disk. False: more than all there is. */
static bool make_room(struct keep *k, uint64_t bytes, const struct entry *but)
{
    if (bytes > k->o.ram) {
        return false;
    }
    while (k->ram + bytes > k->o.ram) {
        struct entry *v = victim(k, true);
        if (!v || v == but) {
            return false;
        }
        bool spare = superfluous(k, v);
        if (!spare) {
            write_entry(k, v);
        }
        infer_state_free(v->st);
        v->st = NULL;
        k->ram -= v->bytes;
        drop_if_nowhere(k, v);
    }
    return true;
}

static void quarantine(struct keep *k, struct entry *x, const struct err *e)
{
    char from[PATH_ROOM], to[PATH_ROOM];
    say(k, "a kept state is put aside: %s", e->msg);
    path_of(k, x, "ids", from);
    unlink(from);
    path_of(k, x, "state", from);
    snprintf(to, sizeof to, "%s/bad.state", k->dir); /* the last one, to be looked at */
    if (rename(from, to) != 0) {
        unlink(from);
    }
    x->on_disk = false;
    k->disk -= x->bytes;
    drop_if_nowhere(k, x);
}

static struct infer_state *copy_of(struct keep *k, struct entry *x, bool *failed)
{
    struct infer_state *st = NULL;
    struct err e = {0};
    *failed = false;
    if (x->st) {
        if (infer_state_copy(x->st, &st, &e)) {
            say(k, "a kept state cannot be used: %s", e.msg);
        }
        return st;
    }
    char path[PATH_ROOM];
    uint8_t sum[SHA256_SIZE];
    path_of(k, x, "state", path);
    int r = read_sum(path, sum, &e);
    if (!r && memcmp(sum, x->sum, sizeof sum) != 0) {
        r = err_set(&e, ERR_DIGEST, "%s is not the state of its list of ids", path);
    }
    r = r ? r : infer_state_load(k->o.f, path, &st, &e);
    if (!r && infer_state_pos(st) != x->n) {
        r = err_set(&e, ERR_FORMAT, "%s holds another position than its list of ids", path);
        infer_state_free(st);
        st = NULL;
    }
    if (r) {
        *failed = r != ERR_NOMEM;
        if (*failed) {
            quarantine(k, x, &e);
        }
        return NULL;
    }
    infer_state_set_since(st, x->since);
    return st;
}

/* States that rest on bytes that the store has taken back are of no use to anybody. */
static void drop_spoilt(struct keep *k)
{
    struct err e;
    for (struct entry *x = k->list, *next; x; x = next) {
        next = x->next;
        if (store_spoilt(infer_store(k->o.f), &x->since, &e)) {
            say(k, "the kept state of %zu tokens is thrown away: %s", x->n, e.msg);
            unlink_files(k, x);
            take_out(k, x);
            free_entry(k, x);
        }
    }
}

struct infer_state *keep_find(struct keep *k, const uint32_t *ids, size_t n, size_t *used)
{
    *used = 0;
    uint64_t backs = store_backs(infer_store(k->o.f));
    if (backs != k->backs) {
        k->backs = backs;
        drop_spoilt(k);
    }
    for (;;) {
        struct entry *best = NULL;
        for (struct entry *x = k->list; x; x = x->next) {
            if (x->n < n && (!best || x->n > best->n) && begins(x, ids, n)) {
                best = x;
            }
        }
        if (!best) {
            return NULL;
        }
        bool failed;
        struct infer_state *st = copy_of(k, best, &failed);
        if (st) {
            *used = best->n;
            best->hits++;
            k->hits++;
            to_front(k, best);
            return st;
        }
        if (!failed) {
            return NULL;
        }
    }
}

static struct entry *exact(const struct keep *k, const uint32_t *ids, size_t n)
{
    for (struct entry *x = k->list; x; x = x->next) {
        if (x->n == n && begins(x, ids, n)) {
            return x;
        }
    }
    return NULL;
}

bool keep_has(const struct keep *k, const uint32_t *ids, size_t n)
{
    return exact(k, ids, n) != NULL;
}

void keep_put(struct keep *k, const uint32_t *ids, size_t n, const struct infer_state *st)
{
    struct entry *x = exact(k, ids, n);
    struct err e = {0};
    if (n < KEEP_SHORTEST || k->o.ram == 0) {
        return;
    }
    if (x) {
        to_front(k, x);
        return;
    }
    uint64_t bytes = infer_state_bytes(k->o.f, (uint32_t)n);
    x = calloc(1, sizeof *x);
    if (x) {
        x->ids = malloc(n * sizeof *ids);
    }
    if (!x || !x->ids || !make_room(k, bytes, NULL) || infer_state_copy(st, &x->st, &e)) {
        if (x) {
            free(x->ids);
        }
        free(x);
        return;
    }
    memcpy(x->ids, ids, n * sizeof *ids);
    x->n = n;
    x->since = infer_state_since(st);
    x->bytes = bytes;
    name_of(ids, n, x->name);
    k->ram += bytes;
    x->next = k->list;
    k->list = x;
}

bool keep_write_one(struct keep *k)
{
    for (struct entry *x = k->list; x && !k->trouble; x = x->next) {
        if (x->st && !x->on_disk && !superfluous(k, x) && k->disk + x->bytes <= k->o.disk &&
            on_disk(k) < KEEP_FILES_MAX && write_entry(k, x)) {
            return true;
        }
    }
    return false;
}

int keep_forget(struct keep *k, struct err *e)
{
    char path[PATH_ROOM];
    int r = 0;
    while (k->list) {
        struct entry *x = k->list;
        path_of(k, x, "ids", path);
        bool was = x->on_disk;
        unlink_files(k, x);
        if (was && access(path, F_OK) == 0) {
            r = err_set(e, ERR_IO, "%s cannot be removed", path);
        }
        take_out(k, x);
        free_entry(k, x);
    }
    if (k->dir) {
        snprintf(path, sizeof path, "%s/bad.state", k->dir);
        unlink(path);
    }
    return r;
}

void keep_get_stats(const struct keep *k, struct keep_stats *out)
{
    memset(out, 0, sizeof *out);
    for (const struct entry *x = k->list; x; x = x->next) {
        out->ram += x->st != NULL;
        out->disk += x->on_disk;
    }
    out->ram_bytes = k->ram;
    out->disk_bytes = k->disk;
    out->hits = k->hits;
}
