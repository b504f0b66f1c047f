/* SPDX-License-Identifier: MIT
** attention.h -- the blocks in which attention is computed: they decide the order of additions, on every device (C10).
*/
#ifndef PLN_OPS_ATTENTION_H
#define PLN_OPS_ATTENTION_H

#define PLN_ATTENTION_ROWS 32
#define PLN_ATTENTION_KEYS 64

#endif
