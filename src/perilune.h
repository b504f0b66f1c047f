/* SPDX-License-Identifier: MIT
** perilune.h -- the core as the Lua module sees it.
*/
#ifndef PERILUNE_H
#define PERILUNE_H

#include "alloc.h"
#include "engine.h"
#include "fault.h"
#include "interrupt.h"
#include "op.h"
#include "place.h"
#include "status.h"

#endif
