/* SPDX-License-Identifier: MIT
 * frame.c: see frame.h. */
#include "peer/frame.h"

#include "proto/base/num.h"

#include <stdlib.h>
#include <string.h>

enum { PART_HEAD, PART_BODY, PART_RAW, PART_BROKEN };

int frame_head(uint8_t out[WIRE_HEAD], size_t body_n, size_t raw_n)
{
    if (body_n < 1 || body_n > WIRE_BODY_MAX || raw_n > WIRE_RAW_MAX) {
        return ERR_LIMIT;
    }
    num_put_le32(out, (uint32_t)body_n);
    num_put_le32(out + 4, (uint32_t)raw_n);
    return 0;
}

void frame_reader_init(struct frame_reader *r, uint32_t body_max, uint32_t raw_max)
{
    memset(r, 0, sizeof *r);
    r->body_max = body_max;
    r->raw_max = raw_max;
}

void frame_reader_free(struct frame_reader *r)
{
    frame_free(r->f);
    r->f = NULL;
}

void frame_free(struct frame *f)
{
    if (f) {
        free(f->raw);
        free(f);
    }
}

/* The head is complete: check it, then take the memory it asks for. */
static int begin_body(struct frame_reader *r, struct err *e)
{
    uint32_t body_n = num_get_le32(r->head), raw_n = num_get_le32(r->head + 4);
    if (body_n == 0) {
        return err_set(e, ERR_FORMAT, "the peer sent a frame without a body");
    }
    if (body_n > r->body_max) {
        return err_set(e, ERR_FORMAT,
                       "the peer announced a body of %u bytes, at most %u are allowed", body_n,
                       r->body_max);
    }
    if (raw_n > r->raw_max) {
        return err_set(e, ERR_FORMAT, "the peer announced %u raw bytes, at most %u are allowed",
                       raw_n, r->raw_max);
    }
    struct frame *f = malloc(sizeof *f + body_n);
    if (f) {
        memset(f, 0, sizeof *f);
        f->raw = raw_n ? malloc(raw_n) : NULL;
    }
    if (!f || (raw_n && !f->raw)) {
        free(f);
        return err_set(e, ERR_NOMEM, "no memory for a frame of %u bytes", body_n + raw_n);
    }
    f->body = (uint8_t *)(f + 1); /* written before it is read: not cleared */
    f->body_n = body_n;
    f->raw_n = raw_n;
    r->f = f;
    r->part = PART_BODY;
    r->got = 0;
    return 0;
}

uint8_t *frame_reader_want(struct frame_reader *r, size_t *n, struct err *e)
{
    if (r->part == PART_HEAD && r->got == WIRE_HEAD && begin_body(r, e)) {
        r->part = PART_BROKEN;
        return NULL;
    }
    switch (r->part) {
    case PART_HEAD:
        *n = WIRE_HEAD - r->got;
        return r->head + r->got;
    case PART_BODY:
        *n = r->f->body_n - r->got;
        return r->f->body + r->got;
    case PART_RAW:
        *n = r->f->raw_n - r->got;
        return r->f->raw + r->got;
    default:
        err_set(e, ERR_FORMAT, "the stream is broken");
        return NULL;
    }
}

struct frame *frame_reader_got(struct frame_reader *r, size_t n)
{
    if (r->part == PART_RAW) {
        sha256_add(&r->sha, r->f->raw + r->got, n); /* while the bytes are still in the cache */
    }
    r->got += (uint32_t)n;
    if (r->part == PART_BODY && r->got == r->f->body_n && r->f->raw_n) {
        sha256_init(&r->sha);
        r->part = PART_RAW;
        r->got = 0;
        return NULL;
    }
    if (r->part == PART_HEAD || r->part == PART_BROKEN ||
        r->got < (r->part == PART_BODY ? r->f->body_n : r->f->raw_n)) {
        return NULL;
    }
    struct frame *f = r->f;
    if (r->part == PART_RAW) {
        sha256_done(&r->sha, f->raw_sha256);
    }
    r->f = NULL;
    r->part = PART_HEAD;
    r->got = 0;
    return f;
}

bool frame_reader_idle(const struct frame_reader *r)
{
    return r->part == PART_HEAD && r->got == 0;
}

bool frame_reader_in_raw(const struct frame_reader *r)
{
    return r->part == PART_RAW;
}
