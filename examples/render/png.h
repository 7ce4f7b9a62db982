// A writer of PNG pictures.

#ifndef PNG_H
#define PNG_H

#include <stdio.h>

// Writes height x width x 3 bytes as an 8 bit RGB PNG. Returns NULL, or what went wrong.
const char *png_write(FILE *file, int width, int height, const unsigned char *rgb);

#endif
