/* SPDX-License-Identifier: MIT
 * fuzz_frame.c: what a member may send inside TLS: any bytes, in pieces of any size. Frames are
 * read, messages decoded; one that decodes must encode, and decode again to the same bytes. The
 * first byte chooses the size of the pieces and whether the sender is a guest. */
#include "peer/codec.h"
#include "peer/frame.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void message(const struct frame *f)
{
    struct codec_msg m, again;
    struct buf b, b2;
    struct err e = {0};
    if (codec_decode(f->body, f->body_n, f->raw_n, &m, &e)) {
        return;
    }
    if (m.f->kind_case == SHOAL__FRAME__KIND__NOT_SET) {
        codec_free(&m);
        return;
    }
    buf_init(&b, WIRE_BODY_MAX);
    buf_init(&b2, WIRE_BODY_MAX);
    /* Sparse numbers take more room when written again: only the length may refuse then. */
    if (codec_encode(m.f, f->raw_n, &b, &e) == 0) {
        if (codec_decode((uint8_t *)b.p, b.n, f->raw_n, &again, &e) ||
            codec_encode(again.f, f->raw_n, &b2, &e) || b.n != b2.n || memcmp(b.p, b2.p, b.n)) {
            abort();
        }
        codec_free(&again);
    }
    codec_free(&m);
    buf_free(&b);
    buf_free(&b2);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1) {
        return 0;
    }
    size_t piece = (data[0] & 0x7f) + 1u;
    struct frame_reader r;
    struct err e = {0};
    frame_reader_init(&r, data[0] & 0x80 ? WIRE_BODY_GUEST : WIRE_BODY_MAX,
                      data[0] & 0x80 ? 0 : WIRE_RAW_MAX);
    data++;
    size--;
    while (size) {
        size_t want = 0;
        uint8_t *to = frame_reader_want(&r, &want, &e);
        if (!to) {
            break;
        }
        size_t k = want < size ? want : size;
        k = k < piece ? k : piece;
        memcpy(to, data, k);
        struct frame *f = frame_reader_got(&r, k);
        if (f) {
            message(f);
            frame_free(f);
        }
        data += k;
        size -= k;
    }
    frame_reader_free(&r);
    return 0;
}
