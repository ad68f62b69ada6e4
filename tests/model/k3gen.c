/* SPDX-License-Identifier: MIT
 * k3gen.c: see k3gen.h. */
#include "model/k3gen.h"

#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { F32, BF16, U8 }; /* the order of the data section */
static const char *const dtype_names[] = {"F32", "BF16", "U8"};
static const unsigned dtype_sizes[] = {4, 2, 1};

struct shape {
    const char *suffix;
    int dtype;
    unsigned n, d[4];
};

/* Suffixes of full names, as published; g_proj and the like are alike in both kinds of layer. */
static const struct shape shapes[] = {
    {"experts.w1.weight_packed", U8, 2, {3072, 1792}},
    {"experts.w1.weight_scale", U8, 2, {3072, 112}},
    {"experts.w2.weight_packed", U8, 2, {3584, 1536}},
    {"experts.w2.weight_scale", U8, 2, {3584, 96}},
    {"experts.w3.weight_packed", U8, 2, {3072, 1792}},
    {"experts.w3.weight_scale", U8, 2, {3072, 112}},
    {"block_sparse_moe.gate.e_score_correction_bias", F32, 1, {896}},
    {"self_attn.A_log", F32, 1, {128}},
    {"self_attn.dt_bias", F32, 1, {12288}},
    {"self_attn.k_conv1d.weight", F32, 3, {12288, 1, 4}},
    {"self_attn.o_norm.weight", F32, 1, {128}},
    {"self_attn.q_conv1d.weight", F32, 3, {12288, 1, 4}},
    {"self_attn.v_conv1d.weight", F32, 3, {12288, 1, 4}},
    {"block_sparse_moe.gate.weight", BF16, 2, {896, 7168}},
    {"block_sparse_moe.routed_expert_down_proj.weight", BF16, 2, {3584, 7168}},
    {"block_sparse_moe.routed_expert_norm.weight", BF16, 1, {3584}},
    {"block_sparse_moe.routed_expert_up_proj.weight", BF16, 2, {7168, 3584}},
    {"block_sparse_moe.shared_experts.down_proj.weight", BF16, 2, {7168, 6144}},
    {"block_sparse_moe.shared_experts.gate_proj.weight", BF16, 2, {6144, 7168}},
    {"block_sparse_moe.shared_experts.up_proj.weight", BF16, 2, {6144, 7168}},
    {"input_layernorm.weight", BF16, 1, {7168}},
    {"mlp_res_norm.weight", BF16, 1, {7168}},
    {"mlp_res_proj.weight", BF16, 2, {1, 7168}},
    {"post_attention_layernorm.weight", BF16, 1, {7168}},
    {"self_attention_res_norm.weight", BF16, 1, {7168}},
    {"self_attention_res_proj.weight", BF16, 2, {1, 7168}},
    {"self_attn.b_proj.weight", BF16, 2, {96, 7168}},
    {"self_attn.f_a_proj.weight", BF16, 2, {128, 7168}},
    {"self_attn.f_b_proj.weight", BF16, 2, {12288, 128}},
    {"self_attn.g_proj.weight", BF16, 2, {12288, 7168}},
    {"self_attn.k_proj.weight", BF16, 2, {12288, 7168}},
    {"self_attn.o_proj.weight", BF16, 2, {7168, 12288}},
    {"self_attn.q_proj.weight", BF16, 2, {12288, 7168}},
    {"self_attn.v_proj.weight", BF16, 2, {12288, 7168}},
    {"self_attn.kv_a_layernorm.weight", BF16, 1, {512}},
    {"self_attn.kv_a_proj_with_mqa.weight", BF16, 2, {576, 7168}},
    {"self_attn.kv_b_proj.weight", BF16, 2, {24576, 512}},
    {"self_attn.q_a_layernorm.weight", BF16, 1, {1536}},
    {"self_attn.q_a_proj.weight", BF16, 2, {1536, 7168}},
    {"self_attn.q_b_proj.weight", BF16, 2, {18432, 1536}},
    {"mlp.down_proj.weight", BF16, 2, {7168, 33792}},
    {"mlp.gate_proj.weight", BF16, 2, {33792, 7168}},
    {"mlp.up_proj.weight", BF16, 2, {33792, 7168}},
    {"language_model.lm_head.weight", BF16, 2, {163840, 7168}},
    {"language_model.model.embed_tokens.weight", BF16, 2, {163840, 7168}},
    {"language_model.model.norm.weight", BF16, 1, {7168}},
    {"language_model.model.output_attn_res_norm.weight", BF16, 1, {7168}},
    {"language_model.model.output_attn_res_proj.weight", BF16, 2, {1, 7168}},
    {"mm_projector.proj.0.weight", BF16, 2, {4096, 4096}},
    {"mm_projector.proj.2.weight", BF16, 2, {7168, 4096}},
    {"mm_projector.post_norm.weight", BF16, 1, {7168}},
    {"vision_tower.encoder.final_layernorm.weight", BF16, 1, {1024}},
    {"vision_tower.patch_embed.proj.weight", BF16, 4, {1024, 3, 14, 14}},
    {"vision_tower.patch_embed.pos_emb.weight", BF16, 3, {64, 64, 1024}},
    {"vision.blocks.wqkv.weight", BF16, 2, {4608, 1024}},
    {"vision.blocks.wo.weight", BF16, 2, {1024, 1536}},
    {"vision.blocks.mlp.fc0.weight", BF16, 2, {4096, 1024}},
    {"vision.blocks.mlp.fc1.weight", BF16, 2, {1024, 4096}},
    {"vision.blocks.norm0.weight", BF16, 1, {1024}},
    {"vision.blocks.norm1.weight", BF16, 1, {1024}},
};

static const struct shape *shape_of(const char *name)
{
    char key[160];
    unsigned l, x;
    int at = 0;
    const char *p = name;
    if (sscanf(name, "language_model.model.layers.%u.block_sparse_moe.experts.%u.%n", &l, &x,
               &at) == 2 &&
        at) {
        snprintf(key, sizeof key, "experts.%s", name + at);
        p = key;
    } else if (sscanf(name, "language_model.model.layers.%u.%n", &l, &at) == 1 && at) {
        p = name + at;
    } else if (sscanf(name, "vision_tower.encoder.blocks.%u.%n", &l, &at) == 1 && at) {
        snprintf(key, sizeof key, "vision.blocks.%s", name + at);
        p = key;
    }
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        if (strcmp(p, shapes[i].suffix) == 0) {
            return &shapes[i];
        }
    }
    return NULL;
}

struct tensor {
    char *name;
    const struct shape *s;
};

struct shard {
    struct tensor *t;
    size_t n, cap;
};

static int by_place(const void *a, const void *b)
{
    const struct tensor *x = a, *y = b;
    return x->s->dtype != y->s->dtype ? x->s->dtype - y->s->dtype : strcmp(x->name, y->name);
}

static uint64_t bytes_of(const struct shape *s)
{
    uint64_t n = dtype_sizes[s->dtype];
    for (unsigned i = 0; i < s->n; i++) {
        n *= s->d[i];
    }
    return n;
}

static void count(struct k3_totals *t, const struct tensor *x)
{
    uint64_t n = bytes_of(x->s);
    bool expert = x->s->dtype == U8, text = strncmp(x->name, "language_model.", 15) == 0;
    t->tensors++;
    *(expert ? &t->expert_tensors : text ? &t->spine_tensors : &t->vision_tensors) += 1;
    *(expert ? &t->expert_bytes : text ? &t->spine_bytes : &t->vision_bytes) += n;
}

static int write_shard(const char *dir, int i, struct shard *sh, struct k3_totals *t)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/model-%05d-of-%06d.safetensors", dir, i + 1, K3_SHARDS);
    FILE *f = fopen(path, "wb");
    if (!f) {
        perror(path);
        return 1;
    }
    qsort(sh->t, sh->n, sizeof *sh->t, by_place);
    fwrite("\0\0\0\0\0\0\0", 1, 8, f);
    uint64_t at = 0, n = 0;
    n += (uint64_t)fprintf(f, "{");
    for (size_t k = 0; k < sh->n; k++) {
        const struct shape *s = sh->t[k].s;
        n += (uint64_t)fprintf(f, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[", k ? "," : "",
                               sh->t[k].name, dtype_names[s->dtype]);
        for (unsigned d = 0; d < s->n; d++) {
            n += (uint64_t)fprintf(f, "%s%u", d ? "," : "", s->d[d]);
        }
        n += (uint64_t)fprintf(f, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)at,
                               (unsigned long long)(at + bytes_of(s)));
        at += bytes_of(s);
        count(t, &sh->t[k]);
    }
    n += (uint64_t)fprintf(f, "}");
    for (; n % 8; n++) {
        fputc(' ', f);
    }
    rewind(f);
    for (int b = 0; b < 8; b++) {
        fputc((int)(n >> 8 * b & 255), f);
    }
    t->header_bytes += n;
    int bad = fflush(f) != 0 || ftruncate(fileno(f), (off_t)(8 + n + at)) != 0;
    if (bad) {
        perror(path);
    }
    return fclose(f) != 0 || bad;
}

static int copy_small(const char *data, const char *dir, const char *name)
{
    char path[4096];
    static char bytes[1 << 16];
    snprintf(path, sizeof path, "%s/%s", data, name);
    FILE *in = fopen(path, "rb");
    size_t n = in ? fread(bytes, 1, sizeof bytes, in) : 0;
    if (in) {
        fclose(in);
    }
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *out = fopen(path, "wb");
    int bad = n == 0 || !out || fwrite(bytes, 1, n, out) != n;
    if (out) {
        bad |= fclose(out) != 0;
    }
    if (bad) {
        fprintf(stderr, "cannot copy %s from %s to %s\n", name, data, dir);
    }
    return bad;
}

/* Copy the index and sort its names into shards. */
static int read_index(const char *data, const char *dir, struct shard sh[K3_SHARDS])
{
    char cmd[4200], path[4096], line[1024];
    snprintf(cmd, sizeof cmd, "gzip -dc '%s/index.json.gz'", data);
    snprintf(path, sizeof path, "%s/model.safetensors.index.json", dir);
    FILE *in = popen(cmd, "r"), *out = fopen(path, "wb");
    int bad = !in || !out;
    while (!bad && fgets(line, sizeof line, in)) {
        fputs(line, out);
        char name[256];
        unsigned shard;
        if (sscanf(line, " \"%255[^\"]\": \"model-%5u-of-000096.safetensors\"", name, &shard) !=
            2) {
            continue;
        }
        struct tensor t = {strdup(name), shape_of(name)};
        if (!t.name || !t.s || shard < 1 || shard > K3_SHARDS) {
            fprintf(stderr, "no published shape for %s\n", name);
            free(t.name);
            bad = 1;
            break;
        }
        struct shard *s = &sh[shard - 1];
        if (s->n == s->cap) {
            s->cap = s->cap ? 2 * s->cap : 64;
            struct tensor *p = realloc(s->t, s->cap * sizeof *p);
            if (!p) {
                abort();
            }
            s->t = p;
        }
        s->t[s->n++] = t;
    }
    bad |= out && fclose(out) != 0;
    if (in && pclose(in) != 0) {
        fprintf(stderr, "%s failed\n", cmd);
        bad = 1;
    }
    return bad;
}

int k3gen(const char *data, const char *dir, struct k3_totals *t)
{
    static const char *const small[] = {"config.json", "generation_config.json",
                                        "tokenizer_config.json"};
    static struct shard sh[K3_SHARDS];
    memset(sh, 0, sizeof sh);
    *t = (struct k3_totals){0};
    int bad = read_index(data, dir, sh);
    for (size_t i = 0; !bad && i < sizeof small / sizeof *small; i++) {
        bad = copy_small(data, dir, small[i]);
    }
    for (int i = 0; i < K3_SHARDS; i++) {
        bad = bad || write_shard(dir, i, &sh[i], t);
        for (size_t k = 0; k < sh[i].n; k++) {
            free(sh[i].t[k].name);
        }
        free(sh[i].t);
    }
    return bad;
}

void k3gen_remove(const char *dir)
{
    char path[4096];
    DIR *d = opendir(dir);
    for (struct dirent *f; d && (f = readdir(d));) {
        if (f->d_name[0] != '.') {
            snprintf(path, sizeof path, "%s/%s", dir, f->d_name);
            unlink(path);
        }
    }
    if (d) {
        closedir(d);
    }
    rmdir(dir);
}
