// A task's share of the book: the first line of its results.

#include "share.h"

#include "words.h"

#include <ctype.h>
#include <inttypes.h>
#include <string.h>

void share_write(const Share *share, FILE *file)
{
    fprintf(file,
            "# task %d of %d: bytes %" PRIu64 " to %" PRIu64 " of %" PRIu64 ", %" PRIu64 " words, %d different\n",
            share->task, share->tasks, share->from, share->to, share->size, share->words, share->distinct);
}

// Takes a text that must come next.
static int take(const char **at, const char *text)
{
    size_t length = strlen(text);
    if (strncmp(*at, text, length) != 0)
        return 0;
    *at += length;
    return 1;
}

// Takes a whole number up to most.
static int take_number(const char **at, uint64_t most, uint64_t *value)
{
    if (!isdigit((unsigned char)**at))
        return 0;
    for (*value = 0; isdigit((unsigned char)**at); (*at)++) {
        *value = *value * 10 + (uint64_t)(**at - '0'); // cannot overflow: most is far below 2^60
        if (*value > most)
            return 0;
    }
    return 1;
}

int share_read(Share *share, const char *line)
{
    uint64_t task, tasks, distinct;
    if (!take(&line, "# task ") || !take_number(&line, TASKS_MAX, &task) || !take(&line, " of ") ||
        !take_number(&line, TASKS_MAX, &tasks) || !take(&line, ": bytes ") ||
        !take_number(&line, BOOK_BYTES_MAX, &share->from) || !take(&line, " to ") ||
        !take_number(&line, BOOK_BYTES_MAX, &share->to) || !take(&line, " of ") ||
        !take_number(&line, BOOK_BYTES_MAX, &share->size) || !take(&line, ", ") ||
        !take_number(&line, BOOK_BYTES_MAX, &share->words) || !take(&line, " words, ") ||
        !take_number(&line, DISTINCT_MAX, &distinct) || !take(&line, " different\n") || *line != '\0')
        return 0;
    share->task = (int)task;
    share->tasks = (int)tasks;
    share->distinct = (int)distinct;
    return task < tasks && share->from <= share->to && share->to <= share->size && distinct <= share->words &&
           share->words <= share->to - share->from;
}
