// A task's share of the book: the first line of its results.

#ifndef SHARE_H
#define SHARE_H

#include <stdint.h>
#include <stdio.h>

enum { TASKS_MAX = 65536 }; // more than a job can have

static const uint64_t BOOK_BYTES_MAX = (uint64_t)1 << 40;

typedef struct {
    int task, tasks;
    uint64_t from, to, size; // bytes of the book: the share's first, the one behind its last, all
    uint64_t words;          // in the share
    int distinct;            // different ones
} Share;

void share_write(const Share *share, FILE *file);

// Reads what share_write writes; returns 0 where the line is not that or contradicts itself.
int share_read(Share *share, const char *line);

#endif
