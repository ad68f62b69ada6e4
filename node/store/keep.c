/* SPDX-License-Identifier: MIT
 * keep.c: see engine.h: an expert that is in RAM and not on disk, where somebody wants it: its file
 * went for another's, or it came while the disk was full. It is written from the bytes in RAM, if
 * they are those whose digest is on record; else they leave RAM, and it is fetched as ever. Experts
 * alone stay in RAM, and the hook does not rewrite them (store.h: the digest would show it). */
#include "node/store/engine.h"

#include "node/store/disk.h"

void keep_start(struct store *st, struct entry *en)
{
    uint32_t id = eng_id(st, en);
    uint8_t none[1][SHA256_SIZE];
    enum basis b;
    if (!st->disk || en->state != ENT_READY || en->publishing || !eng_is_expert(st, id) ||
        disk_look(st->disk, id)) {
        return;
    }
    if (!disk_digests(st->disk, id, 0, 0, none, &b, NULL)) {
        if (eng_can_fetch(st)) {
            eng_take_back(st, en);
        }
        return;
    }
    eng_pin(st, en); /* so it is in no list */
    en->publishing = true;
    eng_list_push(&st->keep, en);
    pthread_cond_signal(&st->work);
}

/* Without mu. */
static int write_out(struct store *st, uint32_t id, bool second, const struct ram_slot *s,
                     struct disk_file **f, struct err *e)
{
    uint32_t n = chunk_count(s->size);
    int r = second ? disk_begin_second(st->disk, id, f, e) : disk_begin(st->disk, id, NULL, f, e);
    while (!r && (*f)->done < n) {
        size_t len = chunk_len(s->size, (*f)->done);
        const uint8_t *p = s->p + (size_t)(*f)->done * CHUNK_SIZE;
        struct chunk_sum sum;
        chunk_sum(p, len, &sum);
        r = disk_chunk(st->disk, *f, p, len, &sum, e);
    }
    r = r ? r : disk_digest_again(st->disk, *f, e);
    if (r && *f) {
        disk_abandon(st->disk, *f, false);
        *f = NULL;
    }
    return r;
}

bool keep_next(struct store *st)
{
    struct entry *en = st->keep.head;
    if (!en) {
        return false;
    }
    struct disk_file *f = NULL;
    struct err e = {0};
    int r = ERR_CANCELLED;
    eng_list_cut(&st->keep, en);
    if (!st->closing) {
        bool second = en->second;
        pthread_mutex_unlock(&st->mu);
        r = write_out(st, eng_id(st, en), second, en->slot, &f, &e);
        if (r == ERR_DIGEST) {
            eng_log(st, "%s; it is fetched again when it is wanted", e.msg);
        } else if (r) {
            eng_disk_trouble(st, &e);
        }
        pthread_mutex_lock(&st->mu);
    }
    en->publishing = false;
    if (!r) {
        worker_publish(st, f);
    }
    eng_unpin(st, en, r == ERR_DIGEST);
    return true;
}
