// A chart of word counts: how often the word of each rank occurs.

#ifndef ZIPF_H
#define ZIPF_H

#include "words.h"

#include <stdint.h>
#include <stdio.h>

// Draws the words, which are sorted by count, as SVG. At least one word is there.
void zipf_write(FILE *file, const char *title, const Words *words, uint64_t total);

#endif
