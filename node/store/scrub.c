/* SPDX-License-Identifier: MIT
 * scrub.c: see scrub.h. */
#include "node/store/scrub.h"

#include "node/store/layout.h"
#include "proto/base/file.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HEAD "shoal scrub 1"
#define SAVE_CHUNKS 256
#define SAVE_S 300

/* A decimal number and what is behind it; false: none, or too large. */
static bool number(const char **p, const char *end, uint64_t *out)
{
    uint64_t v = 0;
    const char *s = *p;
    while (s < end && *s >= '0' && *s <= '9') {
        if (v > (UINT64_MAX - 9) / 10) {
            return false;
        }
        v = v * 10 + (uint64_t)(*s++ - '0');
    }
    bool any = s != *p;
    *p = s;
    *out = v;
    return any;
}

void scrub_parse(struct scrub *s, const char *p, size_t n)
{
    const char *end = p + n;
    uint64_t v[6];
    memset(s, 0, sizeof *s);
    if (n < sizeof HEAD || memcmp(p, HEAD, sizeof HEAD - 1) != 0) {
        return;
    }
    p += sizeof HEAD - 1;
    for (int i = 0; i < 6; i++) {
        if (p == end || *p++ != ' ' || !number(&p, end, &v[i])) {
            return;
        }
    }
    if (p != end && *p == '\n' && v[0] < UINT32_MAX && v[1] < UINT32_MAX) {
        *s = (struct scrub){v[0], v[1], v[2], v[3], v[4], v[5], 0, 0};
    }
}

void scrub_load(struct scrub *s, const char *model_dir)
{
    char *path = layout_path("%s/scrub", model_dir);
    struct buf b;
    struct err e;
    buf_init(&b, 256);
    if (!path || file_read_all(path, &b, &e)) {
        buf_free(&b);
        buf_init(&b, 256);
    }
    scrub_parse(s, b.p ? b.p : "", b.n);
    buf_free(&b);
    free(path);
}

void scrub_save(struct scrub *s, const char *model_dir)
{
    char text[200], *path = layout_path("%s/scrub", model_dir);
    struct err e;
    int n =
        snprintf(text, sizeof text,
                 HEAD " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n",
                 s->id, s->chunk, s->started, s->done, s->rounds, s->bad);
    if (path && s->unsaved) { /* at worst some files are read twice */
        (void)file_write_atomic(path, text, (size_t)n, 0600, &e);
    }
    s->unsaved = 0;
    free(path);
}

bool scrub_due(struct scrub *s, uint64_t total, uint64_t period_s, uint64_t now)
{
    if (!period_s || !total) {
        return false;
    }
    bool over = s->started && now >= s->started + period_s && s->id == UINT32_MAX - 1;
    if (!s->started || s->started > now || over) {
        s->started = now;
        s->done = s->id = s->chunk = 0;
        s->unsaved++;
    }
    if (s->id == UINT32_MAX - 1) { /* this round is complete: the next begins in its own time */
        return false;
    }
    double share = (double)(now - s->started) / (double)period_s;
    return share >= 1 || (double)s->done < share * (double)total;
}

int scrub_step(struct scrub *s, struct disk *d, uint32_t *id, struct err *e)
{
    uint32_t chunks = 0, at = disk_own_next(d, (uint32_t)s->id, &chunks);
    if (at == MODEL_NONE) {
        s->id = UINT32_MAX - 1;
        s->rounds++;
        s->unsaved += SAVE_CHUNKS;
        return 0;
    }
    s->chunk = at == s->id && s->chunk < chunks ? s->chunk : 0;
    int r = disk_check_chunk(d, at, (uint32_t)s->chunk, e);
    bool bad = r == ERR_DIGEST || r == ERR_NOTFOUND || r == ERR_IO || r == ERR_FORMAT;
    *id = at;
    s->bad += bad;
    s->done++;
    s->unsaved++;
    s->id = at;
    s->chunk++;
    if (bad || s->chunk == chunks) {
        s->id = at + 1;
        s->chunk = 0;
    }
    return bad ? ERR_DIGEST : 0;
}
