/* SPDX-License-Identifier: MIT
 * t_k3.c: the released K3's inventory: 497,220 tensors in 96 shards, every header remade by k3gen,
 * every expert's place held against the published table and formulas. */
#include "model/k3gen.h"
#include "node/model/model.h"
#include "proto/base/file.h"
#include "proto/base/num.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DATA SHOAL_TEST_DIR "/model/data/k3"
#define LAYERS 93
#define EXPERTS 896
#define EXPERT_BYTES 17547264ull

struct fix {
    char dir[64];
    struct k3_totals t;
    struct model_source src;
    struct model *m;
};

static int set_up(void **state)
{
    struct fix *f = calloc(1, sizeof *f);
    struct err e = {0};
    snprintf(f->dir, sizeof f->dir, "/tmp/shoal-k3-XXXXXX");
    if (!mkdtemp(f->dir) || k3gen(DATA, f->dir, &f->t)) {
        return -1;
    }
    if (model_folder_open(f->dir, &f->src, &e) || model_open(&f->src, &f->m, &e)) {
        print_error("%s\n", e.msg);
        return -1;
    }
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fix *f = *state;
    model_close(f->m);
    model_folder_close(&f->src);
    k3gen_remove(f->dir);
    free(f);
    return 0;
}

static void t_totals(void **state)
{
    struct fix *f = *state;
    assert_int_equal(f->t.tensors, 497220);
    assert_int_equal(f->t.expert_tensors, 494592);
    assert_int_equal(f->t.spine_tensors, 2460);
    assert_int_equal(f->t.vision_tensors, 168);
    assert_int_equal(f->t.vision_bytes, 894717952ull);
    assert_int_equal(model_expert_bytes(f->m), 1446456066048ull);
    assert_int_equal(model_spine_bytes(f->m), 113509540864ull);
    assert_int_equal(model_object_count(f->m), 2460 + 82432);
    assert_int_equal(model_shard_count(f->m), K3_SHARDS);
}

static void t_config(void **state)
{
    struct fix *f = *state;
    const struct model_config *c = model_config(f->m);
    assert_int_equal(c->n_layers, LAYERS);
    assert_int_equal(c->hidden, 7168);
    assert_int_equal(c->vocab, 163840);
    assert_int_equal(c->max_positions, 1048576);
    assert_true(c->rms_eps == 1e-5f && c->lora_eps == 1e-6f);
    assert_int_equal(c->heads, 96);
    assert_int_equal(c->q_rank, 1536);
    assert_int_equal(c->kv_rank, 512);
    assert_int_equal(c->nope, 128);
    assert_int_equal(c->rope, 64);
    assert_int_equal(c->vdim, 128);
    assert_int_equal(c->kda_heads, 96);
    assert_int_equal(c->kda_dim, 128);
    assert_int_equal(c->conv, 4);
    assert_true(c->gate_lower_bound == -5.0f);
    assert_int_equal(c->dense_inter, 33792);
    assert_int_equal(c->first_dense, 1);
    assert_int_equal(c->n_experts, EXPERTS);
    assert_int_equal(c->topk, 16);
    assert_int_equal(c->n_shared, 2);
    assert_int_equal(c->moe_inter, 3072);
    assert_int_equal(c->latent, 3584);
    assert_true(c->routed_scale == 1.0f && c->renormalize);
    assert_true(c->situ_beta == 4.0f && c->situ_linear_beta == 25.0f);
    assert_int_equal(c->attn_res_block, 12);
    assert_int_equal(c->bos, 163584);
    assert_int_equal(c->eos, 163586);
    assert_int_equal(c->pad, 163839);
    for (uint32_t l = 0; l < LAYERS; l++) {
        bool mla = l % 4 == 3 || l == 92;
        assert_int_equal(c->attn[l], mla ? MODEL_MLA : MODEL_KDA);
    }
}

/* Header lengths and file sizes: model, file on disk and the published table agree for all 96. */
static void t_shards(void **state)
{
    struct fix *f = *state;
    FILE *tsv = fopen(DATA "/shards.tsv", "r");
    assert_non_null(tsv);
    char line[256], name[64], path[256], skip[4][24];
    unsigned long long hlen, start, data, size;
    uint64_t all = 0;
    assert_non_null(fgets(line, sizeof line, tsv));
    for (uint32_t i = 0; i < K3_SHARDS; i++) {
        assert_non_null(fgets(line, sizeof line, tsv));
        assert_int_equal(sscanf(line, "%63s %llu %llu %23s %23s %23s %llu %llu", name, &hlen,
                                &start, skip[0], skip[1], skip[2], &data, &size),
                         8);
        const struct model_shard *s = model_shard(f->m, i);
        assert_string_equal(s->file, name);
        assert_int_equal(s->header_size, start);
        assert_int_equal(s->header_size, hlen + 8);
        assert_int_equal(s->size, size);
        assert_int_equal(s->size, start + data);
        struct stat st;
        snprintf(path, sizeof path, "%s/%s", f->dir, name);
        assert_int_equal(stat(path, &st), 0);
        assert_int_equal((uint64_t)st.st_size, size);
        all += size;
    }
    fclose(tsv);
    assert_int_equal(all, 1560936091448ull);
}

static int by_decimal(const void *a, const void *b)
{
    char x[16], y[16]; /* the data lies in ASCII order of the names "experts.<e>." */
    snprintf(x, sizeof x, "%d.", *(const int *)a);
    snprintf(y, sizeof y, "%d.", *(const int *)b);
    return strcmp(x, y);
}

/* Absolute offset of the first expert by kind of layer, as published. */
static uint64_t first_expert(uint32_t layer)
{
    bool mla = layer % 4 == 3 || layer == 92;
    return layer < 10 ? (mla ? 845153232ull : 1268562960ull) : (mla ? 845158632ull : 1268568368ull);
}

static void t_experts(void **state)
{
    struct fix *f = *state;
    const struct model_expert_layout *lay = model_expert_layout(f->m);
    assert_int_equal(lay->size, EXPERT_BYTES);
    assert_int_equal(lay->packed[0], 0);
    assert_int_equal(lay->scale[0], 5505024);
    assert_int_equal(lay->packed[1], 5849088);
    assert_int_equal(lay->scale[1], 11354112);
    assert_int_equal(lay->packed[2], 11698176);
    assert_int_equal(lay->scale[2], 17203200);
    int order[EXPERTS];
    for (int i = 0; i < EXPERTS; i++) {
        order[i] = i;
    }
    qsort(order, EXPERTS, sizeof *order, by_decimal);
    assert_int_equal(model_expert_id(f->m, 0, 0), MODEL_NONE);
    for (uint32_t l = 1; l < LAYERS; l++) {
        for (uint32_t k = 0; k < EXPERTS; k++) {
            uint32_t x = (uint32_t)order[k];
            uint32_t id = model_expert_id(f->m, l, x);
            assert_int_equal(id, 2460 + (l - 1) * EXPERTS + x);
            const struct model_object *o = model_object(f->m, id);
            assert_int_equal(o->kind, MODEL_EXPERT);
            assert_int_equal(o->layer, l);
            assert_int_equal(o->index, x);
            assert_int_equal(o->shard, l); /* shard l + 1, counted from 0 */
            assert_int_equal(o->size, EXPERT_BYTES);
            assert_int_equal(o->offset, first_expert(l) + k * EXPERT_BYTES);
        }
    }
    assert_int_equal(model_expert_id(f->m, 1, EXPERTS), MODEL_NONE);
    assert_int_equal(model_expert_id(f->m, LAYERS, 0), MODEL_NONE);
}

static void check_spine(const struct model *m, uint32_t layer, enum model_role role,
                        uint64_t offset, uint64_t size, enum model_dtype dtype)
{
    const struct model_object *o = model_object(m, model_spine_id(m, layer, role));
    assert_non_null(o);
    assert_int_equal(o->offset, model_shard(m, o->shard)->header_size + offset);
    assert_int_equal(o->size, size);
    assert_int_equal(o->dtype, dtype);
}

/* Places from the published tables, one of each section. */
static void t_spine(void **state)
{
    struct model *m = ((struct fix *)*state)->m;
    check_spine(m, 5, MODEL_KDA_ALOG, 3584, 512, MODEL_F32);
    check_spine(m, 5, MODEL_KDA_VCONV, 446976, 196608, MODEL_F32);
    check_spine(m, 5, MODEL_ROUTER, 643584, 12845056, MODEL_BF16);
    check_spine(m, 5, MODEL_KDA_V, 1091583488, 176160768, MODEL_BF16);
    check_spine(m, 92, MODEL_MLA_KVB, 564362752, 25165824, MODEL_BF16);
    check_spine(m, 92, MODEL_MLA_QB, 787712512, 56623104, MODEL_BF16);
    check_spine(m, 92, MODEL_ATTN_O, 589528576, 176160768, MODEL_BF16);
    check_spine(m, 0, MODEL_MLP_UP, 969538560, 484442112, MODEL_BF16);
    check_spine(m, 0, MODEL_ATTN_RES_PROJ, 1454038016, 14336, MODEL_BF16);
    check_spine(m, 0, MODEL_LM_HEAD, 0, 2348810240, MODEL_BF16);
    check_spine(m, 0, MODEL_EMBED, 2348810240, 2348810240, MODEL_BF16);
    check_spine(m, 0, MODEL_OUT_RES_PROJ, 4697649152, 14336, MODEL_BF16);
    assert_int_equal(model_spine_id(m, 0, MODEL_ROUTER), MODEL_NONE);
    assert_int_equal(model_spine_id(m, 1, MODEL_MLP_UP), MODEL_NONE);
    assert_int_equal(model_spine_id(m, 3, MODEL_KDA_Q), MODEL_NONE);
    uint32_t unread = 0;
    for (uint32_t id = 0; id < model_object_count(m); id++) {
        unread += model_unread(model_object(m, id));
    }
    assert_int_equal(unread, 2);
    assert_true(model_unread(model_object(m, model_spine_id(m, 0, MODEL_ATTN_RES_PROJ))));
    assert_false(model_unread(model_object(m, model_spine_id(m, 0, MODEL_MLP_RES_PROJ))));
    assert_false(model_unread(model_object(m, model_spine_id(m, 1, MODEL_ATTN_RES_PROJ))));
    char name[64];
    assert_string_equal(model_object_name(m, model_expert_id(m, 12, 345), name, sizeof name),
                        "expert 12/345");
    assert_string_equal(model_object_name(m, model_spine_id(m, 4, MODEL_KDA_Q), name, sizeof name),
                        "layer 4 self_attn.q_proj.weight");
    assert_string_equal(model_object_name(m, model_spine_id(m, 4, MODEL_EMBED), name, sizeof name),
                        "model.embed_tokens.weight");
}

/* From the saved inventory everything is as it was. */
static void t_saved(void **state)
{
    struct fix *f = *state;
    struct buf b;
    struct err e = {0};
    struct model *m;
    buf_init(&b, 1 << 24);
    assert_int_equal(model_save(f->m, &b, &e), 0);
    assert_true(b.n < 2 << 20);
    assert_int_equal(model_load(b.p, b.n, &m, &e), 0);
    assert_memory_equal(model_root(m), model_root(f->m), SHA256_SIZE);
    assert_int_equal(model_object_count(m), model_object_count(f->m));
    for (uint32_t i = 0; i < model_object_count(m); i++) {
        const struct model_object *x = model_object(m, i), *y = model_object(f->m, i);
        assert_true(x->offset == y->offset && x->size == y->size && x->shard == y->shard &&
                    x->layer == y->layer && x->index == y->index && x->kind == y->kind &&
                    x->dtype == y->dtype && memcmp(x->shape, y->shape, sizeof x->shape) == 0);
    }
    for (uint32_t i = 0; i < K3_SHARDS; i++) {
        assert_string_equal(model_shard(m, i)->file, model_shard(f->m, i)->file);
        assert_int_equal(model_shard(m, i)->size, model_shard(f->m, i)->size);
    }
    assert_memory_equal(model_expert_layout(m), model_expert_layout(f->m),
                        sizeof(struct model_expert_layout));
    assert_int_equal(model_expert_bytes(m), 1446456066048ull);
    assert_int_equal(model_spine_bytes(m), 113509540864ull);
    model_close(m);
    buf_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_totals),  cmocka_unit_test(t_config), cmocka_unit_test(t_shards),
        cmocka_unit_test(t_experts), cmocka_unit_test(t_spine),  cmocka_unit_test(t_saved),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
