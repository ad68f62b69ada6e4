/* SPDX-License-Identifier: MIT */
#include "peer/order.h"

#include "proto/base/num.h"

#include <string.h>

#define FRAC 40 /* bits behind the point of a logarithm */
#define WEIGHT_MAX ((uint64_t)1 << 31)

/* round(log2(1 + i / 256) * 2^40). Straight lines between two entries are off by at most
 * 1 / (8 * 256^2 * ln 2). */
static const uint64_t log2_table[257] = {
    0x00000000000, 0x001709c46d8, 0x002dfca16de, 0x0044d8c45ea, 0x005b9e5a171, 0x00724d8eea1,
    0x0088e68ea8a, 0x009f6984a34, 0x00b5d69bac7, 0x00cc2dfe1a5, 0x00e26fd5c85, 0x00f89c4c199,
    0x010eb389fa3, 0x0124b5b7e13, 0x013aa2fdd28, 0x01507b83603, 0x01663f6fac9, 0x017beee96b9,
    0x01918a16e46, 0x01a7111df35, 0x01bc84240ae, 0x01d1e34e35c, 0x01e72ec1180, 0x01fc66a0f0b,
    0x02118b119b5, 0x02269c36912, 0x023b9a32eaa, 0x0250852960f, 0x02655d3c4f1, 0x027a228db35,
    0x028ed53f308, 0x02a375720f5, 0x02b803473f8, 0x02cc7edf592, 0x02e0e85a9de, 0x02f53fd8fa1,
    0x0309857a05e, 0x031db95d06a, 0x0331dba0efd, 0x0345ec64641, 0x0359ebc5b6a, 0x036dd9e2ebf,
    0x0381b6d9bb3, 0x039582c78ee, 0x03a93dc9865, 0x03bce7fc763, 0x03d0817ce9d, 0x03e40a67241,
    0x03f782d7205, 0x040aeae8934, 0x041e42b6ec1, 0x04318a5d551, 0x0444c1f6b4c, 0x0457e99daec,
    0x046b016ca48, 0x047e097db62, 0x049101eac38, 0x04a3eacd6cd, 0x04b6c43f136, 0x04c98e58dad,
    0x04dc4933a93, 0x04eef4e8287, 0x0501918ec6c, 0x05141f3fb75, 0x05269e12f34, 0x05390e203a4,
    0x054b6f7f132, 0x055dc246cce, 0x0570068e7ef, 0x05823c6d0a5, 0x059463f919e, 0x05a67d49233,
    0x05b88873674, 0x05ca858df2f, 0x05dc74ae9fc, 0x05ee55eb147, 0x06002958c58, 0x0611ef0cf62,
    0x0623a71cb83, 0x0635519ced7, 0x0646eea247c, 0x06587e4149d, 0x066a008e479, 0x067b759d66d,
    0x068cdd829fe, 0x069e3851bdf, 0x06af861e5fc, 0x06c0c6fbf82, 0x06d1fafdce2, 0x06e32236fe2,
    0x06f43cba79e, 0x07054a9b093, 0x07164beb4a5, 0x072740bdb29, 0x073829248e9, 0x07490532030,
    0x0759d4f80cc, 0x076a9888819, 0x077b4ff5109, 0x078bfb4f426, 0x079c9aa879d, 0x07ad2e11f45,
    0x07bdb59cca4, 0x07ce3159ef3, 0x07dea15a32c, 0x07ef05ae40a, 0x07ff5e66a10, 0x080fab93b93,
    0x081fed45cbd, 0x0830238cf92, 0x08404e793fc, 0x08506e1a7c7, 0x086082806b2, 0x08708bbaa6c,
    0x088089d8a9e, 0x08907ce9cf1, 0x08a064fd50f, 0x08b042224af, 0x08c01467b95, 0x08cfdbdc799,
    0x08df988f4af, 0x08ef4a8ece6, 0x08fef1e9874, 0x090e8eaddb7, 0x091e20ea139, 0x092da8ac5ba,
    0x093d2602c2e, 0x094c98fb3c9, 0x095c01a39fc, 0x096b6009a81, 0x097ab43af5a, 0x0989fe450da,
    0x09993e355a5, 0x09a874192b8, 0x09b79ffdb6d, 0x09c6c1f017b, 0x09d5d9fd501, 0x09e4e832485,
    0x09f3ec9bcfc, 0x0a02e7469c8, 0x0a11d83f4c3, 0x0a20bf92641, 0x0a2f9d4c510, 0x0a3e7179681,
    0x0a4d3c25e69, 0x0a5bfd5df25, 0x0a6ab52d99e, 0x0a7963a0d50, 0x0a8808c3845, 0x0a96a4a1724,
    0x0aa5374652a, 0x0ab3c0bdc36, 0x0ac241134c5, 0x0ad0b8525fc, 0x0adf26865a9, 0x0aed8bba842,
    0x0afbe7fa0f0, 0x0b0a3b5018e, 0x0b1885c7aaa, 0x0b26c76bb8d, 0x0b35004723c, 0x0b433064b7b,
    0x0b5157cf2d0, 0x0b5f7691286, 0x0b6d8cb53b1, 0x0b7b9a45e2e, 0x0b899f4d8ab, 0x0b979bd68a6,
    0x0ba58feb270, 0x0bb37b95932, 0x0bc15edfeed, 0x0bcf39d4480, 0x0bdd0c7c9a8, 0x0bead6e2d04,
    0x0bf89910c16, 0x0c06531034a, 0x0c1404eadf4, 0x0c21aeaa652, 0x0c2f5058594, 0x0c3ce9fe3da,
    0x0c4a7ba5837, 0x0c5805578b7, 0x0c65871da5a, 0x0c73010111f, 0x0c80730b000, 0x0c8ddd448f9,
    0x0c9b3fb6d05, 0x0ca89a6ac27, 0x0cb5ed69566, 0x0cc338bb6d2, 0x0cd07c69d87, 0x0cddb87d5ae,
    0x0ceaecfea81, 0x0cf819f6647, 0x0d053f6d261, 0x0d125d6b740, 0x0d1f73f9c71, 0x0d2c8320899,
    0x0d398ae8179, 0x0d468b58bf1, 0x0d53847ac01, 0x0d6076564c9, 0x0d6d60f388e, 0x0d7a445a8bd,
    0x0d8720935e6, 0x0d93f5a5fc8, 0x0da0c39a548, 0x0dad8a7847d, 0x0dba4a47aaa, 0x0dc70310444,
    0x0dd3b4d9cf2, 0x0de05fabf92, 0x0ded038e634, 0x0df9a088a23, 0x0e0636a23e3, 0x0e12c5e2b32,
    0x0e1f4e5170d, 0x0e2bcff5dae, 0x0e384ad748f, 0x0e44befd06e, 0x0e512c6e54a, 0x0e5d9332668,
    0x0e69f350654, 0x0e764ccf6e3, 0x0e829fb6930, 0x0e8eec0cda6, 0x0e9b31d93fa, 0x0ea77122b2e,
    0x0eb3a9f0197, 0x0ebfdc484d9, 0x0ecc08321eb, 0x0ed82db4518, 0x0ee44cd5a00, 0x0ef0659cb9a,
    0x0efc7810435, 0x0f088436d7c, 0x0f148a17070, 0x0f2089b7573, 0x0f2c831e441, 0x0f3876523f8,
    0x0f446359b13, 0x0f504a3af72, 0x0f5c2afc654, 0x0f6805a445f, 0x0f73da38d9d, 0x0f7fa8c057f,
    0x0f8b7140edc, 0x0f9733c0bf6, 0x0fa2f045e78, 0x0faea6d677a, 0x0fba577877d, 0x0fc60231e74,
    0x0fd1a708bbe, 0x0fdd4602e2a, 0x0fe8df263f9, 0x0ff47278adf, 0x10000000000,
};

void order_seed(struct order_seed *s, const uint8_t root[SHA256_SIZE],
                const uint8_t id[SHA256_SIZE])
{
    static const char tag[] = "shoal order 1\n";
    uint8_t d[SHA256_SIZE];
    struct sha256 h;
    sha256_init(&h);
    sha256_add(&h, tag, sizeof tag - 1);
    sha256_add(&h, root, SHA256_SIZE);
    sha256_add(&h, id, SHA256_SIZE);
    sha256_done(&h, d);
    s->a = num_get_le64(d);
    s->b = num_get_le64(d + 8);
}

uint64_t order_score(const uint8_t root[SHA256_SIZE], struct object_key k,
                     const uint8_t id[SHA256_SIZE])
{
    struct order_seed s;
    order_seed(&s, root, id);
    return order_score_of(&s, k);
}

bool order_before(uint64_t a, const uint8_t id_a[SHA256_SIZE], uint64_t b,
                  const uint8_t id_b[SHA256_SIZE])
{
    return a != b ? a > b : memcmp(id_a, id_b, SHA256_SIZE) < 0;
}

/* -log2((score + 1) / 2^64) * 2^FRAC: 0 for the highest score, 64 * 2^FRAC for score 0. */
static uint64_t neg_log2(uint64_t score)
{
    if (score == UINT64_MAX) {
        return 0;
    }
    uint64_t u = score + 1;
    unsigned top = 63 - (unsigned)__builtin_clzll(u);
    uint64_t m = u << (63 - top) << 1; /* what follows the leading one, as a fraction of 2^64 */
    unsigned i = (unsigned)(m >> 56);
    uint64_t part = (m >> 36) & 0xfffff;               /* the next 20 bits */
    uint64_t step = log2_table[i + 1] - log2_table[i]; /* below 2^33 */
    uint64_t log = ((uint64_t)top << FRAC) + log2_table[i] + (step * part >> 20);
    return ((uint64_t)64 << FRAC) - log;
}

/* Somewhat less than log2(e) * 2^FRAC * 2^16, for that is what an order_cost of weight 1 counts in.
 * The table's lines lie below the logarithm; it is rounded, which is at most a unit, and so is the
 * cost. */
#define BOUND 103950000000000000u

void order_bound(struct order_bound *b, uint64_t weight)
{
    weight = weight < WEIGHT_MAX ? weight : WEIGHT_MAX;
    b->by = weight ? BOUND / weight : 0;
    b->less = weight ? (2u << 16) / weight + 2 : 0;
}

uint64_t order_cost(uint64_t score, uint64_t weight)
{
    if (weight == 0) {
        return UINT64_MAX;
    }
    /* At most 64 * 2^40 * 2^16 = 2^62; with the largest weight 2^-25 of the logarithm's unit is
     * left. */
    return (neg_log2(score) << 16) / (weight < WEIGHT_MAX ? weight : WEIGHT_MAX);
}
