/* SPDX-License-Identifier: MIT
 * signed_url.h: private to node/store: how long a signed address says that it works. A pure
 * function of its text. */
#ifndef SHOAL_STORE_SIGNED_URL_H
#define SHOAL_STORE_SIGNED_URL_H

#include <stdint.h>

/* Seconds since 1970 at which it stops working, the earliest of those that its query names:
 * X-Amz-Date with X-Amz-Expires (and the same of other services: X-Goog-, X-Oss-, ...), Expires,
 * exp, expires_at, e and the like as seconds or milliseconds since 1970, se as a date, and such
 * fields inside of a token (hdnts=st=1~exp=2~...). 0: it does not say. */
int64_t signed_url_expires(const char *url);

#endif
