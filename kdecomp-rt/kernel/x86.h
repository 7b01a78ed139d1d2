/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#ifndef KSHRINK_X86_H
#define KSHRINK_X86_H

#include <linux/types.h>

/* Makes a page of the linear mapping read-only if kernel text is. Returns whether it is read-only now. May sleep. */
bool kshrink_write_protect(unsigned long page);

#endif
