/* SPDX-License-Identifier: MIT
 * evil_peer.c: a member that misbehaves, as a program: it holds all objects of a model's folder.
 * usage: evil_peer HOME MODEL-FOLDER VICE AFTER [ARG]
 * Prints its port. Reads commands of one letter from standard input: "a" begins the vice (AFTER
 * "armed": not before that), "s" prints numbers; at the end of input it prints them and ends. */
#include "tests/faults/evil.h"

#include "node/model/model.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct holdings {
    struct model *m;
    int *shards; /* descriptors */
    struct object_key *keys;
};

/* As share.h of the store: an expert is (0, layer, expert), a spine object (1, 0, its number). */
static const struct model_object *object(void *ctx, struct object_key k)
{
    const struct holdings *h = ctx;
    uint32_t id = k.kind == 0   ? model_expert_id(h->m, k.layer, k.index)
                  : k.kind == 1 ? k.index
                                : MODEL_NONE;
    if (id == MODEL_NONE || id >= model_object_count(h->m)) {
        return NULL;
    }
    const struct model_object *o = model_object(h->m, id);
    return (k.kind == 1) == (o->kind == MODEL_SPINE) ? o : NULL;
}

static bool src_size(void *ctx, struct object_key k, uint64_t *size)
{
    const struct model_object *o = object(ctx, k);
    *size = o ? o->size : 0;
    return o != NULL;
}

static void src_read(void *ctx, struct object_key k, uint32_t chunk, uint8_t *p, size_t n)
{
    const struct holdings *h = ctx;
    const struct model_object *o = object(ctx, k);
    uint64_t at = (uint64_t)chunk * STORAGE_CHUNK;
    if (!o || at + n > o->size ||
        pread(h->shards[o->shard], p, n, (off_t)(o->offset + at)) != (ssize_t)n) {
        fprintf(stderr, "evil_peer: an object cannot be read\n");
        abort();
    }
}

static bool open_model(const char *dir, struct holdings *h, struct err *e)
{
    struct model_source src;
    if (model_folder_open(dir, &src, e)) {
        return false;
    }
    int r = model_open(&src, &h->m, e);
    model_folder_close(&src);
    if (r) {
        return false;
    }
    uint32_t n = model_object_count(h->m);
    h->shards = calloc(model_shard_count(h->m), sizeof *h->shards);
    h->keys = calloc(n, sizeof *h->keys);
    for (uint32_t i = 0; h->shards && i < model_shard_count(h->m); i++) {
        char path[4096];
        snprintf(path, sizeof path, "%s/%s", dir, model_shard(h->m, i)->file);
        h->shards[i] = open(path, O_RDONLY | O_CLOEXEC);
        if (h->shards[i] < 0) {
            err_set(e, ERR_IO, "%s cannot be opened", path);
            return false;
        }
    }
    for (uint32_t i = 0; h->keys && i < n; i++) {
        const struct model_object *o = model_object(h->m, i);
        h->keys[i] = o->kind == MODEL_EXPERT ? (struct object_key){0, (uint16_t)o->layer, o->index}
                                             : (struct object_key){1, 0, i};
    }
    return h->shards && h->keys;
}

static void print_stats(struct evil *v)
{
    struct evil_stats st;
    evil_get_stats(v, &st);
    printf("%llu %llu %llu %llu %llu %llu\n", (unsigned long long)st.conns,
           (unsigned long long)st.gets, (unsigned long long)st.chunks, (unsigned long long)st.vices,
           (unsigned long long)st.told, (unsigned long long)st.pulled);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    struct holdings h = {0};
    struct err e = {0};
    char c, *end = NULL;
    if (argc < 5 || argc > 7 || evil_by_word(argv[3]) == EVIL_COUNT) {
        fprintf(stderr, "usage: evil_peer HOME MODEL-FOLDER VICE AFTER|armed [ARG [falsely]]\n");
        return 2;
    }
    if (!open_model(argv[2], &h, &e)) {
        fprintf(stderr, "evil_peer: %s\n", e.msg);
        return 1;
    }
    const struct evil_source src = {&h,       model_root(h.m), h.keys, model_object_count(h.m),
                                    src_size, src_read};
    struct evil_opts o = {.home = argv[1],
                          .source = &src,
                          .vice = evil_by_word(argv[3]),
                          .armed = strcmp(argv[4], "armed") == 0,
                          .die = true};
    if (!o.armed) {
        o.after = (unsigned)strtoul(argv[4], &end, 10);
    }
    if (argc >= 6) {
        o.arg = (int)strtol(argv[5], &end, 10);
    }
    if (argc == 7 && strcmp(argv[6], "falsely") == 0) {
        o.signs = EVIL_SIGNS_FALSELY;
    }
    struct evil *v = evil_start(&o);
    printf("%d\n", evil_port(v));
    fflush(stdout);
    while (read(0, &c, 1) == 1) {
        if (c == 'a') {
            evil_arm(v);
        } else if (c == 's') {
            print_stats(v);
        }
    }
    print_stats(v);
    evil_stop(v);
    for (uint32_t i = 0; i < model_shard_count(h.m); i++) {
        close(h.shards[i]);
    }
    model_close(h.m);
    free(h.shards);
    free(h.keys);
    return 0;
}
